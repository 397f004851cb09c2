"""Which GPU of equal ones is slow: low by more than 5 % and 4 MAD of its class in every run, two at least. Pure.

Where fewer than five are equal, each is held against what healthy cards of the model reach, and against the baseline of
a lock where one was given. The figures of the rule come from results/fleet-outliers.json.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from firstlight.bench.equal_gpus import GpuRun, GpuSort, MeasuredGpu
from firstlight.bench.slow_causes import Cause, Sides, Why, cause_of
from firstlight.frozen import dataclass

SLOWER_BY = 0.05
MADS = 4.0
LEAST_EQUAL = 5
LEAST_RUNS = 2


class HeldAgainst(enum.Enum):
    """What a GPU was compared with."""

    CLASS = "equal GPUs"
    BASELINE = "the lock's baseline"
    HEALTHY = "healthy cards of the model"
    NOTHING = "nothing"


class State(enum.Enum):
    """What became of a GPU; its order is that of the table."""

    SLOW = "slow"
    NOT_JUDGED = "not judged"
    AS_IT_SHOULD = "as it should be"


@dataclass(frozen=True, slots=True)
class LowFigure:
    """A figure in which a GPU is low: the smaller of its shortfalls over the runs, e.g. 0.071."""

    name: str
    family: str
    by: float
    mads: float  # the fewest over the runs; 0 where it was not held against a class
    cause: Cause


@dataclass(frozen=True, slots=True)
class JudgedGpu:
    """A GPU, what it was held against, and in which of how many figures it is low."""

    host: str
    device: str
    state: State
    against: tuple[HeldAgainst, ...]
    figures: int = 0
    low: tuple[LowFigure, ...] = ()  # the lowest first
    reason: str = ""  # why it was not judged; or what healthy cards reach
    shares: tuple[tuple[str, float], ...] = ()  # family -> rate beside the class's median, 1.0 is the same

    @property
    def by(self) -> float:
        """The shortfall of the middle one of its low figures; 0 where none is."""
        return median(figure.by for figure in self.low) if self.low else 0.0

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Each kind of cause once, that of most figures first, in the words of its lowest figure."""
        counts: dict[Why, list[Cause]] = {}
        for figure in self.low:
            counts.setdefault(figure.cause.why, []).append(figure.cause)
        return tuple(each[0] for each in sorted(counts.values(), key=len, reverse=True))


@dataclass(frozen=True, slots=True)
class GpuClass:
    """Equal GPUs with their verdicts; `note` says where fewer than five are equal."""

    sort: GpuSort
    gpus: tuple[JudgedGpu, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class JudgedGpus:
    """All GPUs of a run over a fleet."""

    classes: tuple[GpuClass, ...]

    @property
    def gpus(self) -> tuple[JudgedGpu, ...]:
        return tuple(gpu for each in self.classes for gpu in each.gpus)

    def of(self, state: State) -> tuple[JudgedGpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.state is state)

    @property
    def slow(self) -> tuple[JudgedGpu, ...]:
        return self.of(State.SLOW)


@dataclass(frozen=True, slots=True)
class _Spread:
    """The middle rate of a class in one figure of the runs of one number, and the median distance from it."""

    middle: float
    mad: float
    count: int

    def below(self, rate: float) -> float:
        return 1 - rate / self.middle

    def mads(self, rate: float) -> float:
        return (self.middle - rate) / max(self.mad, 1e-9 * self.middle)


_Spreads = Mapping[tuple[int, str], _Spread]  # by the number of the run and the name of the figure


def judged_gpus(gpus: Sequence[MeasuredGpu], baselines: Sequence[GpuRun] = ()) -> JudgedGpus:
    """Every class of equal GPUs, the largest first."""
    classes: dict[GpuSort, list[MeasuredGpu]] = {}
    for gpu in gpus:
        classes.setdefault(gpu.sort, []).append(gpu)
    ordered = sorted(classes.items(), key=lambda each: -len(each[1]))
    return JudgedGpus(tuple(_class(sort, equal, baselines) for sort, equal in ordered))


def _class(sort: GpuSort, equal: Sequence[MeasuredGpu], baselines: Sequence[GpuRun]) -> GpuClass:
    order, spreads = list(State), _spreads(equal)
    if len(equal) >= LEAST_EQUAL:
        judged = [_beside_equals(gpu, equal, spreads) for gpu in equal]
        note = ""
    else:
        base = next((each for each in baselines if _is_alike(each.sort, sort)), None)
        judged = [_alone(gpu, spreads, base) for gpu in equal]
        note = f"fewer than {LEAST_EQUAL} are equal: {_measures(judged)}"
        note += _why_no_baseline(baselines, sort) if base is None else ""
    judged.sort(key=lambda gpu: (order.index(gpu.state), -gpu.by))
    return GpuClass(sort, tuple(judged), note)


def _measures(judged: Sequence[JudgedGpu]) -> str:
    used = dict.fromkeys(each.value for gpu in judged for each in gpu.against if each is not HeldAgainst.NOTHING)
    return (
        f"compared with {' and '.join(used)}, not against each other"
        if used
        else "there is nothing to compare them with"
    )


def _is_alike(base: GpuSort, sort: GpuSort) -> bool:
    """Whether a baseline speaks for these GPUs: another effort times the same cases."""
    return (base.name, base.sms, base.ecc, base.mig, base.torch, base.cuda) == (
        sort.name, sort.sms, sort.ecc, sort.mig, sort.torch, sort.cuda,
    )  # fmt: skip


def _why_no_baseline(baselines: Sequence[GpuRun], sort: GpuSort) -> str:
    near = next((each.sort for each in baselines if each.sort.name == sort.name), None)
    if near is None:
        return ""
    return f"; the baseline was measured with torch {near.torch}, ECC {near.ecc}, MIG {near.mig}, and is left out"


def _too_few_runs(gpu: MeasuredGpu, against: HeldAgainst) -> JudgedGpu:
    reason = f"{len(gpu.runs)} run; a GPU is called slow by {LEAST_RUNS} at least"
    return JudgedGpu(gpu.host, gpu.device, State.NOT_JUDGED, (against,), reason=reason)


def _beside_equals(gpu: MeasuredGpu, equal: Sequence[MeasuredGpu], spreads: _Spreads) -> JudgedGpu:
    shares = _shares(gpu, spreads)
    if len(gpu.runs) < LEAST_RUNS:
        found = _too_few_runs(gpu, HeldAgainst.CLASS)
        return JudgedGpu(found.host, found.device, found.state, found.against, reason=found.reason, shares=shares)
    low, compared = [], 0
    for name in gpu.runs[0].taken:
        mine = [run for run in gpu.runs if name in run.taken and spreads[run.number, name].count >= LEAST_EQUAL]
        if len(mine) < len(gpu.runs):
            continue
        pairs = [(run.taken[name], spreads[run.number, name]) for run in mine]
        compared += 1
        below = min(spread.below(taken.rate) for taken, spread in pairs)
        mads = min(spread.mads(taken.rate) for taken, spread in pairs)
        if below > SLOWER_BY and mads > MADS:
            low.append(_low(name, gpu, equal, below=below, mads=mads))
    if not compared:
        reason = "no figure was measured in every run of five equal GPUs"
        return JudgedGpu(gpu.host, gpu.device, State.NOT_JUDGED, (HeldAgainst.CLASS,), reason=reason, shares=shares)
    state = State.SLOW if low else State.AS_IT_SHOULD
    low.sort(key=lambda figure: -figure.by)
    return JudgedGpu(gpu.host, gpu.device, state, (HeldAgainst.CLASS,), compared, tuple(low), shares=shares)


def _spreads(equal: Sequence[MeasuredGpu]) -> _Spreads:
    """Of every figure of the runs of every number."""
    rates: dict[tuple[int, str], list[float]] = {}
    for run in (run for gpu in equal for run in gpu.runs):
        for name, taken in run.taken.items():
            rates.setdefault((run.number, name), []).append(taken.rate)
    found = {}
    for key, each in rates.items():
        middle = median(each)
        found[key] = _Spread(middle, median(abs(rate - middle) for rate in each), len(each))
    return found


def _low(name: str, gpu: MeasuredGpu, equal: Sequence[MeasuredGpu], *, below: float, mads: float) -> LowFigure:
    mine = [run.taken[name] for run in gpu.runs]
    others = [each for each in equal if each is not gpu]
    theirs = [run.taken[name] for each in others for run in each.runs if name in run.taken]
    cause = cause_of(Sides(gpu, mine, [each.card for each in others], theirs))
    return LowFigure(name, mine[0].family, below, mads, cause)


def _shares(gpu: MeasuredGpu, spreads: _Spreads) -> tuple[tuple[str, float], ...]:
    """Family by family: the middle of its rates beside the class's medians, over all runs."""
    found: dict[str, list[float]] = {}
    for run in gpu.runs:
        for name, taken in run.taken.items():
            found.setdefault(taken.family, []).append(taken.rate / spreads[run.number, name].middle)
    return tuple((family, median(ratios)) for family, ratios in found.items())


def _alone(gpu: MeasuredGpu, spreads: _Spreads, base: GpuRun | None) -> JudgedGpu:
    """A GPU with few like it: its best products beside healthy cards, its figures beside the baseline."""
    against = tuple(
        measure
        for measure, there in (
            (HeldAgainst.HEALTHY, all(run.bests for run in gpu.runs)),
            (HeldAgainst.BASELINE, base is not None),
        )
        if there
    )
    shares = _shares(gpu, spreads)
    if not against:
        reason = "what healthy cards of this model reach is not known, and no baseline was given (--lock, --baseline)"
        nothing = (HeldAgainst.NOTHING,)
        return JudgedGpu(gpu.host, gpu.device, State.NOT_JUDGED, nothing, reason=reason, shares=shares)
    if len(gpu.runs) < LEAST_RUNS:
        return _too_few_runs(gpu, against[0])
    low, compared = ([], 0) if base is None else _beside_baseline(gpu, base)
    products = list(_below_healthy(gpu))
    slow = bool(low or any(share < 1 - SLOWER_BY for _, share in products))
    said = ", ".join(f"{precision} products at {100 * share:.0f} % of healthy cards" for precision, share in products)
    state = State.SLOW if slow else State.AS_IT_SHOULD
    low.sort(key=lambda figure: -figure.by)
    return JudgedGpu(gpu.host, gpu.device, state, against, compared, tuple(low), reason=said, shares=shares)


def _below_healthy(gpu: MeasuredGpu) -> Iterator[tuple[str, float]]:
    """Of each precision the best of all runs beside healthy cards: low in every run where the best of them is."""
    for precision in dict.fromkeys(best.precision for run in gpu.runs for best in run.bests):
        found = [best for run in gpu.runs for best in run.bests if best.precision == precision]
        yield precision, max(best.tflops / best.healthy_tflops for best in found)


def _beside_baseline(gpu: MeasuredGpu, base: GpuRun) -> tuple[list[LowFigure], int]:
    low, compared = [], 0
    for name, there in base.taken.items():
        mine = [run.taken[name] for run in gpu.runs if name in run.taken]
        if len(mine) < len(gpu.runs):
            continue
        compared += 1
        below = min(1 - taken.rate / there.rate for taken in mine)
        if below > SLOWER_BY:
            cause = cause_of(Sides(gpu, mine, [base.card], [there]))
            low.append(LowFigure(name, mine[0].family, below, 0.0, cause))
    return low, compared
