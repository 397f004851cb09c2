"""What a run says as a whole: one sentence and the things to look at, told by screen, document and page."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from firstlight.bench.bests import Best, bests_of
from firstlight.bench.clocks import HARMLESS
from firstlight.bench.compare import Comparison
from firstlight.bench.limits import LAUNCH_BOUND_ABOVE, Band, limit_of_interest
from firstlight.bench.results import CaseResult, RunResult, Verdict
from firstlight.bench.statistics import Change
from firstlight.bench.steady import is_unsteady, unsteady
from firstlight.frozen import dataclass
from firstlight.numerals import counted, percent_text, significant
from firstlight.tables import Tables

FAR_FROM_LIMIT_PCT = 25.0  # tier D
MANY_UNSTEADY = 0.1  # of the cases: pageable copies and eager models are now and then unsteady on every machine


class Tone(enum.Enum):
    """How a run as a whole looks."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Weight(enum.Enum):
    """Whether a thing speaks against the card, deserves a look, or belongs to the program that was timed."""

    AGAINST = "against"
    LOOK = "look"


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing to look at: 'copies from pageable memory', what was seen, what it means, where in the report."""

    title: str
    saw: str
    means: str
    anchor: str
    weight: Weight = Weight.LOOK


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """What is said first."""

    sentence: str
    tone: Tone
    things: tuple[Thing, ...]
    bests: tuple[Best, ...]

    def to_dict(self) -> dict[str, Any]:
        """As it stands in documents."""
        look_at = [
            {"title": each.title, "saw": each.saw, "means": each.means, "speaks": each.weight.value}
            for each in self.things
        ]
        return {"verdict": self.sentence, "tone": self.tone.value, "look_at": look_at}


def judged(run: RunResult, tables: Tables, comparisons: Sequence[Comparison] = ()) -> RunJudgement:
    """'This H200 runs as it should; 2 things to look at.'"""
    bests = tuple(bests_of(run, tables))
    things = (*_slower(comparisons), *(thing for rule in RULES for thing in rule(run, bests)))
    name = card_name(run)
    against = any(thing.weight is Weight.AGAINST for thing in things)
    many = len(run.gpus) > 1
    if run.why_nothing:
        seen = f"; {counted(len(things), 'thing')} to look at" if things else ""
        return RunJudgement(f"Nothing was measured: {run.why_nothing}{seen}.", Tone.WARN, things, bests)
    if against:
        tone, head = Tone.BAD, f"{name} {'do not run as they' if many else 'does not run as it'} should"
    elif (measured := _measured(run)) and all(is_unsteady(case) for case in measured):
        tone, head = Tone.WARN, f"{name} {'were' if many else 'was'} measured, but no figure is steady"
    elif not bests:
        tone, head = Tone.WARN, f"{name} {'were' if many else 'was'} measured; what a healthy one reaches is not known"
    elif any(best.band is not Band.NORMAL for best in bests):
        runs = (
            "run a little below what healthy cards of their"
            if many
            else "runs a little below what healthy cards of its"
        )
        tone, head = Tone.WARN, f"{name} {runs} model reach"
    else:
        tone, head = Tone.GOOD, f"{name} {'run as they' if many else 'runs as it'} should"
    tail = f"{counted(len(things), 'thing')} to look at" if things else "nothing stands out"
    return RunJudgement(f"{head}; {tail}.", tone, things, bests)


def card_name(run: RunResult) -> str:
    """'This H200', 'These 8 H200', 'This processor'."""
    names = list(dict.fromkeys(gpu.name.removeprefix("NVIDIA ").strip() or "GPU" for gpu in run.gpus))
    if not names:
        return "This processor"
    if len(run.gpus) == 1:
        return f"This {names[0]}"
    return f"These {len(run.gpus)} GPUs" if len(names) > 1 else f"These {len(run.gpus)} {names[0]}"


def _slower(comparisons: Sequence[Comparison]) -> Iterator[Thing]:
    for place, each in enumerate(comparisons):
        slower = sorted((case for case in each.cases if case.change is Change.SLOWER), key=lambda case: -case.ratio)
        if slower:
            families = ", ".join(dict.fromkeys(case.family for case in slower))
            yield Thing(
                f"{counted(len(slower), 'figure')} slower than in run {each.base}",
                f"in {families}; the most {slower[0].id} with {100 * (slower[0].ratio - 1):+.1f} %",
                "",
                "comparison" if place == 0 else f"comparison-{place + 1}",
            )


def _findings(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    for finding in run.health.findings:
        weight = Weight.AGAINST if finding.severity == "blocks" else Weight.LOOK
        yield Thing(finding.code.replace("-", " "), finding.text, "", "machine", weight)


def _below_healthy(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    for best in bests:
        if best.band is Band.NORMAL:
            continue
        bad = best.band in (Band.SUSPECT, Band.DEFECTIVE)
        where = f" on GPU {best.gpu}" if len(run.gpus) > 1 else ""
        yield Thing(
            f"{best.precision} products below healthy cards{where}",
            f"{significant(best.tflops)} TFLOPS, {100 * best.tflops / best.healthy_tflops:.0f} % of "
            f"{significant(best.healthy_tflops)}",
            best.band.value,
            "cases",
            Weight.AGAINST if bad else Weight.LOOK,
        )


def _broken(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    meaning = {
        Verdict.FAILED: "a wrong result or an error",
        Verdict.IMPOSSIBLE: "faster than the silicon can be: the count, the data or the timer is wrong",
        Verdict.INVALID: "throttled or shared meanwhile: no speed is claimed",
    }
    for verdict, means in meaning.items():
        cases = [case for case in run.cases if case.verdict is verdict]
        if cases:
            yield Thing(
                f"{counted(len(cases), 'case')} {verdict.value}", _named(cases), means, "not-measured", Weight.AGAINST
            )


def _held_down(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    hard = [(name, share) for name, share in run.health.throttle_pct if name not in HARMLESS and share > 0]
    if hard:
        shares = ", ".join(f"{name.replace('_', ' ')} {share:.1f} % of the run" for name, share in hard)
        yield Thing("the clock was held down by more than the power limit", shares, "look at the cooling", "trace")


def _contended(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    if run.health.contention:
        what = "GPU" if run.gpus else "processor"
        yield Thing(f"the {what} was shared", "; ".join(run.health.contention), "figures may be too slow", "machine")


def _shaky(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    measured = _measured(run)
    cases = [case for case in measured if is_unsteady(case)]
    if len(cases) > MANY_UNSTEADY * len(measured):
        reasons = (f"{case.id}: {unsteady(case, case.shown)}" for case in cases[:3] if case.shown is not None)
        more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
        yield Thing(
            f"{len(cases)} of {counted(len(measured), 'case')} not steady",
            f"{'; '.join(reasons)}{more}",
            "their figures support no verdict: measure again while nothing else runs",
            "cases",
        )


def _waiting(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    cases = [case for case in _measured(run) if (case.launch_bound or 0) > LAUNCH_BOUND_ABOVE]
    cases.sort(key=lambda case: -(case.launch_bound or 0))
    if cases:
        worst = f"{100 * (cases[0].launch_bound or 0):.0f} % of the time"
        yield Thing(
            f"{counted(len(cases), 'case')} {'waits' if len(cases) == 1 else 'wait'} for launches when called eagerly",
            f"up to {worst}: {_named(cases)}",
            "the host cannot feed the GPU fast enough: CUDA graphs, or torch.compile with reduce-overhead, close the "
            "gap. Rows marked host time include that wait, the others do not",
            "cases",
        )


def _pageable(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    rates: dict[tuple[str, str], float] = {}
    for case in _measured(run):
        params, shown = dict(case.params), case.shown
        if "host_memory" in params and shown is not None and shown.rate.gbps is not None:
            rates[params.get("direction", ""), params["host_memory"]] = shown.rate.gbps
    slow = [
        f"{direction}: {significant(rate)} GB/s, pinned {significant(rates[direction, 'pinned'])} GB/s"
        for (direction, memory), rate in rates.items()
        if memory == "pageable" and (direction, "pinned") in rates and rate < rates[direction, "pinned"] / 2
    ]
    if slow:
        yield Thing(
            "copies from and to pageable memory are slow",
            "; ".join(slow),
            "usual: the driver stages them; pin_memory=True in the data loader avoids it",
            "transfers",
        )


def _far_away(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    """Cases far from their limit that neither launches nor a pageable copy explain."""
    far = [
        (share, case)
        for case in _measured(run)
        if case.shown is not None
        and (share := limit_of_interest(case.shown.limit)[1]) is not None
        and share < FAR_FROM_LIMIT_PCT
        and (case.launch_bound or 0) <= LAUNCH_BOUND_ABOVE
        and case.family != "transfer"
    ]
    if far:
        far.sort(key=lambda pair: pair[0])
        families = ", ".join(dict.fromkeys(case.family for _, case in far))
        yield Thing(
            f"{counted(len(far), 'case')} under {FAR_FROM_LIMIT_PCT:.0f} % of the limit",
            f"in {families}; the lowest is {far[0][1].id} with {percent_text(far[0][0])}",
            "this says more about the kernel or a small batch than about the card: another layout, precision, batch or "
            "library may do better",
            "families",
        )


def _interrupted(run: RunResult, bests: Sequence[Best]) -> Iterator[Thing]:
    if run.run.interrupted:
        yield Thing("the run was broken off", "what was finished is kept", "", "not-measured")


_Rule = Callable[[RunResult, Sequence[Best]], Iterator[Thing]]
RULES: tuple[_Rule, ...] = (
    _findings, _below_healthy, _broken, _held_down, _contended, _shaky, _interrupted, _waiting, _pageable, _far_away,
)  # fmt: skip


def _measured(run: RunResult) -> list[CaseResult]:
    return [case for case in run.cases if case.verdict is Verdict.OK]


def _named(cases: Sequence[CaseResult]) -> str:
    more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
    return ", ".join(case.id for case in cases[:3]) + more
