"""What NVML says while cases run: a thread reads clocks, power and reasons; counters are read before and after.

The GPU is found by its UUID or PCI address, never by an index: NVML's order is not CUDA's. A field that this card or
driver does not report is None and is listed; it is never 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Protocol

from firstlight.bench.results import Telemetry
from firstlight.frozen import dataclass

SAMPLES_PER_S = 20.0
LEAST_POWER_WINDOW_S = 2.0  # power sensors are read too rarely for less: arxiv.org/abs/2312.02741
# Bits of nvmlClocksEventReasons; several may be set at once.
REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "idle"), (0x2, "app_clocks"), (0x4, "sw_power"), (0x8, "hw_slowdown"), (0x10, "sync_boost"),
    (0x20, "sw_thermal"), (0x40, "hw_thermal"), (0x80, "hw_power_brake"), (0x100, "display"),
    (0x200, "board_limit"), (0x400, "reliability"),
)  # fmt: skip
# Cumulative fields: NVML field id, name. The first five count nanoseconds.
TIME_COUNTERS: tuple[tuple[int, str], ...] = (
    (74, "sw_power"), (76, "sync_boost"), (269, "sw_thermal"), (270, "hw_thermal"), (271, "hw_power_brake"),
)  # fmt: skip
HARMLESS = ("sw_power", "sync_boost")
ENERGY = (83, "energy_mj")
# Signs of wear, read at the start and the end of a run: together with ECC they take 10 ms on an H200.
WEAR_COUNTERS: tuple[tuple[int, str], ...] = (
    (94, "pcie_replays"), (142, "rows_corrected"), (143, "rows_uncorrected"), (144, "rows_pending"),
    (145, "rows_failed"),
)  # fmt: skip
INSTANT: tuple[tuple[int, str], ...] = ((186, "power_instant_mw"), (82, "memory_temp_c"))
NEW_REASONS, OLD_REASONS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
SM_CLOCK, MEMORY_CLOCK, GPU_TEMPERATURE = 1, 2, 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the card: 1755 MHz, 690 W, reasons 0x4."""

    at: float
    sm_mhz: float | None
    mem_mhz: float | None
    power_w: float | None
    temp_c: float | None
    mem_temp_c: float | None
    reasons: int | None


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative counters at one moment; a name that is not among the values is not reported here."""

    at: float
    values: tuple[tuple[str, int], ...]

    def get(self, name: str) -> int | None:
        return dict(self.values).get(name)


@dataclass(frozen=True, slots=True)
class Watch:
    """What was read over one stretch of time."""

    before: Counters
    after: Counters
    readings: tuple[Reading, ...]


class Gauge(Protocol):
    """Something that watches the card."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What this card does not report, e.g. 'memory_temp_c: Not Supported'."""

    def counters(self) -> Counters: ...

    def wear(self) -> Counters: ...

    def readings(self, began: float, ended: float) -> tuple[Reading, ...]: ...

    def close(self) -> None: ...


class NoGauge:
    """No NVML here: everything is missing, for one reason."""

    def __init__(self, reason: str) -> None:
        self.missing: tuple[str, ...] = (reason,)

    def counters(self) -> Counters:
        return Counters(time.perf_counter(), ())

    def wear(self) -> Counters:
        return self.counters()

    def readings(self, began: float, ended: float) -> tuple[Reading, ...]:
        return ()

    def close(self) -> None:
        """Nothing runs."""


class NvmlCard:
    """One GPU behind NVML; every question that is refused is noted once."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.refused: dict[str, str] = {}
        self._reasons_by = NEW_REASONS

    def ask(self, name: str, function: str, *arguments: Any) -> Any:
        """What NVML answers, None when it refuses; not asked again once it has refused."""
        if name in self.refused:
            return None
        call = getattr(self.nvml, function, None)
        if call is None:
            self.refused[name] = f"this pynvml has no {function}"
            return None
        try:
            return call(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            self.refused[name] = str(error)
            return None

    def fields(self, wanted: Sequence[tuple[int, str]]) -> dict[str, int]:
        """Values of NVML's numbered fields by our names; those refused are noted."""
        asked = [(number, name) for number, name in wanted if name not in self.refused]
        found = self.ask("field values", "nvmlDeviceGetFieldValues", [number for number, _ in asked]) if asked else None
        if found is None:
            return {}
        values = {}
        for (_, name), field in zip(asked, found, strict=True):
            if field.nvmlReturn != 0:
                self.refused[name] = _error_text(self.nvml, field.nvmlReturn)
            else:
                values[name] = _field_value(field)
        return values

    def reasons(self) -> int | None:
        """The reasons as a bit set; drivers before 535 know the question under its older name."""
        found = self.ask("reasons", self._reasons_by)
        if found is None and self._reasons_by == NEW_REASONS:
            self._reasons_by = OLD_REASONS
            self.refused.pop("reasons", None)
            found = self.ask("reasons", self._reasons_by)
        return None if found is None else int(found)

    def read(self) -> Reading:
        now = self.fields(INSTANT)
        power = now.get("power_instant_mw")
        if power is None:
            power = self.ask("power", "nvmlDeviceGetPowerUsage")
        return Reading(
            at=time.perf_counter(),
            sm_mhz=_some(self.ask("sm_mhz", "nvmlDeviceGetClockInfo", SM_CLOCK)),
            mem_mhz=_some(self.ask("mem_mhz", "nvmlDeviceGetClockInfo", MEMORY_CLOCK)),
            power_w=None if power is None else power / 1000,
            temp_c=_some(self.ask("temp_c", "nvmlDeviceGetTemperature", GPU_TEMPERATURE)),
            mem_temp_c=_some(now.get("memory_temp_c")),
            reasons=self.reasons(),
        )

    def counters(self) -> Counters:
        return Counters(time.perf_counter(), tuple(self.fields((*TIME_COUNTERS, ENERGY)).items()))

    def wear(self) -> Counters:
        """Counters of lasting damage: ECC since the driver was loaded, remapped rows, PCIe replays."""
        values = self.fields(WEAR_COUNTERS)
        for name, kind in (("ecc_corrected", 0), ("ecc_uncorrected", 1)):
            count = self.ask(name, "nvmlDeviceGetTotalEccErrors", kind, 0)
            if count is not None:
                values[name] = int(count)
        return Counters(time.perf_counter(), tuple(values.items()))


class NvmlGauge:
    """A thread that reads one card until it is closed."""

    def __init__(self, card: NvmlCard, *, samples_per_s: float = SAMPLES_PER_S) -> None:
        self.card = card
        self._period_s = 1 / samples_per_s
        self._kept: list[Reading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="firstlight-nvml")
        self._thread.start()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(f"{name}: {reason}" for name, reason in sorted(self.card.refused.items()))

    def counters(self) -> Counters:
        return self.card.counters()

    def wear(self) -> Counters:
        return self.card.wear()

    def readings(self, began: float, ended: float) -> tuple[Reading, ...]:
        """Readings of a stretch; a stretch shorter than the sampling takes the reading nearest to its middle."""
        kept = list(self._kept)
        inside = tuple(reading for reading in kept if began <= reading.at <= ended)
        if inside or not kept:
            return inside
        middle = (began + ended) / 2
        return (min(kept, key=lambda reading: abs(reading.at - middle)),)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._kept.append(self.card.read())
            self._stop.wait(self._period_s)


def open_card(uuid: str, pci_address: str, *, nvml: Any = None) -> NvmlCard | NoGauge:
    """The card CUDA calls by this UUID or PCI address ('00000000:18:00.0'), or why there is none."""
    if nvml is None:
        from importlib.util import find_spec

        if find_spec("pynvml") is None:
            return NoGauge("nvidia-ml-py is not installed, so clocks and throttling were not seen")
        from importlib import import_module

        nvml = import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return NoGauge(f"NVML did not start: {error}; clocks and throttling were not seen")
    why = "torch gave neither a UUID nor a PCI address of the GPU"
    for function, key in (("nvmlDeviceGetHandleByUUID", uuid), ("nvmlDeviceGetHandleByPciBusId", pci_address)):
        if not key:
            continue
        try:
            return NvmlCard(nvml, getattr(nvml, function)(key))
        except nvml.NVMLError as error:
            why = f"NVML does not know the GPU that CUDA uses: {error}"
    return NoGauge(f"{why}; clocks and throttling were not seen")


def reason_names(bits: int) -> tuple[str, ...]:
    """Names of the bits that are set, e.g. 0x44 is sw_power and hw_thermal; unknown bits keep their number."""
    known = tuple(name for bit, name in REASONS if bits & bit)
    rest = bits & ~sum(bit for bit, _ in REASONS)
    return (*known, f"bit_{rest:#x}") if rest else known


def reasons_pct(watches: Sequence[Watch]) -> tuple[tuple[str, float], ...]:
    """For how much of the time each reason held, in %: from the counters, from the readings where none counts it.

    The driver adds to its counters in lumps, so a short stretch may be billed for what came before it: a copy over PCIe
    right after a large product was billed 45 % of power cap on an H200. Where being billed wrongly would only mislead
    (power cap, sync boost) the readings have a say: the smaller share counts. Heat and brakes are taken as counted.
    """
    counted: dict[str, float] = {}
    window_s = sum(watch.after.at - watch.before.at for watch in watches)
    for _, name in TIME_COUNTERS:
        grown = [(watch.before.get(name), watch.after.get(name)) for watch in watches]
        if window_s > 0 and all(before is not None and after is not None for before, after in grown):
            total = sum(after - before for before, after in grown if before is not None and after is not None)
            counted[name] = min(100.0, max(0.0, total / 1e9 / window_s * 100))
    seen = [reading.reasons for watch in watches for reading in watch.readings if reading.reasons is not None]
    sampled: dict[str, float] = {}
    for name in dict.fromkeys(name for bits in seen for name in reason_names(bits)):
        share = sum(name in reason_names(bits) for bits in seen) / len(seen) * 100
        sampled[name] = share
    if len(seen) > 1:
        counted |= {name: min(counted[name], sampled.get(name, 0.0)) for name in HARMLESS if name in counted}
    both = {**sampled, **counted}
    return tuple((name, round(share, 2)) for name, share in sorted(both.items()) if share > 0)


def telemetry(watches: Sequence[Watch], *, missing: tuple[str, ...]) -> Telemetry:
    """What was seen over all the stretches of one figure."""
    readings = [reading for watch in watches for reading in watch.readings]
    window_s = sum(watch.after.at - watch.before.at for watch in watches)
    spent = [(watch.before.get("energy_mj"), watch.after.get("energy_mj")) for watch in watches]
    energy_mj = [after - before for before, after in spent if before is not None and after is not None]
    long_enough = window_s >= LEAST_POWER_WINDOW_S
    return Telemetry(
        sm_mhz=_spread(reading.sm_mhz for reading in readings),
        mem_mhz=_spread(reading.mem_mhz for reading in readings),
        power_w=_middle(reading.power_w for reading in readings) if long_enough else None,
        energy_j=sum(energy_mj) / 1000 if long_enough and energy_mj and len(energy_mj) == len(watches) else None,
        temp_c=max((reading.temp_c for reading in readings if reading.temp_c is not None), default=None),
        mem_temp_c=max((reading.mem_temp_c for reading in readings if reading.mem_temp_c is not None), default=None),
        reasons_pct=reasons_pct(watches),
        missing=missing,
    )


def middle_clock(readings: Iterable[Reading]) -> float | None:
    """The median SM clock in MHz, None when it was never read."""
    return _middle(reading.sm_mhz for reading in readings)


def middle_memory_clock(readings: Iterable[Reading]) -> float | None:
    """The median memory clock in MHz, None when it was never read."""
    return _middle(reading.mem_mhz for reading in readings)


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _spread(values: Iterable[float | None]) -> tuple[float, float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), float(median(known)), max(known)) if known else None


def _some(value: Any) -> float | None:
    """A clock or temperature; 0 is how some drivers say that they do not know."""
    return float(value) if value else None


def _field_value(field: Any) -> int:
    """NVML's tagged union as a number: type 0 is a double, 5 a signed int, 6 an unsigned short."""
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return int(getattr(field.value, names.get(field.valueType, "ullVal")))


def _error_text(nvml: Any, code: int) -> str:
    return str(nvml.NVMLError(code))
