"""The error texts we know: one row per cause, read from data/error_signatures.json and data/product_errors/.

A row of a product (vLLM's own wording, uv's resolver) names its family; what it does not say itself, the family says.
"""

from __future__ import annotations

import enum
import functools
import pkgutil
import re
from dataclasses import dataclass
from typing import Any

from firstlight.versions import ComputeCapability, CudaVersion
from firstlight.ways import kinds
from firstlight.ways.way import Way, type_name

DATA = "data/error_signatures.json"
FAMILIES = "data/error_families.json"
FINDINGS = "data/error_findings.json"
CONSEQUENCES = "data/error_consequences.json"
PRODUCTS = "data/product_errors"
ONE_OF = "The text alone does not tell which one it is, and it may be another."
_TAIL = re.compile(
    r"(?<=\d)\.$|(?:\\+[n\"']?)+[\"']*$"
)  # the end of a sentence, and the quotes of a text within a text
_GROUP = re.compile(r"\(\?P<(\w+)>")  # read off: compiling a thousand patterns takes half a second


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


class Sure(enum.Enum):
    """How much an answer claims: one cause, a list of causes that its proof tells apart, or only a kind of message."""

    CAUSE = "cause"
    ONE_OF = "one of several"
    READS_LIKE = "reads like"


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
class WayOut(Commands):
    """A way out, and the kinds of ways that it is made of, in order; () where it only explains: 'Ignore it.'"""

    ways: tuple[type[Way], ...]
    where_number: str = ""  # a pattern of the codes or GPUs that it is for, e.g. '7\\d\\d'; '' for any
    when: str = ""  # what must be so for it to help, e.g. 'it runs in a container'; '' where that is said or always so


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
    ways_out: tuple[WayOut, ...]
    source: tuple[str, ...]
    date: str
    confidence: Confidence
    not_a_fault: bool  # a warning that can be ignored
    fallback: bool  # spoken only where no other signature knows the line
    related: tuple[str, ...]  # codes of findings that `doctor` makes from the same cause
    follows: frozenset[str]  # codes of causes that this one is a symptom of where both are in a log
    lookup: str  # a table that fills in further placeholders, e.g. toolkit-for-arch; '' for none
    product: str = ""  # whose wording it is, e.g. vllm; '' for CUDA's, torch's and the system's own
    family: str = ""  # the kind of message, e.g. resolver-conflict
    wraps: bool = False  # only says that something failed above it: folded where a cause is known
    one_of: bool = False  # the text does not tell which of several causes it is, so neither which way out
    witness: bool = False  # tells what another process or rank did: never before a cause of another kind
    gpu_only: bool = False  # words of any program: spoken only where the text shows one that uses a GPU

    @property
    def sure(self) -> Sure:
        """A row of words that any program prints, and that has several causes, knows only a kind of message."""
        if not self.one_of:
            return Sure.CAUSE
        return Sure.READS_LIKE if self.gpu_only else Sure.ONE_OF


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """All rows, most basic first."""
    return tuple(signature_at(row["code"]) for row in rows())


@functools.cache
def signature_at(code: str) -> Signature:
    """One row: a text meets few of them, and making all takes a third of what reading them does."""
    return signature_of(_by_code()[code])


@functools.cache
def _by_code() -> dict[str, dict[str, Any]]:
    return {row["code"]: row for row in rows()}


@functools.cache
def rows() -> tuple[dict[str, Any], ...]:
    """All rows as they stand in the data, whole, most basic first."""
    found = _read(DATA)
    families = {family["code"]: family for family in _read(FAMILIES)}
    findings = found_by()
    for name in product_files():
        for row in _read(f"{PRODUCTS}/{name}"):
            whole = completed(row, families, name)
            if row["code"] in findings:
                whole["related"] = list(dict.fromkeys((*whole["related"], *findings[row["code"]])))
            found.append(whole)
    causes = _all_causes(found)
    found = [{**row, "follows": causes[row["code"]]} if causes[row["code"]] else row for row in found]
    return tuple(sorted(found, key=lambda row: (row["depth"], row["code"])))


def _all_causes(rows: list[dict[str, Any]]) -> dict[str, frozenset[str]]:
    """Code -> the codes of all that it follows from, also over others: no module, so no driver, so no GPU."""
    direct = {row["code"]: set(row.get("follows", ())) for row in rows}
    for group in _read(CONSEQUENCES):
        for code in group["follow"]:
            direct[code] |= set(group["of"])

    def causes(code: str) -> frozenset[str]:
        found, open_ = set(direct[code]), list(direct[code])
        while open_:
            new = direct[open_.pop()] - found
            found |= new
            open_ += new
        return frozenset(found)

    return {code: causes(code) if direct[code] else frozenset() for code in direct}


def found_by() -> dict[str, list[str]]:
    """Code of a product's row -> codes of the findings that doctor makes from the same cause."""
    rows: Any = _read(FINDINGS)
    return dict(rows)


def product_files() -> tuple[str, ...]:
    """The files of products' rows, by name."""
    from importlib import resources

    folder = resources.files("firstlight.diagnosis").joinpath(PRODUCTS)
    return tuple(sorted(item.name for item in folder.iterdir() if item.name.endswith(".json")))


def _read(name: str) -> list[dict[str, Any]]:
    import json

    text = pkgutil.get_data("firstlight.diagnosis", name)
    assert text is not None, f"{name} is not in the package"
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def completed(row: dict[str, Any], families: dict[str, dict[str, Any]], where: str) -> dict[str, Any]:
    """A product's row with what its family says for it; named groups of its patterns are its captures."""
    family = families.get(row["family"])
    if family is None:
        raise ValueError(f"{PRODUCTS}/{where}, {row['code']}: there is no family {row['family']!r}; {FAMILIES} has all")
    slots = dict.fromkeys([name for form in row["patterns"] for name in _GROUP.findall(form["regex"])])
    taken = ("title", "depth", "means", "prove", "ways_out", "related")
    otherwise = row.get("otherwise", {})
    return {
        **{name: family[name] for name in taken},
        "captures": [{"name": name, "decode": "text", "otherwise": otherwise.get(name, "?")} for name in slots],
        "not_a_fault": False,
        "fallback": False,
        "witness": family.get("witness", False),
        **row,
    }


@functools.cache
def way_types() -> dict[str, type[Way]]:
    """Every kind of way by its name, e.g. 'install-wheels'."""
    found = (each for each in vars(kinds).values() if isinstance(each, type) and issubclass(each, Way))
    return {type_name(each): each for each in found if each is not Way}


def decoded(kind: Decode, text: str) -> str:
    """The captured text as it is shown: 12040 as 12.4, sm_120 as 12.0; what does not parse stays as it is."""
    squeezed = _TAIL.sub("", " ".join(text.split()))
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


_WORD = re.compile(r"(?:[\w@%+=:,./~]|\\(?=\w))(?:[\w@%+=:,./~-]|\\(?=\w))*")  # C:\\path too
_QUOTED = re.compile(r"[\w@%+=:,./~<>!*()\[\] -]+")


def filled_command(line: str, captured: dict[str, str]) -> str:
    """A command with what was read out of somebody's log in it, and nothing that a shell would take for more.

    What we print is pasted: "cuda-drivers (>= 580)" is cuda-drivers, and within quotes no quote, $ or backtick stays.
    """
    for name, value in captured.items():
        while (at := line.find("{" + name + "}")) >= 0:
            inside = any(line.count(quote, 0, at) % 2 for quote in "\"'")
            found = (_QUOTED if inside else _WORD).match(value.strip().strip("'\""))
            line = line[:at] + (found.group() if found else name.upper()) + line[at + len(name) + 2 :]
    return line


def signature_of(row: dict[str, Any]) -> Signature:
    """A row as it is read from the data; raises ValueError where it names a kind of way that there is not."""
    return Signature(
        code=row["code"],
        title=row["title"],
        depth=row["depth"],
        patterns=tuple(Pattern(form["anchor"], form["regex"]) for form in row["patterns"]),
        captures=tuple(Captured(name["name"], Decode(name["decode"]), name["otherwise"]) for name in row["captures"]),
        cause=f"{row['cause']} {ONE_OF}" if row.get("one_of") is True else row["cause"],
        means=row["means"],
        prove=Commands(row["prove"]["expect"], tuple(row["prove"]["run"])),
        ways_out=tuple(way_out(way, row["code"]) for way in row["ways_out"]),
        source=tuple(row["source"]),
        date=row["date"],
        confidence=Confidence(row["confidence"]),
        not_a_fault=row["not_a_fault"],
        fallback=row["fallback"],
        related=tuple(row["related"]),
        follows=frozenset(row.get("follows", ())),
        lookup=row.get("lookup", ""),
        product=row.get("product", ""),
        family=row.get("family", ""),
        wraps=row.get("wraps", False),
        one_of=bool(row.get("one_of")),
        witness=row.get("witness", False),
        gpu_only=row.get("gpu_only", False),
    )


def way_out(way: dict[str, Any], code: str) -> WayOut:
    """A way out as it is read from the data; raises ValueError where it names a kind of way that there is not."""
    known = way_types()
    try:
        kinds_of = tuple([known[name] for name in way["ways"]])
    except KeyError as unknown:
        raise ValueError(
            f"{DATA}, {code}: {unknown.args[0]!r} is not a kind of way; ways/kinds.py has them all"
        ) from None
    return WayOut(way["say"], tuple(way["run"]), kinds_of, way.get("where_number", ""), way.get("when", ""))
