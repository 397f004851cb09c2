"""What dpkg says of every package: there, gone, or left half-way by an apt that was killed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from firstlight.apply.conditions import run
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass

ADMIN = "/var/lib/dpkg"
# apt holds the first from beginning to end, dpkg the second while it works; a dpkg whose apt was killed holds it still.
LOCKS = (f"{ADMIN}/lock-frontend", f"{ADMIN}/lock")
WAIT_LIMIT_S, WAIT_PAUSE_S = 1800.0, 0.2
INSTALLED, CONFIG_FILES, NOT_INSTALLED, HALF_INSTALLED = "installed", "config-files", "not-installed", "half-installed"
_ASKED = "${db:Status-Want} ${db:Status-Eflag} ${db:Status-Status} ${Version} ${binary:Package}\n"


@dataclass(frozen=True, slots=True)
class Package:
    """One package as dpkg has it, e.g. cuda-compat-13-0 1.0, half-configured, to be installed."""

    name: str
    version: str
    state: str  # installed, config-files, half-installed, unpacked, half-configured, triggers-pending, ...
    wanted: str  # install, hold, deinstall, purge
    torn: bool  # its files were being put in place: only another unpacking mends it

    @property
    def is_half_done(self) -> bool:
        return self.state not in (INSTALLED, CONFIG_FILES, NOT_INSTALLED)

    @property
    def is_being_removed(self) -> bool:
        return self.is_half_done and self.wanted in ("deinstall", "purge")


def known_packages() -> tuple[Package, ...]:
    """Every package that dpkg knows anything of; raises where dpkg gives no answer."""
    lines = answer(("dpkg-query", "-W", "-f", _ASKED), "list the packages").splitlines()
    return tuple(_package(line) for line in lines if line.strip())


def answer(argv: tuple[str, ...], what: str) -> str:
    """What a question printed; no answer is never an empty one."""
    done = run(argv)
    if done.returncode != 0 and not (done.returncode == 1 and "no packages found" in done.stderr):
        said = done.stderr.strip().rpartition("\n")[2][:200] or "it printed nothing"
        raise CouldNotAct(
            f"{argv[0]} could not {what}: it ended with {done.returncode} ({said}). "
            f"Fix that and run the same command again."
        )
    return done.stdout


def _package(line: str) -> Package:
    # the version is empty while a package is unpacked for the first time
    wanted, flag, state, version, name = line.split(" ")
    return Package(name, version, state, wanted, torn=flag == "reinstreq" or state == HALF_INSTALLED)


def half_done() -> tuple[Package, ...]:
    """The packages that an interrupted dpkg left between two states."""
    return tuple(package for package in known_packages() if package.is_half_done)


def has_unmerged_notes() -> bool:
    """Whether dpkg was stopped before it wrote its notes together: apt refuses everything then."""
    try:
        return any(re.fullmatch(r"\d+", name) for name in os.listdir(f"{ADMIN}/updates"))
    except FileNotFoundError:
        return False  # this dpkg has nothing under way
    except OSError as error:
        raise CouldNotAct(f"{ADMIN}/updates could not be read: {error.strerror}. Run as root (sudo).") from error


def wait_until_free(say: Callable[[str], None]) -> None:
    """Wait while another apt or dpkg is at work: what it has half done is its own business."""
    begun, told = time.monotonic(), False
    while (holder := _holder()) and time.monotonic() - begun < WAIT_LIMIT_S:
        if not told:
            say(f"waiting for another package manager: process {holder} holds dpkg's lock")
            told = True
        time.sleep(WAIT_PAUSE_S)


def _holder() -> int:
    """The process that has one of dpkg's locks; 0 where none has, or where the kernel does not tell.

    Read, not tried: opening and closing a locked file would give up a lock of our own. The commands wait too.
    """
    places = {place for path in LOCKS if (place := _place(path))}
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            held = [line.split() for line in file]
    except OSError:
        return 0
    # 1: POSIX ADVISORY WRITE 4242 fe:00:131 0 EOF; one who waits has an arrow behind the number
    return next((int(words[4]) for words in held if len(words) > 5 and words[1] != "->" and words[5] in places), 0)


def _place(path: str) -> str:
    """Device and inode as /proc/locks writes them; "" where there is no such file."""
    try:
        about = os.stat(path)
    except OSError:
        return ""
    return f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
