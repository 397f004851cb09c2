"""A device with a clock of its own: the stopwatch's decisions are tested without waiting and without a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from firstlight.bench.clocks import Counters, Reading
from firstlight.bench.timers import Call, NotCaptured, Series, Shot, nothing


class FakeDevice:
    """A timer and a gauge. `power_s` is how long it runs at full speed before its power limit slows it to `slowed`."""

    has_launches = True
    steady_within = 0.01
    missing: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        launch_s: float = 5e-6,
        noise: float = 0.0,
        power_s: float = float("inf"),
        slowed: float = 1.12,
        queue: int = 1000,
        captures: bool = True,
    ) -> None:
        self.time = 100.0
        self.launch_s, self.noise, self.power_s, self.slowed = launch_s, noise, power_s, slowed
        self.queue, self.captures = queue, captures
        self.heat_s = 0.0
        self.flushes = 0
        self.ran: list[str] = []
        self.pauses: list[float] = []
        self.series_sizes: list[int] = []
        self.random = random.Random(7)

    def call(self, seconds: float | Callable[[], float], *, name: str = "a") -> Call:
        """An operation that keeps the device busy for so long."""

        def run() -> None:
            self.ran.append(name)
            spent = seconds() if callable(seconds) else seconds
            spent *= 1 + self.noise * self.random.random()
            spent *= self.slowed if self.heat_s > self.power_s else 1.0
            self.heat_s += spent
            self.time += spent

        return run

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds
        self.heat_s = max(0.0, self.heat_s - 3 * seconds)

    def flush(self) -> None:
        self.flushes += 1
        self.time += 50e-6

    def series(self, shots: Sequence[Shot], *, before_each: Call = nothing) -> Series:
        self.series_sizes.append(len(shots))
        seconds = []
        for shot in shots:
            before_each()
            began = self.time
            shot.launch()
            seconds.append((self.time - began) / shot.count)
        return Series(tuple(seconds), hidden=len(shots) <= self.queue, sm_mhz=1980.0)

    def host(self, call: Call) -> float:
        began = self.time
        self.time += self.launch_s
        call()
        return self.time - began

    def batch(self, calls: Sequence[Call]) -> Shot | NotCaptured:
        if not self.captures:
            return NotCaptured("operation not permitted when stream is capturing")

        def replay() -> None:
            for call in calls:
                call()

        return Shot(replay, len(calls))

    def counters(self) -> Counters:
        return Counters(self.time, (("sw_power", int(max(0.0, self.heat_s - self.power_s) * 1e9)),))

    def wear(self) -> Counters:
        return Counters(self.time, ())

    def readings(self, began: float, ended: float) -> tuple[Reading, ...]:
        return (Reading(began, 1980.0, 3201.0, 300.0, 40.0, None, 0),)

    def close(self) -> None:
        """Nothing runs."""
