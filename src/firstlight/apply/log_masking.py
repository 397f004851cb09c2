"""Takes secrets out of what a command wrote into its log itself, in pieces: a log may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from firstlight.secrets import masked

PIECE = 1 << 20
_LINE = 1 << 24  # a piece ends with a line, unless that is longer than this
_KEY = 1 << 16  # and never inside a private key, which has many lines
_KEY_BEGINS, _KEY_ENDS = b"-----BEGIN ", b"-----END "
_UNFINISHED = ".masking"


def mask_log(log: str, begins_at: int) -> None:
    """Put a log without secrets in its place, whole; one that cannot be written stays as it is, for its owner alone."""
    with suppress(OSError), open(log, "rb") as file:
        file.seek(begins_at)
        if not any(_without_secrets(piece) != piece for piece in _pieces(file)):
            return
        clean = log + _UNFINISHED
        with suppress(FileNotFoundError):
            os.unlink(clean)
        try:
            with open(clean, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600)) as new:
                _copy(file, new, begins_at)
            os.rename(clean, log)
        except OSError:
            os.unlink(clean)
            raise


def _copy(file: BinaryIO, new: BinaryIO, begins_at: int) -> None:
    """What stands before is masked already, and may end inside a line."""
    file.seek(0)
    left = begins_at
    while left and (piece := file.read(min(left, PIECE))):
        new.write(piece)
        left -= len(piece)
    for piece in _pieces(file):
        new.write(_without_secrets(piece))


def _without_secrets(piece: bytes) -> bytes:
    return masked(piece.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file in pieces of whole lines and whole keys."""
    while piece := file.read(PIECE):
        piece += file.readline(_LINE)
        yield b"".join((piece, *_rest_of_key(file, piece)))


def _rest_of_key(file: BinaryIO, piece: bytes) -> Iterator[bytes]:
    """The lines up to the end of a key that begins in a piece and does not end there."""
    start, left = piece.rfind(_KEY_BEGINS), _KEY
    inside = start >= 0 and _KEY_ENDS not in piece[start:]
    while inside and left > 0 and (line := file.readline(_LINE)):
        yield line
        inside, left = _KEY_ENDS not in line, left - len(line)
