"""What run.py counts, how a row of Nsight Compute becomes figures, and which bars hold for them.

Every name below was asked of the metrics library of CUDA 13.0 (libnvperf_host, chip GH100) on 2026-11-15 and exists
there; at run time `ncu --query-metrics` is asked again. launch__registers_per_thread is no counter and is not listed by
it. Bank conflicts are of loads and stores by threads (LDS, LDSM, STS, STSM): what wgmma and the copy engine read is not
in them, so their denominators are the wavefronts of the same instructions.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from firstlight.frozen import dataclass
from firstlight.profile.metrics import Derivation, Formula, Metric

SECTOR = 32  # bytes
LEAST_TENSOR_PCT = 75.0  # multiply, block 128, density 0.5
BYTES_WITHIN = 0.10  # of the schedule's prediction
MOST_CONFLICTS_PCT = 2.0  # of the wavefronts of shared loads
REGISTERS = "launch__registers_per_thread"
_ACTIVE = "avg.pct_of_peak_sustained_active"
_SHARED = "pipe_lsu_mem_shared_op"
_WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
_SECONDS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
Row = dict[str, Any]


def _one(key: str, what: str, unit: str, *names: str) -> Metric:
    return Metric(key, what, unit, tuple(Derivation(Formula.ONE, (name,)) for name in names))


FIGURES: tuple[Metric, ...] = (
    _one("time_s", "time under the profiler", "s", "gpu__time_duration.sum"),
    Metric(
        "tensor_active_pct",
        "tensor pipe active",
        "%",
        (
            Derivation(
                Formula.LARGEST,
                (f"sm__pipe_tensor_cycles_active.{_ACTIVE}", f"sm__pipe_tensor_op_hmma_cycles_active.{_ACTIVE}"),
            ),
        ),
    ),
    _one("l2_to_sm_bytes", "from L2 to the SMs", "bytes", "l1tex__m_xbar2l1tex_read_bytes.sum"),
    _one("l2_read_sectors", "sectors that the SMs read in L2", "", "lts__t_sectors_srcunit_tex_op_read.sum"),
    _one("tma_bytes", "of them by the copy engine", "bytes", "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"),
    Metric(
        "dram_bytes",
        "to and from memory",
        "bytes",
        (
            Derivation(Formula.ONE, ("dram__bytes.sum",)),
            Derivation(Formula.SUM, ("dram__bytes_read.sum", "dram__bytes_write.sum")),
        ),
    ),
    _one("l2_hit_pct", "found in L2", "%", "lts__t_sector_hit_rate.pct"),
    _one("shared_load_conflicts", "bank conflicts of loads", "", f"l1tex__data_bank_conflicts_{_SHARED}_ld.sum"),
    _one("shared_store_conflicts", "bank conflicts of stores", "", f"l1tex__data_bank_conflicts_{_SHARED}_st.sum"),
    _one("shared_load_wavefronts", "wavefronts of loads", "", f"{_WAVES}_ld.sum"),
    _one("shared_store_wavefronts", "wavefronts of stores", "", f"{_WAVES}_st.sum"),
    _one("shared_loads", "load instructions", "", "smsp__inst_executed_op_shared_ld.sum"),
    _one("matrix_loads", "ldmatrix instructions", "", "smsp__inst_executed_op_ldsm.sum"),
    Metric(
        "local_instructions",
        "loads and stores of local memory",
        "",
        (Derivation(Formula.SUM, ("smsp__inst_executed_op_local_ld.sum", "smsp__inst_executed_op_local_st.sum")),),
    ),
    _one("sm_cycles", "cycles of all SMs", "", "sm__cycles_active.sum"),
    _one("warps_active_pct", "warps resident", "%", f"sm__warps_active.{_ACTIVE}"),
    _one("issue_pct", "issue slots used", "%", f"sm__inst_issued.{_ACTIVE}", f"smsp__issue_active.{_ACTIVE}"),
    _one("mufu_pct", "special functions (XU pipe)", "%", f"sm__inst_executed_pipe_xu.{_ACTIVE}"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The counters to ask for here, and the figures that this chip or version has none for."""

    asked: tuple[str, ...]
    missing: tuple[str, ...]


def names_here(bases: Collection[str]) -> Names:
    """For each figure the first way that is open."""
    found = [
        (figure, next((names for way in figure.ways if (names := way.available(bases))), ())) for figure in FIGURES
    ]
    asked = dict.fromkeys(name for _, names in found for name in names)
    missing = tuple(f"{figure.key} ({figure.ways[0].names[0]})" for figure, names in found if not names)
    return Names(tuple(asked), missing)


# -------------------------------------------------------------------------------------------------------------- a row


@dataclass(frozen=True, slots=True)
class Table:
    """The raw page of a report: names, units and values as printed, a row for each launch."""

    units: dict[str, str]
    rows: tuple[dict[str, str], ...]


def read_table(text: str) -> Table:
    """The CSV of `ncu --import --csv --page raw`, lines before it left out; empty where there is none."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return Table({}, ())
    header, *rest = list(csv.reader(lines[start:]))
    if not rest:
        return Table({}, ())
    units = dict(zip(header, rest[0], strict=False))
    return Table(units, tuple(dict(zip(header, row, strict=True)) for row in rest[1:] if len(row) == len(header)))


def numbers(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """The counters of a launch: '1,234' is 1234, times in seconds; what is no number is left out."""
    found = {}
    for name, text in row.items():
        if "__" in name:
            try:
                found[name] = float(text.replace(",", "")) * _SECONDS.get(units.get(name, "").strip().lower(), 1.0)
            except ValueError:
                continue
    return found


def figures(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float | None]:
    """Every figure of one launch, None where it was not counted, and its registers."""
    counted = numbers(row, units)
    found: dict[str, float | None] = {}
    for figure in FIGURES:
        values = (way.value(counted) for way in figure.ways)
        found[figure.key] = next((value for value in values if value is not None), None)
    found["registers"] = counted.get(REGISTERS)
    return found


def kernel_name(row: Mapping[str, str]) -> str:
    """E.g. 'multiply' of 'multiply(MultiplyArgs)'."""
    return row.get("Kernel Name", "").partition("(")[0].strip()


# -------------------------------------------------------------------------------------------------------------- a case


def with_counts(case: Row, launches: Sequence[dict[str, float | None]]) -> Row:
    """A case with the figures of its launches: the last one is the kernel itself, memory is counted over all."""
    main = dict(launches[-1])
    dram = [each["dram_bytes"] for each in launches]
    main["dram_bytes"] = None if None in dram else sum(value for value in dram if value is not None)
    predicted, least = case["predicted_l2_to_shared_bytes"], case["predicted_hbm_bytes"]
    sectors = main["l2_read_sectors"]
    shares = {
        "xbar2l1tex": over(main["l2_to_sm_bytes"], predicted),
        "srcunit_tex_op_read": over(
            None if sectors is None else SECTOR * sectors, case.get("predicted_l2_read_bytes", predicted)
        ),
    }
    row = {
        **case,
        "l2_to_sm_over_predicted": {name: value for name, value in shares.items() if value is not None},
        **main,
        "dram_over_least": over(main["dram_bytes"], least),
        "load_conflicts_pct": percent(main["shared_load_conflicts"], main["shared_load_wavefronts"]),
        "store_conflicts_pct": percent(main["shared_store_conflicts"], main["shared_store_wavefronts"]),
        "load_conflict_cycles_pct": percent(main["shared_load_conflicts"], main["sm_cycles"]),
    }
    return {**row, "bars": bars(row)}


def over(value: float | None, of: float | None) -> float | None:
    """E.g. 1.0123."""
    return round(value / of, 4) if value is not None and of else None


def percent(value: float | None, of: float | None) -> float | None:
    """E.g. 0.31; 0 of nothing is 0."""
    if value == 0:
        return 0.0
    return round(100 * value / of, 4) if value is not None and of else None


def bars(row: Row) -> list[Row]:
    """The bars that hold for a case: name, what was found, what is wanted, and whether it is met; None: not known."""
    found: list[Row] = []
    if row["what"] == "multiply" and row["id"].startswith("128/") and row["id"].endswith("/0.5"):
        tensor = row["tensor_active_pct"]
        found.append(
            _bar(
                "tensor pipe active",
                tensor,
                f">= {LEAST_TENSOR_PCT:g} %",
                None if tensor is None else tensor >= LEAST_TENSOR_PCT,
            )
        )
    share = next(iter(row["l2_to_sm_over_predicted"].values()), None)
    within = None if share is None else abs(share - 1) <= BYTES_WITHIN
    found.append(_bar("bytes from L2 over prediction", share, f"1 +- {BYTES_WITHIN:g}", within))
    conflicts = row["load_conflicts_pct"]
    few = None if conflicts is None else conflicts < MOST_CONFLICTS_PCT
    found.append(_bar("load conflicts of loads", conflicts, f"< {MOST_CONFLICTS_PCT:g} %", few))
    local = row["local_instructions"]
    found.append(_bar("local memory", local, "0", None if local is None else local == 0))
    return found


def _bar(name: str, found: float | None, wanted: str, met: object) -> Row:
    return {"bar": name, "found": found, "wanted": wanted, "met": met}


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The cases as a table, and the bars that are not met."""
    heads = ("case", "tensor", "L2/predicted", "DRAM/least", "ld conflicts", "of loads", "of cycles", "st conflicts",
             "local", "regs", "warps", "issue", "MUFU", "us")  # fmt: skip
    lines = [" | ".join(heads)]
    for row in rows:
        share = next(iter(row["l2_to_sm_over_predicted"].values()), None)
        cells = (
            _cell(row["tensor_active_pct"], "{:.1f} %"), _cell(share, "{:.3f}"),
            _cell(row["dram_over_least"], "{:.2f}"),
            _cell(row["shared_load_conflicts"], "{:,.0f}"), _cell(row["load_conflicts_pct"], "{:.2f} %"),
            _cell(row["load_conflict_cycles_pct"], "{:.3f} %"), _cell(row["shared_store_conflicts"], "{:,.0f}"),
            _cell(row["local_instructions"], "{:,.0f}"), _cell(row["registers"], "{:.0f}"),
            _cell(row["warps_active_pct"], "{:.1f} %"), _cell(row["issue_pct"], "{:.1f} %"),
            _cell(row["mufu_pct"], "{:.1f} %"), _cell(row["time_s"], "{:.1f}", 1e6),
        )  # fmt: skip
        lines.append(" | ".join((row["id"], *cells)))
    for row in rows:
        for bar in row["bars"]:
            if bar["met"] is not True:
                said = "not known" if bar["met"] is None else "NOT met"
                lines.append(f"{said}: {row['id']}: {bar['bar']} {bar['found']}, {bar['wanted']} wanted")
    return lines


def _cell(value: float | None, how: str, times: float = 1.0) -> str:
    return "-" if value is None else how.format(times * value)
