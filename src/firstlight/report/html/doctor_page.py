"""A diagnosis to look at: the verdict, the cause in full, its symptoms, the ways out; the document is inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firstlight.diagnosis.agreement import doubts
from firstlight.diagnosis.finding import Diagnosis, Finding, Severity
from firstlight.diagnosis.log_lines import not_explained
from firstlight.diagnosis.observed import has_nvidia_gpu
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.numerals import counted
from firstlight.plan.option import Option
from firstlight.report.doctor_text import healthy_sentence
from firstlight.report.facts_text import Detail, facts_text
from firstlight.report.html.markup import Markup, commands, el, joined, prose, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.options_text import gigabytes, reservations, short_minutes
from firstlight.report.steps_lines import commands_of, folded
from firstlight.report.summary import machine_summary
from firstlight.ways.platform import Platform, platform_of
from firstlight.ways.step import Step, StepKind
from firstlight.ways.way import Way, first_ways
from firstlight.ways.words import title_of

_MOST_OPTIONS = 5


def doctor_page(
    facts: Facts,
    diagnosis: Diagnosis,
    options: Sequence[Option],
    document: Mapping[str, Any],
    *,
    steps: Sequence[Step] = (),
) -> str:
    """The whole file; `steps` are those of the first option."""
    what, where = machine_summary(facts)
    primary = diagnosis.of(diagnosis.primary)
    rest = [finding for finding in diagnosis.findings if finding.code != diagnosis.primary]
    platform = platform_of(facts)
    sections = sections_of(
        section("cause", "The cause", _finding(primary, "")) if primary is not None else Markup(""),
        _options(options, platform, steps),
        section(
            "also",
            "Also seen" if primary else "Notes",
            *(_finding(finding, _does(finding, options, platform)) for finding in rest),
        )
        if rest
        else Markup(""),
        _not_explained(facts, diagnosis),
        _facts(facts, diagnosis),
    )
    names = (
        ("cause", "The cause"),
        ("out", "Ways out"),
        ("also", "Also seen"),
        ("seen", "Not explained"),
        ("facts", "Facts"),
    )
    there = "".join(sections)
    page = Page(
        title=_verdict(facts, diagnosis, primary),
        header=lead(
            "doctor", _verdict(facts, diagnosis, primary), (what, where), tone=_tone(facts, diagnosis, primary)
        ),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in names if f'<section id="{anchor}"' in there),
        documents=(document,),
        made=facts.collected_at,
    )
    return page_text(page)


def _verdict(facts: Facts, diagnosis: Diagnosis, primary: Finding | None) -> str:
    if primary is None:
        notes = f"; {counted(len(diagnosis.findings), 'note')}" if diagnosis.findings else ""
        if _has_no_gpu(facts):
            return f"There is no NVIDIA GPU here{notes}."
        if doubts(facts, diagnosis):
            return f"Nothing was found that keeps CUDA from working here, but not all evidence agrees{notes}."
        return f"Nothing keeps CUDA from working here{notes}."
    return {Severity.BLOCKS: "Blocked: ", Severity.DEGRADES: "Works, but: ", Severity.NOTE: ""}[
        primary.severity
    ] + primary.title


def _tone(facts: Facts, diagnosis: Diagnosis, primary: Finding | None) -> str:
    if primary is None:
        return "warn" if doubts(facts, diagnosis) else "good"
    return "bad" if primary.severity is Severity.BLOCKS else "warn"


def _not_explained(facts: Facts, diagnosis: Diagnosis) -> Markup:
    lines = [f"{each.line.seen_in}: {each.line.text}" for each in not_explained(facts, diagnosis)]
    return section("seen", "Seen and not explained", el("p", _lines(lines))) if lines else Markup("")


def _does(finding: Finding, options: Sequence[Option], platform: Platform) -> str:
    """What answers a finding: the first option, or else ways of its own."""
    if options and finding.code in options[0].because:
        return "the first of the ways out"
    return _ways(first_ways(finding.answers), platform)


def _finding(finding: Finding, does: str) -> Markup:
    rows = [
        ("saw", _lines(finding.saw)),
        ("means", prose(finding.means)),
        ("error", el("pre", finding.error) if finding.error else ""),
        ("do", does),
        ("cause", f"a symptom of {finding.caused_by}" if finding.caused_by else ""),
        ("source", prose(finding.source)),
    ]
    pairs = [part for name, body in rows if body for part in (el("dt", name), el("dd", body))]
    head = el("h3", f"{finding.title} ", el("span", f"{finding.severity.value}, {finding.code}", class_="code"))
    return el("article", head, el("dl", *pairs), class_=finding.severity.value)


def _lines(lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return prose(lines[0])
    return el("ul", *(el("li", prose(line)) for line in lines)) if lines else ""


def _ways(ways: Sequence[Way], platform: Platform) -> str:
    """What is done, in order, with numbers where there are several."""
    titles = list(dict.fromkeys(title_of(way, platform) for way in ways))
    return el("ol", *(el("li", title) for title in titles)) if len(titles) > 1 else "".join(titles)


def _options(options: Sequence[Option], platform: Platform, steps: Sequence[Step]) -> Markup:
    if not options:
        return Markup("")
    rows = [tuple(_option_cells(option, platform)) for option in options[:_MOST_OPTIONS]]
    more = len(options) - len(rows)
    note = el("p", prose(f"And {more} more; `firstlight plan --options` lists them all.")) if more > 0 else Markup("")
    head = ("Option", "Download", "Minutes", "Needs root", "Can be taken back", "Proof")
    return section("out", "Ways out", table(head, rows, caption="Best first"), note, *_commands(steps))


def _commands(steps: Sequence[Step]) -> Iterator[Markup]:
    """The steps of the first option, each with what is typed or written."""
    if not steps:
        return
    yield el("h3", "The first of them, step by step")
    yield el("ol", *(el("li", *_step(step)) for step in steps), class_="steps")
    if any(step.kind is not StepKind.MANUAL for step in steps):
        yield el(
            "p", prose("`firstlight apply` does this on that machine, after asking; `firstlight undo` takes it back.")
        )


def _step(step: Step) -> Iterator[str]:
    marks = [
        word for word, holds in (("optional", step.optional), ("you do this", step.kind is StepKind.MANUAL)) if holds
    ]
    yield joined((step.title, el("span", f" ({', '.join(marks)})", class_="notes") if marks else ""))
    yield from (el("div", prose(f"`{folded(change)}`"), class_="notes") for change in step.files)
    if step.kind is StepKind.MANUAL and not (step.commands or step.lines) and step.note:
        yield el("div", prose(step.note))
    if typed := commands_of(step, 0):
        yield commands(typed)


def _option_cells(option: Option, platform: Platform) -> Iterator[str]:
    cost = option.cost
    more = [el("div", line, class_="code") for line in reservations(option)]
    yield joined((option.title, _ways(option.ways, platform) if len(option.ways) > 1 else "", *more))
    yield gigabytes(cost.download_bytes) if isinstance(cost.download_bytes, Known) else "not known"
    yield short_minutes(cost.minutes) if isinstance(cost.minutes, Known) else "not known"
    yield "yes" if option.needs_root else "no"
    yield option.reversible.value
    yield option.proof.value


def _has_no_gpu(facts: Facts) -> bool:
    return not has_nvidia_gpu(facts) and not isinstance(facts.driver.kernel_version, Known)


def _facts(facts: Facts, diagnosis: Diagnosis) -> Markup:
    said = "" if diagnosis.findings else healthy_sentence(facts, diagnosis)
    text = el("p", f"{said[:1].upper()}{said[1:]}.") if said else Markup("")
    body = el("pre", facts_text(facts, Detail.ALL))
    return section(
        "facts", "What was looked at", text, el("details", el("summary", "Every fact, and where it was seen"), body)
    )
