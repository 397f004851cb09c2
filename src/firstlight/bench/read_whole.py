"""A file of ours that somebody names, read whole: a result of `bench`, or a report with its data."""

from __future__ import annotations

from firstlight.errors import BadInput
from firstlight.opening import open_given

FILE_LIMIT = 256 << 20


def shown_path(path: str) -> str:
    """As it stands in a complaint."""
    return path if path.isprintable() else ascii(path)


def bytes_of(path: str, *, accepted: str, what: str) -> bytes:
    """A file that was given; BadInput says what is accepted where it cannot be read or is too large."""
    try:
        with open_given(path) as file:
            raw = file.read(FILE_LIMIT + 1)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(f"{shown_path(path)}: {why}; accepted: {accepted}") from None
    if len(raw) > FILE_LIMIT:
        raise BadInput(f"{shown_path(path)}: larger than {FILE_LIMIT >> 20} MiB; not {what}")
    return raw
