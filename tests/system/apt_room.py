"""A room for apt: a child process whose dpkg and apt start from nothing, on mounts that nobody else sees."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.apply.debs import Repository

HOME = Path("/srv")  # empty on every Debian, and covered by a file system in memory here
FILES = HOME / "files"
_CLONE_NEWNS = 0x20000
# A package's script that dies with dpkg and apt, as kill -9 of both would have it, when it is told to.
_KILLS = """#!/bin/sh
[ -e {sign} ] || exit 0
rm {sign}
read -r _ _ _ apt _ < /proc/$PPID/stat
case "$(cat /proc/$apt/comm)" in apt*) ;; *) apt='' ;; esac
kill -9 $PPID $apt
"""
_NONE: Mapping[str, str] = {}
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def in_a_room(work: Callable[[], None]) -> None:
    """Run `work` in a forked process with a dpkg and an apt of its own; what it raises is raised here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            furnish()
            work()
            status = 0
        except BaseException:  # noqa: BLE001 the parent raises it again
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, said


def furnish() -> None:
    """Give this process mounts of its own: an empty dpkg, an empty apt, and a place for files."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "room", str(HOME))
    for each in ("dpkg/info", "dpkg/updates", "dpkg/triggers", "state/lists/partial", "cache/archives/partial"):
        (HOME / "apt-room" / each).mkdir(parents=True)
    for each in ("status", "available"):
        (HOME / "apt-room/dpkg" / each).touch()
    (HOME / "apt-room/dpkg/info/format").write_text("1\n")
    for folder, name in (("dpkg", "/var/lib/dpkg"), ("state", "/var/lib/apt"), ("cache", "/var/cache/apt")):
        _run("mount", "--bind", str(HOME / "apt-room" / folder), name)
    FILES.mkdir()
    (HOME / "kill").mkdir()


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def add_package(
    repository: Repository, name: str, version: str = "1.0", *, depends: str = "", more: Mapping[str, str] = _NONE
) -> None:
    """A package with two files, a setting and a script at every turn, each of which can be told to kill."""
    control = repository.folder / f"{name}_{version}/DEBIAN"
    control.mkdir(parents=True)
    for script in SCRIPTS:
        (control / script).write_text(_KILLS.format(sign=sign(name, script)))
        (control / script).chmod(0o755)
    setting = f"{FILES}/etc/{name}.conf"
    (control / "conffiles").write_text(f"{setting}\n")
    files = {
        f"{FILES}/{name}/one": f"{name} {version}\n",
        f"{FILES}/{name}/two": "two\n" * 50_000,
        setting: "on\n",
        **more,
    }
    repository.add(name, version, files=files, depends=depends)


def sign(name: str, script: str) -> Path:
    """The file that tells a script of a package to kill."""
    return HOME / "kill" / f"{name}-{script}"


def states() -> str:
    """What dpkg says of every package, with apt's marks."""
    form = "${db:Status-Want} ${db:Status-Eflag} ${db:Status-Status} ${Package} ${Version}\n"
    known = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=False).stdout
    manual = subprocess.run(["apt-mark", "showmanual"], capture_output=True, text=True, check=True).stdout
    updates = [name for name in os.listdir("/var/lib/dpkg/updates") if name.isdigit()]
    return f"{known}manual: {' '.join(manual.split())}\nnotes: {updates}\n"
