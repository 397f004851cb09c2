"""The one way to a terminal: on both streams secrets are masked and controls are spelled out, whoever writes.

What is printed holds text of others: package and file names, journals, logs of programs, documents. No verb has to
think of it, and none can forget it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from firstlight.secrets import masked, without_credentials
from firstlight.visible import visible


def shown(text: str) -> str:
    """A text as it may be seen: without secrets, and with every control spelled out."""
    return visible(masked(text))


class Guarded:
    """A stream on which nothing arrives as others wrote it; `raw` is for what we draw ourselves."""

    def __init__(self, raw: TextIO, hide: Callable[[str], str] = masked) -> None:
        self.raw, self._hide = raw, hide

    def write(self, text: str) -> int:
        self.raw.write(visible(self._hide(text)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "detach"):  # a way around
            raise AttributeError(name)
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """The stream itself, for a spinner or a line that is rewritten; what goes there is `shown` first."""
    return stream.raw if isinstance(stream, Guarded) else stream


@contextmanager
def guarded_streams(words: list[str]) -> Iterator[None]:
    """Both streams guarded until the end of a command line; --identify among its words shows the ids of GPUs."""
    hide = without_credentials if "--identify" in words else masked
    before = sys.stdout, sys.stderr
    for stream in before:
        _take_every_letter(stream)
    sys.stdout, sys.stderr = (cast(TextIO, Guarded(raw(stream), hide)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _take_every_letter(stream: TextIO) -> None:
    """A letter that the stream's encoding lacks is spelled out, where it would be an error."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and getattr(stream, "errors", "") == "strict":
        reconfigure(errors="backslashreplace")
