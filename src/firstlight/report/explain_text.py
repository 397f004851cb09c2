"""What `firstlight explain` says: as text for a screen, as one JSON document (schema firstlight.explain/2)."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from firstlight import __version__
from firstlight.diagnosis.explain import Explained, Explanation, Sighting
from firstlight.diagnosis.explain_telling import kind_of
from firstlight.diagnosis.signatures import Commands, Signature, Sure, WayOut
from firstlight.frozen import dataclass
from firstlight.report.ways_json import chain_document, way_document
from firstlight.visible import one_line
from firstlight.ways.way import type_name

if TYPE_CHECKING:
    from firstlight.diagnosis.finding import Finding
    from firstlight.plan.option import Option

SCHEMA = "firstlight.explain/2"
NARROWEST, WIDEST = 60, 100
_RECORD = Commands(
    "To report it, record the machine (names are replaced) and add the log.", ("firstlight facts --record DIR",)
)
NEXT_STEPS = (
    Commands("Give more of the log: the first error counts, and it is often far above the last.", ()),
    Commands("Let firstlight look at the machine itself.", ("firstlight doctor",)),
    Commands("Search the message in the issues of the project whose file the traceback names last.", ()),
    _RECORD,
)


@dataclass(frozen=True, slots=True)
class Here:
    """The machine at hand, if it was looked at: sentences, the findings that go with the text, and doctor's way out."""

    sentences: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # the primary one first
    way_out: str = ""  # laid out already
    facts_file: str = ""  # the saved machine that was looked at instead of this one
    option: tuple[Option, ...] = ()  # the first one of doctor, where the text belongs to its primary finding


NOT_LOOKED = Here()


@dataclass(frozen=True, slots=True)
class _Labels:
    """What stands before the parts of a row: where the machine tells its own cause, the row's is that of most."""

    cause: str
    several: str  # the same where the text does not tell which it is
    ways_out: str
    by_cause: str


_ALONE = _Labels("cause", "possible cause", "ways out", "then, depending on which it is")
_IN_GENERAL = _Labels(
    "usual cause",
    "possible cause elsewhere",
    "ways out elsewhere (here the one above comes first)",
    "elsewhere, depending on which it is (here the one above comes first)",
)


def explained_text(explained: Explained, here: Here = NOT_LOOKED, *, width: int = 88) -> str:
    """All explanations, most basic first; `here` is what the machine at hand shows of it."""
    width = min(max(width, NARROWEST), WIDEST)
    if not explained.explanations:
        return _not_recognised(explained, here, width=width)
    rows = [*_overview(explained, width), *_wrapped(here.sentences, width), *here.way_out.splitlines()]
    labels = _IN_GENERAL if here.findings else _ALONE
    for explanation in explained.explanations:
        rows += [*([""] if rows else []), *_block(explanation, width, labels)]
    return "\n".join(rows) + "\n"


def explained_json(explained: Explained, here: Here = NOT_LOOKED) -> str:
    """The same as one JSON document."""
    return document(
        {
            "recognised": bool(explained.explanations),
            "lines": explained.lines,
            "bytes": explained.size_bytes,
            "context": list(here.sentences),
            "here": [
                {"code": each.code, "saw": list(each.saw), "answers": [chain_document(one) for one in each.answers]}
                for each in here.findings
            ],
            "option": [
                {"id": each.id, "title": each.title, "ways": [way_document(way) for way in each.ways]}
                for each in here.option
            ],
            "explanations": [_explanation(each) for each in explained.explanations],
            "last_error": [
                {"line": each.line, "text": printable(each.text), "looks_like": kind_of(each.text)}
                for each in explained.last_error
            ],
        }
    )


def known_json(signature: Signature) -> dict[str, Any]:
    """A known error with its forms and sources, as --list prints it."""
    forms = [{"anchor": form.anchor, "regex": form.regex} for form in signature.patterns]
    return {**_signature(signature), "patterns": forms}


def printable(text: str) -> str:
    """Control characters made visible, so that a log cannot repaint the terminal: ESC becomes \\x1b."""
    return one_line(text)


def _overview(explained: Explained, width: int) -> list[str]:
    found = explained.explanations
    if len(found) == 1:
        return []
    head = (
        f"{len(found)} signatures in {explained.lines:,} line{'s' * (explained.lines > 1)}, the most basic first: "
        "start there, then run it again."
    )
    widest = max(len(each.signature.code) for each in found)
    rows = [f"  {each.signature.code:<{widest}}  line {each.first_line}{_alarm(each.signature)}" for each in found]
    return [*_wrapped((head,), width), *rows]


def _block(explanation: Explanation, width: int, labels: _Labels) -> list[str]:
    signature = explanation.signature
    kind = " (reads like)" if signature.sure is Sure.READS_LIKE else ""
    rows = _fold(f"{signature.code}{kind}: {signature.title}{_alarm(signature)}", width, "", "  ")
    for sighting in explanation.sightings:
        rows += _fold(f"line {sighting.line}{_times(sighting)}: {printable(sighting.text)}", width, "  ", "    ")
    if left := explanation.count - sum(sighting.count for sighting in explanation.sightings):
        rows.append(f"  and {left:,} more with other values")
    label = labels.cause if signature.sure is Sure.CAUSE else labels.several
    rows += _fold(f"{label}: {signature.cause}", width, "  ", "    ")
    rows += _fold(f"means: {signature.means}", width, "  ", "    ")
    rows += _several(signature, width, labels) if signature.one_of else _one(signature, width, labels)
    known = f"{signature.confidence.value}, {signature.date}"
    return [*rows, *_fold(f"source: {'; '.join(signature.source)} ({known})", width, "  ", "    ")]


def _one(signature: Signature, width: int, labels: _Labels) -> list[str]:
    """The proof of a cause and the ways out of it, best first."""
    rows = ["  prove it:", *(f"       {command}" for command in signature.prove.run)]
    rows += _fold(f"it shows: {signature.prove.say}", width, "    ", "      ")
    rows += [f"  {labels.ways_out}:"]
    for number, way in enumerate(signature.ways_out, start=1):
        rows += _way(f"{number}. {_with_condition(way)}", way, width)
    return rows


def _several(signature: Signature, width: int, labels: _Labels) -> list[str]:
    """Where the text leaves several causes: what tells them apart comes first, then what helps by what it is."""
    rows = ["  first see which it is:", *(f"       {command}" for command in signature.prove.run)]
    rows += _fold(f"it may show: {signature.prove.say}", width, "    ", "      ")
    rows += [f"  {labels.by_cause}:"]
    for way in signature.ways_out:
        rows += _way(f"-  {_with_condition(way)}", way, width)
    return rows


def _with_condition(way: WayOut) -> str:
    """What a way out says, behind what must be so for it to help: 'If it runs in a container: start it ...'."""
    if not way.when:
        return way.say
    return f"If {way.when}: {way.say[:1].lower()}{way.say[1:]}" if way.say else f"If {way.when}:"


def _way(said: str, way: Commands, width: int) -> list[str]:
    return [*_fold(said, width, "    ", "       "), *(f"         {command}" for command in way.run)]


def _not_recognised(explained: Explained, here: Here, *, width: int) -> str:
    lines = "this line" if explained.lines <= 1 else f"these {explained.lines:,} lines"
    rows = _fold(f"Not recognised: no signature we know is in {lines}.", width, "")
    rows += told_most(explained, width).splitlines()
    rows += _wrapped(here.sentences, width)
    rows += ["", "This does not mean that the machine is fine. What to do next:"]
    for number, step in enumerate(_next_steps(here), start=1):
        rows += _way(f"{number}. {step.say}", step, width)
    return "\n".join([*rows, "Known signatures: firstlight explain --list"]) + "\n"


def told_most(explained: Explained, width: int) -> str:
    """The line of an error that nobody knows that tells most, and what it reads like; '' where none is an error."""
    rows: list[str] = []
    for sighting in explained.last_error:
        rows += ["The most telling line:"]
        rows += _fold(f"line {sighting.line}: {printable(sighting.text)}", width, "  ", "    ")
        rows += [f"It reads like {kind}." for kind in (kind_of(sighting.text),) if kind]
    return "".join(f"{row}\n" for row in rows)


def _next_steps(here: Here) -> tuple[Commands, ...]:
    """What to do next; a saved machine is recorded already, and is the one to judge."""
    if not here.facts_file:
        return NEXT_STEPS
    from firstlight.diagnosis.explain_platform import about_saved_machine

    return tuple(about_saved_machine(step, here.facts_file) for step in NEXT_STEPS if step is not _RECORD)


def _times(sighting: Sighting) -> str:
    return f" ({sighting.count:,} times)" if sighting.count > 1 else ""


def _alarm(signature: Signature) -> str:
    return " (not a fault)" if signature.not_a_fault else ""


def _wrapped(sentences: tuple[str, ...], width: int) -> list[str]:
    return [row for sentence in sentences for row in _fold(sentence, width, "")]


def _fold(text: str, width: int, indent: str, further: str = "") -> list[str]:
    """The text folded at spaces alone: a path or an option stays in one piece."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=further or indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _explanation(explanation: Explanation) -> dict[str, Any]:
    sightings = [
        {
            "line": sighting.line,
            "count": sighting.count,
            "text": printable(sighting.text),
            "values": dict(sighting.values),
        }
        for sighting in explanation.sightings
    ]
    return {**_signature(explanation.signature), "count": explanation.count, "sightings": sightings}


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "code": signature.code,
        "title": signature.title,
        "product": signature.product,
        "family": signature.family,
        "depth": signature.depth,
        "not_a_fault": signature.not_a_fault,
        "cause": signature.cause,
        "one_of": signature.one_of,
        "sure": signature.sure.value,
        "means": signature.means,
        "prove": {"run": list(signature.prove.run), "shows": signature.prove.say},
        "ways_out": [
            {"when": way.when, "say": way.say, "run": list(way.run), "ways": [type_name(kind) for kind in way.ways]}
            for way in signature.ways_out
        ],
        "source": list(signature.source),
        "date": signature.date,
        "confidence": signature.confidence.value,
        "related": list(signature.related),
    }


def document(content: dict[str, Any]) -> str:
    """One JSON document of this verb: schema and version first."""
    whole = {"schema": SCHEMA, "made_by": f"firstlight {__version__}", **content}
    return json.dumps(whole, indent=1, ensure_ascii=True) + "\n"
