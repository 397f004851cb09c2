"""One firstlight at a time changes a machine: a lock that the kernel gives back when its holder dies.

It lies on a local file system, never in the state folder: that may be a network volume, where locks cannot be trusted.
Every user takes the same lock, so that its file may be another's; then it is locked and nothing is written to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from firstlight.errors import AnotherIsActing, NotBegun, NotOurs
from firstlight.opening import kind_of
from firstlight.owned import name_of

FOLDERS = ("/run/lock", "/var/lock", "/tmp")  # noqa: S108 a lock has to be where every user finds it
NAME = "firstlight.lock"
_HELD = re.compile(r"\d+: FLOCK +\S+ +\S+ +(\d+) +([0-9a-f]+:[0-9a-f]+:\d+) ", re.M)
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would be waited for without the last

_TRIES = 100  # to open what is there or make what is not, while others do the same


@contextmanager
def machine_lock(folders: tuple[str, ...] = FOLDERS) -> Iterator[None]:
    """Hold the machine's lock; AnotherIsActing names the process that has it."""
    descriptor, path = _open(folders)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherIsActing(_who(descriptor, path)) from None
        if os.fstat(descriptor).st_uid in (0, os.geteuid()):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}, user {os.getuid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held_by_starter(folders: tuple[str, ...] = FOLDERS) -> bool:
    """Whether the lock is that of a firstlight which started this process, as a step of its plan."""
    descriptor, _ = _open(folders)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found = os.fstat(descriptor)
            said = os.pread(descriptor, 200, 0).decode(errors="replace") if found.st_uid in (0, os.geteuid()) else ""
            match = re.match(r"process (\d+)", said) or re.match(r"process (\d+)", _holder(found))
            return match is not None and int(match[1]) in _ancestors(os.getpid())
        return False
    finally:
        os.close(descriptor)


def _ancestors(process: int) -> Iterator[int]:
    """The processes that one was started by, the nearest first."""
    while process > 1:
        try:
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield process


def _who(descriptor: int, path: str) -> str:
    """Who holds the lock: what it wrote down, else what the kernel knows; and whose file it is."""
    found = os.fstat(descriptor)
    said = os.pread(descriptor, 200, 0).decode(errors="replace").strip() if found.st_uid in (0, os.geteuid()) else ""
    holder = ascii(said)[1:-1] or _holder(found) or "a process that left no name"
    return (
        f"another firstlight is changing this machine: {holder} ({path}, a file of user {name_of(found.st_uid)}). Wait "
        "until it has ended, then run the same command again. If that process is not firstlight, end it."
    )


def _holder(found: os.stat_result) -> str:
    """The process that the kernel says has the lock, with its user; "" where it does not tell, as in a container."""
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            processes = [number for number, place in _HELD.findall(file.read()) if place == device]
        return next((f"process {each}, user {name_of(os.stat(f'/proc/{each}').st_uid)}" for each in processes), "")
    except OSError:
        return ""


def _open(folders: tuple[str, ...]) -> tuple[int, str]:
    refused = ""
    for folder in folders:
        path = f"{folder}/{NAME}"
        try:
            descriptor = _open_one(path)
        except OSError as error:
            if there := _there(path):  # tried elsewhere, one user would hold one lock and the next another
                raise NotOurs(_refusal(there, path)) from None
            refused = f"{path}: {error.strerror}"
            continue
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return descriptor, path
        os.close(descriptor)
        raise NotOurs(_refusal(found, path))
    raise NotBegun(f"no lock could be taken ({refused}). Make {folders[-1]} writable, then run the same command again.")


def _there(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _refusal(found: os.stat_result, path: str) -> str:
    """What stands in the place of the lock; a file may be held now, and who removes it lets a second one in."""
    if not stat.S_ISREG(found.st_mode):
        what, do = kind_of(found.st_mode), "Look who put it there, and remove it."
    elif found.st_nlink > 1:
        what = "a second name of a file"
        do = f"Remove the other name, not this one: `find {os.path.dirname(path)} -samefile {path}` shows it."
    else:
        what = kind_of(found.st_mode)
        do = f"Do not remove it, a firstlight may hold it. As its owner or root, run `chmod 666 {path}`."
    return (
        f"{path} is {what} (owner {name_of(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}); accepted is a file "
        f"that every user can lock. Nothing was changed. {do}"
    )


def _open_one(path: str) -> int:
    for _ in range(_TRIES):
        there = _there(path)
        if there and not stat.S_ISREG(there.st_mode):  # opening a device can do something
            raise OSError(errno.ELOOP, "not a file", path)
        with suppress(FileNotFoundError):  # without O_CREAT first: sticky folders refuse O_CREAT on another's file
            return _still_there(os.open(path, _FLAGS))
        with suppress(FileExistsError):  # another firstlight was quicker: it is its lock that counts
            return _made(path)
    raise OSError(errno.EBUSY, "it comes and goes", path)


def _still_there(descriptor: int) -> int:
    """The same; FileNotFoundError where the file was removed meanwhile, because the next one would lock another."""
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError


def _made(path: str) -> int:
    """The new file, which every user can lock from its first moment on, whatever the umask of the first."""
    umask = os.umask(0)
    try:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
    finally:
        os.umask(umask)
