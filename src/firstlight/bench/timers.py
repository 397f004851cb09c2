"""How seconds are read off a device: events on a blocked CUDA stream, or the processor's own clock.

A CUDA series first blocks the stream with a spinning kernel, then queues start event, work and stop event of every
sample, so that no launch lies between two events. Whether that worked is not assumed: if the device has passed the
first event by the time the last one is queued, the block was too short and the series is taken again with a longer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from resource import RUSAGE_SELF, getrusage  # held since before a user's file was read
from statistics import median
from typing import Any, Protocol

from firstlight.frozen import dataclass

Call = Callable[[], object]
FIRST_BLOCK_S = 400e-6
LONGEST_BLOCK_S = 50e-3  # launches beyond this fill the driver's queue, and no block hides them
SPIN_S = 400e-6  # a block at least this long also tells the SM clock: within 0.2 % of NVML on an H200
SHORT_CYCLES, LONG_CYCLES = 400_000, 4_400_000
SHORT_SPIN_CYCLES = 100_000  # so that the opening event and the block behind it are both queued before either runs
TRIES = 4
WAITS = 0.8
# A sample in which a thread of ours was put off its core is a time of the neighbours, not of the code. On a machine of
# two cores with three busy processes a product of 1.4 ms took 1.33 to 1.84 ms where nobody was put off and 1.3 to 88 ms
# elsewhere, so such samples are taken again: this often, and for this long at most.
TRIES_ALONE, ALONE_WITHIN_S = 30, 0.2


@dataclass(frozen=True, slots=True)
class Shot:
    """What lies between two events: `launch` runs the operation `count` times."""

    launch: Call
    count: int


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds per call of each shot that counts, taken back to back."""

    seconds: tuple[float, ...]
    hidden: bool  # no launch was waited for between the events
    sm_mhz: float | None  # by the device's own cycle counter, just before the first shot
    put_off: int = 0  # shots during which another process held a core of ours; only a processor tells
    any_alone: bool = True  # whether one shot at least was not put off


@dataclass(frozen=True, slots=True)
class NotCaptured:
    """Why calls could not become a graph."""

    reason: str


def nothing() -> None:
    """What is done before each shot when the caches are left as they are."""


class Timer(Protocol):
    """What the stopwatch needs of a device; a test brings one with a clock of its own."""

    has_launches: bool  # False on a processor, where host and device time are one
    steady_within: float  # blocks that agree this well show that the warm-up is over: 0.01 is 1 %

    def now(self) -> float:
        """Seconds of a monotonic clock, the one telemetry is stamped with."""

    def pause(self, seconds: float) -> None:
        """Leave the device idle."""

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        """Time every shot, one after the other, with `before_each` run outside the timed span."""

    def host(self, call: Call) -> float:
        """Wall seconds of one eager call and a synchronisation."""

    def batch(self, calls: Sequence[Call]) -> Shot | NotCaptured:
        """Several calls as one shot without gaps: a CUDA graph, or a loop on a processor."""

    def flush(self) -> None:
        """Fill the last-level cache with something else."""


class CpuTimer:
    """The processor's clock; launches do not exist, so host and device time are the same."""

    has_launches = False
    steady_within = 0.1  # its clock and its caches are never as calm as a GPU's; two processes differ by as much

    def now(self) -> float:
        return time.perf_counter()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        """Every shot, again where another process held a core meanwhile; what never ran alone is counted and dropped.

        Where no shot at all ran alone, their times are given as they are.
        """
        taken = [_alone(shot, before_each) for shot in shots]
        alone = tuple(seconds for seconds, was_put_off in taken if not was_put_off)
        return Series(
            alone or tuple(seconds for seconds, _ in taken),
            hidden=True,
            sm_mhz=None,
            put_off=len(taken) - len(alone),
            any_alone=bool(alone),
        )

    def host(self, call: Call) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    def batch(self, calls: Sequence[Call]) -> Shot | NotCaptured:
        return one_after_another(calls)

    def flush(self) -> None:
        """Nothing: the size of a processor's last-level cache is not known to torch, so its cases are warm."""


def one_after_another(calls: Sequence[Call]) -> Shot:
    """The calls as one shot, where no graph captures them."""

    def all_of_them() -> None:
        for call in calls:
            call()

    return Shot(all_of_them, len(calls))


def _alone(shot: Shot, before_each: Call) -> tuple[float, bool]:
    """Seconds of one call, and whether a thread of ours was put off its core in the last try too."""
    deadline = time.perf_counter() + ALONE_WITHIN_S
    for tries in range(1, TRIES_ALONE + 1):
        before_each()
        switches = getrusage(RUSAGE_SELF).ru_nivcsw
        began = time.perf_counter()
        shot.launch()
        ended = time.perf_counter()
        was_put_off = getrusage(RUSAGE_SELF).ru_nivcsw > switches
        if not was_put_off or tries == TRIES_ALONE or ended >= deadline:
            break
    return (ended - began) / shot.count, was_put_off


class CudaTimer:
    """Events on the current stream of one CUDA device."""

    has_launches = True
    steady_within = 0.01

    def __init__(self, device: str, *, l2_bytes: int) -> None:
        import torch

        self._torch: Any = torch
        self._device = torch.device(device)
        torch.cuda.set_device(self._device)
        self._block_s = self._blocked_s = FIRST_BLOCK_S
        self._queueing_s = 0.0
        self._buffer: Any = torch.empty(max(2 * l2_bytes, 1 << 20), dtype=torch.uint8, device=self._device)
        self._capture_stream: Any = self._torch.cuda.Stream(self._device)
        self._pool: list[Any] = []
        self._cycles_per_s, self._spin_overhead_s = 1e9, 0.0
        # Private to torch. Without it launches stay in the times, which every series then says of itself; a memset of
        # the same length would push the data of warm cases out of the cache.
        self._spin: Any = getattr(torch.cuda, "_sleep", None)
        if self._spin is not None:
            self._calibrate()

    def now(self) -> float:
        return time.perf_counter()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        self._buffer.zero_()

    def host(self, call: Call) -> float:
        self._torch.cuda.synchronize(self._device)
        began = time.perf_counter()
        call()
        self._torch.cuda.synchronize(self._device)
        return time.perf_counter() - began

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        """The shots' times; tried again with a longer block until every launch was hidden, at most TRIES times."""
        series = self._try(shots, before_each)
        for _ in range(TRIES - 1):
            if series.hidden or self._block_s >= LONGEST_BLOCK_S or self._spin is None:
                break
            waited_s = self._queueing_s
            self._block_s = min(2 * self._block_s, LONGEST_BLOCK_S)
            grown_s = self._block_s - self._blocked_s
            series = self._try(shots, before_each)
            if not series.hidden and self._queueing_s - waited_s >= WAITS * grown_s:
                break  # queueing takes as much longer as the block does: the call itself waits for the device
        if not series.hidden:
            self._block_s = FIRST_BLOCK_S
        return series

    def _try(self, shots: Sequence[Shot], before_each: Call) -> Series:
        opening, *rest = self._events(1 + 2 * len(shots))
        events = list(zip(rest[::2], rest[1::2], strict=True))
        cycles = int(self._block_s * self._cycles_per_s)
        if self._spin is not None:
            self._spin(SHORT_SPIN_CYCLES)
            opening.record()
            self._spin(cycles)
        began = time.perf_counter()
        for shot, (start, stop) in zip(shots, events, strict=True):
            before_each()
            start.record()
            shot.launch()
            stop.record()
        self._queueing_s, self._blocked_s = time.perf_counter() - began, self._block_s
        hidden = not events[0][0].query()
        events[-1][1].synchronize()
        sm_mhz = None
        if self._spin is not None and before_each is nothing and self._block_s >= SPIN_S:
            spun_s = float(opening.elapsed_time(events[0][0])) / 1e3 - self._spin_overhead_s
            sm_mhz = cycles / spun_s / 1e6 if spun_s > 0 else None
        self._block_s = min(max(1.5 * self._queueing_s, SPIN_S), LONGEST_BLOCK_S)
        seconds = tuple(
            start.elapsed_time(stop) / 1e3 / shot.count for shot, (start, stop) in zip(shots, events, strict=True)
        )
        return Series(seconds, hidden, sm_mhz)

    def batch(self, calls: Sequence[Call]) -> Shot | NotCaptured:
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        try:
            with torch.cuda.graph(graph, stream=self._capture_stream):
                for call in calls:
                    call()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # torch's class for whatever cannot be captured
            torch.cuda.synchronize(self._device)
            self._capture_something()
            return NotCaptured(str(error).partition("\n")[0][:200])
        graph.replay()
        torch.cuda.synchronize(self._device)
        return Shot(graph.replay, len(calls))

    def _capture_something(self) -> None:
        """A capture that works: a broken one leaves torch's random numbers believing that it still goes on.

        Without it the next torch.randn raises 'Offset increment outside graph capture' (torch 2.11).
        """
        with self._torch.cuda.graph(self._torch.cuda.CUDAGraph(), stream=self._capture_stream):
            self._buffer.zero_()

    def _events(self, count: int) -> list[Any]:
        """Events that are used again: CUDA makes one when it is first recorded, which would delay the queueing."""
        while len(self._pool) < count:
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._pool.append(event)
        return self._pool[:count]

    def _calibrate(self) -> None:
        """Cycles per second of the spinning kernel, from two lengths of spin; then the delay around a block.

        A card that boosts later spins for a shorter time than asked; the check in `series` then lengthens the block.
        """
        self._spin_s(LONG_CYCLES)
        rates = []
        for _ in range(5):
            few, many = self._spin_s(SHORT_CYCLES), self._spin_s(LONG_CYCLES)
            rates.append((LONG_CYCLES - SHORT_CYCLES) / (many - few))
        self._cycles_per_s = median(rates)
        assert self._cycles_per_s > 0, f"the spinning kernel runs at {rates} cycles per second"
        blocks = [self._try((Shot(nothing, 1),), nothing) for _ in range(5)]
        seen = median(block.sm_mhz for block in blocks if block.sm_mhz is not None) * 1e6
        cycles = SPIN_S * self._cycles_per_s
        self._spin_overhead_s = max(0.0, cycles / seen - SPIN_S)

    def _spin_s(self, cycles: int) -> float:
        start, stop = self._events(2)
        self._spin(SHORT_SPIN_CYCLES)
        start.record()
        self._spin(cycles)
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3
