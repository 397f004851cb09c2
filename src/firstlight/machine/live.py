"""The machine this process runs on, read and never changed."""

from __future__ import annotations

import errno
import os
import re
import stat as stat_bits
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from firstlight.machine.interface import (
    CHILD_TIMEOUT_S,
    COMMAND_TIMEOUT_S,
    TEXT_LIMIT,
    TOO_MANY_LINKS,
    ChildAnswer,
    ChildScript,
    Completed,
    Digest,
    Disk,
    Host,
    Stat,
    every_name,
    matching,
)
from firstlight.machine.spawn import run_bounded, run_child

if TYPE_CHECKING:
    import mmap

_WHY = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: TOO_MANY_LINKS,
}


class LiveMachine:
    """Looks at this machine; `root` puts another folder in the place of / (an unpacked image, a test's tree)."""

    def __init__(self, *, root: str = "", environ: Mapping[str, str] | None = None, host: Host | None = None) -> None:
        self._root = root.rstrip("/")
        self._environ = dict(os.environ if environ is None else environ)
        self._host = host or _look_at_host()

    @property
    def host(self) -> Host:
        return self._host

    def env(self, name: str) -> str | None:
        return self._environ.get(name)

    def read(self, path: str, *, limit: int = TEXT_LIMIT, until: str = "") -> str | None:
        data = self._read(path, 0, limit)
        if data is None:
            return None
        text = data.decode("utf-8", "replace")
        return text.split(until, 1)[0] if until else text

    def read_bytes(self, path: str, *, offset: int = 0, size: int = TEXT_LIMIT) -> bytes | None:
        return self._read(path, offset, size)

    def search(self, path: str, pattern: bytes, *, limit: int = 8) -> tuple[bytes, ...] | None:
        import mmap

        try:
            handle = os.open(self._under(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            seen = os.fstat(handle)
            if not stat_bits.S_ISREG(seen.st_mode):
                return None
            if seen.st_size == 0:  # files under /proc have no size and cannot be mapped
                data = self._read(path, 0, TEXT_LIMIT)
                return _first_matches(pattern, data, limit) if data else None
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as view:
                return _first_matches(pattern, view, limit)
        except (OSError, ValueError):
            return None
        finally:
            os.close(handle)

    def digest(self, path: str, name: str, work: Digest) -> tuple[str, ...] | None:
        return work(self)

    def why_not(self, path: str) -> str:
        try:
            mode = os.stat(self._under(path)).st_mode
            if stat_bits.S_ISDIR(mode):
                return "is a folder"
            if not stat_bits.S_ISREG(mode):
                return "not a regular file"
            with open(self._under(path), "rb") as file:
                file.read(1)
        except OSError as error:
            return _WHY.get(error.errno or 0, os.strerror(error.errno or 0).lower())
        return "readable now"

    def list(self, path: str, pattern: str = "*", *, keep: Callable[[str], bool] = every_name) -> tuple[str, ...]:
        try:
            names = os.listdir(self._under(path))
        except OSError:
            return ()
        if pattern != "*":
            names = matching(names, pattern)
        return tuple(sorted(names if keep is every_name else filter(keep, names)))

    def stat(self, path: str) -> Stat | None:
        where = self._under(path)
        try:
            seen = os.stat(where)
        except OSError:
            return None
        return Stat(
            kind=_kind(seen.st_mode),
            size=seen.st_size,
            mode=stat_bits.S_IMODE(seen.st_mode),
            uid=seen.st_uid,
            gid=seen.st_gid,
            inode=seen.st_ino,
            writable=os.access(where, os.W_OK),
        )

    def real_path(self, path: str) -> str:
        real = os.path.realpath(self._under(path))
        if self._root and (real == self._root or real.startswith(self._root + "/")):
            return real[len(self._root) :] or "/"
        return real

    def disk(self, path: str) -> Disk | None:
        try:
            seen = os.statvfs(self._under(path))
        except OSError:
            return None
        return Disk(seen.f_frsize * seen.f_blocks, seen.f_frsize * seen.f_bavail)

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        return run_bounded(argv, timeout_s=timeout_s, keep=keep, env={**self._environ, **(env or {}), "LC_ALL": "C"})

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        return run_child(script, args, timeout_s=timeout_s, env={**self._environ, **(env or {})})

    def _under(self, path: str) -> str:
        return self._root + path

    def _read(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of a regular file. Never blocks: a FIFO or a device is refused before it is read."""
        try:
            handle = os.open(self._under(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if not stat_bits.S_ISREG(os.fstat(handle).st_mode):
                return None
            if offset:
                os.lseek(handle, offset, os.SEEK_SET)
            parts: list[bytes] = []
            left = size
            while left > 0:  # files under /proc give a page at a time
                part = os.read(handle, min(left, 1 << 20))
                if not part:
                    break
                parts.append(part)
                left -= len(part)
            return b"".join(parts)
        except (OSError, OverflowError):  # an offset from a damaged file can be beyond what lseek takes
            return None
        finally:
            os.close(handle)


def _first_matches(pattern: bytes, data: bytes | mmap.mmap, limit: int) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for match in re.finditer(pattern, data):
        found.append(match.group(0))
        if len(found) == limit:
            break
    return tuple(found)


def _kind(mode: int) -> str:
    if stat_bits.S_ISREG(mode):
        return "file"
    if stat_bits.S_ISDIR(mode):
        return "folder"
    if stat_bits.S_ISCHR(mode) or stat_bits.S_ISBLK(mode):
        return "device"
    return "socket" if stat_bits.S_ISSOCK(mode) else "other"


def _look_at_host() -> Host:
    kernel = os.uname()
    uid = os.getuid()
    try:
        import pwd

        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, os.environ.get("HOME") or entry.pw_dir
    except (ImportError, KeyError):
        user, home = os.environ.get("USER", ""), os.environ.get("HOME", "")
    try:
        cwd = os.getcwd()
    except OSError:  # the folder we stand in was deleted
        cwd = "/"
    return Host(
        hostname=kernel.nodename,
        user=user,
        home=home,
        cwd=cwd,
        uid=uid,
        kernel_release=kernel.release,
        arch=kernel.machine,
        python_version=".".join(str(part) for part in sys.version_info[:3]),
        python_executable=sys.executable,
        python_prefix=sys.prefix,
        python_base_prefix=sys.base_prefix,
        now=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
