"""A diagnosis to look at: the verdict, the cause in full, its symptoms, the ways out; the document is inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from firstlight.diagnosis.finding import Diagnosis, Finding, Severity, with_other_ways
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.plan.option import Option
from firstlight.report.facts_text import Detail, facts_text
from firstlight.report.html.markup import Markup, el, joined, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.layout import counted, gib
from firstlight.report.summary import machine_summary

_WORDS = {Severity.BLOCKS: "blocked", Severity.DEGRADES: "works, but", Severity.NOTE: "note"}
_MOST_OPTIONS = 5


def doctor_page(facts: Facts, diagnosis: Diagnosis, options: Sequence[Option], document: dict[str, Any]) -> str:
    """The whole file."""
    what, where = machine_summary(facts)
    primary = diagnosis.of(diagnosis.primary)
    rest = [finding for finding in diagnosis.findings if finding.code != diagnosis.primary]
    sections = sections_of(
        section("cause", "The cause", _finding(primary)) if primary is not None else Markup(""),
        _options(options),
        section("also", "Also seen" if primary else "Notes", *(_finding(finding) for finding in rest))
        if rest
        else Markup(""),
        _facts(facts),
    )
    names = (("cause", "The cause"), ("out", "Ways out"), ("also", "Also seen"), ("facts", "Facts"))
    there = "".join(sections)
    page = Page(
        title=_verdict(diagnosis, primary),
        header=lead("doctor", _verdict(diagnosis, primary), (what, where), tone=_tone(primary)),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in names if f'<section id="{anchor}"' in there),
        documents=(document,),
        made=facts.collected_at,
    )
    return page_text(page)


def _verdict(diagnosis: Diagnosis, primary: Finding | None) -> str:
    if primary is None:
        notes = f"; {counted(len(diagnosis.findings), 'note')}" if diagnosis.findings else ""
        return f"Nothing keeps CUDA from working here{notes}."
    return {Severity.BLOCKS: "Blocked: ", Severity.DEGRADES: "Works, but: ", Severity.NOTE: ""}[
        primary.severity
    ] + primary.title


def _tone(primary: Finding | None) -> str:
    return "good" if primary is None else "bad" if primary.severity is Severity.BLOCKS else "warn"


def _finding(finding: Finding) -> Markup:
    rows = [
        ("saw", _lines(finding.saw)),
        ("means", finding.means),
        ("error", el("pre", finding.error) if finding.error else ""),
        ("do", _steps(finding.do)),
        ("cause", f"a symptom of {finding.caused_by}" if finding.caused_by else ""),
        ("source", finding.source),
    ]
    pairs = [part for name, body in rows if body for part in (el("dt", name), el("dd", body))]
    head = el("h3", f"{finding.title} ", el("span", f"{_WORDS[finding.severity]}, {finding.code}", class_="code"))
    return el("article", head, el("dl", *pairs), class_=finding.severity.value)


def _lines(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else el("ul", *(el("li", line) for line in lines)) if lines else ""


def _steps(steps: Sequence[str]) -> str:
    """A list with numbers where there are several; other ways to do a step stand below it."""
    groups = with_other_ways(steps)
    if len(groups) > 1:
        return el("ol", *(el("li", _below_each_other(group)) for group in groups))
    return _below_each_other(groups[0]) if groups else ""


def _below_each_other(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else joined(el("div", line) for line in lines)


def _options(options: Sequence[Option]) -> Markup:
    if not options:
        return Markup("")
    rows = [tuple(_option_cells(option)) for option in options[:_MOST_OPTIONS]]
    more = len(options) - len(rows)
    note = el("p", f"and {more} more; firstlight plan lists them all.") if more > 0 else Markup("")
    head = ("Option", "Download", "Minutes", "Needs root", "Can be taken back", "Proof")
    return section("out", "Ways out", table(head, rows, caption="Best first"), note)


def _option_cells(option: Option) -> Iterator[str]:
    cost = option.cost
    yield option.title
    yield gib(int(cost.download_bytes.value)) if isinstance(cost.download_bytes, Known) else "not known"
    yield f"{cost.minutes.value:.0f}" if isinstance(cost.minutes, Known) else "not known"
    yield "yes" if option.needs_root else "no"
    yield option.reversible.value
    yield option.proof.value


def _facts(facts: Facts) -> Markup:
    body = el("pre", facts_text(facts, Detail.ALL))
    return section(
        "facts", "What was looked at", el("details", el("summary", "Every fact, and where it was seen"), body)
    )
