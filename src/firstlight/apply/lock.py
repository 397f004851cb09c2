"""One firstlight at a time changes a machine: a lock that the kernel gives back when its holder dies.

It lies on a local file system, never in the state folder: that may be a network volume, where locks cannot be trusted.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from firstlight.errors import AnotherIsActing, CouldNotAct

FOLDERS = ("/run/lock", "/var/lock", "/tmp")  # noqa: S108 a lock has to be where every user finds it
NAME = "firstlight.lock"


@contextmanager
def machine_lock(folders: tuple[str, ...] = FOLDERS) -> Iterator[None]:
    """Hold the machine's lock; AnotherIsActing names the process that has it."""
    descriptor, path = _open(folders)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "a process that left no name"
            raise AnotherIsActing(
                f"another firstlight is changing this machine: {holder} ({path}). Wait until it has ended, then run "
                "the same command again."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, user {os.getuid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open(folders: tuple[str, ...]) -> tuple[int, str]:
    refused = ""
    for folder in folders:
        path = f"{folder}/{NAME}"
        try:
            return _open_one(path), path
        except OSError as error:
            refused = f"{path}: {error.strerror}"
    raise CouldNotAct(
        f"no lock could be taken ({refused}). Make {folders[-1]} writable, then run the same command again."
    )


def _open_one(path: str) -> int:
    try:  # without O_CREAT first: sticky folders refuse O_CREAT on a file of another user
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        os.fchmod(descriptor, 0o666)  # every user takes the same lock, whatever the umask of the first
        return descriptor
