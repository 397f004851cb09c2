"""What a GPU can do at most: datasheet peaks where the model has a row, else an estimate that says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from firstlight.errors import BadInput, BadVersion
from firstlight.frozen import dataclass
from firstlight.near import nearest
from firstlight.tables.other_makers import other_maker
from firstlight.versions import ComputeCapability

if TYPE_CHECKING:
    from firstlight.bench.results import GpuResult
    from firstlight.tables import Tables
    from firstlight.tables.peak_rows import GpuPeak, GpuRate

PRECISIONS = ("fp64", "fp64_tc", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "fp16_acc16", "fp8_acc16")
ALIASES = {"mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
# GT/s of one lane and the share that is data: 128b/130b coding up to 5.0, flits of 242 in 256 bytes from 6.0 on
_PCIE_LANE = {3: (8.0, 128 / 130), 4: (16.0, 128 / 130), 5: (32.0, 128 / 130), 6: (64.0, 242 / 256)}


@dataclass(frozen=True, slots=True)
class Peaks:
    """The speed limits of one GPU; `source` is db:h100-sxm, estimated:9.0 or none. Rates are in TFLOPS and GB/s."""

    source: str
    name: str
    spec: tuple[tuple[str, float], ...] = ()
    per_clock: tuple[tuple[str, int], ...] = ()  # FLOP per clock and SM
    sms: int | None = None
    clock_mhz: float | None = None  # of the datasheet's tensor rows
    max_clock_mhz: float | None = None
    bandwidth_gbps: float | None = None
    max_bandwidth_gbps: float | None = None  # at the highest memory clock
    mem_bus_bits: int | None = None
    nvlink_gbps: float | None = None
    seen: tuple[tuple[str, float], ...] = ()
    note: str = ""
    capability: ComputeCapability | None = None
    printed_in: str = ""  # the source of the row: 'NVIDIA L4 datasheet'

    def spec_tflops(self, precision: str) -> float | None:
        """The datasheet's dense peak: 989.4 for fp16 on an H100 SXM; fp64 is that of the tensor cores where better."""
        return _best(self.spec, precision)

    def tflops_at(self, precision: str, mhz: float | None) -> float | None:
        """The peak at a clock: SMs x FLOP per clock and SM x clock, 1070.5 for fp16 on an H100 SXM at 1980 MHz."""
        rate = _best(self.per_clock, precision)
        return None if rate is None or mhz is None or self.sms is None else self.sms * rate * mhz / 1e6

    def max_tflops(self, precision: str) -> float | None:
        """The peak at the highest clock the card has."""
        return self.tflops_at(precision, self.max_clock_mhz)

    def gbps_at(self, mem_mhz: float | None) -> float | None:
        """Memory bandwidth at a memory clock, two transfers a clock: 4917 for 3201 MHz on 6144 bits."""
        if mem_mhz is None or self.mem_bus_bits is None:
            return None
        return mem_mhz * 2 * self.mem_bus_bits / 8 / 1000

    def seen_tflops(self, precision: str) -> float | None:
        """What healthy cards of the model reach in large products; None where nobody measured it."""
        same = {"fp16": "bf16"}.get(precision, precision)
        return _best(self.seen, precision) or _best(self.seen, same)


NO_PEAKS = Peaks(source="none", name="")


def peaks_of(gpu: GpuResult, tables: Tables) -> Peaks:
    """The peaks of a GPU of a run, from its name and capability, with its own SM count, clocks and bus."""
    return find_peaks(
        tables,
        gpu.name,
        capability=gpu.cc,
        sms=gpu.sms,
        clocks_mhz=(gpu.clock_max_mhz, gpu.mem_clock_max_mhz),
        mem_bus_bits=gpu.mem_bus_bits,
    )


def find_peaks(
    tables: Tables,
    name: str,
    *,
    capability: str,
    sms: int | None = None,
    clocks_mhz: tuple[float | None, float | None] = (None, None),
    mem_bus_bits: int | None = None,
) -> Peaks:
    """The peaks of a device by name and capability; what the device says of itself goes before the table.

    clocks_mhz are its highest SM and memory clock. A model without a row is estimated from the rates of its
    capability; a capability without rates has no peaks, never those of another GPU.
    """
    try:
        cc = ComputeCapability.parse(capability)
    except BadVersion:
        return Peaks(source="none", name=name, sms=sms)
    row, rate = tables.gpu_peak(name, cc), tables.gpu_rate(name, cc)
    if row is not None:
        rate = tables.gpu_rate_of(row.line)
    if rate is None:
        return Peaks(source="none", name=name, sms=sms)
    sm_max, mem_max = clocks_mhz
    known = _from_row(row, rate) if row is not None else _estimated(name, cc, rate)
    bus = Peaks(source="", name="", mem_bus_bits=mem_bus_bits).gbps_at(mem_max)
    return Peaks(
        source=known.source,
        name=known.name,
        spec=known.spec,
        per_clock=known.per_clock,
        sms=sms or known.sms,
        clock_mhz=known.clock_mhz,
        max_clock_mhz=sm_max or known.max_clock_mhz,
        bandwidth_gbps=known.bandwidth_gbps or bus,
        max_bandwidth_gbps=max((value for value in (bus, known.bandwidth_gbps) if value), default=None),
        mem_bus_bits=mem_bus_bits,
        nvlink_gbps=known.nvlink_gbps,
        seen=known.seen,
        note=known.note,
        capability=cc,
        printed_in=known.printed_in,
    )


def peaks_named(tables: Tables, text: str) -> Peaks:
    """The peaks of a model the user named: 'H100', 'rtx 5090', 'h100-pcie' or a whole device name.

    Where a name fits several models the fastest is taken, so that a claim is never refused for a slower sister.
    """
    wanted = _squeezed(text)
    rows = tables.gpu_peaks
    fitting = [row for row in rows if wanted in (_squeezed(row.gpu), _squeezed(row.name))]
    fitting = fitting or [row for row in rows if wanted and set(wanted.split()) <= set(_squeezed(row.name).split())]
    fitting = fitting or [row for row in rows if tables.gpu_peak(text, row.capability) is row]
    if not fitting and (maker := other_maker(text)):
        raise BadInput(
            f"--gpu {text!a}: that is {maker}'s, and peaks are known for GPUs of NVIDIA alone; "
            f"accepted: {_known(rows, '')}"
        )
    if not fitting:
        raise BadInput(f"--gpu {text!a}: no peaks are known for it; accepted: {_known(rows, text)}")
    row = max(fitting, key=lambda each: (each.fp16 or 0, each.bandwidth_gbps))
    rate = tables.gpu_rate_of(row.line)
    assert rate is not None, row.line
    peaks = _from_row(row, rate)
    if len(fitting) == 1:
        return peaks
    others = ", ".join(each.gpu for each in fitting if each is not row)
    from dataclasses import replace

    return replace(peaks, note=f"taken as {row.gpu}, the fastest that {text!a} can be; others: {others}")


def canonical(precision: str) -> str:
    """The name of a precision in the tables: nvfp4 is held against fp4, mxfp8 against fp8."""
    return ALIASES.get(precision, precision)


def pcie_gbps(generation: int, width: int) -> float | None:
    """What a PCIe link carries each way: 63.0 for 5.0 x16; None for a generation that is not known here."""
    if generation not in _PCIE_LANE:
        return None
    transfers, share = _PCIE_LANE[generation]
    return transfers * share / 8 * width


def _from_row(row: GpuPeak, rate: GpuRate) -> Peaks:
    spec = tuple((name, float(value)) for name in PRECISIONS[:9] if (value := getattr(row, name)) is not None)
    seen = tuple((name, value) for name, value in (("bf16", row.seen_bf16), ("fp8", row.seen_fp8)) if value)
    return Peaks(
        source=f"db:{row.gpu}",
        name=row.name,
        spec=spec,
        per_clock=_rates(rate),
        sms=row.sms,
        clock_mhz=row.clock_mhz,
        max_clock_mhz=row.max_clock_mhz or max(row.clock_mhz, row.vector_clock_mhz or 0),
        bandwidth_gbps=row.bandwidth_gbps,
        max_bandwidth_gbps=row.bandwidth_gbps,
        nvlink_gbps=row.nvlink_gbps,
        seen=seen,
        capability=row.capability,
        printed_in=row.source.partition(";")[0],
    )


def _estimated(name: str, capability: ComputeCapability, rate: GpuRate) -> Peaks:
    return Peaks(
        source=f"estimated:{capability}",
        name=name,
        per_clock=_rates(rate),
        note=f"no datasheet row for this GPU; estimated from its SMs, its clock and the rates of {rate.line}",
        capability=capability,
    )


def _rates(rate: GpuRate) -> tuple[tuple[str, int], ...]:
    return tuple((name, value) for name in PRECISIONS if (value := getattr(rate, name)) is not None)


def _best(pairs: Iterable[tuple[str, float]], precision: str) -> float | None:
    wanted = canonical(precision)
    names = ("fp64", "fp64_tc") if wanted == "fp64" else (wanted,)
    return max((value for name, value in pairs if name in names), default=None)


def _squeezed(text: str) -> str:
    plain = "".join(character if character.isalnum() else " " for character in text.lower())
    return " ".join(word for word in plain.split() if word not in ("nvidia", "geforce", "tesla"))


def _known(rows: Iterable[GpuPeak], text: str) -> str:
    keys = [row.gpu for row in rows]
    near = nearest(_squeezed(text).replace(" ", "-"), keys, 3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return f"e.g. h100-sxm, h200-sxm, rtx-5090; `firstlight tables gpu_peaks` lists all {len(keys)}.{hint}"
