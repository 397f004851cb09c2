"""What a person who waits for `verify` sees: a line for every check that ended, and below them which ones run now."""

from __future__ import annotations

from typing import TextIO

from firstlight.cli.printing import shown
from firstlight.report.layout import width
from firstlight.report.verify_text import progress_text
from firstlight.verify.check import Result


class CheckProgress:
    """Draws on a terminal; a pipe or a file hears nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._draws, self._drawn = stream, stream.isatty(), 0

    def ended(self, result: Result) -> None:
        """A check has its result."""
        self._put(progress_text(result), end="\n")

    def running(self, names: tuple[str, ...]) -> None:
        """These run now; the line is rewritten, and is gone at the end."""
        self._put(f"running: {', '.join(names)}" if names else "")

    def _put(self, text: str, *, end: str = "") -> None:
        if not self._draws:
            return
        line = shown(text)[: width() - 1]
        self._stream.write("\r" + line.ljust(self._drawn) + (end or ("" if line else "\r")))
        self._stream.flush()
        self._drawn = 0 if end else len(line)
