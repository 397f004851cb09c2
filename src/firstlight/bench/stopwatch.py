"""The one stopwatch: one pass of one case, from the first look to the last sample.

A sample spans at least 200 us: short calls are captured in a graph and rotate through the buffer sets. Big kernels get
two figures, because both are true on a card with a power limit: burst (a few calls after a pause) and sustained (back
to back until power and clock have found each other). Short ones are taken back to back: that is their sustained figure.

Measured on an H200 (700 W), bf16 8192 cubed: 1.364 ms for the first 40 ms at 1950 MHz; from 0.1 s on the power limit
holds the clock at 1430 to 1620 MHz in swings of about 1 s, 1.52 to 1.70 ms; after a pause of 0.1 s it is 1.37 ms again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from statistics import median

from firstlight.bench.case import Mode
from firstlight.bench.clocks import Gauge, Watch
from firstlight.bench.patience import Patience
from firstlight.bench.results import Regime
from firstlight.bench.rotation import Cold
from firstlight.bench.statistics import median_interval
from firstlight.bench.steady import NOT_STEADY, PUT_OFF
from firstlight.bench.tape import Launching, Shots, Tape, make_shots
from firstlight.bench.timers import Call, Series, Timer, nothing
from firstlight.frozen import dataclass

BIG_CALL_S = 0.5e-3  # from here on a call draws power for long enough that burst and sustained differ
BURST_S = 10e-3  # of work after a pause: a quarter of the time for which an H200 holds its highest clock
FIRST_PAUSE_S = 0.15
PAUSE_S = 0.04  # between bursts, or three times as long as the burst
MOST_BURSTS = 6
SLOWED = 1.015  # sustained over burst, from which on the power limit is at work
LEAST_CALLS = 3
DEVICE_BLOCKS = 3  # of a case whose headline is host time: enough to say how much of it is launching


class Regimes(enum.Enum):
    """Which figures a case gets."""

    BOTH_IF_BIG = "burst and sustained when a call is long"
    BURST_IF_BIG = "burst when a call is long"  # the sustained figure has its passes already
    SUSTAINED = "sustained"  # copies over a link draw no power to speak of


@dataclass(frozen=True, slots=True)
class Subject:
    """What is timed: the calls with their buffers, whose time counts, how the cache is kept cold."""

    calls: tuple[Call, ...]
    mode: Mode
    cold: Cold
    launching: Launching
    regimes: Regimes


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples of one regime in one pass, with what NVML saw meanwhile."""

    regime: Regime
    samples: tuple[float, ...]
    watch: Watch
    sm_mhz: tuple[float, ...]  # by the device's cycle counter, where that was read


@dataclass(frozen=True, slots=True)
class PassTiming:
    """One pass of one case."""

    stretches: tuple[Stretch, ...]
    device: tuple[float, ...]  # seconds of one call on the device; () where launches could not be kept out of them
    host: tuple[float, ...]  # wall seconds of an eager call; () where launches do not exist
    graph_calls: int
    flags: tuple[str, ...]


class Stopwatch:
    """Times one case after the other on one device."""

    def __init__(self, timer: Timer, gauge: Gauge, *, patience: Patience) -> None:
        self._timer = timer
        self._gauge = gauge
        self._patience = patience

    def time_pass(self, subject: Subject, *, budget_s: float) -> PassTiming:
        """One pass; `budget_s` bounds the samples, not the warm-up, and never cuts below the least number."""
        if subject.mode is Mode.HOST and self._timer.has_launches:
            return self._time_host(subject, budget_s=budget_s)
        made = make_shots(self._timer, subject.calls, cold=subject.cold, launching=subject.launching)
        tape = self._tape(subject, made)
        steady = self._warm_up(tape)
        is_big = subject.regimes is not Regimes.SUSTAINED and made.call_s >= BIG_CALL_S and self._timer.has_launches
        stretches: tuple[Stretch, ...]
        if not is_big:
            stretches = (self._sustained(tape, budget_s=budget_s),)
        elif subject.regimes is Regimes.BURST_IF_BIG:
            stretches = (self._burst(tape, budget_s=budget_s / 2),)
        else:
            stretches = self._both(tape, budget_s=budget_s)
        host = self._host_samples(subject.calls, budget_s=budget_s / 4) if self._timer.has_launches else ()
        flags = (*made.flags, *_when(NOT_STEADY, not steady and not is_big), *_hiding(tape))
        return PassTiming(stretches, stretches[-1].samples, host, made.graph_calls, flags)

    def _time_host(self, subject: Subject, *, budget_s: float) -> PassTiming:
        """A case whose headline is what a user of eager mode waits for; the device's share is taken beside it."""
        made = make_shots(self._timer, subject.calls, cold=subject.cold, launching=Launching.PLAIN)
        tape = self._tape(subject, made)
        steady = self._warm_up(tape)
        series = [tape.block_of(self._patience.block) for _ in range(DEVICE_BLOCKS)]
        turn = count()

        def sample() -> _Taken:
            return _Taken((self._timer.host(subject.calls[next(turn) % len(subject.calls)]),), ())

        for _ in range(LEAST_CALLS):
            sample()
        stretch = self._stretch(Regime.SUSTAINED, lambda: self._until_precise(sample, budget_s=budget_s))
        clocks = tuple(each.sm_mhz for each in series if each.sm_mhz is not None)
        device = tuple(seconds for each in series for seconds in each.seconds) if tape.all_hidden else ()
        flags = _when(NOT_STEADY, not steady)
        return PassTiming((replace(stretch, sm_mhz=clocks),), device, stretch.samples, 1, flags)

    def _tape(self, subject: Subject, made: Shots) -> Tape:
        before_each = self._timer.flush if subject.cold is Cold.FLUSHED else nothing
        return Tape(self._timer, made.shots, before_each=before_each)

    def _warm_up(self, tape: Tape) -> bool:
        """Until three blocks in a row agree; False when they still do not at the limit.

        A block that others held up all along says nothing about this; where all of them were, the passes will tell.
        """
        patience = self._patience
        began = self._timer.now()
        middles: list[float] = []
        while True:
            block = tape.block_of(patience.block)
            if block.any_alone:
                middles = [*middles[-2:], median(block.seconds)]
            spent_s = self._timer.now() - began
            agree = len(middles) == LEAST_CALLS and max(middles) <= (1 + self._timer.steady_within) * min(middles)
            if agree and spent_s >= patience.warm_up_s:
                return True
            if spent_s >= patience.warm_up_limit_s and (len(middles) == LEAST_CALLS or not block.any_alone):
                return len(middles) < LEAST_CALLS

    def _both(self, tape: Tape, *, budget_s: float) -> tuple[Stretch, Stretch]:
        """Bursts after pauses, then back to back; where the power limit bites, over at least one of its swings."""
        burst = self._burst(tape, budget_s=budget_s / 2)
        deadline = self._timer.now() + self._patience.settle_s
        settled = [median(tape.block_of(self._patience.most_samples).seconds)]
        while self._timer.now() < deadline:
            settled.append(median(tape.block_of(self._patience.most_samples).seconds))
        if median(settled[len(settled) // 2 :]) > SLOWED * median(burst.samples):
            return burst, self._stretch(Regime.SUSTAINED, lambda: self._through_swings(tape))
        return burst, self._sustained(tape, budget_s=budget_s / 2)

    def _burst(self, tape: Tape, *, budget_s: float) -> Stretch:
        return self._stretch(Regime.BURST, lambda: self._bursts(tape, budget_s=budget_s))

    def _bursts(self, tape: Tape, *, budget_s: float) -> _Taken:
        """A few calls after each pause; the pauses are not charged to the budget, but their number is bounded."""
        pause_s = FIRST_PAUSE_S

        def after_a_pause() -> _Taken:
            nonlocal pause_s
            self._timer.pause(pause_s)
            taken = _taken(tape.block_of(self._patience.block, within_s=BURST_S))
            pause_s = max(PAUSE_S, 3 * sum(taken.seconds))
            return taken

        allowed_s = budget_s + FIRST_PAUSE_S + MOST_BURSTS * PAUSE_S
        return self._until_precise(after_a_pause, budget_s=allowed_s, most_rounds=MOST_BURSTS)

    def _through_swings(self, tape: Tape) -> _Taken:
        """Back to back for a fixed time, thinned to the most samples a pass may keep."""
        patience = self._patience
        deadline = self._timer.now() + patience.sustain_s
        taken = _Taken((), ())
        while self._timer.now() < deadline or len(taken.seconds) < patience.least_samples:
            taken = taken.and_then(_taken(tape.block_of(patience.most_samples)))
        step = -(-len(taken.seconds) // patience.most_samples)
        return _Taken(taken.seconds[::step], taken.sm_mhz)

    def _sustained(self, tape: Tape, *, budget_s: float) -> Stretch:
        def take() -> _Taken:
            return _taken(tape.block_of(self._patience.block))

        return self._stretch(Regime.SUSTAINED, lambda: self._until_precise(take, budget_s=budget_s))

    def _stretch(self, regime: Regime, take: Callable[[], _Taken]) -> Stretch:
        before = self._gauge.counters()
        taken = take()
        after = self._gauge.counters()
        watch = Watch(before, after, self._gauge.readings(before.at, after.at))
        return Stretch(regime, taken.seconds, watch, taken.sm_mhz)

    def _until_precise(self, take: Callable[[], _Taken], *, budget_s: float, most_rounds: int = 1 << 30) -> _Taken:
        """Samples until the interval of their median is narrow, the time is up or there are enough of them."""
        patience = self._patience
        deadline = self._timer.now() + budget_s
        taken = _Taken((), ())
        for rounds in count():
            samples = len(taken.seconds)
            if samples >= patience.most_samples:
                break
            is_late = rounds >= most_rounds or self._timer.now() >= deadline
            if samples >= patience.least_samples and (is_late or self._is_precise(taken.seconds)):
                break
            taken = taken.and_then(take())
        return taken

    def _is_precise(self, samples: Sequence[float]) -> bool:
        if len(samples) < self._patience.precise_from:
            return False
        low, high = median_interval(samples)
        return (high - low) / 2 <= self._patience.half_width * median(samples)

    def _host_samples(self, calls: Sequence[Call], *, budget_s: float) -> tuple[float, ...]:
        deadline = self._timer.now() + budget_s
        samples: list[float] = []
        while len(samples) < self._patience.host_samples:
            samples.append(self._timer.host(calls[len(samples) % len(calls)]))
            if len(samples) >= LEAST_CALLS and self._timer.now() >= deadline:
                break
        return tuple(samples)


@dataclass(frozen=True, slots=True)
class _Taken:
    seconds: tuple[float, ...]
    sm_mhz: tuple[float, ...]

    def and_then(self, other: _Taken) -> _Taken:
        return _Taken(self.seconds + other.seconds, self.sm_mhz + other.sm_mhz)


def _taken(series: Series) -> _Taken:
    return _Taken(series.seconds, () if series.sm_mhz is None else (series.sm_mhz,))


def _when(flag: str, condition: object) -> tuple[str, ...]:
    return (flag,) if condition else ()


def _hiding(tape: Tape) -> tuple[str, ...]:
    return (*_when("launches_not_hidden", not tape.all_hidden), *_when(PUT_OFF, tape.mostly_put_off))
