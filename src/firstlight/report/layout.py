"""Plain text on a screen: labels on the left, wrapped text on the right, a few words in a style."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Union

from firstlight.frozen import dataclass
from firstlight.secrets import masked

LABEL = 12
NARROWEST, USUAL, WIDEST = 80, 110, 120
_COLUMNS: ContextVar[int] = ContextVar("columns", default=USUAL)


class Style(enum.Enum):
    """What a word is to a reader; a terminal gives each a colour, all else has the word alone."""

    BAD = "bad"
    WARN = "warn"
    GOOD = "good"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Painted:
    """A word in a style, e.g. BLOCKED as what is bad; the word says it too, for who sees no colours."""

    text: str
    style: Style


Part = Union[str, Painted]


def plain(parts: Iterable[Part]) -> str:
    """The text alone."""
    return "".join(part.text if isinstance(part, Painted) else part for part in parts)


def width() -> int:
    """The columns that a line may have: 110, or those of the terminal between 80 and 120."""
    return _COLUMNS.get()


@contextmanager
def drawn_for(columns: int) -> Iterator[None]:
    """Everything laid out inside fits a terminal of so many columns."""
    before = _COLUMNS.set(min(max(columns, NARROWEST), WIDEST))
    try:
        yield
    finally:
        _COLUMNS.reset(before)


def labelled(label: str, lines: Iterable[str], *, label_width: int = LABEL) -> str:
    """One label with its lines, wrapped and aligned: 'driver      570.133.20, open module'."""
    out: list[str] = []
    for line in lines:
        whole = masked(line)  # wrapped, a secret would stand on a line of its own and look like a word
        first, *rest = wrapped(whole, width() - label_width)
        out.append(f"{'' if out else label:<{label_width}}{first}".rstrip())
        out += [f"{'':<{label_width}}  {more}".rstrip() for more in rest]
    return "".join(f"{line}\n" for line in out)


def wrapped(text: str, columns: int) -> list[str]:
    """The lines of a text of so many columns; what is longer than a line, a path for one, is not cut."""
    lines = textwrap.wrap(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [lines[0], *(line[2:] for line in lines[1:])] if lines else [""]


def headed(head: str, tag: str) -> str:
    """A head with its code at the right edge: '1. restart the machine            [01-restart]'."""
    gap = width() - len(head) - len(tag)
    if gap > 1:
        return f"{head}{' ' * gap}{tag}\n"
    first, *rest = wrapped(head, width())
    lines = [first, *(f"  {each}" for each in rest)]
    gap = width() - len(lines[-1]) - len(tag)
    lines = [*lines[:-1], f"{lines[-1]}{' ' * gap}{tag}"] if rest and gap > 1 else [*lines, f"  {tag}"]
    return "".join(f"{line}\n" for line in lines)


def gib(count: int) -> str:
    """Bytes as GiB: 79.6 GiB; small amounts as MiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def joined(items: Iterable[str], *, empty: str = "") -> str:
    """Items that are not empty, with commas."""
    return ", ".join(item for item in items if item) or empty
