"""The frame of every report: title, look, script, data; a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Any

from firstlight import __version__
from firstlight.frozen import dataclass
from firstlight.report.html.embedded import embed
from firstlight.report.html.markup import Markup, code, el, joined, whole

_HALF = 60  # characters; a longer cell is given the whole row of a tablet
_SHORT = 20  # characters, which stand beside a label on a phone
NOTHING = ("", "-")  # cells with nothing to say, which a narrow screen leaves out


@dataclass(frozen=True, slots=True)
class Page:
    """What differs between reports: title 'NVIDIA H200', its sections, the (anchor, name) pairs of its menu."""

    title: str
    header: Markup
    sections: tuple[Markup, ...]
    menu: tuple[tuple[str, str], ...]
    documents: tuple[Mapping[str, Any], ...]
    made: str  # when the data was made, e.g. 2026-11-15T06:15:44Z; "" where it does not say
    held: str = "the data is in this file"


def page_text(page: Page) -> str:
    """The whole file."""
    style, script = _own("look.css"), _own("look.js")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"firstlight {__version__}"),
        el("title", f"{page.title} - firstlight"),
        el("style", Markup(style)),
    )
    body = el(
        "body",
        el("a", "Skip to the report", href="#main", class_="skip"),
        page.header,
        _menu(page.menu),
        el("main", *page.sections, id="main"),
        _footer(page),
        el("div", id="tip", role="tooltip", hidden=""),
        embed(page.documents),
        el("script", Markup(script)),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def lead(kind: str, verdict: str, lines: Sequence[str], *, tone: str) -> Markup:
    """The top of a report: what it is, the verdict as the heading, and what stands under it; tone good, warn or bad."""
    return el(
        "header",
        el("p", "firstlight ", el("span", kind), class_="kind"),
        el("h1", el("span", class_=f"dot {tone}", aria_hidden="true"), verdict),
        *(line if isinstance(line, Markup) else el("p", line, class_="under") for line in lines),
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, class_: str = "", widths: Sequence[str] = ()
) -> Markup:
    """A table; where the screen is narrow its cells stand one below the other, each with its column's name.

    `widths` are the classes of look.css that say how wide the columns of tables are which stand below each other.
    """
    kept = [row if widths else [_undivided(cell) for cell in row] for row in rows]
    cells = [
        el("tr", *(_cell(name, cell, place) for place, (name, cell) in enumerate(zip(head, row, strict=True))))
        for row in kept
    ]
    return el(
        "table",
        el("caption", caption),
        el("colgroup", *(el("col", class_=width) for width in widths)) if widths else Markup(""),
        el("thead", el("tr", *(el("th", name, scope="col") for name in head))),
        el("tbody", *cells),
        class_=f"stack {class_}".strip(),
        data_rove="",
    )


def _undivided(cell: str) -> str:
    """A short cell divided between words alone: a browser divides 570.133.20 rather than make its column wider."""
    if isinstance(cell, Markup) or cell in NOTHING or (len(cell) > _SHORT and "--" not in cell):
        return cell
    kept = ("",) if len(cell) <= _SHORT else ("--", "(--")  # of a long cell its options alone
    return joined(whole(word) if word.strip() and word.startswith(kept) else word for word in re.split(r"( +)", cell))


def _cell(name: str, content: str, place: int) -> Markup:
    if place == 0:
        return el("th", content, scope="row")
    if content in NOTHING:
        return el("td", content, class_="empty")
    wide = {"class_": "wide"} if len(re.sub(r"<[^>]*>", "", content)) > _HALF else {}
    return el("td", content, data_label=name, **wide) if name else el("td", content)


def _menu(entries: Sequence[tuple[str, str]]) -> Markup:
    if len(entries) < 2:
        return Markup("")
    return el("nav", *(el("a", name, href=f"#{anchor}") for anchor, name in entries), aria_label="Sections")


def _footer(page: Page) -> Markup:
    since = f" from data of {page.made}" if page.made else ""
    several = len(page.documents) > 1
    take = "firstlight report --from FILE" + (f" --number {len(page.documents)}" if several else "")
    which = f" (1 to {len(page.documents)})" if several else ""
    return el(
        "footer",
        el("p", f"Made by firstlight {__version__}{since}; {page.held}. To take {'one' if several else 'it'} out: ",
           code(take), f"{which}."),
        el("button", "Save the data as JSON", type="button", id="save", hidden=""),
    )  # fmt: skip


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _own(name: str) -> str:
    raw = pkgutil.get_data("firstlight.report.html", name)
    assert raw is not None, name
    return raw.decode("utf-8")


def sections_of(*parts: Markup) -> tuple[Markup, ...]:
    """The parts that have something to show."""
    return tuple(part for part in parts if part)
