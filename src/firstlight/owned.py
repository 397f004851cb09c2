"""Whether a file or a folder is ours to act on: made by this user or root, and nobody else can change it.

A path is walked from / down by folder handles, so that nothing can be swapped between the look and the opening. A
folder on the way is fine where it belongs to this user or root and others cannot write to it; a sticky folder of root's
(/tmp, a shared /workspace) too: there nobody can rename what belongs to another. A link is followed where it is ours
or root's itself.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from firstlight.errors import NotOurs
from firstlight.frozen import dataclass
from firstlight.opening import kind_of

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # the kernel's own limit
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OVERFLOW = "/proc/sys/kernel/overflowuid"


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder that is ours, and its path with every link resolved; `made` are those that were not there."""

    handle: int
    path: str
    made: tuple[str, ...] = ()


@contextmanager
def our_folder(path: str, *, make: int = 0) -> Iterator[Folder]:
    """Opens a folder by its absolute path; `make` is the mode of those that are missing, 0 makes none.

    NotOurs names the first on the way that another user owns or may write to; FileNotFoundError where one is missing.
    """
    with _walked(path, make, require_our_folder) as folder:
        yield folder


@contextmanager
def way_to(path: str, *, make: int = 0) -> Iterator[Folder]:
    """Opens any folder, whoever owns it; a link of another user on the way is refused, because it is a trap."""
    with _walked(path, make, _any_folder) as folder:
        yield folder


Judge = Callable[[os.stat_result, str], None]


@contextmanager
def _walked(path: str, make: int, judge: Judge) -> Iterator[Folder]:
    walk = _Walk(path, make, judge)
    try:
        walk.go()
        yield Folder(walk.handle, walk.where or "/", tuple(walk.made))
    finally:
        os.close(walk.handle)


class _Walk:
    """Goes down a path, one folder handle at a time."""

    def __init__(self, path: str, make: int, judge: Judge) -> None:
        self._left = [part for part in os.path.abspath(path).split("/") if part]
        self._make, self._judge, self._links = make, judge, 0
        self.handle, self.where = os.open("/", _WALK), ""
        self.made: list[str] = []

    def go(self) -> None:
        self._judge(os.fstat(self.handle), "/")
        while self._left:
            self._step(self._left.pop(0))

    def _step(self, name: str) -> None:
        path = f"{self.where}/{name}"
        try:
            found = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            if not self._make:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
            with suppress(FileExistsError):  # somebody was quicker; what it is, is asked below
                os.mkdir(name, self._make, dir_fd=self.handle)
                self.made.append(path)
            found = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            self._follow(name, path, found)
            return
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"it is {kind_of(found.st_mode)}, not a folder", path)
        below = os.open(name, _WALK, dir_fd=self.handle)
        os.close(self.handle)
        self.handle = below
        self.where = os.path.dirname(self.where).rstrip("/") if name == ".." else path
        self._judge(os.fstat(below), self.where or "/")

    def _follow(self, name: str, path: str, found: os.stat_result) -> None:
        if not _is_trusted(found.st_uid):
            raise NotOurs(_refusal(path, found, "a link of another user"))
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        leads_to = os.readlink(name, dir_fd=self.handle)
        self._left = [part for part in leads_to.split("/") if part not in ("", ".")] + self._left
        if leads_to.startswith("/"):
            os.close(self.handle)
            self.handle, self.where = os.open("/", _WALK), ""


def open_ours(folder: Folder, name: str, flags: int, *, mode: int = 0o600) -> int:
    """Opens a file of ours in a folder of ours; NotOurs for a link, a FIFO, a second name or another owner's file."""
    path = f"{folder.path}/{name}"
    try:
        require_our_file(os.stat(name, dir_fd=folder.handle, follow_symlinks=False), path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder.handle)
    try:
        require_our_file(os.fstat(handle), path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_ours(folder: Folder, name: str) -> bytes:
    """The bytes of a file of ours in a folder of ours."""
    with os.fdopen(open_ours(folder, name, os.O_RDONLY), "rb") as file:
        return file.read()


def require_our_folder(found: os.stat_result, path: str) -> None:
    """Raises NotOurs where another user owns the folder or may put something else into it."""
    if not (_is_trusted(found.st_uid) or _is_unmapped_root(found.st_uid)):
        raise NotOurs(_refusal(path, found, "a folder of another user"), do=_as_its_owner(found))
    if found.st_mode & _OTHERS_WRITE and not _is_shared_well(found) and not _is_of_own_group(found):
        raise NotOurs(_refusal(path, found, "a folder that others may write to"), do=_close(path, found))


def _any_folder(found: os.stat_result, path: str) -> None:
    """A way may lead through anybody's folder."""


def require_our_file(found: os.stat_result, path: str) -> None:
    """Raises NotOurs unless it is a file of this user or root that has one name and that others cannot write."""
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(_refusal(path, found, f"{kind_of(found.st_mode)}, not a file"))
    if not _is_trusted(found.st_uid):
        raise NotOurs(_refusal(path, found, "a file of another user"), do=_as_its_owner(found))
    if others_can_write(found):
        raise NotOurs(_refusal(path, found, "a file that others may write to"), do=_close(path, found))
    if found.st_nlink != 1:
        told = _refusal(path, found, f"a file with {found.st_nlink} names (hard links)")
        raise NotOurs(told, do=f"remove the other name, which `find / -samefile {shlex.quote(path)}` shows")


def others_can_write(found: os.stat_result) -> bool:
    """Whether its mode lets somebody else write; the group that is this user's alone is nobody else."""
    return bool(found.st_mode & _OTHERS_WRITE) and not _is_of_own_group(found)


def _is_trusted(owner: int) -> bool:
    return owner in (0, os.geteuid())


def _is_shared_well(found: os.stat_result) -> bool:
    """A sticky folder of root's: everybody puts things in, and nobody can move what belongs to another."""
    return bool(found.st_mode & stat.S_ISVTX) and (found.st_uid == 0 or _is_unmapped_root(found.st_uid))


def _is_of_own_group(found: os.stat_result) -> bool:
    """Whether `others` are a group of this user alone: Fedora and Ubuntu make one each, with umask 002; never root."""
    if os.geteuid() == 0 or found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return user.pw_gid == found.st_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _is_unmapped_root(owner: int) -> bool:
    """Whether root is not known here by its number: in a user namespace (Apptainer, bwrap) / belongs to `nobody`.

    Others who are not mapped look the same there; so this holds for folders on the way alone, never for a file.
    """
    try:
        with open(_OVERFLOW, encoding="ascii") as file:
            overflow = int(file.read())
    except (OSError, ValueError):
        return False
    return owner == overflow == os.stat("/").st_uid


def _refusal(path: str, found: os.stat_result, what: str) -> str:
    shown = path if path.isprintable() else ascii(path)
    return f"{shown} is {what} (owner {name_of(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o})"


def _close(path: str, found: os.stat_result) -> str:
    name = shlex.quote(path if path.isprintable() else ascii(path))
    shared = stat.S_ISDIR(found.st_mode) and found.st_uid == 0
    others = f", or with `chmod +t {name}` where others keep files of their own there" if shared else ""
    return f"where nobody else put anything there, close it with `chmod go-w {name}`{others}"


def _as_its_owner(found: os.stat_result) -> str:
    return f"where user {name_of(found.st_uid)} is you too, run the same command as that user"


def name_of(owner: int) -> str:
    """A user by number and name: '1001 (eve)'."""
    import pwd

    try:
        return f"{owner} ({pwd.getpwuid(owner).pw_name})"
    except KeyError:
        return str(owner)
