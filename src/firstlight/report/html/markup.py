"""HTML that cannot be broken out of: text is escaped unless it was built here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from firstlight.secrets import masked

_EMPTY = frozenset({"meta", "br", "input", "link", "col"})
_BACKTICKS = re.compile(r"`([^`\n]+)`")
_LONGEST_WHOLE = 32  # a longer word may break: it is wider than a phone
_SHAPES = frozenset({"rect", "circle", "line", "path"})


class Markup(str):
    """Text that is HTML already, e.g. Markup('<b>1</b>'); only `el` and `joined` make it."""

    __slots__ = ()


def el(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """An element: el('td', '1 < 2', class_='n') is <td class="n">1 &lt; 2</td>; stroke_width becomes stroke-width."""
    written = "".join(f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items())
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    if name in _SHAPES:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts one after the other, plain text escaped."""
    return Markup(
        "".join(part if isinstance(part, Markup) else html.escape(masked(part), quote=False) for part in parts)
    )


def number(text: str, formula: str, *, name: str = "span") -> Markup:
    """A number whose formula shows on hover and focus: number('87 %', 'least time / time = ...')."""
    return el(name, text, class_="n", title=formula)


def mark(formula: str, *shapes: str, **attributes: str | float) -> Markup:
    """A mark of a chart that says what it is on hover, on focus and to a screen reader."""
    return el("g", el("title", formula), *shapes, **{"class_": "n", **attributes})


def section(anchor: str, title: str, *children: str) -> Markup:
    """A section of the page with a heading that can be linked to."""
    return el("section", el("h2", title, id=f"{anchor}-title"), *children, id=anchor, aria_labelledby=f"{anchor}-title")


def figure(drawing: str, caption: str) -> Markup:
    """A chart that scrolls in its own frame where the screen is narrow."""
    frame = el("div", drawing, class_="frame", tabindex="0", role="group", aria_label=caption, data_rove="")
    return el("figure", frame, el("figcaption", caption))


def prose(text: str) -> Markup:
    """A sentence whose `commands` between backticks are set as code."""
    return joined(code(part) if place % 2 else part for place, part in enumerate(_BACKTICKS.split(text)))


def code(text: str) -> Markup:
    """A command inside a sentence or a cell: its lines end between words, never inside --device=cpu."""
    words = (whole(word) if "-" in word and len(word) <= _LONGEST_WHOLE else word for word in re.split(r"( +)", text))
    return el("code", *words)


def whole(text: str) -> Markup:
    """Text that no line end divides, e.g. the version 570.133.20."""
    return el("span", text, class_="whole")


def commands(text: str) -> Markup:
    """Command lines to paste: never wrapped, in a box of their own that scrolls."""
    return el("pre", text.rstrip("\n"), class_="commands", tabindex="0")


def _attribute(key: str) -> str:
    plain = key.rstrip("_")
    return plain if plain in ("viewBox", "preserveAspectRatio") else plain.replace("_", "-")


def _value(value: str | float) -> str:
    if isinstance(value, float):
        return f"{round(value, 2):g}" if abs(value) < 100_000 else f"{value:.0f}"
    return html.escape(masked(str(value)), quote=True)
