"""Hosts for the tests of `fleet doctor`: real sshds, each in a Debian root of its own that pretends a GPU machine.

The roots share one lower layer (overlayfs); a host is the few files above it. /sys is a plain folder there, nvidia-smi,
libcuda and torch are stand-ins. Each host has process numbers of its own, so that what is left on it can be counted,
and an address and a network of its own where it is told to.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.apply.stand_ins import build_libcuda, fake_torch
from tests.system.clean_root import closure, essential, make_root

PACKAGES = ("openssh-server", "python3")
HERE = "127.0.0.1"
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
    address: str = HERE

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
        network: int = 0,
    ) -> Host:
        """Start the sshd of a host whose files are there, and make it known; `rules[n]` is of its n-th port alone.

        With a `network` from 1 on it has a network namespace of its own, at 10.29.NETWORK.2.
        """
        folder = self.folder / name
        for part in ("work", "root", "upper/etc/ssh/of-tests"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        numbers = tuple(free_port() for _ in range(ports))
        keys = folder / "upper/etc/ssh/of-tests"
        shutil.copy(self.key(f"{name}.key"), keys / "host")
        shutil.copy(f"{self.key('login')}.pub", keys / "authorized_keys")
        listens = "0.0.0.0" if network else HERE
        (keys / "sshd_config").write_text(_sshd_config(numbers, rules, listens))
        apart = ("--net",) if network else ()
        daemon = subprocess.Popen(
            ["unshare", *apart, "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c",
             _START.format(devices=devices),
             "sh", str(self.base), str(folder)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        address = _connected(daemon.pid, network) if network else HERE
        shown = Path(f"{self.key(known_key or f'{name}.key')}.pub").read_text().split()[:2]
        for number in numbers:
            self.know(name if ports == 1 else f"{name}{numbers.index(number) + 1}", number, " ".join(shown), address)
            assert answers(number, address), name
        return Host(name, folder, numbers, daemon, address)

    def know(self, name: str, port: int, key: str, address: str = HERE) -> None:
        with open(self.folder / "known_hosts", "a") as known:
            known.write(f"[{address}]:{port} {key}\n")
        with open(self.config, "a") as config:
            config.write(
                f"Host {name}\n    HostName {address}\n    Port {port}\n    User root\n"
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


def real_python(minor: str) -> Path | None:
    """The folder of another Python on this machine, e.g. of 3.9, beside the one that runs; None where there is none."""
    beside = Path(sys.base_prefix).parent
    return next((path for path in sorted(beside.glob(f"{minor}.*")) if (path / f"bin/python{minor}").exists()), None)


def _connected(pid: int, network: int) -> str:
    """Lay a cable between this machine and a host's network namespace; its address there."""
    name, ours, theirs = f"flt{os.getpid() % 9999}x{network}", f"10.29.{network}.1/30", f"10.29.{network}.2"
    for _ in range(200):
        if children := _children(pid):
            break
        time.sleep(0.05)
    inside = ["nsenter", "-t", str(children[0]), "-n", "ip"]
    for argv in (
        ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(children[0])],
        ["ip", "addr", "add", ours, "dev", name],
        ["ip", "link", "set", name, "up"],
        [*inside, "addr", "add", f"{theirs}/30", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "link", "set", "lo", "up"],
    ):
        subprocess.run(argv, check=True, capture_output=True)
    return theirs


def answers(port: int, address: str = HERE) -> bool:
    for _ in range(200):
        try:
            socket.create_connection((address, port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def _sshd_config(ports: tuple[int, ...], rules: tuple[str, ...], listens: str) -> str:
    text = "".join(f"Port {port}\n" for port in ports) + (
        f"ListenAddress {listens}\nHostKey /etc/ssh/of-tests/host\nUsePAM no\nStrictModes no\nPidFile none\n"
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
