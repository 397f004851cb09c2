"""stdout and stderr that outlive their reader: what `| head` does not want is dropped, and the work goes on.

A stdout that is not open for writing (`>&-`) has no reader to come: the work is done too, and `nowhere_to_write`
then says that its result was lost.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
import sys
from typing import Any, cast


class _Closed(io.FileIO):
    """In the place of a stdout that was closed (`>&-`): drops everything, and knows whether there was anything."""

    lost = False  # of the process: there is one stdout

    def write(self, data: Any, /) -> int:
        _Closed.lost = True
        return super().write(data)


class _Forgiving(io.FileIO):
    """A pipe whose reader may go away: from then on everything is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            drop(self.fileno())
            return super().write(data)


def keep_writable() -> None:
    """Make stdout and stderr writable whatever the shell did to them, so that the exit code tells of the work alone.

    One that was closed (`>&-`) is None in Python; of stdout `nowhere_to_write` tells. One whose reader goes away
    (`| head -1`) fails at the next write, or not, depending on who is faster; an `apply` at work must not be stopped
    by that.
    """
    _Closed.lost = False
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is not None and mode == "w" and stream is getattr(sys, f"__{name}__") and _is_for_reading(stream):
            stream = None
        if stream is None and name == "stdout":
            sys.stdout = io.TextIOWrapper(cast(Any, _Closed(os.devnull, mode)), encoding="utf-8", write_through=True)
        elif stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 lives as long as we do
        elif mode == "w" and stream is getattr(sys, f"__{name}__") and _is_pipe(stream):
            setattr(sys, name, _forgiving(stream))


def nowhere_to_write() -> bool:
    """Whether something was written to a stdout that was closed before we started, and so is lost."""
    return _Closed.lost


def drop(handle: int) -> None:
    """Let everything that is written to a file handle go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, handle)
    os.close(nowhere)


def _is_for_reading(stream: io.TextIOWrapper) -> bool:
    """Whether a shell opened it the wrong way round (`1< FILE`): as good as closed."""
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (OSError, ValueError):  # a stream without a number, as a program that calls us may put there
        return False


def _is_pipe(stream: io.TextIOWrapper) -> bool:
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _forgiving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Forgiving(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
