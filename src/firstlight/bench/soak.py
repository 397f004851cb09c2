"""Once per run: seconds of large products that take the card from idle to its working point, with the curve kept.

The same product is compared bit for bit now and then: a card that computes a different result is not worth timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from firstlight.bench.case import Place
from firstlight.bench.clocks import Counters, Gauge, Reading, Watch, reasons_pct
from firstlight.bench.results import GpuResult, HealthFinding, SoakPoint
from firstlight.bench.timers import Timer
from firstlight.frozen import dataclass

SIZES = (8192, 4096, 2048, 1024)
LONGEST_CALL_S = 20e-3
LEAST_S = 2.0
WINDOW_S = 1.0  # the power limit is regulated in swings of about this length, so windows of it are compared
STEADY = 0.01
COMPARE_EVERY = 10
QUEUED_S = 50e-3
SAG = 0.03


@dataclass(frozen=True, slots=True)
class Soak:
    """What the soak showed."""

    points: tuple[SoakPoint, ...]
    steady: bool | None  # None when no clock could be read
    findings: tuple[HealthFinding, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """Work for the soak: `call` runs the product, `compare` counts elements that differ from the first result."""

    call: Callable[[], object]
    compare: Callable[[], object]
    differing: Callable[[], int]  # waits for the device
    call_s: float


def soak(load: Load, timer: Timer, gauge: Gauge, *, most_s: float) -> Soak:
    """Run the load until the mean clock of one second equals that of the second before, at most `most_s`."""
    before = gauge.counters()
    began = timer.now()
    calls = max(COMPARE_EVERY, int(QUEUED_S / load.call_s))
    differing, steady, spent = 0, None, 0.0
    while True:
        for number in range(calls):
            load.call()
            if number % COMPARE_EVERY == 0:
                load.compare()
        differing += load.differing()
        spent = timer.now() - began
        readings = gauge.readings(began, timer.now())
        steady = is_steady(readings, now=timer.now())
        if spent >= most_s or (spent >= min(LEAST_S, most_s) and steady):
            break
    watch = Watch(before, gauge.counters(), gauge.readings(began, timer.now()))
    points = tuple(
        SoakPoint(round(each.at - began, 3), each.sm_mhz, each.power_w, each.temp_c) for each in watch.readings
    )
    return Soak(points, steady, findings(watch, differing=differing), spent)


def is_steady(readings: Sequence[Reading], *, now: float) -> bool | None:
    """Whether the last second's mean SM clock is within 1 % of the second's before; None without two such seconds."""
    known = [(now - each.at, each.sm_mhz) for each in readings if each.sm_mhz is not None]
    last = [mhz for age, mhz in known if age <= WINDOW_S]
    earlier = [mhz for age, mhz in known if WINDOW_S < age <= 2 * WINDOW_S]
    if not last or not earlier:
        return None
    return abs(fmean(last) - fmean(earlier)) <= STEADY * fmean(earlier)


def findings(watch: Watch, *, differing: int) -> tuple[HealthFinding, ...]:
    """Signs of a defect, e.g. hw-thermal; () for a healthy card."""
    shares = dict(reasons_pct((watch,)))
    found = []
    for name, code, what in (
        ("hw_thermal", "hw-thermal", "the card slowed itself down because it was too hot"),
        ("hw_power_brake", "hw-power-brake", "the power supply told the card to slow down"),
        ("hw_slowdown", "hw-slowdown", "the card slowed itself down in hardware"),
    ):
        if share := shares.get(name):
            found.append(HealthFinding(code, "blocks", f"{what} for {share:.1f} % of the soak"))
    sagged = sag(watch.readings)
    if sagged is not None and sagged > SAG and shares.get("sw_thermal"):
        text = (
            f"the SM clock fell by {100 * sagged:.0f} % after the first second while the driver held it down for heat"
        )
        found.append(HealthFinding("thermal-sag", "warn", text))
    if differing:
        text = f"the same product gave {differing} elements that differ from its first result"
        found.append(HealthFinding("silent-corruption", "blocks", text))
    return tuple(found)


def sag(readings: Sequence[Reading]) -> float | None:
    """By how much of itself the SM clock fell from the second second to the last one, e.g. 0.05; None if unread."""
    if not readings:
        return None
    first, last = readings[0].at, readings[-1].at
    known = [(each.at, each.sm_mhz) for each in readings if each.sm_mhz is not None]
    early = [mhz for at, mhz in known if first + WINDOW_S <= at < first + 2 * WINDOW_S]
    late = [mhz for at, mhz in known if at > last - WINDOW_S]
    return 1 - fmean(late) / fmean(early) if early and late else None


def wear_findings(before: Counters, after: Counters) -> tuple[HealthFinding, ...]:
    """What the run's start and end say of lasting damage: pending row remaps, new ECC errors, PCIe replays."""
    found = []
    for name, code, what in (
        ("rows_failed", "row-remap-failure", "row remapping has failed: the card should be replaced"),
        ("rows_pending", "row-remap-pending", "rows wait to be remapped: the GPU needs a reset"),
    ):
        if after.get(name):
            found.append(HealthFinding(code, "blocks", what))
    for name, code, what, severity in (
        ("ecc_uncorrected", "ecc-uncorrected", "uncorrected ECC errors", "blocks"),
        ("ecc_corrected", "ecc-corrected", "corrected ECC errors", "warn"),
        ("pcie_replays", "pcie-replays", "PCIe replays", "warn"),
    ):
        then, now = before.get(name), after.get(name)
        if then is not None and now is not None and now > then:
            found.append(HealthFinding(code, severity, f"{now - then} {what} during the run"))
    return tuple(found)


def power_findings(gpu: GpuResult | None) -> tuple[HealthFinding, ...]:
    """A power limit below the card's own is nobody's defect, but it explains a slow card."""
    if gpu is None or gpu.power_limit_w is None or gpu.power_default_w is None:
        return ()
    if gpu.power_limit_w >= gpu.power_default_w:
        return ()
    text = f"the power limit is {gpu.power_limit_w:.0f} W, the card's own is {gpu.power_default_w:.0f} W"
    return (HealthFinding("power-limit-lowered", "info", text),)


def product_load(place: Place, timer: Timer) -> Load:
    """A square product that takes at most 20 ms here: 8192 on a data-centre GPU; bf16, or fp16 before Ampere."""
    import torch

    dtype = torch.bfloat16 if place.capability >= (8, 0) else torch.float16
    for size in SIZES:
        needed = 4 * 2 * size * size
        if needed > place.free_bytes // 2 and size != SIZES[-1]:
            continue
        load = _product(torch, place, size=size, dtype=dtype)
        load.call()
        call_s = min(timer.host(load.call) for _ in range(3))
        if call_s <= LONGEST_CALL_S or size == SIZES[-1]:
            return Load(load.call, load.compare, load.differing, call_s)
    raise AssertionError("the smallest size always fits")


def _product(torch: Any, place: Place, *, size: int, dtype: Any) -> Load:
    random = torch.Generator(device=place.device)
    random.manual_seed(0)
    left, right = (torch.empty(size, size, device=place.device, dtype=dtype).normal_(generator=random) for _ in "ab")
    out = torch.empty_like(left)
    wanted = torch.mm(left, right, out=torch.empty_like(left))
    total = torch.zeros((), dtype=torch.int64, device=place.device)

    def differing() -> int:
        count = int(total.item())
        total.zero_()
        return count

    return Load(
        lambda: torch.mm(left, right, out=out), lambda: total.add_((out != wanted).sum()), differing, LONGEST_CALL_S
    )
