"""What judging works with: a question (facts, tables, what is wanted), rules, and the findings they give."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.ways.way import Chain, Way


class Severity(enum.Enum):
    """How bad: BLOCKS keeps CUDA in torch from working, DEGRADES works worse or will break, NOTE is good to know."""

    BLOCKS = "blocks"
    DEGRADES = "degrades"
    NOTE = "note"


WORST_FIRST = (Severity.BLOCKS, Severity.DEGRADES, Severity.NOTE)


class Goal(enum.Enum):
    """What the machine is for; it decides how bad a missing compiler is."""

    INFER = "infer"
    TRAIN = "train"
    BUILD_EXTENSIONS = "build-extensions"
    KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Question:
    """One machine to judge, for a goal, with what is wanted on it, e.g. ("torch==2.9.0+cu130",)."""

    facts: Facts
    tables: Tables
    goal: Goal = Goal.INFER
    wants: tuple[str, ...] = ()

    @property
    def wants_no_cuda(self) -> bool:
        """Whether what is wanted is a torch without CUDA, which a machine without a GPU runs."""
        return bool(self.wants) and all(want.rstrip().endswith("+cpu") for want in self.wants)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log that the rules read, without its time, e.g. LogLine("Xid 79 at 0000:18:00: ...", "dmesg")."""

    text: str
    seen_in: str
    pci: str = ""  # the GPU it names: 0000:18:00; "" where it names none


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing a rule saw, with where, and the answers to exactly that, best first: each is a chain of ways.

    `means` and `error` replace the rule's own where this case differs: numbers in them are those of this machine.
    `severity` too, where this case is worse or lighter; `lines` are those of a log that it accounts for.
    """

    saw: str
    answers: tuple[Chain, ...] = ()
    means: str = ""
    error: str = ""
    severity: Severity | None = None
    lines: tuple[LogLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure function and the words around it; it is called by the function's name, which names the fault."""

    check: Callable[[Question], Iterator[Seen]]  # driver_too_old_for_wheel
    severity: Severity
    depth: int  # how basic: 10 device and container, 20 kernel driver, 30 libcuda, 40 torch, 50 libraries, ...
    title: str  # one plain sentence: what is wrong
    fires_when: str  # one sentence: the condition, for --explain-rule and --why-not
    looks_at: tuple[str, ...]  # paths of the facts it reads, e.g. driver.kernel_version
    means: str  # what follows, in the user's terms
    source: str  # vendor page or public thread
    ways: tuple[type[Way], ...]  # every kind of way that its answers are made of
    error: str = ""  # the text the user meets, as the program prints it; "": the program says nothing
    explains: tuple[str, ...] = ()  # codes that are only symptoms once this rule has fired
    for_goals: tuple[tuple[Goal, Severity], ...] = ()  # where the goal changes the severity
    when_wanted: Severity = Severity.NOTE  # where something is wanted, at least this
    needs: tuple[str, ...] = ()  # facts without which it cannot tell: "not so" is not earned where one is unknown
    of_host: bool = False  # about the machine around a container: from inside one it does not look
    settled_by: tuple[str, ...] = ()  # facts that answer no wherever they are known, inside a container too
    wanted_title: str = ""  # the title where the judged torch is only wanted: nothing of it is installed

    @property
    def code(self) -> str:
        """driver-too-old-for-wheel: what screens, pages and documents call it; it stays as it is."""
        return self.check.__name__.replace("_", "-")

    def severity_for(self, question: Question) -> Severity:
        """How bad it is for this goal and these wants."""
        severity = dict(self.for_goals).get(question.goal, self.severity)
        if not question.wants or question.wants_no_cuda:
            return severity
        return min(severity, self.when_wanted, key=WORST_FIRST.index)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fired on this machine."""

    code: str
    severity: Severity
    title: str
    saw: tuple[str, ...]
    means: str
    error: str
    answers: tuple[Chain, ...]  # best first; those that cannot work here come last, with the reason
    source: str
    caused_by: str = ""  # code of the finding it is a symptom of; "" when it stands alone
    lines: tuple[LogLine, ...] = ()  # of logs, that it accounts for


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, most basic and worst first, and which one is the primary cause ("" on a healthy machine)."""

    findings: tuple[Finding, ...]
    primary: str

    @property
    def blocked(self) -> bool:
        return any(finding.severity is Severity.BLOCKS for finding in self.findings)

    def of(self, code: str) -> Finding | None:
        return next((finding for finding in self.findings if finding.code == code), None)
