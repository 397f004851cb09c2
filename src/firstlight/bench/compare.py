"""Compare two runs: which cases became slower or faster, by how much, how sure that is, and whose doing it is."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstlight.bench.between_processes import SpreadKind, can_be_same, spread_of
from firstlight.bench.comparable import Label, labels, paired, refusals
from firstlight.bench.results import Bound, CaseResult, Figure, PassResult, Regime, RunResult, Verdict
from firstlight.bench.statistics import (
    LEAST_PASSES,
    Background,
    Change,
    Difference,
    compare_passes,
    false_discoveries_held,
    noise_floor,
    smallest_detectable,
    verdict_of,
)
from firstlight.bench.steady import unsteady
from firstlight.frozen import dataclass

DEFAULT_MARGIN = 0.03
TIMER_RESOLUTION_S = 0.5e-6  # of CUDA events
SAME_CLOCK = 0.01


class Cause(enum.Enum):
    """Whose doing a change is."""

    CLOCK = "clock"  # the same number of cycles at another clock: power or heat
    SOFTWARE = "software"  # another number of cycles
    MEMORY_CLOCK = "memory clock"
    MEMORY = "memory or software"
    LINK = "link or software"
    HOST = "host or software"
    NOT_CERTAIN = "not certain"


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One figure in both runs: ratio 1.05 is 5 % slower; smallest is the smallest change this pair could have found."""

    id: str
    gpu: int
    family: str
    regime: Regime
    base_s: float
    new_s: float
    change: Change
    ratio: float
    ci95: tuple[float, float] | None
    p_value: float | None
    passes: tuple[int, int]
    cause: Cause | None = None
    cycle_ratio: float | None = None
    noise_floor: float | None = None
    smallest: float | None = None
    note: str = ""
    kind: SpreadKind = SpreadKind.DEVICE
    between: float = 0.0  # spread of processes running the same code, a share: 0.1 is 10 %
    unsteady_base: str = ""  # why the figure of a side is no ground for a verdict; '' where it is
    unsteady_new: str = ""

    @property
    def is_unsteady(self) -> bool:
        """Whether one side disagrees with itself, so that nothing can be said of a change."""
        return bool(self.unsteady_base or self.unsteady_new)

    def can_settle(self, margin: float) -> bool:
        """Whether more passes could clear it up; False where two processes alone differ by more than the margin."""
        return not self.is_unsteady and can_be_same(self.between, margin)


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """The geometric mean of the ratios of a family, with its 95 % interval over passes."""

    family: str
    regime: Regime
    figures: int
    ratio: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A case that cannot be compared because one side has no valid figure: verdict of each side and the reason."""

    id: str
    gpu: int
    base: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, compared; refused is not empty where they may not be."""

    base: str
    new: str
    margin: float
    refused: tuple[str, ...]
    labels: tuple[Label, ...]
    cases: tuple[CaseChange, ...] = ()
    families: tuple[FamilyChange, ...] = ()
    lost: tuple[Lost, ...] = ()
    only_in_base: tuple[str, ...] = ()
    only_in_new: tuple[str, ...] = ()
    looks: int = 1  # 2 once changed and unclear figures were run again
    identical: bool = False  # both files hold the very same run

    def count(self, change: Change) -> int:
        """How many figures have this verdict."""
        return sum(case.change is change for case in self.cases)

    @property
    def unsettled(self) -> tuple[CaseChange, ...]:
        """Unclear figures that more passes could clear up."""
        unclear = (case for case in self.cases if case.change is Change.UNCLEAR)
        return tuple(case for case in unclear if case.can_settle(self.margin))

    @property
    def unsteady(self) -> tuple[CaseChange, ...]:
        """Figures without a verdict because one side disagrees with itself."""
        return tuple(case for case in self.cases if case.is_unsteady)

    @property
    def tells_nothing(self) -> bool:
        """Whether not one figure has a verdict."""
        return self.count(Change.UNCLEAR) == len(self.cases)

    @property
    def has_open_ends(self) -> bool:
        """Whether a figure or a case that could be judged was not; one that never can be is no open end."""
        return bool(self.unsettled or self.unsteady or self.lost or self.only_in_base)

    @property
    def broken(self) -> tuple[Lost, ...]:
        """Cases that the new run measured wrongly or not at all, although it tried."""
        bad = (Verdict.INVALID.value, Verdict.IMPOSSIBLE.value, Verdict.FAILED.value)
        return tuple(lost for lost in self.lost if lost.new in bad)


class Strictness(enum.Enum):
    """What an unclear figure means for the exit code."""

    LENIENT = "lenient"
    STRICT = "strict"


def compare_runs(base: RunResult, new: RunResult, *, margin: float = DEFAULT_MARGIN) -> Comparison:
    """The comparison of two runs; verdicts hold over the whole suite (Benjamini-Hochberg at 5 %).

    Two files with the very same run are the same in every figure, however unsteady it is.
    """
    refused = refusals(base, new)
    out = Comparison(base.run.id, new.run.id, margin, refused, labels(base, new))
    if refused:
        return out
    pairs = list(paired(base, new))
    matched = [(first, second, regime) for first, second in pairs for regime in _common(first, second)]
    steady = [match for match in matched if not any(_unsteady(match))]
    floors = _floors(steady)
    cases = [_case_change(*match, margin=margin, floor=floors.get(_alike(match))) for match in matched]
    return replace(
        out,
        cases=tuple(map(_same, cases)) if base == new else _held_over_the_suite(cases),
        families=() if base == new else tuple(_family_changes(steady)),
        identical=base == new,
        lost=tuple(lost for first, second in pairs for lost in _lost(first, second)),
        only_in_base=_missing(base, new),
        only_in_new=_missing(new, base),
    )


def exit_code(comparison: Comparison, strictness: Strictness) -> int:
    """1 a regression or a broken case (strict: also open ends), 3 not comparable or not one figure clear, else 0."""
    if comparison.refused:
        return 3
    if comparison.count(Change.SLOWER) or comparison.broken:
        return 1
    if comparison.tells_nothing:
        return 3
    return 1 if comparison.has_open_ends and strictness is Strictness.STRICT else 0


Match = tuple[CaseResult, CaseResult, Regime]


def _family(match: Match) -> tuple[str, Regime]:
    return match[0].family, match[2]


def _alike(match: Match) -> tuple[str, Regime, SpreadKind]:
    """Figures whose pass-to-pass noise is pooled: eager rows of a model are no guide to its graph rows."""
    return match[0].family, match[2], spread_of(match[0], match[1]).kind


def _unsteady(match: Match) -> tuple[str, str]:
    first, second = _figures(match)
    return unsteady(match[0], first), unsteady(match[1], second)


def _same(case: CaseChange) -> CaseChange:
    """The verdict on a figure that is compared with itself."""
    return replace(case, change=Change.SAME, ci95=(1.0, 1.0), cause=None, note="", unsteady_base="", unsteady_new="")


def _common(first: CaseResult, second: CaseResult) -> Iterable[Regime]:
    if first.verdict is Verdict.OK and second.verdict is Verdict.OK:
        yield from (figure.regime for figure in first.figures if second.figure(figure.regime) is not None)


def _figures(match: Match) -> tuple[Figure, Figure]:
    first, second = match[0].figure(match[2]), match[1].figure(match[2])
    assert first is not None, match[2]
    assert second is not None, match[2]
    return first, second


def _case_change(
    base: CaseResult, new: CaseResult, regime: Regime, *, margin: float, floor: float | None
) -> CaseChange:
    first, second = _figures((base, new, regime))
    passes = len(first.passes), len(second.passes)
    spread = spread_of(base, new)
    background = Background(floor, spread.spread)
    difference = compare_passes(_medians(first.passes), _medians(second.passes), background)
    span = min(first.time_s.median * base.graph_calls, second.time_s.median * new.graph_calls)
    allowed = max(margin, TIMER_RESOLUTION_S / span)
    change, note = verdict_of(difference, allowed), ""
    if min(passes) < LEAST_PASSES:
        change = Change.UNCLEAR
        note = f"{passes[0]} and {passes[1]} passes; a verdict needs {LEAST_PASSES} a side (bench --effort standard)"
    out = CaseChange(
        id=base.id,
        gpu=base.gpu,
        family=base.family,
        regime=regime,
        base_s=first.time_s.median,
        new_s=second.time_s.median,
        change=change,
        ratio=difference.ratio if difference else second.time_s.median / first.time_s.median,
        ci95=_as_ratios(difference),
        p_value=difference.p_value if difference else None,
        passes=passes,
        noise_floor=floor,
        smallest=smallest_detectable(background, min(passes), allowed),
        note=note,
        kind=spread.kind,
        between=spread.spread,
    )
    if any(shaky := _unsteady((base, new, regime))):
        return replace(
            out,
            change=Change.UNCLEAR,
            ci95=None,
            p_value=None,
            smallest=None,
            note="",
            unsteady_base=shaky[0],
            unsteady_new=shaky[1],
        )
    if change not in (Change.SLOWER, Change.FASTER):
        return out
    cycles = _cycles(first.passes, second.passes, background)
    cause = _cause(change, (base, new, regime), verdict_of(cycles, allowed))
    return replace(out, cause=cause, cycle_ratio=cycles.ratio if cycles else None)


def _cycles(base: Sequence[PassResult], new: Sequence[PassResult], background: Background) -> Difference | None:
    """The same test on clock cycles, time x SM clock of the pass; None where a pass has no clock."""
    sides = [[each.median * each.sm_mhz for each in side if each.sm_mhz is not None] for side in (base, new)]
    if len(sides[0]) < len(base) or len(sides[1]) < len(new):
        return None
    return compare_passes(sides[0], sides[1], background)


def _cause(change: Change, match: Match, in_cycles: Change) -> Cause:
    first, second = _figures(match)
    if match[0].mode == "host" or match[0].gpu < 0:
        return Cause.HOST
    bound = next((each.limit.bound for each in (first, second) if each.limit is not None), Bound.NONE)
    if bound is Bound.LINK:
        return Cause.LINK
    if bound is Bound.MEMORY:
        clocks = [_clock([each.mem_mhz for each in figure.passes]) for figure in (first, second)]
        if None in clocks:
            return Cause.NOT_CERTAIN
        moved = abs(math.log((clocks[1] or 1) / (clocks[0] or 1))) > SAME_CLOCK
        return Cause.MEMORY_CLOCK if moved else Cause.MEMORY
    if in_cycles is Change.SAME:
        return Cause.CLOCK
    return Cause.SOFTWARE if in_cycles is change else Cause.NOT_CERTAIN


def _clock(readings: Sequence[float | None]) -> float | None:
    known = [reading for reading in readings if reading]
    return sum(known) / len(known) if len(known) == len(readings) else None


def _floors(matched: Sequence[Match]) -> dict[tuple[str, Regime, SpreadKind], float]:
    """Pass-to-pass noise of each family, pooled over its cases and both sides: three passes alone say little."""
    medians: dict[tuple[str, Regime, SpreadKind], list[list[float]]] = {}
    for match in matched:
        medians.setdefault(_alike(match), []).extend(_medians(figure.passes) for figure in _figures(match))
    found = {family: noise_floor(each) for family, each in medians.items()}
    return {family: floor for family, floor in found.items() if floor is not None}


def _held_over_the_suite(cases: Sequence[CaseChange]) -> tuple[CaseChange, ...]:
    tested = [case for case in cases if case.p_value is not None]
    held = false_discoveries_held([case.p_value for case in tested if case.p_value is not None])
    dropped = {id(case) for case, kept in zip(tested, held, strict=True) if not kept}
    return tuple(
        replace(
            case, change=Change.UNCLEAR, cause=None, note=f"{case.change.value}, but not surely so among so many cases"
        )
        if id(case) in dropped and case.change in (Change.SLOWER, Change.FASTER)
        else case
        for case in cases
    )


def _family_changes(matched: Sequence[Match]) -> Iterable[FamilyChange]:
    for family in dict.fromkeys(_family(match) for match in matched):
        figures = [_figures(match) for match in matched if _family(match) == family]
        sides = [_pass_means([pair[side].passes for pair in figures]) for side in (0, 1)]
        difference = compare_passes(sides[0], sides[1])
        if difference is None:
            ratio = math.exp(sum(math.log(b.time_s.median / a.time_s.median) for a, b in figures) / len(figures))
        else:
            ratio = difference.ratio
        yield FamilyChange(family[0], family[1], len(figures), ratio, _as_ratios(difference))


def _pass_means(passes: Sequence[Sequence[PassResult]]) -> list[float]:
    """The geometric mean over cases of each pass: what one pass says of the family as a whole."""
    count = min(len(each) for each in passes)
    return [math.exp(sum(math.log(each[index].median) for each in passes) / len(passes)) for index in range(count)]


def _lost(first: CaseResult, second: CaseResult) -> Iterable[Lost]:
    if first.verdict is Verdict.OK and second.verdict is Verdict.OK:
        if not list(_common(first, second)):
            yield Lost(first.id, first.gpu, "ok", "ok", "measured in different regimes (burst, sustained)")
        return
    if first.verdict is Verdict.SKIPPED and second.verdict is Verdict.SKIPPED:
        return
    reason = second.reason if second.verdict is not Verdict.OK else f"in the base: {first.reason}"
    yield Lost(first.id, first.gpu, first.verdict.value, second.verdict.value, reason)


def _missing(one: RunResult, other: RunResult) -> tuple[str, ...]:
    there = {(case.id, case.gpu) for case in other.cases}
    return tuple(case.id for case in one.cases if (case.id, case.gpu) not in there and case.verdict is Verdict.OK)


def _medians(passes: Sequence[PassResult]) -> list[float]:
    return [each.median for each in passes]


def _as_ratios(difference: Difference | None) -> tuple[float, float] | None:
    return None if difference is None else (math.exp(difference.ci95[0]), math.exp(difference.ci95[1]))
