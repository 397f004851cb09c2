"""The documents of `lint`, `explain`, `guard` and `tables`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.diagnosis.finding import Severity
from firstlight.diagnosis.signatures import Sure
from firstlight.report.documents.planning import AnswerShown
from firstlight.report.documents.words import Code, Command, Count, Day, Positive, Said, WayShown, WayType
from firstlight.tables.row import Confidence


class LintAnswer(TypedDict):
    says: Said  # What is done, in words.
    ways: Annotated[list[WayShown], {"minItems": 1}]  # In order.
    lines: list[Said]  # Lines to paste, as this file takes them; empty where words have to do.


class LineFinding(TypedDict):
    """What will break, and the line that brings it about."""

    code: Code
    severity: Annotated[str, Severity]
    file: Said  # The file itself, or a Dockerfile that a compose file builds.
    line: Positive
    target: str  # Stage or service; empty where there is one only.
    title: Said
    saw: Said
    because: Said
    error: str  # What the user meets later; empty where nothing is printed.
    answers: Annotated[list[LintAnswer], {"minItems": 1}]  # Best first; one of them is enough.
    source: Said


class IgnoredFinding(LineFinding):
    """A finding that a comment in the file silences."""

    reason: Said  # What the comment gives as the reason.


class LintedFile(TypedDict):
    file: Said
    kind: str  # What it was read as, e.g. Kubernetes manifest; empty where it could not be read.
    not_judged: list[Said]  # What could not be read, in sentences that begin with file and line.
    findings: list[LineFinding]  # In the order of the lines.
    ignored: list[IgnoredFinding]  # Findings that a comment in the file silences.


class LintDocument(TypedDict):
    schema: str
    made_by: str
    tables_of: Day  # The day the newest row of the tables was checked.
    machine: str  # The GPU stack in one line.
    blocked: bool  # Whether a finding blocks, in any file.
    files: list[LintedFile]  # In the order in which they were given; those of a folder by name.


class ProofByHand(TypedDict):
    """Commands that show whether this is the cause, and what they show if it is."""

    run: Annotated[list[Said], {"minItems": 1}]
    shows: Said


class WayOut(TypedDict):
    when: str  # What must be so for it to help; empty where that is said or always so.
    say: Said
    run: Command
    # Types of way, in order; where it leaves a choice, those of each. Empty where it only explains.
    ways: list[WayType]


class SignatureShown(TypedDict):
    """A cause that is known by its texts."""

    code: Code  # Stable name of the cause, e.g. driver-too-old.
    title: Said
    product: str  # Whose wording it is, e.g. vllm; empty for CUDA's, torch's and the system's own.
    family: str  # The kind of message, e.g. resolver-conflict; empty where the row has a cause of its own.
    depth: Count  # How basic: lower comes first.
    not_a_fault: bool  # A warning that can be ignored.
    cause: Said
    one_of: bool  # The text does not tell which of several causes it is: the proof does, and the ways out are by cause.
    # How much the answer claims: one cause, a list that the proof tells apart, or only a kind of message.
    sure: Annotated[str, Sure]
    means: Said
    prove: ProofByHand
    ways_out: Annotated[list[WayOut], {"minItems": 1}]  # Best first.
    source: Annotated[list[Said], {"minItems": 1}]
    date: Day
    confidence: Annotated[str, Confidence]
    related: list[Said]  # Codes of findings that judge the same cause on a machine.


class SightingShown(TypedDict):
    """Where it was seen first with these values."""

    line: Positive
    count: Positive
    text: str
    values: dict[str, str]


class ExplanationShown(SignatureShown):
    """A cause that was recognised, and where."""

    count: Positive
    sightings: Annotated[list[SightingShown], {"minItems": 1}]


class PatternShown(TypedDict):
    anchor: Said
    regex: Said


class KnownSignature(SignatureShown):
    """A cause with the patterns by which it is recognised."""

    patterns: Annotated[list[PatternShown], {"minItems": 1}]


class FoundHere(TypedDict):
    code: str
    saw: list[str]
    answers: list[AnswerShown]  # What doctor answers it with, best first.


class OptionNamed(TypedDict):
    id: str
    title: str
    ways: list[WayShown]  # In the order they are carried out, with their arguments.


class LastError(TypedDict):
    line: Positive
    text: str
    looks_like: str


class ExplainDocument(TypedDict):
    """What the text says."""

    schema: str
    made_by: Said
    recognised: bool
    lines: Count
    bytes: Count
    context: list[Said]  # Sentences about the machine at hand, if it was looked at.
    here: list[
        FoundHere
    ]  # With --here: the causes on that machine of what the text says, doctor's primary finding first.
    # With --here: doctor's first option, where the text belongs to its primary finding.
    option: Annotated[list[OptionNamed], {"maxItems": 1}]
    explanations: list[ExplanationShown]  # Most basic first.
    # Where nothing was recognised: the line that tells most, and what kind of error it reads like ('' for none).
    last_error: Annotated[list[LastError], {"maxItems": 1}]


class ProductCount(TypedDict):
    product: Said
    count: Positive


class ExplainListDocument(TypedDict):
    """explain --list"""

    schema: str
    made_by: Said
    products: Annotated[list[ProductCount], {"minItems": 1}]  # How many errors each product has in this document.
    signatures: Annotated[list[KnownSignature], {"minItems": 1}]


class GuardedAction(TypedDict):
    kind: Annotated[str, {"enum": ["shell", "words", "edit"]}]
    text: str


class DeniedShown(TypedDict):
    reason: str
    key: str
    line: Count
    instead: str
    command: str
    through: list[str]


class CallRead(TypedDict):
    words: Command
    sets: dict[str, str]
    writes: list[str]
    through: list[str]
    contained: bool


class GuardDocument(TypedDict):
    schema: str
    firstlight: str
    decision: Annotated[str, {"enum": ["allow", "deny"]}]
    action: GuardedAction
    policy: str
    mode: Annotated[str, {"enum": ["deny-list", "allow-list"]}]
    denied: list[DeniedShown]
    read: list[CallRead]


class TableNamed(TypedDict):
    name: Annotated[str, {"pattern": "^[a-z_]+$"}]
    group: Annotated[str, {"pattern": "^[a-z]+$"}]
    title: Said
    about: Said
    row_count: Positive
    newest_date: Day
    oldest_date: Day


class TableShown(TableNamed, total=False):
    """A table; without its rows where only the list was asked for."""

    rows: Annotated[list[RowShown], {"minItems": 1}]


class TablesDocument(TypedDict):
    """What `firstlight tables --json` prints: the knowledge of the tool, every row with its source."""

    schema: str
    newest_date: Day  # The day the newest row was checked.
    oldest_date: Day
    age_days: Count
    warning: str  # A sentence where the tables are older than 180 days, else empty.
    tables: list[TableShown]


RowShown = Annotated[
    dict[str, Any],
    {
        "description": "The facts of the table, under names of its own, and where they come from.",
        "properties": {
            "source": {"type": "string", "minLength": 1},
            "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
            "confidence": {"enum": [each.value for each in Confidence]},
            "note": {"type": "string"},
        },
        "required": ["source", "date", "confidence", "note"],
        "additionalProperties": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"type": ["string", "number"]}},
            ]
        },
    },
]
