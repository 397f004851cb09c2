"""The one way to a terminal: on both streams secrets are masked and controls are spelled out, whoever writes.

What is printed holds text of others: package and file names, journals, logs of programs, documents. No verb has to
think of it, and none can forget it. Colours come from a type (`Painted`), never from letters in a text, so that no text
of others has them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from firstlight.report.layout import USUAL, Painted, Part, Style, drawn_for
from firstlight.secrets import masked, without_credentials
from firstlight.visible import visible

_COLOURS = {Style.BAD: "1;31", Style.WARN: "33", Style.GOOD: "32", Style.HEAD: "1"}  # red, yellow, green, bold


def shown(text: str) -> str:
    """A text as it may be seen: without secrets, and with every control spelled out."""
    return visible(masked(text))


class Guarded:
    """A stream on which nothing arrives as others wrote it; `raw` is for what we draw ourselves."""

    def __init__(self, raw: TextIO, hide: Callable[[str], str] = masked) -> None:
        self.raw, self._hide = raw, hide

    def write(self, text: str | bytes) -> int:
        """Bytes are click's: it hands completions to a shell so."""
        letters = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
        self.raw.write(visible(self._hide(letters)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def paint(self, part: Painted) -> None:
        """A word in its colour; what it holds is guarded like all else."""
        self.raw.write(f"\x1b[{_COLOURS[part.style]}m")
        self.write(part.text)
        self.raw.write("\x1b[0m")

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "detach"):  # a way around
            raise AttributeError(name)
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """The stream itself, for a spinner or a line that is rewritten; what goes there is `shown` first."""
    return stream.raw if isinstance(stream, Guarded) else stream


def tell(parts: Iterable[Part], stream: TextIO | None = None) -> None:
    """Print a text on stdout, or another stream; at a terminal its words have their colours."""
    to = sys.stdout if stream is None else stream
    colours = isinstance(to, Guarded) and _has_colours(to.raw)
    for part in parts:
        if isinstance(part, str):
            to.write(part)
        elif colours:
            cast(Guarded, to).paint(part)
        else:
            to.write(part.text)


def _has_colours(stream: TextIO) -> bool:
    """At a terminal that can show them, unless NO_COLOR (no-color.org) says no."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb") and stream.isatty()


def _columns(stream: TextIO) -> int:
    """The columns of a terminal; COLUMNS where that is set, 110 where there is neither."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except (OSError, ValueError):  # a pipe, a file, a stream without a number
        return USUAL


@contextmanager
def guarded_streams(words: list[str]) -> Iterator[None]:
    """Both streams guarded until the end of a command line; --identify among its words shows the ids of GPUs."""
    hide = without_credentials if "--identify" in words else masked
    before = sys.stdout, sys.stderr
    for stream in before:
        _take_every_letter(stream)
    sys.stdout, sys.stderr = (cast(TextIO, Guarded(raw(stream), hide)) for stream in before)
    try:
        with drawn_for(_columns(before[0])):
            yield
    finally:
        sys.stdout, sys.stderr = before


def _take_every_letter(stream: TextIO) -> None:
    """A letter that the stream's encoding lacks is spelled out, where it would be an error."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and getattr(stream, "errors", "") == "strict":
        reconfigure(errors="backslashreplace")
