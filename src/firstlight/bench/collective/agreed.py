"""What ranks agree on, so that all of them take every step alike: times, clocks, free memory, ends of a pass.

The stopwatch decides by times how often it goes on. If each rank decided by its own, one would stop while another waits
for it. So every number it sees is the same on all ranks: the slowest rank's time, the first rank's clock.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from firstlight.bench.collective.calls import Lost
from firstlight.bench.memory import Memory
from firstlight.bench.stopwatch import PassTiming, Stopwatch, Subject
from firstlight.bench.timers import Call, NotCaptured, Series, Shot, nothing, one_after_another

POLL_S = 50e-6
BLOCK_S = 400e-6  # of the stream while a shot is queued, and twice as long as that took the last time
TRIES = 3
LONGEST_BLOCK_S = 50e-3
_WHERE_IN_GLOO = re.compile(r"^\[[^\]\n]*\]\s*")  # '[/__w/.../unbound_buffer.cc:78] ' before what it says
ROW_S, MOST_TURNS = 5e-3, 64  # of one sample between processes
CYCLES_PER_S = 2.0e9  # no GPU's clock is above it by much: a block is a little longer than asked, not shorter


class TorchParty:
    """The ranks of torch.distributed; agreement goes over a gloo group of its own, never over what is measured."""

    def __init__(self, control: Any, *, device: str, limit_s: float) -> None:
        import torch
        import torch.distributed as dist

        self._torch: Any = torch
        self._dist: Any = dist
        self._control = control
        self._limit_s = limit_s
        self._on_gpu = device != "cpu"
        self.rank = int(dist.get_rank())
        self.count = int(dist.get_world_size())
        self.wrong: set[str] = set()
        self.lost = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around whatever waits for other ranks: an error in it is theirs, and this rank can only say so."""
        try:
            yield
        except RuntimeError as error:  # of every backend of torch.distributed
            self.lost = True
            raise Lost(_WHERE_IN_GLOO.sub("", str(error))) from error

    def agree(self, own: object) -> list[Any]:
        """What every rank says, by rank."""
        said: list[Any] = [None] * self.count
        with self.asking():
            self._dist.all_gather_object(said, own, group=self._control)
        return said

    def largest(self, own: Sequence[float]) -> list[float]:
        """The largest of every rank, place by place."""
        both = self._torch.tensor(list(own), dtype=self._torch.float64)
        with self.asking():
            self._dist.all_reduce(both, op=self._dist.ReduceOp.MAX, group=self._control)
        return [float(each) for each in both.tolist()]

    def of_first(self, own: float) -> float:
        """What rank 0 has, on every rank."""
        return self.largest([own if self.rank == 0 else -math.inf])[0]

    def meet(self) -> None:
        """No rank goes on before all are here."""
        with self.asking():
            self._dist.barrier(group=self._control)

    def wait(self) -> None:
        """Until the GPU has done what is queued, or the time is up: NCCL itself waits for a lost rank for ever."""
        if not self._on_gpu:
            return
        done = self._torch.cuda.Event()
        done.record()
        deadline = time.monotonic() + self._limit_s
        while not done.query():
            if time.monotonic() > deadline:
                self.lost = True
                raise Lost(f"what was queued on the GPU did not end within {self._limit_s:.0f} s")
            time.sleep(POLL_S)


class _AgreedTimer:
    """What both kinds have in common: the clock of rank 0, and calls in a loop as one shot."""

    has_launches = False  # host time is no figure here: ranks wait for each other in it
    steady_within = 0.1

    def __init__(self, party: TorchParty) -> None:
        self._party = party

    def now(self) -> float:
        """The clock of rank 0, on every rank."""
        return self._party.of_first(time.perf_counter())

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def host(self, call: Call) -> float:
        return self.series((Shot(call, 1),)).seconds[0]

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        raise NotImplementedError

    def batch(self, calls: Sequence[Call]) -> Shot | NotCaptured:
        return one_after_another(calls)

    def flush(self) -> None:
        """Nothing: what crosses a link has been written just before."""


class ProcessTimer(_AgreedTimer):
    """Processes on one machine share a clock: from the first that starts to the last that ends. On several machines
    each has its own, and the slowest rank's time counts."""

    def __init__(self, party: TorchParty, *, one_clock: bool) -> None:
        super().__init__(party)
        self._one_clock = one_clock
        self._known: Shot | None = None
        self._turns = 1

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        """Short shots are taken several times in a row: ranks leave the meeting up to some 0.5 ms apart."""
        for shot in shots:
            if shot is not self._known:
                [once] = self._taken((shot,), before_each, turns=1)
                self._known, self._turns = shot, max(1, min(MOST_TURNS, round(ROW_S / (once * shot.count))))
        return Series(tuple(self._taken(shots, before_each, turns=self._turns)), hidden=True, sm_mhz=None)

    def _taken(self, shots: Sequence[Shot], before_each: Call, *, turns: int) -> list[float]:
        """Seconds of one call in each shot."""
        spans = []
        for shot in shots:
            before_each()
            self._party.meet()
            began = time.perf_counter()
            for _ in range(turns):
                shot.launch()
            spans.append((began, time.perf_counter()))
        if self._one_clock:
            ends = self._party.largest([*(-began for began, _ in spans), *(ended for _, ended in spans)])
            took = [last + first for first, last in zip(ends[: len(spans)], ends[len(spans) :], strict=True)]
        else:
            took = self._party.largest([ended - began for began, ended in spans])
        return [each / shot.count / turns for each, shot in zip(took, shots, strict=True)]


class GpuTimer(_AgreedTimer):
    """Events on each rank's stream, which is blocked until all is queued; then a tiny collective lines the ranks up,
    and the slowest rank's time counts. Run with one rank only so far."""

    def __init__(self, party: TorchParty, *, device: str) -> None:
        import torch
        import torch.distributed as dist

        super().__init__(party)
        self._torch: Any = torch
        self._line_up_on = torch.ones(1, device=device)
        self._reduce: Any = dist.all_reduce
        self._spin: Any = getattr(torch.cuda, "_sleep", None)  # private to torch; without it every figure says so
        self._queueing_s = 0.0

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        """A shot whose launches the block did not hide is taken again with a longer one; all ranks go by the latest."""
        seconds, hidden = [], True
        for shot in shots:
            for _ in range(TRIES):
                took, late = self._party.largest(self._one(shot, before_each))
                if not late:
                    break
            seconds.append(took)
            hidden = hidden and not late
        return Series(tuple(seconds), hidden=hidden, sm_mhz=None)

    def _one(self, shot: Shot, before_each: Call) -> tuple[float, float]:
        """Seconds of one call, and 1 where the GPU had to wait for launches."""
        cuda = self._torch.cuda
        start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        before_each()
        self._party.meet()
        if self._spin is not None:
            self._spin(int(min(BLOCK_S + 2 * self._queueing_s, LONGEST_BLOCK_S) * CYCLES_PER_S))
        began = time.perf_counter()
        self._reduce(self._line_up_on)
        start.record()
        shot.launch()
        stop.record()
        late = bool(start.query())
        self._queueing_s = time.perf_counter() - began
        self._party.wait()
        return float(start.elapsed_time(stop)) / 1e3 / shot.count, float(late)


class AgreedStopwatch:
    """The one stopwatch, started on every rank with the budget of rank 0."""

    def __init__(self, stopwatch: Stopwatch, party: TorchParty) -> None:
        self._stopwatch, self._party = stopwatch, party

    def time_pass(self, subject: Subject, *, budget_s: float) -> PassTiming:
        return self._stopwatch.time_pass(subject, budget_s=self._party.of_first(budget_s))


class AgreedMemory:
    """Memory of the rank that has least of it."""

    def __init__(self, memory: Memory, party: TorchParty) -> None:
        self._memory, self._party = memory, party

    def free_bytes(self) -> int:
        return int(-self._party.largest([-float(self._memory.free_bytes())])[0])

    def clear(self) -> None:
        self._memory.clear()

    def peaks(self) -> tuple[int | None, int | None]:
        return self._memory.peaks()

    def finish(self) -> None:
        self._party.wait()
