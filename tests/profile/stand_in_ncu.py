"""A stand-in for Nsight Compute, copied as an executable `ncu` into a folder on PATH. It counts nothing.

It speaks the command line and the formats of the real one as far as we use them: --version, --query-metrics --csv,
a run with --export and --log-file that starts the program, and --import of the report as a CSV raw page. A metric that
its chip does not have is an error, as with the real one. STAND_IN_NCU chooses what goes wrong.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

MODE = os.environ.get("STAND_IN_NCU", "")
FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0."
)
# full name -> (unit, values of the two kernels): a product that reads 1 GB for 0.5 s and a small epilogue
COUNTED = {
    "gpu__time_duration.sum": ("ns", (900_000, 100_000)),
    "sm__cycles_elapsed.avg.per_second": ("cycle/nsecond", (1.8, 1.2)),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", (90, 0)),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", (91, 20)),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", (30, 70)),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", (40, 50)),
    "dram__bytes.sum": ("byte", (1_000_000_000, 200_000_000)),
    "lts__t_bytes.sum": ("byte", (3_000_000_000, 200_000_000)),
    "lts__t_sector_hit_rate.pct": ("%", (60, 10)),
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct": ("%", (40, 60)),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("", (2.0, 3.0)),
    "smsp__average_warp_latency_per_inst_issued.ratio": ("", (5.0, 5.0)),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", (16, 90)),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", (1_000, 0)),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", (2_000, 0)),
    "sm__cycles_active.sum": ("cycle", (200_000_000, 10_000_000)),
}
KERNELS = ("sm90_gemm<(int)128, float>(A const *, B)", 'epilogue "quoted", <script>alert(1)</script>\x1b[31m')


def has(name: str) -> bool:
    base = name.partition(".")[0]
    if MODE == "no-dram" and base.startswith("dram__"):
        return False
    if MODE == "old-stall" and base == "smsp__warp_issue_stalled_long_scoreboard_per_warp_active":
        return False
    return any(known.partition(".")[0] == base for known in COUNTED)


def main(args: list[str]) -> int:
    if args == ["--version"]:
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 0) (public-release)")
        return 0
    if args == ["--query-metrics", "--csv"]:
        return query()
    if args[0] == "--import":
        assert args[2:] == ["--csv", "--page", "raw", "--print-units", "base"], args
        return read_back(Path(args[1]))
    return profile(args)


def query() -> int:
    if MODE == "dumb":
        print("==ERROR== No NVIDIA driver: libcuda.so was not found", file=sys.stderr)
        return 1
    print('"Metric name","Metric type","Metric unit","Metric description","STAND-IN"')
    for base in dict.fromkeys(name.partition(".")[0] for name in COUNTED if has(name)):
        print(f'"{base}","Counter","","what it counts, in words","1"')
    return 0


def profile(args: list[str]) -> int:
    options: dict[str, str] = {}
    while args and args[0].startswith("--"):
        if args[0] == "--force-overwrite":
            options[args.pop(0)] = ""
        else:
            name, value, *args = args
            options[name] = value
    assert options["--clock-control"] == "none", options
    log, names = Path(options["--log-file"]), options["--metrics"].split(",")
    if unknown := [name for name in names if not has(name)]:
        log.write_text(f"==ERROR== Failed to find metric {unknown[0]}\n")
        return 1
    if MODE == "forbidden":
        status = subprocess.call(args)
        log.write_text(f"==PROF== Connected to process 7\n{FORBIDDEN}\n==PROF== Disconnected from process 7\n")
        return status or 1
    if MODE == "taken":
        log.write_text("==ERROR== Driver resource was unavailable. Ensure that no other tool is profiling.\n")
        return 1
    if MODE == "strange":
        log.write_text("==ERROR== An internal error nobody has seen before.\n")
        return 1
    status = subprocess.call(args)
    if MODE == "no-kernels" or status != 0:
        failed = f"==ERROR== The application returned an error code ({status}).\n" if status else ""
        log.write_text(f"{failed}==WARNING== No kernels were profiled.\n")
        return status
    count = int(options.get("--launch-count", "2"))
    Path(options["--export"]).write_text(json.dumps({"names": names, "kernels": KERNELS[:count]}))
    log.write_text("==PROF== Report written\n")
    return status


def read_back(report: Path) -> int:
    try:
        document = json.loads(report.read_text())
    except ValueError:
        print(f"==ERROR== Failed to load report {report}")
        return 1
    names = document["names"]
    print("==PROF== a line before the table")
    writer = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", "Process Name", "Kernel Name", "Block Size", "Grid Size", *names])
    writer.writerow(["", "", "", "", "", *(COUNTED[name][0] for name in names)])
    for place, kernel in enumerate(document["kernels"]):
        figures = [f"{COUNTED[name][1][place]:,}" for name in names]
        writer.writerow([place, "prog", kernel, "(128, 1, 1)", "(64, 32, 1)", *figures])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
