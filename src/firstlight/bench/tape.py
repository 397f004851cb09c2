"""Shots taken in turn: how calls become shots of at least 200 us, and series of them from a device."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from statistics import median

from firstlight.bench.rotation import Cold
from firstlight.bench.timers import Call, NotCaptured, Series, Shot, Timer, nothing
from firstlight.frozen import dataclass

SPAN_S = 200e-6  # events resolve about 0.5 us, so this keeps their error under 0.25 %
NEARLY = 0.8  # of the span is good enough not to capture again
MOST_CALLS_IN_A_GRAPH = 4096
COARSE_S = 50e-6  # a single call shorter than this is resolved to no better than 1 %
SERIES_S = 20e-3  # of work queued at once


class Launching(enum.Enum):
    """How calls may be put together."""

    GRAPHS = "graphs"
    PLAIN = "plain"  # the case says it cannot be captured, or its time is that of eager calls


@dataclass(frozen=True, slots=True)
class Shots:
    """What one sample is made of: one shot per buffer set, or one graph that goes through all of them."""

    shots: tuple[Shot, ...]
    call_s: float  # about how long one call takes
    flags: tuple[str, ...]

    @property
    def graph_calls(self) -> int:
        return self.shots[0].count


class Tape:
    """Takes shots in turn, so that every buffer set is used as often as the others."""

    def __init__(self, timer: Timer, shots: Sequence[Shot], *, before_each: Call = nothing) -> None:
        self._timer = timer
        self._shots = shots
        self._before_each = before_each
        self._turn = 0
        self._one_by_one = False
        self._last_s: float | None = None
        self.all_hidden = True
        self.shots_taken = 0
        self.shots_put_off = 0

    @property
    def mostly_put_off(self) -> bool:
        """Whether other processes held the cores in more than half of the shots, so that the median is theirs."""
        return 2 * self.shots_put_off > self.shots_taken

    def take(self, count: int) -> Series:
        """The next `count` shots; queued together unless the driver's queue proved too short for that."""
        if not self._one_by_one or count == 1:
            series = self._series(count)
            if series.hidden or count == 1:
                self.all_hidden &= series.hidden
                return series
            self._one_by_one = True
        singles = [self._series(1) for _ in range(count)]
        self.all_hidden &= all(single.hidden for single in singles)
        clocks = [single.sm_mhz for single in singles if single.sm_mhz is not None]
        return Series(
            tuple(single.seconds[0] for single in singles),
            hidden=all(single.hidden for single in singles),
            sm_mhz=median(clocks) if clocks else None,
        )

    def block_of(self, most: int, *, within_s: float = SERIES_S) -> Series:
        """A series of at most `most` shots that takes about `within_s` at most, but of one shot at least."""
        shot = self._shots[0]
        if self._last_s is None:
            self._last_s = self.take(1).seconds[0]
        span_s = max(self._last_s * shot.count, 1e-9)
        series = self.take(max(1, min(most, int(within_s / span_s))))
        self._last_s = median(series.seconds)
        return series

    def _series(self, count: int) -> Series:
        picked = [self._shots[(self._turn + place) % len(self._shots)] for place in range(count)]
        self._turn = (self._turn + count) % len(self._shots)
        series = self._timer.series(picked, before_each=self._before_each)
        self.shots_taken += count
        self.shots_put_off += series.put_off
        return series


def make_shots(timer: Timer, calls: Sequence[Call], *, cold: Cold, launching: Launching) -> Shots:
    """The calls as shots that span 200 us: one by one where a call is long enough, else in a graph."""
    single = tuple(Shot(call, 1) for call in calls)
    before_each = timer.flush if cold is Cold.FLUSHED else nothing
    first_look = Tape(timer, single, before_each=before_each)
    call_s = median(first_look.take(3).seconds)
    coarse = ("coarse_timer",) if call_s < COARSE_S else ()
    if call_s >= SPAN_S:
        return Shots(single, call_s, ())
    # A call that waits for the device cannot be captured, and trying leaves torch in disorder.
    if launching is Launching.PLAIN or not first_look.all_hidden:
        return Shots(single, call_s, ("uncaptured", *coarse))
    if cold is Cold.FLUSHED:
        return Shots(single, call_s, coarse)
    shot = single[0]
    for _ in range(3):
        count = _whole_turns(SPAN_S / call_s, len(calls))
        batch = timer.batch([calls[place % len(calls)] for place in range(count)])
        if isinstance(batch, NotCaptured):
            return Shots(single, call_s, ("uncaptured", *coarse))
        shot = batch
        call_s = median(timer.series((shot,) * 3).seconds)
        if call_s * count >= NEARLY * SPAN_S or count >= MOST_CALLS_IN_A_GRAPH:
            break
    return Shots((shot,), call_s, ())


def _whole_turns(wanted: float, sets: int) -> int:
    """Calls in a graph: at least as many as wanted, and every buffer set equally often."""
    turns = max(1, -int(-wanted // sets))
    return min(turns * sets, max(sets, MOST_CALLS_IN_A_GRAPH // sets * sets))
