"""The chain of shared libraries to look at: a graph with what is missing marked, who has it, and every file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from firstlight.libraries.analysis import Analysis
from firstlight.libraries.closing import Closing, Need
from firstlight.report.html.libs_graph import graph
from firstlight.report.html.markup import Markup, commands, el, figure, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.libs_tree import short_path, why_that_one

MENU = (("graph", "The chain"), ("missing", "Missing"), ("wrong", "Not as it should be"), ("all", "Every library"))


def libs_page(analysis: Analysis, closing: Closing, document: Mapping[str, Any], *, fix: str) -> str:
    """The whole file; `fix` is the command that closes the chain."""
    verdict, tone = _verdict(analysis)
    sections = sections_of(_graph(analysis), _missing(closing, fix), _wrong(analysis), _all(analysis))
    there = "".join(sections)
    page = Page(
        title=verdict,
        header=lead(
            "libs", verdict, (f"{analysis.target.title} ({analysis.target.arch}), {analysis.target.place}",), tone=tone
        ),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in MENU if f'<section id="{anchor}"' in there),
        documents=(document,),
        made="",
    )
    return page_text(page)


def _verdict(analysis: Analysis) -> tuple[str, str]:
    name = analysis.target.title
    if analysis.missing:
        count = len(analysis.missing)
        return f"{name} does not load: {count} shared {'library is' if count == 1 else 'libraries are'} missing.", "bad"
    if not analysis.sound:
        return f"{name} finds every library, but one of them does not fit.", "bad"
    return (
        f"{name} finds all {len(analysis.loaded)} shared libraries it needs.",
        "good",
    )


def _graph(analysis: Analysis) -> Markup:
    caption = (
        "From left to right: which file needs which. Dashed red: missing. Orange: found, but wrong. Libraries of the "
        "system that are found are counted, not drawn. Hover or focus a box for its file and the rule that found it."
    )
    return section("graph", "The chain", figure(graph(analysis), caption))


def _missing(closing: Closing, fix: str) -> Markup:
    if not closing.needs:
        return Markup("")
    rows = [(need.missing.name, _askers(need), _who_has(need), need.way.value) for need in closing.needs]
    body = table(("Library", "Needed by", "Package that has it", "Way"), rows, caption=f"{len(rows)} missing")
    return section("missing", "Missing", body, el("p", "What can be fixed from here:"), commands(fix))


def _askers(need: Need) -> str:
    names = list(dict.fromkeys(posixpath.basename(path) for path in need.missing.requested_by))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _who_has(need: Need) -> str:
    if need.provided:
        return f"{need.provided[0].project} {need.provided[0].version}"
    return need.package or need.reason or need.way.value


def _wrong(analysis: Analysis) -> Markup:
    site = analysis.target.site
    rows = [
        (posixpath.basename(gap.library_path), f"lacks {gap.version}", short_path(gap.library_path, site))
        for gap in analysis.gaps
        if not gap.weak
    ]
    rows += [(each.name, "a stub: every call of it fails", short_path(each.path, site)) for each in analysis.stubs]
    rows += [
        (each.name, f"taken by {each.rule.value} before the package's own", short_path(each.path, site))
        for each in analysis.shadows
        if each.exchanged
    ]
    if not rows:
        return Markup("")
    return section(
        "wrong", "Not as it should be", table(("Library", "What", "File"), rows, caption=f"{len(rows)} files")
    )


def _all(analysis: Analysis) -> Markup:
    site = analysis.target.site
    rows = [(each.name, why_that_one(each, site)) for each in analysis.loaded]
    if not rows:
        return Markup("")
    body = table(("Library", "Found in"), rows, caption=f"{len(rows)} found")
    return section("all", "Every library", el("details", el("summary", f"{len(rows)} libraries that are found"), body))
