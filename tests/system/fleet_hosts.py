"""Hosts for the tests of `fleet doctor`: real sshds, each in a Debian root of its own that pretends a GPU machine.

The roots share one lower layer (overlayfs); a host is the few files above it. /sys is a plain folder there, nvidia-smi,
libcuda and torch are stand-ins. Each host has process numbers of its own, so that what is left on it can be counted.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.apply.stand_ins import build_libcuda, fake_torch
from tests.system.clean_root import closure, essential, make_root

PACKAGES = ("openssh-server", "python3")
_GPU = "0, NVIDIA H200, 9.0, 143771, {driver}, GPU-0, 00000000:18:00.0, Disabled, Enabled, 700, 1980, 1980, Enabled"
_START = (
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root" && '
    'mount -t proc proc "$2/root/proc" && {devices} && exec chroot "$2/root" '
    "/usr/sbin/sshd -D -e -f /etc/ssh/of-tests/sshd_config"
)
OF_THIS_MACHINE = 'mount --rbind /dev "$2/root/dev"'
WITH_A_GPU = (
    'cd "$2/root/dev" && mount -t tmpfs t . && cd "$2/root/dev" && mkdir shm && ln -s /proc/self/fd fd && '
    "for each in null zero full random urandom tty; do touch $each && mount --bind /dev/$each $each; done && "
    "mknod nvidiactl c 195 255 && mknod nvidia0 c 195 0 && mknod nvidia-uvm c 510 0 && cd /"
)


def make_base(base: Path) -> None:
    """The layer under every host: Debian with sshd and Python."""
    make_root(base, tuple(sorted({*essential(), *closure(PACKAGES)})))
    (base / "run/sshd").mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Host:
    """One root with its sshd; `ports` has more than one where each behaves in its own way."""

    name: str
    folder: Path
    ports: tuple[int, ...]
    daemon: subprocess.Popen[bytes]

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Mode, size and time of change of everything that differs from the common layer."""
        found = {}
        for path in sorted(self.upper.rglob("*")):
            seen = path.lstat()
            size = 0 if stat.S_ISDIR(seen.st_mode) else seen.st_size
            found[str(path.relative_to(self.upper))] = (seen.st_mode, size, seen.st_mtime_ns)
        return found

    def processes(self) -> list[str]:
        """The command lines of everything that runs on the host but its sshd."""
        [init] = _children(self.daemon.pid)
        space = os.readlink(f"/proc/{init}/ns/pid")
        return [
            line
            for pid in _numbers()
            if pid != init and _space_of(pid) == space and (line := _command(pid)) and "[listener]" not in line
        ]

    def stop(self) -> None:
        self.daemon.kill()  # unshare ignores SIGTERM; what it started dies with it
        self.daemon.wait()


@dataclass(frozen=True)
class Room:
    """Where hosts are made: the common layer, keys, and the config and known hosts that ssh is given."""

    folder: Path

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    def key(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def start(
        self,
        name: str,
        *,
        ports: int = 1,
        known_key: str = "",
        rules: tuple[str, ...] = (),
        devices: str = OF_THIS_MACHINE,
    ) -> Host:
        """Start the sshd of a host whose files are there, and make it known; `rules[n]` is of its n-th port alone."""
        folder = self.folder / name
        for part in ("work", "root", "upper/etc/ssh/of-tests"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        numbers = tuple(free_port() for _ in range(ports))
        keys = folder / "upper/etc/ssh/of-tests"
        shutil.copy(self.key(f"{name}.key"), keys / "host")
        shutil.copy(f"{self.key('login')}.pub", keys / "authorized_keys")
        (keys / "sshd_config").write_text(_sshd_config(numbers, rules))
        daemon = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c",
             _START.format(devices=devices),
             "sh", str(self.base), str(folder)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        shown = Path(f"{self.key(known_key or f'{name}.key')}.pub").read_text().split()[:2]
        for number in numbers:
            self.know(name if ports == 1 else f"{name}{numbers.index(number) + 1}", number, " ".join(shown))
            assert answers(number), name
        return Host(name, folder, numbers, daemon)

    def know(self, name: str, port: int, key: str) -> None:
        with open(self.folder / "known_hosts", "a") as known:
            known.write(f"[127.0.0.1]:{port} {key}\n")
        with open(self.config, "a") as config:
            config.write(
                f"Host {name}\n    HostName 127.0.0.1\n    Port {port}\n    User root\n"
                f"    IdentityFile {self.key('login')}\n    UserKnownHostsFile {self.folder}/known_hosts\n\n"
            )


def pretend(upper: Path, *, driver: str, python: str, cuda: int = 13000) -> None:
    """The files of a machine with an H200: the driver in /sys, nvidia-smi, libcuda and a torch."""
    (upper / "sys/module/nvidia").mkdir(parents=True)
    (upper / "sys/module/nvidia/version").write_text(f"{driver}\n")
    smi = upper / "usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text(f"#!/bin/sh\necho '{_GPU.format(driver=driver)}'\n")
    smi.chmod(0o755)
    library = upper / "usr/lib/x86_64-linux-gnu"
    build_libcuda(library, version=driver, cuda=cuda)
    (library / "answer").unlink()
    fake_torch(upper / f"usr/local/lib/{python}/dist-packages", version="2.11.0", cuda="13.0")


def python_of(base: Path) -> str:
    """python3.11: the minor version that Debian has."""
    [name] = {path.name for path in (base / "usr/lib").glob("python3.*")}
    return name


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def _sshd_config(ports: tuple[int, ...], rules: tuple[str, ...]) -> str:
    text = "".join(f"Port {port}\n" for port in ports) + (
        "ListenAddress 127.0.0.1\nHostKey /etc/ssh/of-tests/host\nUsePAM no\nStrictModes no\nPidFile none\n"
        "PermitRootLogin prohibit-password\nAuthorizedKeysFile /etc/ssh/of-tests/authorized_keys\nMaxStartups 100\n"
    )
    return text + "".join(
        f"Match LocalPort {port}\n    {rule}\n" for port, rule in zip(ports, rules, strict=False) if rule
    )


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _space_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
