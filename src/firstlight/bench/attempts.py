"""Cases tried on one device in interleaved passes: set-up, check, timing; what goes wrong becomes a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Protocol

from firstlight.bench.case import Cache, Case, Place, Prepared
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.bench.memory import Memory
from firstlight.bench.patience import Patience
from firstlight.bench.results import Verdict
from firstlight.bench.rotation import cache_state, how_cold, sets_wanted
from firstlight.bench.stopwatch import PassTiming, Regimes, Subject
from firstlight.bench.tape import Launching
from firstlight.frozen import dataclass

LEAST_SHARE = 0.1  # of the sample budget, however late a run is
UNCAPTURED = "uncaptured"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A case and what has come of it so far."""

    case: Case
    cache: Cache
    passes: tuple[PassTiming, ...] = ()
    verdict: Verdict = Verdict.OK
    reason: str = ""
    error_rel: float | None = None
    setup_s: float | None = None
    peak_alloc_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    flags: tuple[str, ...] = ()


class Watchable(Protocol):
    """The part of a stopwatch that is needed here."""

    def time_pass(self, subject: Subject, *, budget_s: float) -> PassTiming: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What cases are run with on one device."""

    place: Place
    stopwatch: Watchable
    memory: Memory
    patience: Patience


@dataclass(frozen=True, slots=True)
class Turn:
    """What progress is told: case number 12 of 97 in pass 1 of 3 is about to run."""

    case_id: str
    number: int
    cases: int
    pass_number: int
    passes: int


@dataclass(frozen=True, slots=True)
class Attempts:
    """All attempts, whether the user broke off, and how long the timing took without set-up."""

    attempts: tuple[Attempt, ...]
    interrupted: bool
    timing_s: float


def first_attempt(case: Case, place: Place) -> Attempt:
    """The attempt before anything was run; skipped where the case cannot run at this place."""
    attempt = Attempt(case, cache_state(case, place), flags=case.flags)
    if place.device.partition(":")[0] not in case.devices:
        return _ended(attempt, Verdict.SKIPPED, f"runs on {' or '.join(case.devices)} only")
    return _ended(attempt, Verdict.SKIPPED, case.needs) if case.needs else attempt


def unheard(_: object) -> None:
    """Whom nobody listens to is told nothing."""


def run_passes(
    attempts: Sequence[Attempt],
    tools: Tools,
    *,
    tell: Callable[[Turn], None],
    keep: Callable[[tuple[Attempt, ...]], None] = unheard,
) -> Attempts:
    """Every case in pass 1, then every case in pass 2 and so on; what is finished survives an interrupt.

    `keep` gets what there is after every case, for whoever wants it to survive more than that.
    """
    kept = list(attempts)
    pace = _Pace(tools.patience, cases=sum(each.verdict is Verdict.OK for each in kept))
    interrupted = False
    try:
        for pass_number in range(1, tools.patience.passes + 1):
            for place, attempt in enumerate(kept):
                if attempt.verdict is not Verdict.OK:
                    continue
                tell(Turn(attempt.case.id, place + 1, len(kept), pass_number, tools.patience.passes))
                began = time.perf_counter()
                kept[place], setup_s = run_one_pass(attempt, tools, budget_s=pace.budget_s())
                pace.spent(time.perf_counter() - began - setup_s)
                if kept[place].verdict is Verdict.FAILED and (lost := _lost(tools.memory)):
                    return Attempts(_after_loss(kept, attempt.case.id, lost), interrupted, pace.total_s)
                keep(tuple(_unless_run(each, "not reached before the run ended") for each in kept))
    except KeyboardInterrupt:
        interrupted = True
    return Attempts(tuple(_unless_run(each, "interrupted before it ran") for each in kept), interrupted, pace.total_s)


def run_one_pass(attempt: Attempt, tools: Tools, *, budget_s: float) -> tuple[Attempt, float]:
    """The attempt with one more pass, or with the reason why not; and the seconds of set-up in it."""
    case, memory = attempt.case, tools.memory
    memory.clear()
    free = memory.free_bytes()
    place = replace(tools.place, free_bytes=free)
    if case.set_bytes > free:
        return _ended(attempt, Verdict.SKIPPED, _too_large(case.set_bytes, free)), 0.0
    sets = sets_wanted(case, place)
    began = time.perf_counter()
    setup_s = 0.0
    try:
        prepared = case.prepare(place, sets)
        attempt = _checked(attempt, prepared)
        if attempt.verdict is Verdict.OK:
            for call in prepared.calls:
                call()
            memory.finish()
            setup_s = time.perf_counter() - began
            subject = subject_of(case, prepared, place, regimes=_regimes(attempt, tools.patience))
            timing = tools.stopwatch.time_pass(subject, budget_s=budget_s)
            memory.finish()
            attempt = _with_pass(attempt, timing, setup_s=setup_s, peaks=memory.peaks())
            timed = time.perf_counter()
            prepared.audit(median(timing.stretches[-1].samples))
            setup_s += time.perf_counter() - timed  # looking is no timing
    except Unavailable as error:
        return _ended(attempt, Verdict.SKIPPED, str(error)), setup_s
    except Exception as error:  # noqa: BLE001 one broken case must not take the others with it
        return _broken(attempt, error, needed=sets * case.set_bytes, free=free), setup_s
    return attempt, setup_s


def _regimes(attempt: Attempt, patience: Patience) -> Regimes:
    if attempt.case.peak in ("link", "none"):
        return Regimes.SUSTAINED
    has_sustained = len(attempt.passes) >= patience.sustained_passes
    return Regimes.BURST_IF_BIG if has_sustained else Regimes.BOTH_IF_BIG


def subject_of(case: Case, prepared: Prepared, place: Place, *, regimes: Regimes) -> Subject:
    """The prepared case as the stopwatch takes it."""
    return Subject(
        calls=prepared.calls,
        mode=case.mode,
        cold=how_cold(case, place, sets=len(prepared.calls)),
        launching=Launching.PLAIN if UNCAPTURED in (*case.flags, *prepared.flags) else Launching.GRAPHS,
        regimes=regimes,
    )


def _checked(attempt: Attempt, prepared: Prepared) -> Attempt:
    """Correctness before speed: checked in the first pass; NaN is wrong."""
    if attempt.passes:
        return attempt
    error = float(prepared.check())
    tolerance = attempt.case.tolerance
    flags = tuple(flag for flag in prepared.flags if flag != UNCAPTURED)
    attempt = replace(attempt, error_rel=_finite(error), flags=tuple(dict.fromkeys((*attempt.flags, *flags))))
    if error <= tolerance:
        return attempt
    return _ended(attempt, Verdict.FAILED, f"wrong result: relative error {error:.3g}, accepted up to {tolerance:.3g}")


def _finite(error: float) -> float | None:
    """The error, None for NaN and infinity, which JSON has no word for; the reason then says it."""
    return error if error - error == 0 else None


def _with_pass(
    attempt: Attempt, timing: PassTiming, *, setup_s: float, peaks: tuple[int | None, int | None]
) -> Attempt:
    alloc, reserved = peaks
    return replace(
        attempt,
        passes=(*attempt.passes, timing),
        setup_s=setup_s if attempt.setup_s is None else attempt.setup_s,  # the first pass compiles and tunes
        peak_alloc_bytes=_larger(attempt.peak_alloc_bytes, alloc),
        peak_reserved_bytes=_larger(attempt.peak_reserved_bytes, reserved),
        flags=tuple(dict.fromkeys((*attempt.flags, *timing.flags))),
    )


def _larger(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def _ended(attempt: Attempt, verdict: Verdict, reason: str) -> Attempt:
    return replace(attempt, verdict=verdict, reason=reason)


def _broken(attempt: Attempt, error: Exception, *, needed: int, free: int) -> Attempt:
    if _is_out_of_memory(error):
        return _ended(attempt, Verdict.SKIPPED, _too_large(needed, free))
    said = " ".join(str(error).split())[:300]
    return _ended(attempt, Verdict.FAILED, f"{type(error).__name__}: {said}" if said else type(error).__name__)


def _is_out_of_memory(error: Exception) -> bool:
    """By name, so that torch need not be imported here; on a processor torch raises a plain RuntimeError."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"OutOfMemoryError", "MemoryError"}) or "can't allocate memory" in str(error)


def _too_large(needed: int, free: int) -> str:
    return f"out of memory: needs {needed / 1e9:.1f} GB and working space, {free / 1e9:.1f} GB free"


def _lost(memory: Memory) -> str:
    """Why nothing more can run on the device; '' while it still answers."""
    try:
        memory.finish()
    except RuntimeError as error:
        return " ".join(str(error).split())[:200] or "the device no longer answers"
    return ""


def _after_loss(attempts: Sequence[Attempt], case_id: str, lost: str) -> tuple[Attempt, ...]:
    reason = f"not run: {case_id} broke the CUDA context ({lost})"
    return tuple(_unless_run(attempt, reason) for attempt in attempts)


def _unless_run(attempt: Attempt, reason: str) -> Attempt:
    has_run = attempt.passes or attempt.verdict is not Verdict.OK
    return attempt if has_run else _ended(attempt, Verdict.SKIPPED, reason)


class _Pace:
    """Keeps a run inside its limit: when it is late, later passes get smaller budgets for samples."""

    def __init__(self, patience: Patience, *, cases: int) -> None:
        self._patience = patience
        self._left = cases * patience.passes
        self._done = 0
        self.total_s = 0.0

    def budget_s(self) -> float:
        full = self._patience.pass_budget_s
        if not self._done:
            return full
        expected_s = self.total_s / self._done * self._left
        time_left_s = self._patience.run_limit_s - self._patience.soak_s - self.total_s
        return full * min(1.0, max(LEAST_SHARE, time_left_s / expected_s)) if expected_s > 0 else full

    def spent(self, seconds: float) -> None:
        self._done += 1
        self._left -= 1
        self.total_s += max(0.0, seconds)
