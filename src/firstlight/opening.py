"""Opens a file after asking what it is: a FIFO without a writer, a device or a socket would hang or never end.

The refusal is an OSError whose `strerror` says what was found, so that callers tell it as they tell any other.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import BinaryIO

# What a shell hands over for `<(...)` and a pipe: somebody is at the other end, so waiting for it is right.
_HANDED_OVER = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")


def open_regular(path: str) -> BinaryIO:
    """The file, open for reading; OSError where it is none, e.g. 'it is a FIFO, not a file'."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(os.fstat(handle), path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def open_given(path: str) -> BinaryIO:
    """A document that somebody named: a file, or a pipe that the shell handed over as /dev/stdin or /dev/fd/63."""
    if is_handed_over(path):
        return open(path, "rb")
    return open_regular(path)


def is_handed_over(path: str) -> bool:
    """Whether a shell handed the document over: what was read of a pipe cannot be read again."""
    return _HANDED_OVER.fullmatch(path) is not None


def require_regular(found: os.stat_result, path: str) -> None:
    """Raises OSError unless it is a file."""
    if not stat.S_ISREG(found.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(number, f"it is {kind_of(found.st_mode)}, not a file", path)


def kind_of(mode: int) -> str:
    """What a path is, in words: 'a FIFO'."""
    return next((words for fits, words in _KINDS if fits(mode)), "something unknown")


_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
