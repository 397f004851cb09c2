"""What a check is, and what comes of it. All of it is data; the checks themselves stand in checks.py."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Union

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.tables import Tables

Value = Union[str, int, float, bool]


class CheckOutcome(enum.Enum):
    """What came of a check; only OK is a proof."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"  # it could be looked at here and was not; the reason is said
    NOT_HERE = "not here"  # this machine has nothing to prove it on


class Need(enum.Enum):
    """What a check cannot do without."""

    TORCH = "a torch that imports"
    GPU = "an NVIDIA GPU"  # the check runs wherever a GPU is built in, so that it can say that torch does not see it
    WORKING_GPU = "a GPU that computes in torch"
    SECOND_GPU = "a second GPU"
    CXX = "a C++ compiler"
    TOOLKIT = "a CUDA toolkit of torch's major"
    FILES = "--so FILE"
    BASELINE = "the check `here`"  # what the fresh shells are compared with
    SSHD = "an ssh server on this machine that lets this user in"


class Lane(enum.Enum):
    """What runs one after the other; lanes run side by side."""

    GPU = "gpu"
    BUILD = "build"
    SHELL = "shell"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, e.g. ('max error', 3.1e-07)."""

    what: str
    value: Value


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check, e.g. gpus: ok, '1 of 1 GPU computes what float64 computes'."""

    check: str
    title: str
    outcome: CheckOutcome
    says: str
    do: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    command: tuple[str, ...] = ()
    seconds: float = 0.0
    stderr: str = ""  # the end of it, where the check failed


class FeatureState(enum.Enum):
    """What a feature of torch is here."""

    WORKS = "works here"
    COMPILED = "compiled in"  # in this build; not run, because nothing here can run it or it has nothing to run
    NOT_ON_GPU = "not on this GPU"
    NOT_BUILT = "not in this build"
    NOT_INSTALLED = "not installed"  # a package of its own
    BROKEN = "does not work"  # in this build and made for this GPU, and yet it failed
    NO_SUCH_THING = "no such thing"
    NOT_LOOKED_AT = "not looked at"


@dataclass(frozen=True, slots=True)
class FeatureResult:
    """One row of the feature table: flash-attention, works here, with what was seen and what the table rests on."""

    feature: str
    title: str
    state: FeatureState
    saw: str
    is_so: str  # what is so where the claim is not, e.g. "a package of its own"
    source: str


class Met(enum.Enum):
    """Whether a requirement holds."""

    YES = "met"
    NO = "not met"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """One line of a team's list: torch, needed >=2.9,<3, given 2.11.0+cu130, met."""

    requirement: str
    needed: str
    given: str
    met: Met
    line: int  # of the require file


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child said: its verdict, its evidence, and `more`, which a judge compares with facts and tables."""

    outcome: CheckOutcome
    says: str
    do: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    more: dict[str, Any]
    command: tuple[str, ...]
    seconds: float
    stderr: str


@dataclass(frozen=True, slots=True)
class Case:
    """What is proved: the machine's facts, the tables, the interpreter and what the user handed over."""

    facts: Facts
    tables: Tables
    machine: Machine
    interpreter: str
    so_files: tuple[str, ...]
    work: str  # a folder of this run, removed afterwards


Judge = Callable[["Check", Answer, Case, dict[str, Answer]], Result]


@dataclass(frozen=True, slots=True)
class Check:
    """One proof: a child script, what it needs, how long it may take and who judges what it says.

    `asks` gives the child's question, `judge` its result; `done` are the answers of earlier checks by name.
    """

    name: str
    title: str
    script: str  # in children/, without .py; "" where the judge needs no child
    needs: tuple[Need, ...]
    lane: Lane
    limit_s: float
    after: tuple[str, ...] = ()
    shell: str = ""  # the fresh environment it runs in; "" is the one firstlight runs in
    asks: Callable[[Case], dict[str, Any]] = lambda case: {}
    judge: Judge | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run of `verify`."""

    machine: str
    place: str
    interpreter: str
    started_at: str
    seconds: float
    results: tuple[Result, ...]
    features: tuple[FeatureResult, ...]
    requirements: tuple[RequirementResult, ...]
    require_file: str
    asked: tuple[str, ...]  # checks named with --only: these must be proved
    has_gpu: bool
