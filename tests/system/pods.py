"""A pod for `firstlight emit bash`: a clean root that can be wiped, a volume that stays, repositories that count."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from firstlight.emit.document import Emitted
from firstlight.emit.kinds import emit
from firstlight.emit.subject import Choices
from tests.apply.debs import Repository
from tests.apply.index import TORCH, Index, serving
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.subjects import subject, with_own_wheel, write
from tests.system.clean_root import add_packages, chroot, closure, essential, make_root
from tests.system.wheels_again import pack_again, with_needs

VOLUME = "/workspace"
_WANTED = ("python3", "python3-venv", "ca-certificates")  # by pod_setup.sh; a compiler comes besides where it is given
NEEDS = (
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("gpg") is None, reason="needs apt and gpg"),
    pytest.mark.skipif(not Path("/usr/share/doc/python3-venv").exists(), reason="needs python3-venv to pack it again"),
)


class Everything(Index):
    """PyTorch's index has torch and also what torch needs, as the real one."""

    def page(self, host: str, path: str) -> tuple[int, str, bytes]:
        status, kind, body = super().page(host, path)
        if host == TORCH and status == 404:
            self.asked.pop()
            status, kind, body = super().page("pypi.org", f"/simple/{path.rstrip('/').rpartition('/')[2]}/")
        return status, kind, body


class Counting(SimpleHTTPRequestHandler):
    """Serves the apt repository and remembers what was asked for."""

    asked: list[str]

    def log_message(self, *words: object) -> None:
        self.asked.append(self.path)


@dataclass
class Pod:
    """A root that can be wiped, a volume that stays, and what was asked of the repositories."""

    pristine: Path
    root: Path
    index: Index
    apt_asked: list[str]
    volume: str

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        proxy = f"http://127.0.0.1:{self.index.port}"
        return chroot(self.root, *argv, https_proxy=proxy, PIP_CERT=f"{self.volume}/authority.pem", SHELL="/bin/bash")

    def set_up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("sh", f"{self.volume}/pod_setup.sh", *arguments)

    def restart(self) -> None:
        """Another root from the same image; the volume is the same."""
        after = self.root.with_name(f"{self.root.name}-again")
        subprocess.run(["cp", "-a", str(self.pristine), str(after)], check=True)
        os.rename(str(self.root) + self.volume, str(after) + self.volume)
        shutil.rmtree(self.root)
        self.root = after

    def load_driver(self, version: str) -> None:
        """The root has no /sys of its own: a file stands for the kernel's."""
        file = self.root / "sys/module/nvidia/version"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{version}\n")

    def everything(self) -> dict[str, tuple[int, int, int]]:
        """Every file and folder with its mode, size and time of change; what is mounted is left out.

        So is /tmp itself, not what is in it: verify works in a folder there and takes it away; and the proof that it
        keeps, each run its own.
        """
        found = {}
        for folder, names, files in os.walk(self.root):
            left_out = (*self._mounted(), f"{self.root}/root/.local/state/firstlight/results")
            names[:] = [name for name in names if os.path.join(folder, name) not in left_out]
            for name in (*names, *files):
                about = os.lstat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (about.st_mode, about.st_size, about.st_mtime_ns)
        del found[f"{self.root}/tmp"]
        return found

    def _mounted(self) -> tuple[str, str]:
        return f"{self.root}/proc", f"{self.root}/dev"


@contextmanager
def pod_in(
    folder: Path, want: str, *, wheels: Path, repository: Repository, more: tuple[str, ...] = (), volume: str = VOLUME
) -> Iterator[Pod]:
    """A pod with pod_setup.sh and firstlight's wheel on its volume, and nothing else but a shell and apt."""
    pristine, root, asked = folder / "pristine", folder / "root", list[str]()
    kept = essential()
    make_root(pristine, kept)
    add_packages(repository, closure((*_WANTED, *more), without=kept))
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, wheels)
    handler = functools.partial(type("Handler", (Counting,), {"asked": asked}), directory=str(repository.packages))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.copy(repository.folder / "key.gpg", pristine / "etc/apt/key.gpg")
    (pristine / "etc/apt/sources.list").write_text(
        f"deb [signed-by=/etc/apt/key.gpg] http://127.0.0.1:{server.server_address[1]} ./\n"
    )
    (folder / "index").mkdir()
    with serving(wheels, folder / "index") as index:
        index.__class__ = Everything
        subprocess.run(["cp", "-a", str(pristine), str(root)], check=True)
        mounted = Path(str(root) + volume)
        mounted.mkdir()
        shutil.copy(index.authority, mounted / "authority.pem")
        write(emitted_for(want, volume), mounted)
        yield Pod(pristine, root, index, asked, volume)
    server.shutdown()
    shutil.rmtree(folder)  # some gigabytes


def emitted_for(want: str, volume: str) -> Emitted:
    """pod_setup.sh for H100s with driver 550 or newer, and firstlight's own wheel."""
    return emit("bash", with_own_wheel(subject("H100, driver >= 550", want, choices=Choices(volume=volume))))
