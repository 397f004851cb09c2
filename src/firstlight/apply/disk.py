"""Durable changes, one call each: after a call returns, its effect survives a power cut.

Every write, sync and rename passes a named point first. A test stops the process at each of them in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firstlight.errors import CouldNotAct
from firstlight.owned import way_to

UNFINISHED = ".firstlight-unfinished"


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
        with named(path), _folder_of(path) as (folder, name):
            self.passing(f"{path}: create")
            _remove_if_there(name + UNFINISHED, folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name + UNFINISHED, flags, 0o600, dir_fd=folder)
            try:
                self.passing(f"{path}: write")
                _write_all(descriptor, data)
                if owner is not None and owner != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, *owner)
                os.fchmod(descriptor, mode)
                self.passing(f"{path}: fsync")
                os.fsync(descriptor)
            except OSError:
                _remove_if_there(name + UNFINISHED, folder)
                raise
            finally:
                os.close(descriptor)
            self._put(path, name, folder)

    def link(self, path: str, target: str) -> None:
        """Put a symbolic link in place at once."""
        with named(path), _folder_of(path) as (folder, name):
            self.passing(f"{path}: create")
            _remove_if_there(name + UNFINISHED, folder)
            os.symlink(target, name + UNFINISHED, dir_fd=folder)
            self._put(path, name, folder)

    def _put(self, path: str, name: str, folder: int) -> None:
        self.passing(f"{path}: rename")
        os.rename(name + UNFINISHED, name, src_dir_fd=folder, dst_dir_fd=folder)
        self.passing(f"{path}: renamed")
        self._sync(folder, os.path.dirname(path))

    def remove(self, path: str) -> None:
        """Take a file away; one that is not there is fine."""
        with named(path), _ignoring(errno.ENOENT, errno.ENOTDIR):
            self.passing(f"{path}: remove")
            with _folder_of(path) as (folder, name):
                _remove_if_there(name, folder)
                _remove_if_there(name + UNFINISHED, folder)
                self._sync(folder, os.path.dirname(path))

    def move(self, path: str, to: str) -> None:
        """Put a file in another's place; one that is not there was moved already."""
        with named(to), _folder_of(path) as (source, name), _folder_of(to) as (folder, place):
            self.passing(f"{to}: rename")
            with _ignoring(errno.ENOENT):
                os.rename(name, place, src_dir_fd=source, dst_dir_fd=folder)
            self._sync(folder, os.path.dirname(to))

    def remove_unfinished(self, path: str) -> None:
        """Take away what a write that never ended may have left beside a file."""
        with named(path), _ignoring(errno.ENOENT, errno.ENOTDIR):
            self.passing(f"{path}: remove unfinished")
            with _folder_of(path) as (folder, name):
                _remove_if_there(name + UNFINISHED, folder)

    def make_folders(self, path: str, *, mode: int = 0o755) -> tuple[str, ...]:
        """Make a folder and those above it; gives the ones that were missing, outermost first."""
        missing = missing_folders(path)
        with named(path):
            for each in missing:
                self.passing(f"{each}: mkdir")
                with way_to(each, make=mode):
                    pass
                self.sync_folder(os.path.dirname(each))
        return missing

    def sync_folder(self, path: str) -> None:
        """Wait until what was made or renamed in a folder is on the disk."""
        with way_to(path) as folder:
            self._sync(folder.handle, path)

    def remove_folder(self, path: str) -> None:
        """Take an empty folder away; one that holds something of somebody else, or is gone, stays as it is."""
        self.passing(f"{path}: rmdir")
        with _ignoring(errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST), _folder_of(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def _sync(self, folder: int, name: str) -> None:
        self.passing(f"{name}: fsync folder")
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            # Some network file systems cannot sync a folder; there the rename itself is as durable as it gets.
            with _ignoring(errno.EINVAL, errno.ENOTSUP):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def missing_folders(path: str) -> tuple[str, ...]:
    """The folders of a path that are not there, outermost first; what stands in their place is the walk's to name."""
    missing: list[str] = []
    folder = os.path.abspath(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return tuple(missing)


@contextmanager
def _folder_of(path: str) -> Iterator[tuple[int, str]]:
    """The open folder of a file and the file's name: nobody can put another folder in its place meanwhile."""
    with way_to(os.path.dirname(os.path.abspath(path))) as folder:
        yield folder.handle, os.path.basename(path)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove_if_there(name: str, folder: int) -> None:
    with _ignoring(errno.ENOENT):
        os.unlink(name, dir_fd=folder)


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
        advice = _ADVICE.get(error.errno or 0, "Nothing was lost; fix that and run the same command again.")
        raise CouldNotAct(f"{path} could not be written: {error.strerror}. {advice}") from error


_ADVICE = {
    errno.ENOSPC: "Free some space there; nothing was lost: the same command continues where it stopped.",
    errno.EDQUOT: "Free some of your quota; nothing was lost: the same command continues where it stopped.",
    errno.EROFS: "That file system is read-only; remount it, or set FIRSTLIGHT_STATE_DIR if it is the state folder.",
    errno.EACCES: "Run as a user that may write there (sudo), or choose an option that needs no root.",
    errno.EPERM: "Run as a user that may write there (sudo), or choose an option that needs no root.",
}
