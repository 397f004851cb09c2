"""The counters we ask for, each under every name that a chip or version of Nsight Compute may have for it.

Checked on 2026-11-15 with the metrics evaluator of libnvperf_host in ncu-report 2026.3.1 (NVIDIA's own library, no GPU
needed): every first name below exists on TU102, GA100, AD102, GH100, GB100 and GB202, `sm__pipe_tc_cycles_active` on
data-centre Blackwell alone, `dram__*` not on chips that share the memory of the host. At run time the names are checked
again with `ncu --query-metrics`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from firstlight.frozen import dataclass


class Formula(enum.Enum):
    """How a figure is made of its counters."""

    ONE = "the counter"
    SUM = "their sum"
    LARGEST = "the largest that this chip has"
    RATIO = "the first over the second"
    PERCENT = "100 times the first over the second"


class Over(enum.Enum):
    """What the figure of several kernels is."""

    SUM = "their sum"
    BY_TIME = "their mean, weighted by time"


@dataclass(frozen=True, slots=True)
class Derivation:
    """One way to a figure: the sum of dram__bytes_read.sum and dram__bytes_write.sum."""

    how: Formula
    names: tuple[str, ...]

    def available(self, bases: Collection[str]) -> tuple[str, ...]:
        """The counters to ask for on a chip that has these base names; () when this way is closed there."""
        there = tuple(name for name in self.names if base_name(name) in bases)
        return there if there and (self.how is Formula.LARGEST or there == self.names) else ()

    def value(self, counters: Mapping[str, float]) -> float | None:
        """The figure from what was counted; None where a counter is missing or a denominator is 0."""
        found = [counters[name] for name in self.names if name in counters]
        if not found or (self.how is not Formula.LARGEST and len(found) < len(self.names)):
            return None
        if self.how is Formula.SUM:
            return sum(found)
        if self.how is Formula.LARGEST:
            return max(found)
        if self.how is Formula.ONE:
            return found[0]
        if found[1] == 0:
            return 0.0 if found[0] == 0 else None
        return found[0] / found[1] * (100 if self.how is Formula.PERCENT else 1)


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure by our name: tensor_pct, 'tensor cores busy', in %, with the ways to it in order."""

    key: str
    what: str
    unit: str  # %, bytes, s, Hz, or "" for a plain ratio
    ways: tuple[Derivation, ...]
    over: Over = Over.BY_TIME


@dataclass(frozen=True, slots=True)
class OldName:
    """A name that reports still use: smsp__stall_memory_dependency is stall_long_scoreboard_pct today, and why."""

    name: str
    key: str
    why: str


def base_name(name: str) -> str:
    """dram__bytes of dram__bytes.sum: what `ncu --query-metrics` lists."""
    return name.partition(".")[0]


_TENSOR = "cycles_active.avg.pct_of_peak_sustained_active"
_OF_PEAK = "throughput.avg.pct_of_peak_sustained_elapsed"
_STALL = "long_scoreboard_per"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"

METRICS: tuple[Metric, ...] = (
    Metric("time_s", "time under the profiler", "s", (Derivation(Formula.ONE, ("gpu__time_duration.sum",)),), Over.SUM),
    Metric("sm_clock_hz", "SM clock", "Hz", (Derivation(Formula.ONE, ("sm__cycles_elapsed.avg.per_second",)),)),
    Metric(
        "tensor_pct",
        "tensor cores busy",
        "%",
        (Derivation(Formula.LARGEST, (f"sm__pipe_tensor_{_TENSOR}", f"sm__pipe_tc_{_TENSOR}")),),
    ),
    Metric("sm_pct", "busiest part of the SMs", "%", (Derivation(Formula.ONE, (f"sm__{_OF_PEAK}",)),)),
    Metric("dram_pct", "memory busy", "%", (Derivation(Formula.ONE, (f"dram__{_OF_PEAK}",)),)),
    Metric("l2_pct", "L2 busy", "%", (Derivation(Formula.ONE, (f"lts__{_OF_PEAK}",)),)),
    Metric(
        "dram_bytes",
        "moved to and from memory",
        "bytes",
        (
            Derivation(Formula.ONE, ("dram__bytes.sum",)),
            Derivation(Formula.SUM, ("dram__bytes_read.sum", "dram__bytes_write.sum")),
        ),
        Over.SUM,
    ),
    Metric("l2_bytes", "moved through the L2", "bytes", (Derivation(Formula.ONE, ("lts__t_bytes.sum",)),), Over.SUM),
    Metric("l2_hit_pct", "found in the L2", "%", (Derivation(Formula.ONE, ("lts__t_sector_hit_rate.pct",)),)),
    Metric(
        "stall_long_scoreboard_pct",
        "warps waiting for memory",
        "%",
        (
            Derivation(Formula.ONE, (f"smsp__warp_issue_stalled_{_STALL}_warp_active.pct",)),
            Derivation(
                Formula.PERCENT,
                (
                    f"smsp__average_warps_issue_stalled_{_STALL}_issue_active.ratio",
                    "smsp__average_warp_latency_per_inst_issued.ratio",
                ),
            ),
        ),
    ),
    Metric(
        "warps_active_pct",
        "warps resident (occupancy)",
        "%",
        (Derivation(Formula.ONE, ("sm__warps_active.avg.pct_of_peak_sustained_active",)),),
    ),
    Metric(
        "bank_conflict_cycles_pct",
        "SM cycles lost to bank conflicts",
        "%",
        (Derivation(Formula.PERCENT, (_CONFLICTS, "sm__cycles_active.sum")),),
    ),
    Metric(
        "bank_conflict_ratio",
        "bank conflicts a wavefront",
        "",
        (Derivation(Formula.RATIO, (_CONFLICTS, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")),),
    ),
)

_NVPROF = "a name of nvprof's time; no Nsight Compute has it"
OLD_NAMES: tuple[OldName, ...] = (
    OldName("smsp__stall_memory_dependency", "stall_long_scoreboard_pct", _NVPROF),
    OldName("stall_memory_dependency", "stall_long_scoreboard_pct", _NVPROF),
    OldName("sm__warps_active", "warps_active_pct", "needs its suffix: .avg.pct_of_peak_sustained_active"),
    OldName("achieved_occupancy", "warps_active_pct", _NVPROF),
    OldName("sm__pipe_tensor_cycles_active", "tensor_pct", f"needs its suffix: .{_TENSOR.partition('.')[2]}"),
    OldName("sm__pipe_tensor_op_hmma_cycles_active", "tensor_pct", "Blackwell has no such counter"),
    OldName("tensor_precision_fu_utilization", "tensor_pct", _NVPROF),
    OldName(
        "l1tex__data_bank_conflicts",
        "bank_conflict_cycles_pct",
        "a bare sum grows with the problem; its share of the SMs' cycles does not",
    ),
    OldName(
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared",
        "bank_conflict_cycles_pct",
        "a bare sum grows with the problem; its share of the SMs' cycles does not",
    ),
    OldName("dram__throughput", "dram_pct", "needs its suffix: .avg.pct_of_peak_sustained_elapsed"),
    OldName("dram_utilization", "dram_pct", _NVPROF),
)


def metric_named(key: str) -> Metric | None:
    """The metric of one of our names."""
    return next((metric for metric in METRICS if metric.key == key), None)


def today_of(name: str) -> OldName | None:
    """What a report's counter is called here: the base name decides, whatever suffix it was given."""
    return next((old for old in OLD_NAMES if old.name == base_name(name)), None)


def ways_open(bases: Collection[str]) -> tuple[tuple[Metric, tuple[str, ...]], ...]:
    """For every metric the counters to ask for on this chip; () where it has none of them."""
    return tuple(
        (metric, next((names for way in metric.ways if (names := way.available(bases))), ())) for metric in METRICS
    )
