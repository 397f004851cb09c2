"""What the hosts of a fleet install from: a signed apt repository and an index of wheels, both on this machine.

The hosts are roots with an old driver, an environment without torch, and real apt, dpkg and pip; what is wanted of them
needs both. The names of the index are the real ones, behind a proxy that answers for them; packages are stand-ins.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.apply.debs import Repository
from tests.apply.index import Index, serving
from tests.apply.stand_ins import build_libcuda
from tests.apply.wheels import make_wheel
from tests.system.clean_root import chroot, closure, essential, make_root
from tests.system.fleet_hosts import WITH_A_GPU, Room, pretend, python_of
from tests.system.fleet_lab import Lab

PACKAGES = ("openssh-server", "python3", "python3-venv", "ca-certificates")
WANTS = (
    "--want", "torch==2.9.0+cu130", "--option", "forward-compat:cuda-compat-13-0", "--python", "/opt/train/bin/python",
    "--no-verify",
)  # fmt: skip
COMPAT = "cuda-compat-13-0"
_TRUSTED = "/etc/ssl/of-tests.pem"


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def stores(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[Lab, Index]]:
    """The hosts with both stores at work; everything is gone afterwards."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200g", "fleet", str(folder)], check=True)
    lab = Lab(Room(folder), {}, folder / "state")
    make_root(lab.room.base, tuple(sorted({*essential(), *closure(PACKAGES)})))
    (lab.room.base / "run/sshd").mkdir(parents=True, exist_ok=True)
    (folder / "index").mkdir()
    make_wheel(folder / "wheels", "torch", "2.9.0+cu130", size=1 << 20)
    try:
        with serving(folder / "wheels", folder / "index") as index, _apt(folder, lab.room.base):
            shutil.copy(index.authority, lab.room.base / _TRUSTED.lstrip("/"))
            made = chroot(lab.room.base, "python3", "-m", "venv", "/opt/train")
            assert made.returncode == 0, made.stderr
            for name in names:
                _start(lab, name, index)
            yield lab, index
    finally:
        for host in lab.hosts.values():
            host.stop()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _start(lab: Lab, name: str, index: Index) -> None:
    upper = lab.room.folder / name / "upper"
    pretend(upper, driver="570.133.20", python=python_of(lab.room.base), cuda=12080)
    shutil.rmtree(upper / "usr/local/lib")  # its torch: the environment in /opt is the one that is meant
    (upper / "sys/module/nvidia_uvm").mkdir()
    proxy = f"http://127.0.0.1:{index.port}"
    environment = f"SetEnv https_proxy={proxy} SSL_CERT_FILE={_TRUSTED} PIP_CERT={_TRUSTED}"
    lab.hosts[name] = lab.room.start(name, devices=WITH_A_GPU, rules=(environment,))


@contextmanager
def _apt(folder: Path, root: Path) -> Iterator[None]:
    repository = Repository(folder / "apt")
    build_libcuda(folder / f"apt/{COMPAT}_580.95.05/usr/local/cuda-13.0/compat", version="580.95.05", cuda=13000)
    repository.add(COMPAT, "580.95.05", files={"/usr/local/cuda-13.0/compat/README": "stand-in\n"})
    repository.add("cuda-keyring", "1.1", files={"/usr/share/keyrings/README": "stand-in\n"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(repository.packages)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.copy(folder / "apt/key.gpg", root / "etc/apt/key.gpg")
    line = f"deb [signed-by=/etc/apt/key.gpg] http://127.0.0.1:{server.server_address[1]} ./\n"
    (root / "etc/apt/sources.list").write_text(line)
    (root / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    for words in (("update",), ("install", "--yes", "cuda-keyring")):  # the repository is known there, as in an image
        done = chroot(root, "apt-get", *words)
        assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
