"""The page that goes with a machine: what it is, was wrong, was done, is proved, how fast it is, what changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from firstlight.bench.judgement import judged
from firstlight.bench.results import RunResult
from firstlight.numerals import counted
from firstlight.report.handover import CheckRead, Fault, Handover, Proof, RunTaken, Said, StepTaken, StepToTake, WayOut
from firstlight.report.html.bench_page import tiles
from firstlight.report.html.cases import cases_section
from firstlight.report.html.families import families_section
from firstlight.report.html.markup import Markup, commands, el, joined, prose, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table
from firstlight.report.html.roofline import roofline_section
from firstlight.tables import Tables

MENU = (
    ("missing", "Missing"), ("is", "What it is"), ("was", "What was wrong"), ("now", "What is wrong"),
    ("done", "What was done"), ("proved", "What is proved"), ("speed", "How fast"), ("changed", "Changed since"),
    ("again", "Do it again"),
)  # fmt: skip
_TONES = {"ok": "good", "failed": "bad", "skipped": "warn", "not here": ""}
_SEVERITIES = {"blocks": "blocks", "degrades": "works, but", "note": "note"}
_AGAIN = (
    ("What is wrong now, and what to do", "firstlight doctor"),
    ("Prove it again; the second prints every command", "firstlight verify\nfirstlight verify --evidence"),
    ("See what was applied, and take the newest run back", "firstlight undo --list\nfirstlight undo"),
    ("The same stack on the next machine", "firstlight emit bash --out pod"),
)


def handover_page(
    handover: Handover, runs: Sequence[RunResult], tables: Tables, documents: Sequence[dict[str, Any]], *, file: str
) -> str:
    """The whole file, e.g. handover.html; `documents` are what it was made from and are kept inside."""
    sections = sections_of(
        _missing(handover), _is(handover), _was(handover), _now(handover), _done(handover), _proved(handover.proved),
        *_speed(handover, runs, tables), _changed(handover),
        _again(handover.again, file, len(documents) if runs else 0),
    )  # fmt: skip
    there = "".join(sections)
    page = Page(
        title=handover.verdict,
        header=lead("handover", handover.verdict, (handover.machine, handover.place), tone=handover.tone.value),
        sections=sections,
        menu=tuple((anchor, name) for anchor, name in MENU if f'<section id="{anchor}"' in there),
        documents=tuple(documents),
        made=handover.collected_at,
        held=f"the {len(documents)} documents behind it are in this file",
    )
    return page_text(page)


def _missing(handover: Handover) -> Markup:
    if not handover.missing:
        return Markup("")
    items = [
        el("li", el("strong", each.part), prose(f": {each.why}. To make it:"), commands(each.make))
        for each in handover.missing
    ]
    return section("missing", "What is missing here", el("ul", *items, class_="steps"))


def _is(handover: Handover) -> Markup:
    grouped = [(name, _lines([each.text for each in lines])) for name, lines in groupby(handover.what_it_is, _name)]
    body = table(("What", "Value"), grouped, caption=f"Looked at {handover.collected_at}", class_="pairs")
    return section("is", "What it is", body)


def _name(said: Said) -> str:
    return said.name


def _lines(lines: Sequence[str]) -> Markup:
    return joined(el("div", prose(line)) for line in lines)


def _was(handover: Handover) -> Markup:
    if not handover.was_wrong:
        return Markup("")
    return section("was", "What was wrong", *(_fault(each) for each in handover.was_wrong))


def _now(handover: Handover) -> Markup:
    if not handover.is_wrong:
        return section("now", "What is wrong now", el("p", "Nothing that firstlight knows of."))
    notes = all(each.severity == "note" for each in handover.is_wrong)
    faults = (_fault(each) for each in handover.is_wrong)
    return section("now", "Notes" if notes else "What is wrong now", *faults, *map(_way_out, handover.way_out))


def _way_out(way: WayOut) -> Markup:
    """The command that does it comes first: what is typed in the steps needs the files that it writes."""
    files = any(each.files for each in way.steps)
    parts = [el("h3", f"What to do: {way.title}")]
    if any("you do this" not in each.marks for each in way.steps):
        parts += [el("p", "On that machine; it asks first:"), commands("firstlight apply")]
        parts += [el("p", "It does these steps; the commands alone are not enough, for they need the files that it "
                          "writes. Their text:"), commands("firstlight plan --diff")] if files else [
                     el("p", "It does these steps:")]  # fmt: skip
    steps = (el("li", *_to_take(each)) for each in way.steps)
    more = el("p", prose("`firstlight plan --options` has other ways."))
    return joined((*parts, el("ol", *steps, class_="steps"), more))


def _to_take(step: StepToTake) -> Iterator[Markup]:
    yield joined((step.title, el("span", f" ({', '.join(step.marks)})", class_="notes") if step.marks else ""))
    yield from (el("div", "file: ", el("code", line), class_="notes") for line in step.files)
    if step.note:
        yield el("div", prose(step.note))
    if step.commands:
        yield commands(step.commands)


def _fault(fault: Fault) -> Markup:
    words = ", ".join(word for word in (_SEVERITIES.get(fault.severity, ""), fault.code) if word)
    rows = (("saw", _lines(fault.saw) if fault.saw else ""), ("means", prose(fault.means)))
    pairs = [part for name, body in rows if body for part in (el("dt", name), el("dd", body))]
    head = el("h3", f"{fault.title} ", el("span", words, class_="code"))
    return el("article", head, el("dl", *pairs) if pairs else "", class_=fault.severity)


def _done(handover: Handover) -> Markup:
    if not handover.done:
        return Markup("")
    total = sum(run.seconds for run in handover.done)
    told = f"{counted(len(handover.done), 'run')} of `firstlight apply`, {_seconds(total)} of steps."
    cost = f" That cost {handover.cost}." if handover.cost else ""
    return section("done", "What was done", el("p", prose(told + cost)), *(_run(run) for run in handover.done))


def _run(run: RunTaken) -> Markup:
    head = el("h3", f"Run {run.number}: {run.title} ", el("span", f"{run.state}, {run.at}", class_="code"))
    return el("article", head, el("ol", *(el("li", *_step(step)) for step in run.steps), class_="steps"))


def _step(step: StepTaken) -> Iterator[Markup]:
    took = f", {_seconds(step.seconds)}" if step.seconds else ""
    when = f", {step.at}" if step.at else ""
    yield el("strong", step.title)
    yield el("span", f" {step.state}{took}{when}", class_="notes")
    if step.because:
        yield el("div", f"for: {step.because}", class_="notes")
    yield from (el("div", el("code", line), class_="notes") for line in step.files)
    if step.commands:
        yield commands(step.commands)
    if step.saw:
        yield el("div", "seen: ", prose(step.saw), class_="notes")
    if step.undo or step.undo_commands:
        yield el("div", "to take it back: ", prose("; ".join(step.undo)) if step.undo else "", class_="notes")
    if step.undo_commands:
        yield commands(step.undo_commands)


def _proved(proofs: Sequence[Proof]) -> Markup:
    for proof in proofs:
        rows = [_check(each) for each in proof.results]
        head = ("Check", "Result", "Seen", "Took")
        body = table(head, rows, caption=f"Proved {proof.started_at} with {proof.interpreter}")
        return section(
            "proved", "What is proved", *(el("p", prose(line)) for line in proof.summary), body, *_how(proof)
        )
    return Markup("")


def _check(check: CheckRead) -> tuple[str, ...]:
    what = joined((prose(check.says), *(el("div", prose(line)) for line in check.do)))
    word = el("span", check.outcome, class_=f"word whole {_TONES.get(check.outcome, '')}".strip())
    took = el("span", f"{check.seconds:.1f} s", class_="whole") if check.seconds else ""
    return joined((check.check, el("div", check.title, class_="code"))), word, what, took


def _how(proof: Proof) -> Iterator[Markup]:
    """The command of each check, so that a reader can run one alone."""
    ran = [f"# {each.check}\n{shlex.join(each.command)}" for each in proof.results if each.command]
    if ran:
        yield el("details", el("summary", "The command of each check"), commands("\n".join(ran)))


def _speed(handover: Handover, runs: Sequence[RunResult], tables: Tables) -> Iterator[Markup]:
    if not runs:
        return
    run, said = runs[-1], handover.speed[-1]
    things = [
        el("li", el("strong", f"{each.name[:1].upper()}{each.name[1:]}"), f": {each.text}.") for each in said.look_at
    ]
    compared = [el("p", f"Against run {base.run}: {line}")
                for base, line in zip(handover.speed, said.compared, strict=False)]  # fmt: skip
    yield section(
        "speed",
        "How fast it is",
        el("p", el("strong", said.verdict), f" Run {said.run}, {said.started}."),
        tiles(run, judged(run, tables), tables),
        *compared,
        el("ol", *things, class_="things") if things else "",
    )
    yield roofline_section(run, tables)
    yield families_section(run)
    yield el("details", el("summary", "Every case that was measured"), cases_section(run))


def _changed(handover: Handover) -> Markup:
    if not handover.changed:
        return section("changed", "What changed since", el("p", "Nothing that this page knows of."))
    rows = [(prose(each.what), _lines(each.then.split("\n")), _lines(each.now.split("\n")), each.since)
            for each in handover.changed]  # fmt: skip
    head = ("What", "Then", "Now", "Since")
    return section("changed", "What changed since", table(head, rows, caption=counted(len(rows), "change")))


def _again(made_by: str, file: str, number: int) -> Markup:
    """What a reader types next; `number` is the place of the last run among the documents, 0 where there is none."""
    against = (
        f"firstlight report --from {shlex.quote(file)} --number {number} --out bench.json\n"
        "firstlight bench --baseline bench.json"
    )
    more = (("Measure it again, against the run that is in this file", against),) if number else ()
    items = [el("li", f"{what}:", commands(typed)) for what, typed in (*_AGAIN, ("This page again", made_by), *more)]
    return section(
        "again", "Do it again, or take it back", el("p", "On that machine:"), el("ul", *items, class_="steps")
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
