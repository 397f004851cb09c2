"""A signed apt repository in a folder, with stand-in packages: real dpkg-deb, real gpg, real apt."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path


class Repository:
    """Packages in a folder, an index signed by a key of its own, and an apt.conf that sees nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "repo"
        self.packages.mkdir(parents=True)
        self.home = folder / "gnupg"
        self.home.mkdir(mode=0o700)
        self.config = folder / "apt.conf"
        self._gpg("--quick-generate-key", "tests@example.invalid", "ed25519", "sign", "never")
        self._gpg("--export", "--output", str(folder / "key.gpg"))
        for each in ("lists/partial", "cache/archives/partial"):
            (folder / each).mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb [signed-by={folder}/key.gpg] file:{self.packages} ./\n")
        self.config.write_text(
            f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\nAPT::Sandbox::User "root";\n'
        )

    def _gpg(self, *arguments: str) -> None:
        command = [
            "gpg",
            "--homedir",
            str(self.home),
            "--batch",
            "--yes",
            "--passphrase",
            "",
            "--pinentry-mode",
            "loopback",
        ]
        subprocess.run([*command, *arguments], check=True, capture_output=True)

    def add(self, name: str, version: str, *, files: dict[str, str], depends: str = "", provides: str = "") -> None:
        """Build a package and sign the index anew."""
        tree = self.folder / f"{name}_{version}"
        for path, text in files.items():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        control = tree / "DEBIAN/control"
        control.parent.mkdir(parents=True, exist_ok=True)
        needs = f"Depends: {depends}\n" if depends else ""
        needs += f"Provides: {provides}\n" if provides else ""
        control.write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n{needs}"
            "Maintainer: tests <tests@example.invalid>\nDescription: stand-in for tests\n"
        )
        deb = self.packages / f"{name}_{version}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)], check=True, capture_output=True
        )
        self._index()

    def _index(self) -> None:
        entries = []
        for deb in sorted(self.packages.glob("*.deb")):
            fields = subprocess.run(
                ["dpkg-deb", "--field", str(deb)], check=True, capture_output=True, text=True
            ).stdout
            data = deb.read_bytes()
            entries.append(f"{fields}Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {_sha256(data)}\n")
        index = "\n".join(entries).encode()
        (self.packages / "Packages").write_bytes(index)
        release = (
            "Origin: tests\nSuite: stable\nDate: Sun, 15 Nov 2026 00:00:00 UTC\n"
            f"SHA256:\n {_sha256(index)} {len(index)} Packages\n"
        )
        (self.folder / "Release").write_text(release)
        self._gpg("--clearsign", "--output", str(self.packages / "InRelease"), str(self.folder / "Release"))

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "APT_CONFIG": str(self.config), "DEBIAN_FRONTEND": "noninteractive"}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
