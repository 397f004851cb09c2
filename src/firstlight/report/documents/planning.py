"""The documents of `doctor`, `rules` and `plan`: findings, answers, options and steps."""

from __future__ import annotations

from typing import Annotated, TypedDict

from firstlight.diagnosis.finding import Goal, Severity
from firstlight.plan.clashes import Clash
from firstlight.plan.option import Keeps, Kind
from firstlight.report.documents.words import Code, Command, Count, Positive, Said, WayShown
from firstlight.ways.step import Condition, StepKind
from firstlight.ways.way import Proof, Reversible, Risk

Amount = TypedDict(
    "Amount",
    {
        "value": Annotated[float | None, {"minimum": 0, "description": "null = not known."}],
        "from": Annotated[str, {"description": "Where the number is from, or why it is not known."}],
        "assumed": Annotated[
            bool,
            {"description": "Whether it rests on an assumption: something that was neither measured nor stated."},
        ],
    },
)


class AnswerShown(TypedDict):
    """Ways in order that answer a finding, or why they do not work here."""

    ways: list[WayShown]  # In order; empty where it does not work here.
    proof: Annotated[str, Proof] | None
    proof_by: str
    title: str  # Empty where the ways say enough.
    why_not: str  # Why it does not work here; empty where it does.


class FindingShown(TypedDict):
    """What is wrong, what was seen of it, and what can be done."""

    code: Code
    severity: Annotated[str, Severity]
    primary: bool
    caused_by: str | None  # Code of the finding it is a symptom of.
    title: str
    saw: Annotated[list[str], {"minItems": 1}]
    means: str
    error: str  # The text the user meets; empty where nothing fails at once.
    answers: list[AnswerShown]  # Best first; those that do not work here come last, with the reason.
    source: str


class LogLine(TypedDict):
    line: str
    seen_in: str
    count: Positive


class OptionShown(TypedDict):
    """A way out: chains of ways tried on paper, with what they cost and what holds afterwards."""

    id: Annotated[str, {"pattern": "^[a-z-]+:\\S"}]
    kind: Annotated[str, Kind]
    title: Annotated[str, {"minLength": 1, "maxLength": 70}]
    ways: list[WayShown]  # In the order they are carried out.
    because: list[str]  # Codes of the findings that are gone afterwards.
    stays: list[str]  # Codes of the findings that still block afterwards.
    after: list[str]  # Codes of everything that is found afterwards, on paper.
    brings: list[str]  # Codes of what does not block and was not found before.
    unsure: list[str]  # Paths of the facts that only running it can tell.
    only_for: str  # Whom it reaches, where that is not every program, e.g. login shells.
    proof: Annotated[str, Proof]
    proof_by: str
    keeps: Annotated[str, Keeps]  # How much of what is installed stays.
    satisfies: list[str]
    leaves_out: list[str]  # What does not hold afterwards, each with why.
    minutes: Amount
    download_bytes: Amount
    disk_bytes: Amount
    money: Amount
    needs_root: bool
    reversible: Annotated[str, Reversible]
    risk: Annotated[str, Risk]
    feasible: bool
    why_not: str


class DiagnosisDocument(TypedDict):
    schema: str
    made_by: str
    collected_at: str
    machine: str  # The GPU stack in one line.
    place: str  # Where it runs, in one line.
    goal: Annotated[str, Goal]
    wants: list[str]
    blocked: bool  # Whether a finding keeps CUDA in torch from working: exit code 1.
    primary: str | None  # Code of the primary finding; null where nothing is wrong.
    findings: list[FindingShown]
    not_explained: list[LogLine]  # Lines of logs that no finding accounts for, each once.
    # Where nothing is wrong: what speaks against calling the machine healthy; empty where all evidence agrees.
    doubts: list[str]
    options: list[OptionShown]  # Ways out, best first; those of options-2.json.


class OptionsDocument(TypedDict):
    schema: str
    made_by: str
    rule: str  # The order in one sentence or two.
    options: list[OptionShown]
    rejected: list[OptionShown]
    impossible: str  # Which part of the wants cannot be had here; empty where all can.
    untried: Count  # Chains of ways that were not tried on paper, because the limit was reached.
    refused: list[Clash]  # Wants that cannot be had together.


class RejectedOption(TypedDict):
    id: str
    why_not: str


class FileShown(TypedDict):
    """One file before and after."""

    path: Annotated[str, {"pattern": "^/"}]
    before: str  # Empty: there was no such file.
    after: str
    removes: bool
    mode: int
    # Folders that LD_LIBRARY_PATH loses by it; tried with the shells that read the file before it is written.
    takes_out: list[str]
    variables: list[str]  # That a shell file sets or unsets by it.
    unread: bool  # A file that may be there and was not read: the lines are put behind what it has.
    links_to: str  # Where the symbolic link leads that is made here; empty: a file with text.
    diff: str


class StepShown(TypedDict):
    """One step: what runs, how it is known to be done, how it is taken back."""

    id: Annotated[str, {"pattern": "^[0-9]{2,}-[a-z0-9.+-]+$"}]
    kind: Annotated[str, StepKind]
    title: Said
    because: Said  # The code of a finding, a want, or the option of the command line that asked for it.
    # In order, after the files were written. Those of a manual step are for a person to type.
    commands: list[Annotated[Command, {"minItems": 1}]]
    files: list[FileShown]
    needs_root: bool
    done_when: Annotated[list[Condition], {"minItems": 1}]  # Looked at before, to skip the step; after, to prove it.
    seconds: Amount
    bytes: Amount
    optional: bool
    note: str
    lines: list[str]
    undo: list[Annotated[Command, {"minItems": 1}]]  # Run after the files were put back from their backups.


class PlanHead(TypedDict):
    schema: str
    made_by: str
    collected_at: str
    machine: str
    place: str
    goal: Annotated[str, Goal]
    wants: list[str]
    refused: list[Clash]  # Wants that cannot be had together.
    other_options: list[str]  # The ids of all options that can work, best first.
    rejected: list[RejectedOption]


class PlanDocument(PlanHead):
    """An option and its steps, or none."""

    option: OptionShown | None  # null: no option can work here.
    steps: list[StepShown]
    # SHA-256 over the steps; the same machine and request give the same.
    digest: Annotated[str, {"pattern": "^([0-9a-f]{64})?$"}]


class RuleShown(TypedDict):
    """All that is known of a rule of `doctor`."""

    code: str
    severity: Annotated[str, Severity]
    for_goals: dict[str, str]  # Severities that differ by goal.
    title: str
    fires_when: str
    means: str
    error: str
    looks_at: list[str]  # Places in the facts.
    ways: list[str]  # The types of way that its answers are made of.
    source: str


class RuleDocument(RuleShown):
    schema: str
    made_by: str


class RulesDocument(TypedDict):
    schema: str
    made_by: str
    counts: dict[Annotated[str, Severity], int]  # How many rules of each severity are listed.
    rules: list[RuleShown]


class WhyNotDocument(TypedDict):
    schema: str
    made_by: str
    collected_at: str
    rule: RuleShown
    fired: bool
    finding: FindingShown | None  # null where it did not fire.
    here: dict[str, list[str]]  # Place in the facts -> what this machine has there, one line a fact.
