"""The result of a run (schema firstlight.bench/1): frozen records with plain SI numbers.

Seconds, bytes and FLOP; the unit is in the name. What is not known is None (null in the file), never 0. A case that
was skipped is present with its reason. `to_text` writes a run, `read_run` reads one back and names what does not fit.
"""

from __future__ import annotations

import enum
import re
from typing import Any

from firstlight.bench.read_whole import bytes_of, shown_path
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.records import Reading, decode, encode, short

SCHEMA = "firstlight.bench/1"
# Nothing that is counted or measured here is larger or, unless it is 0, smaller: a year of an exaflop has 3e25 FLOP.
# What lies beyond is a slip or malice, and products and quotients of it leave what a double can hold.
RESULTS = Reading(BadInput, exact=False, defaults=True, list_limit=200_000, largest=1e30, smallest=1e-30)
SHORTEST_S, LONGEST_S = 1e-12, 1e9  # a picosecond, thirty years: no call is shorter or longer


class Verdict(enum.Enum):
    """What became of a case."""

    OK = "ok"
    SKIPPED = "skipped"  # not run; the reason says why
    INVALID = "invalid"  # run while throttled or contended: no speed is claimed
    IMPOSSIBLE = "impossible"  # faster than the silicon can be: the count, the data or the timer is wrong
    FAILED = "failed"  # wrong result or an error


class Regime(enum.Enum):
    """Under which power condition a figure was taken; two regimes are never compared with each other."""

    BURST = "burst"  # short, after a pause
    SUSTAINED = "sustained"  # back to back at the power limit


class Bound(enum.Enum):
    """What sets the least time of a case."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LINK = "link"
    LAUNCH = "launch"
    NONE = "none"  # no limit is known here


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Time of one call in seconds: median with its 95 % interval, and the spread of the samples."""

    median: float
    ci95: tuple[float, float]
    min: float
    q1: float
    q3: float
    mad: float
    n: int
    n_eff: float
    ci_reached: bool
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class PassResult:
    """One interleaved pass: its median in seconds, the clocks during it and its samples ('()' when dropped)."""

    median: float
    n: int
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """What the median time means: useful TFLOPS, compulsory GB/s (decimal), items (images, tokens) per second."""

    tflops: float | None = None
    gbps: float | None = None
    items_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class LimitResult:
    """How far from the three ceilings; percent of 100 means at the ceiling. `peaks` names the row, e.g. db:h200-sxm."""

    bound: Bound
    peaks: str  # db:ROW, estimated:CAPABILITY or none
    t_spec_s: float | None = None
    t_clock_s: float | None = None
    t_max_clock_s: float | None = None
    t_achieved_s: float | None = None
    pct_spec: float | None = None
    pct_clock: float | None = None
    pct_max_clock: float | None = None
    pct_achieved: float | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What NVML said while a figure was taken: clocks as (min, median, max); reasons_pct in % of the window."""

    sm_mhz: tuple[float, float, float] | None = None
    mem_mhz: tuple[float, float, float] | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temp_c: float | None = None
    mem_temp_c: float | None = None
    reasons_pct: tuple[tuple[str, float], ...] = ()
    missing: tuple[str, ...] = ()  # fields this card or driver does not report


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure of a case in one regime."""

    regime: Regime
    time_s: TimeSummary
    passes: tuple[PassResult, ...]
    rate: Rate
    limit: LimitResult | None = None
    tier: str | None = None  # S, A, B, C, D; L when bound by launches
    telemetry: Telemetry | None = None
    flags: tuple[str, ...] = ()  # e.g. power_capped, not_steady


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: what it was, what work it does, and one figure per regime ('()' unless it ran)."""

    id: str
    family: str
    gpu: int  # index into RunResult.gpus; -1 for the CPU
    params: tuple[tuple[str, str], ...]
    dtype: str
    mode: str  # device or host
    cache: str  # cold, warm or n/a
    data: str  # normal
    graph_calls: int  # calls in one captured graph; 1 for plain launches
    flops: int
    dense_flops: int
    bytes: int
    flops_model: str
    bytes_model: str
    peak: str  # the peak it is held against: fp16, ..., bandwidth, link, none
    verdict: Verdict
    reason: str = ""
    headline: Regime | None = None
    figures: tuple[Figure, ...] = ()
    host_time_s: TimeSummary | None = None
    launch_bound: float | None = None
    peak_alloc_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    setup_s: float | None = None
    error_rel: float | None = None
    flags: tuple[str, ...] = ()  # e.g. algorithmic, uncaptured, l2_resident

    def figure(self, regime: Regime) -> Figure | None:
        """The figure of a regime, if it was taken."""
        return next((figure for figure in self.figures if figure.regime is regime), None)

    @property
    def shown(self) -> Figure | None:
        """The headline figure, None for a case without one."""
        return None if self.headline is None else self.figure(self.headline)


@dataclass(frozen=True, slots=True)
class GpuResult:
    """A GPU of the run as NVML and torch describe it, e.g. NVIDIA H200, 9.0, 132 SMs; uuid is a pseudonym."""

    index: int
    uuid: str | None
    name: str
    cc: str
    sms: int | None
    l2_bytes: int | None
    mem_bytes: int | None
    mem_bus_bits: int | None
    clock_max_mhz: float | None
    mem_clock_max_mhz: float | None
    power_limit_w: float | None
    power_default_w: float | None
    ecc: bool | None
    mig: bool | None
    pcie_gen: int | None
    pcie_width: int | None
    vbios: str | None
    peaks: str = "none"  # db:ROW, estimated:CAPABILITY or none


@dataclass(frozen=True, slots=True)
class SoakPoint:
    """One reading of the warm-up: seconds since its start, SM clock, power, temperature."""

    seconds: float
    sm_mhz: float | None
    power_w: float | None
    temp_c: float | None


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """A defect sign, e.g. code 'hw-thermal', severity 'blocks', with what was seen."""

    code: str
    severity: str
    text: str
    gpu: int = -1


@dataclass(frozen=True, slots=True)
class Health:
    """What the run saw of the card's health; throttle_pct over the whole run."""

    contention: tuple[str, ...] = ()
    throttle_pct: tuple[tuple[str, float], ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    soak: tuple[SoakPoint, ...] = ()
    soak_steady: bool | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Which run this is, e.g. profile 'standard' with 3 passes; started in UTC, ISO 8601."""

    id: str
    started: str
    profile: str
    argv: tuple[str, ...]
    passes: int
    gpu_seconds: float | None
    wall_seconds: float | None
    interrupted: bool = False
    commit: str | None = None  # of the tree the run was started in
    dirty: bool | None = None


@dataclass(frozen=True, slots=True)
class HostResult:
    """Where it ran; name is a pseudonym by default."""

    name: str
    os: str | None
    machine: str | None  # x86_64 or aarch64
    cpu: str | None
    container: str | None
    python: str | None


@dataclass(frozen=True, slots=True)
class SoftwareResult:
    """Versions as text, e.g. driver 580.159.04, torch 2.11.0+cu130."""

    driver: str | None
    cuda: str | None
    torch: str | None
    cudnn: str | None
    nccl: str | None
    triton: str | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run: everything a reader needs to judge its numbers."""

    tool: str  # firstlight 0.1.0
    run: RunInfo
    host: HostResult
    gpus: tuple[GpuResult, ...]
    software: SoftwareResult
    health: Health
    cases: tuple[CaseResult, ...]

    @property
    def why_nothing(self) -> str:
        """'2 of 2 cases were skipped (runs on cuda only)' where none ran; '' where one did, or the user broke off."""
        if self.run.interrupted or any(case.verdict is not Verdict.SKIPPED for case in self.cases):
            return ""
        reasons = list(dict.fromkeys(case.reason for case in self.cases))
        if not reasons:
            return "there is no case"
        more = f", and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
        return f"{len(self.cases)} of {len(self.cases)} cases were skipped ({reasons[0]}{more})"


def to_json(run: RunResult) -> dict[str, Any]:
    """The document of a run, schema first."""
    return {"schema": SCHEMA, **encode(run)}


def to_text(run: RunResult, **judged: Any) -> str:
    """The document as indented JSON with a final newline; `judgement` is passed over when it is read back."""
    import json

    return json.dumps({**to_json(run), **judged}, indent=1, allow_nan=False) + "\n"


def from_json(document: Any, where: str) -> RunResult:
    """A run from a parsed document; a foreign, future, cut or absurd one is refused with the field."""
    if not isinstance(document, dict):
        raise BadInput(f"{where}: expected a JSON object, found {short(document)}")
    schema = document.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str) and re.fullmatch(r"firstlight\.bench/\d{1,6}", schema):
            raise BadInput(f"{where}: schema is {schema}; this firstlight reads {SCHEMA}. Upgrade firstlight.")
        shown = "missing" if schema is None else short(schema)
        raise BadInput(f"{where}: schema is {shown}; accepted: {SCHEMA}, the file that `firstlight bench` writes")
    run = decode(RunResult, document, where, RESULTS)
    seen: set[tuple[str, int]] = set()
    for index, case in enumerate(run.cases):
        spot = f"{where}.cases[{index}]"
        if (case.id, case.gpu) in seen:
            raise BadInput(f"{spot}.id: {short(case.id)} is there twice for one GPU")
        seen.add((case.id, case.gpu))
        if not -1 <= case.gpu < len(run.gpus):
            raise BadInput(f"{spot}.gpu: {case.gpu} is not an index of gpus, which has {len(run.gpus)}")
        _check_case(case, spot)
    return run


def read_run(path: str) -> RunResult:
    """The run in a file."""
    import json

    where = shown_path(path)
    raw = bytes_of(
        path, accepted="a file that `firstlight bench --out FILE` wrote", what="a result of `firstlight bench`"
    )
    try:
        document = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not text (byte {error.start} is not UTF-8)") from None
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply to be a result of `firstlight bench`") from None
    except ValueError as error:
        if raw.lstrip()[:9].lower() == b"<!doctype":
            raise BadInput(
                f"{where}: a page, not a run; take the run out of it: firstlight report --from {where} --out run.json"
            ) from None
        raise BadInput(
            f"{where}: not JSON ({error}); accepted: a file that `firstlight bench --out FILE` wrote. Was it cut short?"
        ) from None
    return from_json(document, where)


def _check_case(case: CaseResult, where: str) -> None:
    if case.verdict is Verdict.OK:
        if case.shown is None:
            raise BadInput(f"{where}.headline: verdict is ok, so it must name one of the figures")
    elif not case.reason:
        raise BadInput(f"{where}.reason: empty; a case that is {case.verdict.value} says why")
    if min(case.flops, case.dense_flops, case.bytes) < 0:
        raise BadInput(f"{where}.flops: negative work")
    if case.graph_calls < 1:
        raise BadInput(f"{where}.graph_calls: {case.graph_calls}; accepted: 1 for plain launches, more in a graph")
    if len({figure.regime for figure in case.figures}) < len(case.figures):
        raise BadInput(f"{where}.figures: two figures of one regime")
    for number, figure in enumerate(case.figures):
        spot = f"{where}.figures[{number}]"
        _check_time(figure.time_s, f"{spot}.time_s")
        if not figure.passes:
            raise BadInput(f"{spot}.passes: empty; a figure has one pass at least")
        for place, each in enumerate(figure.passes):
            if each.n < 1 or not all(map(_is_time, (each.median, *each.samples))):
                raise BadInput(f"{spot}.passes[{place}]: {_TIMES_ACCEPTED}, and n is at least 1")
            if each.sm_mhz is not None and each.sm_mhz <= 0:
                raise BadInput(f"{spot}.passes[{place}].sm_mhz: {each.sm_mhz}; what is not known is null, never 0")
    if case.host_time_s is not None:
        _check_time(case.host_time_s, f"{where}.host_time_s")


_TIMES_ACCEPTED = f"a time must be above 0 seconds, from {SHORTEST_S:g} to {LONGEST_S:g}"


def _is_time(seconds: float) -> bool:
    return SHORTEST_S <= seconds <= LONGEST_S


def _check_time(time: TimeSummary, where: str) -> None:
    low, high = time.ci95
    if not time.min <= time.median or not low <= time.median <= high:
        raise BadInput(
            f"{where}.median: {time.median} with interval [{low}, {high}]; times must be above 0 and in order"
        )
    if not all(map(_is_time, (time.min, time.median, low, high))) or min(time.q1, time.q3, time.mad) < 0:
        raise BadInput(f"{where}: {_TIMES_ACCEPTED}; found {time.min} to {max(high, time.median)}")
    if time.n < 1:
        raise BadInput(f"{where}.n: {time.n}; a summary needs one sample at least")
