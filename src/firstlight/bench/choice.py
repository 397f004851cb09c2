"""Which cases a run takes, and about how long it will be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from firstlight.bench.case import Case, Effort, Mode, Place
from firstlight.bench.patience import PATIENCE
from firstlight.bench.peaks import Peaks
from firstlight.bench.stopwatch import BIG_CALL_S, FIRST_PAUSE_S, MOST_BURSTS, PAUSE_S
from firstlight.bench.tape import SPAN_S
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.near import nearest

Suite = Callable[[Place], tuple[Case, ...]]
COMPILE = "compile"
ORDER = tuple(Effort)
USUAL_SHARE = 0.6  # of the roof that cases reach; small ones less, which the span of a sample covers
IDLE_CHECK_AND_START_S = 8.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user asked for: patterns like 'gemm' or 'sdpa/*/causal', and whether compiled rows are wanted."""

    effort: Effort
    only: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()  # flags of cases that are skipped, e.g. 'compile'


def chosen(cases: Sequence[Case], choice: Choice) -> tuple[Case, ...]:
    """The cases of the effort that match; a pattern that only matches cases of a higher effort takes those.

    Compiled rows come last, because compiling disturbs host timings; left-out ones stay, with the reason.
    """
    inside = [case for case in cases if ORDER.index(case.least_effort) <= ORDER.index(choice.effort)]
    if choice.only:
        inside = _matching(cases, inside, choice.only)
    ordered = sorted(inside, key=lambda case: COMPILE in case.flags)
    return tuple(_left_out(case, choice.leave_out) for case in ordered)


def matches(case: Case, pattern: str) -> bool:
    """'gemm' (family), 'gemm/fp16' (start of an id) or a shell pattern such as '*/causal'."""
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(case.id, pattern) or fnmatchcase(case.family, pattern)
    return case.family == pattern or case.id == pattern or case.id.startswith(pattern.rstrip("/") + "/")


def _matching(cases: Sequence[Case], inside: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    wanted: set[str] = set()
    for pattern in patterns:
        found = [case.id for case in inside if matches(case, pattern)]
        found = found or [case.id for case in cases if matches(case, pattern)]
        if not found:
            families = sorted({case.family for case in cases})
            near = nearest(pattern, [*families, *(case.id for case in cases)])
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(
                f"--only {pattern!a}: no case is called that; accepted: a family ({', '.join(families)}), the start of "
                f"an id or a pattern such as 'sdpa/*/causal'.{hint} `firstlight bench --list` prints the ids."
            )
        wanted.update(found)
    return [case for case in cases if case.id in wanted]


def _left_out(case: Case, flags: Sequence[str]) -> Case:
    found = [flag for flag in flags if flag in case.flags]
    return replace(case, needs=f"left out by --no-{found[0]}") if found and not case.needs else case


def estimated_s(case: Case, effort: Effort, peaks: Peaks) -> float:
    """About how long a case will take in all passes, set-up left out, e.g. 5.9 s for a large product."""
    patience = PATIENCE[effort]
    if case.needs:
        return 0.0
    call_s = max(_roof_s(case, peaks) / USUAL_SHARE, SPAN_S)
    samples_s = max(patience.least_samples * call_s, min(patience.pass_budget_s, patience.precise_from * call_s))
    one_pass_s = max(patience.warm_up_s, 3 * call_s) + samples_s
    if call_s >= BIG_CALL_S and case.mode is Mode.DEVICE and case.peak not in ("link", "none"):
        one_pass_s += FIRST_PAUSE_S + MOST_BURSTS / 2 * PAUSE_S
        swings_s = patience.sustain_s if case.peak not in ("bandwidth", "fp64", "fp32") else 0.0
        sustained_s = patience.sustained_passes * (samples_s + patience.settle_s + swings_s)
        return patience.passes * one_pass_s + sustained_s
    return patience.passes * one_pass_s


def estimated_run_s(cases: Sequence[Case], effort: Effort, peaks: Peaks) -> float:
    """About how long the whole run will take, set-up left out."""
    timing = sum(estimated_s(case, effort, peaks) for case in cases)
    return timing + PATIENCE[effort].soak_s + IDLE_CHECK_AND_START_S


def _roof_s(case: Case, peaks: Peaks) -> float:
    tflops, gbps = peaks.spec_tflops(case.peak), peaks.bandwidth_gbps
    if case.peak == "link":
        return case.work.bytes / 50e9
    compute = case.work.flops / (tflops * 1e12) if tflops else 0.0
    return max(compute, case.work.bytes / (gbps * 1e9) if gbps else 0.0)
