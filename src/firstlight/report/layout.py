"""Plain text on a screen: labels on the left, wrapped text on the right."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from firstlight.secrets import masked

WIDTH = 110
LABEL = 12


def labelled(label: str, lines: Iterable[str], *, width: int = WIDTH, label_width: int = LABEL) -> str:
    """One label with its lines, wrapped and aligned: 'driver      570.133.20, open module'."""
    out: list[str] = []
    for line in lines:
        whole = masked(line)  # wrapped, a secret would stand on a line of its own and look like a word
        wrapped = textwrap.wrap(whole, width - label_width, break_long_words=False, break_on_hyphens=False) or [""]
        first, *rest = wrapped
        out.append(f"{'' if out else label:<{label_width}}{first}".rstrip())
        out += [f"{'':<{label_width}}  {more}".rstrip() for more in rest]
    return "".join(f"{line}\n" for line in out)


def gib(count: int) -> str:
    """Bytes as GiB: 79.6 GiB; small amounts as MiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def joined(items: Iterable[str], *, empty: str = "") -> str:
    """Items that are not empty, with commas."""
    return ", ".join(item for item in items if item) or empty


def counted(count: int, thing: str) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} {thing}" + ("" if count == 1 else "s")
