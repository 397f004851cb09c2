"""The error texts we know: one row per cause, read from data/error_signatures.json."""

from __future__ import annotations

import enum
import functools
import pkgutil
from dataclasses import dataclass
from typing import Any

from firstlight.versions import ComputeCapability, CudaVersion

DATA = "data/error_signatures.json"


class Decode(enum.Enum):
    """How captured text is read before it is shown."""

    TEXT = "text"
    CUDA_NUMBER = "cuda-number"  # 12040, as cuDriverGetVersion returns it, is 12.4
    CAPABILITY = "capability"  # sm_120 is 12.0


class Confidence(enum.Enum):
    """How the row is known: from the artefact itself, from the vendor's text, or from a public thread."""

    MEASURED = "measured"
    DOCUMENTED = "documented"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One printed form: `anchor` must be on one line before `regex` is tried, e.g. 'no kernel image is available'."""

    anchor: str
    regex: str


@dataclass(frozen=True, slots=True)
class Captured:
    """A named group of the regexes, e.g. driver_cuda; `otherwise` is put where a form does not print it."""

    name: str
    decode: Decode
    otherwise: str


@dataclass(frozen=True, slots=True)
class Commands:
    """A sentence and the commands that belong to it, e.g. 'Reboot.' with ('sudo reboot',); there may be none."""

    say: str
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """One cause: how it is recognised, what it means, the command that proves it and the ways out, best first."""

    code: str
    title: str
    depth: int  # lower is more basic: a missing driver (11) comes before a missing library (69)
    patterns: tuple[Pattern, ...]
    captures: tuple[Captured, ...]
    cause: str
    means: str
    prove: Commands  # what to run, and what the output shows if this is the cause
    ways_out: tuple[Commands, ...]
    source: tuple[str, ...]
    date: str
    confidence: Confidence
    not_a_fault: bool  # a warning that can be ignored
    fallback: bool  # spoken only where no other signature knows the line
    related: tuple[str, ...]  # codes of findings that `doctor` makes from the same cause
    lookup: str  # a table that fills in further placeholders, e.g. toolkit-for-arch; '' for none


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """All rows, most basic first."""
    import json

    text = pkgutil.get_data("firstlight.diagnosis", DATA)
    assert text is not None, f"{DATA} is not in the package"
    rows = (_signature(row) for row in json.loads(text)["rows"])
    return tuple(sorted(rows, key=lambda row: (row.depth, row.code)))


def decoded(kind: Decode, text: str) -> str:
    """The captured text as it is shown: 12040 as 12.4, sm_120 as 12.0; what does not parse stays as it is."""
    squeezed = " ".join(text.split())
    if kind is Decode.CUDA_NUMBER and squeezed.isdigit() and int(squeezed) >= 1000:
        return str(CudaVersion.from_driver_number(int(squeezed)))
    if kind is Decode.CAPABILITY and squeezed.removeprefix("sm_").replace(".", "").isdigit():
        return str(ComputeCapability.parse(squeezed))
    return squeezed


def filled(text: str, values: dict[str, str]) -> str:
    """The text with each {name} replaced; braces of shell and JSON around other words stay."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _signature(row: dict[str, Any]) -> Signature:
    return Signature(
        code=row["code"],
        title=row["title"],
        depth=row["depth"],
        patterns=tuple(Pattern(form["anchor"], form["regex"]) for form in row["patterns"]),
        captures=tuple(Captured(name["name"], Decode(name["decode"]), name["otherwise"]) for name in row["captures"]),
        cause=row["cause"],
        means=row["means"],
        prove=Commands(row["prove"]["expect"], tuple(row["prove"]["run"])),
        ways_out=tuple(Commands(way["say"], tuple(way["run"])) for way in row["ways_out"]),
        source=tuple(row["source"]),
        date=row["date"],
        confidence=Confidence(row["confidence"]),
        not_a_fault=row["not_a_fault"],
        fallback=row["fallback"],
        related=tuple(row["related"]),
        lookup=row.get("lookup", ""),
    )
