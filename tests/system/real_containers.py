"""Containers of this distribution's own engines, started for real around a bare root; nothing is left on the machine.

Every engine runs in a mount namespace of its own. Where the kernel mounts control groups of both kinds, crun refuses:
there version 2 is mounted over them, inside that namespace alone.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

USER = 4242
_LIMIT_S = 60
_SETUP = """
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup || exit 91
mount --make-rshared / || exit 92
for file in passwd subuid subgid; do
    [ ! -e "$1/$file" ] || mount --bind "$1/$file" "/etc/$file" || exit 93
done
shift
exec "$@"
"""
_STEPS = {91: "mount cgroup2", 92: "share the mounts", 93: "bind the list of users"}


class NotStarted(Exception):
    """The engine did not start a container here: which step failed, and what it said."""


def podman(work: Path, root: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A program in a container of root's podman."""
    return _alone(work / "none", (*_podman(work), *_run(root), *argv))


def rootless_podman(work: Path, root: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The same as a plain user, who exists in that namespace alone."""
    users = work / "lists"
    users.mkdir(exist_ok=True)
    (users / "passwd").write_text(Path("/etc/passwd").read_text() + f"boxer:x:{USER}:{USER}::{work}/home:/bin/sh\n")
    for name in ("subuid", "subgid"):
        (users / name).write_text("boxer:200000:65536\n")
    for folder in ("home", "runtime"):
        (work / folder).mkdir(exist_ok=True)
        os.chown(work / folder, USER, USER)
    as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-C", "/",
               f"HOME={work}/home", f"XDG_RUNTIME_DIR={work}/runtime", "PATH=/usr/bin:/bin")  # fmt: skip
    try:
        return _alone(users, (*as_user, *_podman(work / "home"), *_run(root), *argv))
    finally:
        _end_pause(work)


def lxc(work: Path, root: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A program as pid 1 of an LXC container; its output goes through a file, because LXC gives it a console."""
    box = work / "lxc" / "box"
    box.mkdir(parents=True, exist_ok=True)
    lines = (f"lxc.rootfs.path = dir:{root}", "lxc.uts.name = box", "lxc.mount.auto = proc:mixed sys:ro",
             "lxc.autodev = 1", "lxc.net.0.type = none")  # fmt: skip
    (box / "config").write_text("".join(f"{line}\n" for line in lines))
    (root / "tmp/out").write_text("")
    code = "import os, sys; os.dup2(os.open('/tmp/out', os.O_WRONLY), 1); os.execv(sys.argv[1], sys.argv[1:])"
    inner = (argv[0], "-I", "-S", "-c", code, *argv)
    done = _run_bounded(("lxc-start", "-P", str(box.parent), "-n", "box", "-F", "--", *inner))
    return subprocess.CompletedProcess(done.args, done.returncode, (root / "tmp/out").read_text(), done.stderr)


def nspawn(work: Path, root: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A program in a container of systemd-nspawn, without systemd on this machine."""
    return _run_bounded(("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "-D", str(root), *argv))


def chroot(work: Path, root: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A program in another root with /proc in it, as a rescue system does it."""
    line = 'mount -t proc proc "$1/proc" && exec chroot "$@"'
    return _run_bounded(("unshare", "-m", "sh", "-c", line, "sh", str(root), *argv))


def _podman(folder: Path) -> tuple[str, ...]:
    store = folder / "store"
    return ("podman", f"--root={store}/root", f"--runroot={store}/run", f"--tmpdir={store}/tmp",
            "--storage-driver=vfs", "--cgroup-manager=cgroupfs")  # fmt: skip


def _run(root: Path) -> tuple[str, ...]:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # podman asks for more open files and processes than it may where root lacks CAP_SYS_RESOURCE.
    limits = (f"--ulimit=nofile={most}:{most}", "--ulimit=nproc=1000:1000")
    return ("run", "--rm", *limits, "--cgroups=disabled", "--network=none", "--rootfs", str(root))


def _alone(users: Path, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    done = _run_bounded(("unshare", "-m", "sh", "-c", _SETUP, "sh", str(users), *argv))
    if done.returncode in _STEPS:
        raise NotStarted(f"{_STEPS[done.returncode]}: {done.stderr.strip()}")
    return done


def _run_bounded(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    if shutil.which(argv[0]) is None:
        raise NotStarted(f"{argv[0]} is not installed")
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise NotStarted(f"{argv[0]} did not end within {_LIMIT_S} s") from None


def _end_pause(work: Path) -> None:
    """The process that keeps the user's namespace: podman leaves it running for its next call."""
    for file in (*work.glob("home/store/tmp/pause.pid"), *work.glob("runtime/libpod/tmp/pause.pid")):
        process = int(file.read_text().strip() or 0)
        if process > 1 and "podman" in Path(f"/proc/{process}/cmdline").read_text():
            os.kill(process, signal.SIGKILL)
