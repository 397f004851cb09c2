"""The documents of `bench`, `verify`, `profile` and `kernels`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from firstlight.bench.claim import Remark
from firstlight.bench.comparable import Label
from firstlight.bench.compare import CaseChange, FamilyChange, Lost
from firstlight.bench.judgement import Tone, Weight
from firstlight.bench.results import LimitResult
from firstlight.bench.statistics import Change
from firstlight.profile.result import Changed, Limit, Pace, Source, TierResult, Trouble
from firstlight.report.documents.words import Command, Count, Positive, Said, Sha256
from firstlight.report.exports import Format
from firstlight.verify.check import CheckOutcome, FeatureResult, RequirementResult


class Claimed(TypedDict):
    """The number as it was given; null where it was not."""

    case: str
    shape: str
    dtype: str
    gpu: str | None
    peaks: str
    link: str | None
    ms: float | None
    tflops: float | None
    gbps: float | None
    saturates: bool


class Counted(TypedDict):
    """What the call has to do, and the speed that the claimed time would mean."""

    time_s: float
    flops: int
    dense_flops: int
    bytes: int
    flops_model: str
    bytes_model: str
    tflops: float
    gbps: float
    limit: LimitResult


class ClaimDocument(TypedDict):
    schema: str
    made_by: str
    claim: Claimed
    can_be_true: bool | None
    remarks: list[Remark]
    counted: Counted


class ComparedRun(TypedDict):
    """One of the two runs."""

    id: str
    started: str
    gpus: list[str]
    torch: str | None
    driver: str | None
    passes: int


class CompareDocument(TypedDict):
    schema: str
    made_by: str
    exit_code: Annotated[int, {"enum": [0, 1, 3]}]
    comparable: bool
    counts: dict[Annotated[str, Change], int]
    base: ComparedRun
    new: ComparedRun
    margin: float
    refused: list[str]
    labels: list[Label]
    cases: list[CaseChange]
    families: list[FamilyChange]
    lost: list[Lost]
    only_in_base: list[str]
    only_in_new: list[str]
    looks: int
    identical: bool


class EvidenceSeen(TypedDict):
    what: str
    value: str | float | bool


class ResultSeen(TypedDict):
    """One check, and what it proved."""

    check: Annotated[str, {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}]
    title: str
    outcome: Annotated[str, CheckOutcome]  # Only ok is a proof.
    says: Said
    do: list[str]
    evidence: list[EvidenceSeen]
    command: Command  # The argv of the child; empty where none was started.
    seconds: Annotated[float, {"minimum": 0}]
    stderr: str  # The end of what the child wrote to stderr, where the check failed.


class VerifyDocument(TypedDict):
    """A document of schema firstlight.verify/1."""

    schema: str
    made_by: str
    started_at: str  # UTC, e.g. 2026-11-15T02:38:25Z.
    seconds: Annotated[float, {"minimum": 0}]
    machine: str  # The GPU stack in one line.
    place: str  # Where it runs, in one line.
    interpreter: str  # The Python whose torch was proved.
    has_gpu: bool
    asked: list[str]  # Checks named with --only: these must be proved for exit code 0.
    exit_code: Annotated[int, {"enum": [0, 1]}]
    summary: list[str]
    results: list[ResultSeen]
    features: list[FeatureResult]
    require_file: str | None
    requirements: list[RequirementResult]


class ThingToSee(TypedDict):
    title: str
    saw: str
    means: str
    speaks: Annotated[str, Weight]  # against: it speaks against the card


class RunJudged(TypedDict):
    """What a run says as a whole, by the rules of the firstlight that wrote it."""

    verdict: str
    tone: Annotated[str, Tone]
    look_at: list[ThingToSee]


class BenchReportDocument(TypedDict):
    """What `firstlight bench report --json` prints: the file it wrote and what the report says first."""

    schema: str
    made_by: str
    file: str  # where the report was written
    bytes: Positive
    verdict: str  # the heading of the report
    tone: Annotated[str, Tone]
    look_at: list[ThingToSee]
    compared: list[str]  # a sentence for each earlier run


class LeftOut(TypedDict):
    """A case without a figure."""

    id: str
    gpu: Annotated[int, {"minimum": -1}]
    verdict: Annotated[str, {"enum": ["skipped", "invalid", "impossible", "failed"]}]
    reason: Said


class ExportDocument(TypedDict):
    schema: str
    made_by: str
    run: str
    to: Annotated[str, Format]
    interrupted: bool
    cases: Count
    figures: Count
    left_out: list[LeftOut]
    out: str | None
    bytes: Count
    sha256: Sha256
    text: str | None


class WorkSeen(TypedDict):
    flops: int | None
    least_bytes: int | None  # Bytes that must be moved if each is moved once.
    kind: Annotated[str, Pace]  # The unit that sets the pace.
    kind_from: str
    correct: bool | None
    correct_from: str


class ValueSeen(TypedDict):
    key: str
    what: str
    unit: Annotated[str, {"enum": ["%", "bytes", "s", "Hz", ""]}]
    value: float | None
    counters: list[str]
    why_not: str | None


class KernelSeen(TypedDict):
    name: str
    on_gpu: bool  # false: an operator of the processor, seen by the torch profiler.
    launches: int
    time_s: float | None  # Under the profiler: not a benchmark.
    grid: str | None
    block: str | None
    values: dict[str, float | None]


class ProfileDocument(TypedDict):
    schema: str
    made_by: str
    what: str  # Id of the case, the command, or the name of the report.
    is_case: bool
    device: str | None
    source: Annotated[str, Source]  # ncu: counters; torch profiler: names and times alone, see trouble.
    tool: str | None
    command: Command
    report: str | None  # The .ncu-rep that was kept.
    work: WorkSeen
    excess_traffic: float | None  # dram_bytes over least_bytes.
    values: list[ValueSeen]
    kernels: list[KernelSeen]
    limit: Limit  # What the stopwatch of bench says of the case, without a profiler.
    tiers_file: str
    reached: str | None
    not_refuted: str | None  # The highest tier that nothing seen speaks against.
    tiers: list[TierResult]
    changed: list[Changed]
    notes: list[str]
    trouble: Trouble | None  # Why there are no counters.


Backend = Annotated[str, {"enum": ["sm90", "triton", "dense", "reference"]}]


class BackendHere(TypedDict):
    name: Backend
    runs: bool
    why: str


class LimitHere(TypedDict):
    block: int
    lowest: float
    highest: float
    backend: Annotated[str, {"enum": ["sm90", "triton"]}]


class DeviceHere(TypedDict):
    number: int
    name: str
    capability: str
    path: Annotated[str, {"enum": ["sm90", "triton", "dense"]}]
    why: str
    measured_in: str | None
    limits: list[LimitHere]


class CompilerHere(TypedDict):
    """What builds sm90 kernels here and how many are kept; name null: none was found, where says what to install."""

    name: str | None
    where: str
    kept_in: str
    kept: int


class KernelsDocument(TypedDict):
    schema: str
    made_by: str
    path: Backend  # What auto takes at low density on the first GPU, or on the processor where there is none.
    why: str
    torch: str
    torch_cuda: str | None
    triton: str | None
    backends: list[BackendHere]
    devices: list[DeviceHere]
    compiler: CompilerHere
    attention: str  # What auto goes by for block-sparse attention, in words.
