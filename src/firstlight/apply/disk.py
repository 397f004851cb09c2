"""Durable changes, one call each: after a call returns, its effect survives a power cut.

Every write, sync and rename passes a named point first. A test stops the process at each of them in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firstlight.errors import CouldNotAct


def never_stop(point: str) -> None:
    """What passing a point does outside of tests: nothing."""


class Disk:
    """Writes, links and removes files; `passing` is called with the name of every point before it is passed."""

    def __init__(self, passing: Callable[[str], None] = never_stop) -> None:
        self.passing = passing

    def append(self, descriptor: int, data: bytes, *, name: str) -> None:
        """Add bytes at the end of an open file and wait until they are on the disk."""
        self.passing(f"{name}: write")
        with named(name):
            _write_all(descriptor, data)
            self.passing(f"{name}: fsync")
            os.fsync(descriptor)
        self.passing(f"{name}: written")

    def write(self, path: str, data: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Put a whole file in place at once: nobody ever sees half of it.

        The unfinished file is PATH.firstlight-unfinished; the next attempt starts it anew.
        """
        unfinished = f"{path}.firstlight-unfinished"
        with named(path):
            self.passing(f"{path}: create")
            _remove_if_there(unfinished)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                self.passing(f"{path}: write")
                _write_all(descriptor, data)
                if owner is not None and owner != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, *owner)
                os.fchmod(descriptor, mode)
                self.passing(f"{path}: fsync")
                os.fsync(descriptor)
            except OSError:
                _remove_if_there(unfinished)
                raise
            finally:
                os.close(descriptor)
            self.passing(f"{path}: rename")
            os.rename(unfinished, path)
            self.passing(f"{path}: renamed")
            self._sync_folder(os.path.dirname(path))

    def link(self, path: str, target: str) -> None:
        """Put a symbolic link in place at once."""
        unfinished = f"{path}.firstlight-unfinished"
        with named(path):
            self.passing(f"{path}: create")
            _remove_if_there(unfinished)
            os.symlink(target, unfinished)
            self.passing(f"{path}: rename")
            os.rename(unfinished, path)
            self.passing(f"{path}: renamed")
            self._sync_folder(os.path.dirname(path))

    def remove(self, path: str) -> None:
        """Take a file away; one that is not there is fine."""
        with named(path):
            self.passing(f"{path}: remove")
            _remove_if_there(path)
            _remove_if_there(f"{path}.firstlight-unfinished")
            if os.path.isdir(os.path.dirname(path)):
                self._sync_folder(os.path.dirname(path))

    def remove_unfinished(self, path: str) -> None:
        """Take away what a write that never ended may have left beside a file."""
        with named(path):
            self.passing(f"{path}: remove unfinished")
            _remove_if_there(f"{path}.firstlight-unfinished")

    def make_folders(self, path: str, *, mode: int = 0o755) -> tuple[str, ...]:
        """Make a folder and those above it; gives the ones that were missing, outermost first."""
        missing: list[str] = []
        folder = path
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        with named(path):
            for each in reversed(missing):
                self.passing(f"{each}: mkdir")
                with _ignoring(errno.EEXIST):
                    os.mkdir(each, mode)
                self._sync_folder(os.path.dirname(each))
        return tuple(reversed(missing))

    def remove_folder(self, path: str) -> None:
        """Take an empty folder away; one that holds something of somebody else, or is gone, stays as it is."""
        self.passing(f"{path}: rmdir")
        with _ignoring(errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            os.rmdir(path)

    def _sync_folder(self, folder: str) -> None:
        self.passing(f"{folder}: fsync folder")
        descriptor = os.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Some network file systems cannot sync a folder; there the rename itself is as durable as it gets.
            with _ignoring(errno.EINVAL, errno.ENOTSUP):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove_if_there(path: str) -> None:
    with _ignoring(errno.ENOENT):
        os.unlink(path)


@contextmanager
def _ignoring(*numbers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise


@contextmanager
def named(path: str) -> Iterator[None]:
    """Turn the kernel's refusal into one line that says what was being written and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Nothing was lost; put that right and run the same command again.")
        raise CouldNotAct(f"{path} could not be written: {error.strerror}. {advice}") from error


_ADVICE = {
    errno.ENOSPC: "Free some space there; nothing was lost: the same command goes on where it stopped.",
    errno.EDQUOT: "Free some of your quota; nothing was lost: the same command goes on where it stopped.",
    errno.EROFS: "That file system is read-only; remount it, or set FIRSTLIGHT_STATE_DIR if it is the state folder.",
    errno.EACCES: "Run as a user that may write there (sudo), or choose an option that needs no root.",
    errno.EPERM: "Run as a user that may write there (sudo), or choose an option that needs no root.",
}
