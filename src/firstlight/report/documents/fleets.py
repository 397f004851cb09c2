"""The documents of `fleet`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.bench.slow_causes import Why
from firstlight.bench.slow_gpus import HeldAgainst, State
from firstlight.diagnosis.finding import Severity
from firstlight.fleet.judged import Verdict
from firstlight.fleet.run import HostRun, Verb
from firstlight.lock.drift import Change
from firstlight.report.documents.words import Command

# What a row was compared with: the usual hosts of its kind, or a class of a lock; `unlike` are the hosts of a kind of
# which no two are equal; `with_gpus` are the hosts that have GPUs, where this one has none.
Against = TypedDict(
    "Against", {"hosts": list[str], "unlike": list[str], "with_gpus": list[str], "lock": str, "class": str}
)


class FindingNamed(TypedDict):
    code: str
    severity: Annotated[str, Severity]
    caused_by: str


class Difference(TypedDict):
    """One fact that is not as it is there."""

    part: str
    name: str
    change: Annotated[str, Change]
    here: str
    there: str


class FleetRow(TypedDict):
    """Hosts of which the same is said: one odd one, or all that are equal."""

    hosts: Annotated[list[str], {"minItems": 1}]
    verdict: Annotated[str, Verdict]
    primary: str  # the code of the finding behind the verdict; "" where there is none
    reason: str  # why it was not looked at
    do: str  # the one command that helps then; "" where none does
    asked_by: Annotated[str, {"enum": ["", "python", "sh", "recorded"]}]
    gpus: str
    driver: str
    cuda: str
    torch: str
    findings: list[FindingNamed]
    against: Against
    differs: list[Difference]
    harmless: list[Difference]


class FleetDocument(TypedDict):
    schema: str
    made_by: str
    exit_code: Annotated[int, {"enum": [0, 1, 3, 4]}]
    counts: dict[Annotated[str, Verdict], Annotated[int, {"minimum": 0}]]
    rows: list[FleetRow]


class FleetAddDocument(TypedDict):
    schema: str
    name: str
    host: str
    user: str
    port: Annotated[int, {"minimum": 1, "maximum": 65535}]
    key_alias: str
    files: list[str]
    calls: list[Command]


class SlowRule(TypedDict):
    slower_by: float
    mads: float
    least_equal: float
    least_runs: float


class SlowCause(TypedDict):
    why: Annotated[str, Why]
    saw: str


class LowFigure(TypedDict):
    """A figure in which a GPU is slow."""

    figure: str
    by: float  # The smaller of its shortfalls over the runs: 0.07 is 7 %.
    # How many median absolute deviations of its class; 0 against a baseline, null where the class does not differ.
    mads: float | None
    why: Annotated[str, Why]
    saw: str


class GpuShown(TypedDict):
    host: str
    device: str
    state: Annotated[str, State]
    held_against: list[Annotated[str, HeldAgainst]]
    figures: int  # How many were compared.
    low_by: float
    causes: list[SlowCause]
    low: list[LowFigure]
    reason: str
    shares: dict[str, float]  # Family by family the rate beside the class's median: 1 is the same.


class GpuClassShown(TypedDict):
    """GPUs that are held against each other."""

    name: str
    torch: str | None
    effort: str
    note: str  # Said where fewer than five are equal.
    gpus: list[GpuShown]


class FleetGpusDocument(TypedDict):
    """Of bench: which GPUs are slow."""

    schema: str
    made_by: str
    rule: SlowRule
    slow: int
    classes: list[GpuClassShown]


class FleetRunKept(TypedDict):
    schema: str
    made_by: str
    run: str  # The id of the run, e.g. 20261118T060000Z-3f2a9c.
    verb: Annotated[str, Verb]
    of: str  # Of an undo: the run that is taken back; empty otherwise.
    at: str
    who: str
    words: list[str]  # Options of the verb on every host.
    folder: str
    inventory: str
    ssh_config: str
    passed_on: list[str]  # Words for ansible-playbook; passwords come in files, whose paths stand here.
    exit_code: Annotated[int, {"enum": [0, 1, 3, 4]}]
    hosts: list[HostRun]


class FleetRunDocument(FleetRunKept, total=False):
    gpus: FleetGpusDocument


class PlanOfHosts(TypedDict):
    hosts: list[str]
    reason: str  # Why there is no plan; empty where there is one.
    plan: dict[str, Any] | None  # A document of schema firstlight.plan/2, of the first of the hosts.


class FleetPlanDocument(TypedDict):
    schema: str
    rows: list[PlanOfHosts]
