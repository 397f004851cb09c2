"""Why a GPU is slower than equal ones in a figure: heat, a power cap, a clock that was set, or the chip. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from firstlight.bench.equal_gpus import MeasuredGpu, Taken
from firstlight.bench.results import Bound, GpuResult
from firstlight.frozen import dataclass

HOTTER_BY_C = 10.0  # above its class: the same clock then costs more power
HELD_PCT = 5.0  # of the time in which a reason held, more than in its class
LOWER_BY = 0.01  # of a clock, a limit: less is the reading
THERMAL = ("sw_thermal", "hw_thermal", "hw_slowdown")


class Why(enum.Enum):
    """What makes a GPU slow."""

    HEAT = "heat"
    POWER_CAP = "power cap"
    CLOCK_SET = "clock limit"
    CHIP = "chip"
    MEMORY_CLOCK = "memory clock"
    MEMORY = "memory"
    LINK = "link"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with what was seen, e.g. heat: "1310 MHz, others 1465; 86 °C, others 58 °C"."""

    why: Why
    saw: str


@dataclass(frozen=True, slots=True)
class Sides:
    """One figure of a slow GPU, run for run, beside the same of the other GPUs of its class."""

    gpu: MeasuredGpu
    mine: Sequence[Taken]
    cards: Sequence[GpuResult]  # of the others
    theirs: Sequence[Taken]

    def read(self, of: Callable[[Taken], float | None]) -> tuple[float, float] | None:
        """A reading of this GPU (mean of its runs) and of the others (median); None where one side has none."""
        mine, theirs = _known(map(of, self.mine)), _known(map(of, self.theirs))
        return (fmean(mine), median(theirs)) if mine and theirs else None

    def card(self, of: Callable[[GpuResult], float | None]) -> tuple[float, float] | None:
        mine, theirs = of(self.gpu.card), _known(map(of, self.cards))
        return (mine, median(theirs)) if mine is not None and theirs else None


def cause_of(sides: Sides) -> Cause:
    """What explains most of the difference."""
    bound = sides.mine[0].bound
    if bound is Bound.LINK:
        return _link(sides)
    clock = sides.read(lambda taken: taken.sm_mhz)
    memory = sides.read(lambda taken: taken.mem_mhz)
    if bound is Bound.MEMORY and memory is not None and _below(memory) > LOWER_BY:
        return Cause(Why.MEMORY_CLOCK, f"memory at {memory[0]:.0f} MHz, others {memory[1]:.0f}")
    if clock is None:
        return Cause(Why.NOT_KNOWN, "its clocks were not read")
    rate = sides.read(lambda taken: taken.rate)
    assert rate is not None, sides
    per_clock = 1 - (rate[0] / clock[0]) / (rate[1] / clock[1])
    if _below(clock) > max(LOWER_BY, per_clock):
        return _clock(sides, clock)
    if bound is Bound.MEMORY:
        return Cause(Why.MEMORY, f"at the same clocks ({clock[0]:.0f} MHz, others {clock[1]:.0f})")
    return Cause(Why.CHIP, _per_sm_and_ghz(sides, per_clock, clock))


def _per_sm_and_ghz(sides: Sides, per_clock: float, clock: tuple[float, float]) -> str:
    """E.g. "7.0 % less per SM and GHz (3.15 TFLOPS, others 3.39), at 1465 MHz, others 1466"."""
    at = f"at {clock[0]:.0f} MHz, others {clock[1]:.0f}"
    sms, tflops = sides.gpu.card.sms, sides.read(lambda taken: taken.tflops)
    if not sms or tflops is None:
        return f"{100 * per_clock:.1f} % less per SM and GHz, {at}"
    per = [each / sms / (mhz / 1000) for each, mhz in zip(tflops, clock, strict=True)]
    return f"{100 * per_clock:.1f} % less per SM and GHz ({per[0]:.2f} TFLOPS, others {per[1]:.2f}), {at}"


def _clock(sides: Sides, clock: tuple[float, float]) -> Cause:
    """Why the clock is low: what the driver says first, then what is set, then how warm and how thirsty it is."""
    low = f"{clock[0]:.0f} MHz, others {clock[1]:.0f}"
    held = {name: _share(sides.mine, name) - _share(sides.theirs, name) for name in (*THERMAL, "hw_power_brake")}
    warm = sides.read(lambda taken: taken.temp_c)
    degrees = "" if warm is None else f"; {warm[0]:.0f} °C, others {warm[1]:.0f} °C"
    hot = [name for name in THERMAL if held[name] > HELD_PCT]
    if hot:
        return Cause(Why.HEAT, f"{low}{degrees}; {hot[0]} in {_share(sides.mine, hot[0]):.0f} % of the time")
    limit = sides.card(lambda card: card.power_limit_w)
    if limit is not None and _below(limit) > LOWER_BY:
        return Cause(Why.POWER_CAP, f"{low}; limit {limit[0]:.0f} W, others {limit[1]:.0f} W")
    if held["hw_power_brake"] > HELD_PCT:
        share = _share(sides.mine, "hw_power_brake")
        return Cause(Why.POWER_CAP, f"{low}; the power brake of its supply held in {share:.0f} % of the time")
    highest = sides.card(lambda card: card.clock_max_mhz)
    if highest is not None and _below(highest) > LOWER_BY:
        return Cause(Why.CLOCK_SET, f"{low}; its highest clock is {highest[0]:.0f} MHz, others {highest[1]:.0f}")
    if _share(sides.mine, "app_clocks") - _share(sides.theirs, "app_clocks") > HELD_PCT:
        return Cause(Why.CLOCK_SET, f"{low}; application clocks are set")
    if warm is not None and warm[0] - warm[1] > HOTTER_BY_C:
        return Cause(Why.HEAT, f"{low}{degrees}")
    if _share(sides.mine, "sw_power") > 50 and limit is not None:
        return Cause(Why.CHIP, f"{low} at the same limit of {limit[0]:.0f} W: it needs more power for a clock{degrees}")
    return Cause(Why.NOT_KNOWN, f"{low}, and the driver gives no reason{degrees}")


def _link(sides: Sides) -> Cause:
    wide, generation = (sides.card(of) for of in (lambda card: card.pcie_width, lambda card: card.pcie_gen))
    if wide is not None and generation is not None and (wide[0] < wide[1] or generation[0] < generation[1]):
        saw = f"PCIe {generation[0]:.0f}.0 x{wide[0]:.0f}, others {generation[1]:.0f}.0 x{wide[1]:.0f}"
        return Cause(Why.LINK, saw)
    return Cause(Why.LINK, "the same PCIe generation and width: the slot, or the memory of its processor")


def _share(taken: Sequence[Taken], name: str) -> float:
    """The percent of the time in which a reason held: of one GPU the mean of its runs, of a class the median."""
    return median(dict(each.reasons_pct).get(name, 0.0) for each in taken)


def _below(pair: tuple[float, float]) -> float:
    return 1 - pair[0] / pair[1] if pair[1] > 0 else 0.0


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
