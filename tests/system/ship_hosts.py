"""A host for the tests of `ship`: a real sshd in a Debian root of its own, with the real podman, skopeo and rsync.

podman's storage there is vfs, because its overlay does not lie on the overlay that the root is made of, and its
containers have no network and no control groups of their own. /sys is this machine's, with control groups of version 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.schemas import fits
from tests.system.clean_root import closure, essential, make_root
from tests.system.fleet_hosts import Host, Room, _children

ROOT = Path(__file__).parents[2]
FIRSTLIGHT = Path(sys.executable).parent / "firstlight"
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/ship-1.json").read_text())
PACKAGES = ("openssh-server", "rsync", "skopeo", "podman")
FOLDER = "root/.cache/firstlight/ship"
_STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{graph}"\nrunroot = "{run}"\n'
_PROGRAM = '#include <stdio.h>\nint main(int n, char **v) {{ printf("stand-in: %s\\n", v[1]); return {code}; }}\n'


def make_ship_base(base: Path) -> None:
    """The layer under every host: Debian with sshd, rsync, skopeo and podman."""
    make_root(base, tuple(sorted({*essential(), *closure(PACKAGES)})))
    for folder in ("run/sshd", "var/tmp", "small"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    settings = base / "etc/containers"
    settings.mkdir(parents=True, exist_ok=True)
    graph, run = "/var/lib/containers/storage", "/run/containers/storage"
    (settings / "storage.conf").write_text(_STORAGE.format(graph=graph, run=run))
    (settings / "containers.conf").write_text('[containers]\nnetns = "none"\ncgroups = "disabled"\n')


def without(room: Room, name: str, *programs: str) -> None:
    """Let programs of the common layer be gone on a host, as overlayfs writes it."""
    folder = room.folder / name / "upper/usr/bin"
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        os.mknod(folder / program, 0o000, os.makedev(0, 0))


def start(room: Room, name: str) -> Host:
    """Its sshd, with /sys of this machine and a disk of 2 MB at /small."""
    host = room.start(name)
    [init] = _children(host.daemon.pid)
    root = room.folder / name / "root"
    script = (
        'mount --rbind /sys "$1/sys" && mount -t cgroup2 none "$1/sys/fs/cgroup"; '
        'mount -t tmpfs -o size=2m small "$1/small"'
    )
    inside = ["nsenter", "-t", str(init), "-m", "sh", "-c", script, "sh", str(root)]
    subprocess.run(inside, check=True, capture_output=True)
    return host


@dataclass(frozen=True)
class Dock:
    """The images here, in a store of their own, and the hosts that they go to."""

    room: Room
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "FIRSTLIGHT_CACHE_DIR": str(self.folder / "cache"),
        }

    def make_store(self) -> None:
        text = _STORAGE.format(graph=self.folder / "store", run=self.folder / "run")
        (self.folder / "storage.conf").write_text(text)

    def build(self, name: str, files: dict[str, Path], *, base: str = "scratch") -> None:
        """One layer over the base, with these files."""
        container = self._buildah("from", base)
        for where, path in files.items():
            self._buildah("copy", "--quiet", container, str(path), where)
        self._buildah("config", "--label", f"name={name}", container)
        self._buildah("commit", "--quiet", "--rm", container, f"localhost/{name}")

    def program(self, name: str, code: int) -> Path:
        """A stand-in for firstlight that needs no library: says what it was called with, and ends with a code."""
        source, path = self.folder / f"{name}.c", self.folder / name
        source.write_text(_PROGRAM.format(code=code))
        subprocess.run(["gcc", "-static", "-o", str(path), str(source)], check=True)
        return path

    def argv(self, image: str, host: str, *more: str) -> list[str]:
        config = str(self.room.config)
        return [str(FIRSTLIGHT), "ship", image, "--host", host, "--ssh-config", config, "--json", *more]

    def ship(self, image: str, host: str, *more: str, **environ: str) -> tuple[int, Any, str]:
        """The exit code, the document (None where it is none) and what was said on stderr."""
        done = subprocess.run(
            self.argv(image, host, *more), capture_output=True, text=True, check=False, timeout=60,
            env=self.environ | environ,
        )  # fmt: skip
        document = json.loads(done.stdout) if done.stdout.startswith("{") else None
        if document is not None:
            fits(document, SCHEMA)
            assert document["exit_code"] == done.returncode
        return done.returncode, document, done.stdout + done.stderr

    def there(self, host: str, command: str) -> str:
        """What a command says on a host."""
        argv = ["ssh", "-F", str(self.room.config), host, command]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout

    def _buildah(self, *argv: str) -> str:
        done = subprocess.run(["buildah", *argv], capture_output=True, text=True, check=False, env=self.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
