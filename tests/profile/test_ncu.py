"""Nsight Compute from outside: where it is, what it lists, what its tables say; and why it may say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.machine.interface import Host
from firstlight.machine.live import LiveMachine
from firstlight.profile.metrics import METRICS, ways_open
from firstlight.profile.ncu import Launches, Tool, find_ncu, over_all, profile_argv, read_kernels, read_names
from firstlight.profile.trouble import trouble_in

HOST = Host("h", "u", "/root", "/", 0, "6", "x86_64", "3.12.0", "/usr/bin/python3", "/usr", "/usr", "2026-11-15T00:00Z")
LOG = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
ALL = frozenset(name.partition(".")[0] for metric in METRICS for way in metric.ways for name in way.names)


def machine(root: Path, files: dict[str, str] | None = None, **environ: str) -> LiveMachine:
    for path, text in (files or {}).items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(text)
    return LiveMachine(root=str(root), environ={"PATH": "/usr/bin", **environ}, host=HOST)


def executable(root: Path, path: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    "place",
    ["/usr/bin/ncu", "/opt/cuda/bin/ncu", "/usr/local/cuda-13.0/bin/ncu", "/opt/nvidia/nsight-compute/2025.3.1/ncu"],
)
def test_ncu_is_found_where_its_installers_put_it(tmp_path: Path, place: str) -> None:
    executable(tmp_path, place)
    found = find_ncu(machine(tmp_path, CUDA_HOME="/opt/cuda"))
    assert isinstance(found, Known)
    assert found.value == place


def test_the_newest_installation_wins_and_a_file_that_cannot_run_is_none(tmp_path: Path) -> None:
    for version in ("2024.1.0", "2025.3.1"):
        executable(tmp_path, f"/opt/nvidia/nsight-compute/{version}/ncu")
    found = find_ncu(machine(tmp_path, {"/usr/bin/ncu": "not executable"}))
    assert isinstance(found, Known)
    assert found.value == "/opt/nvidia/nsight-compute/2025.3.1/ncu"


def test_a_machine_without_ncu_says_where_was_looked(tmp_path: Path) -> None:
    found = find_ncu(machine(tmp_path))
    assert isinstance(found, Unknown)
    assert "/opt/nvidia/nsight-compute" in found.reason


def test_names_are_read_from_the_csv_and_from_the_older_columns() -> None:
    table = '"Metric name","Metric type","Metric unit"\n"dram__bytes","Counter","byte"\n"sm__throughput","",""\n'
    columns = "Device NVIDIA H200 (GH100)\n------- ----\nMetric Name   Unit\ndram__bytes   Counter  byte  # of bytes\n"
    assert read_names(table) == {"dram__bytes", "sm__throughput"}
    assert read_names(columns) == {"dram__bytes"}
    assert read_names("==ERROR== nothing here\n") == frozenset()


def test_only_counters_that_the_chip_has_are_asked_for_and_the_clocks_are_left_alone() -> None:
    here = ALL - {
        "sm__pipe_tc_cycles_active",
        "dram__bytes",
        "smsp__warp_issue_stalled_long_scoreboard_per_warp_active",
    }
    tool = Tool("/ncu", "2025", here)
    argv = profile_argv(tool, Launches("gemm", 2, 5), report="r.ncu-rep", log="l", options=())
    asked = argv[argv.index("--metrics") + 1].split(",")
    assert {name.partition(".")[0] for name in asked} <= here
    assert "dram__bytes_read.sum" in asked
    assert "smsp__average_warp_latency_per_inst_issued.ratio" in asked
    assert argv[1:3] == ("--clock-control", "none")
    assert argv[-6:] == ("--kernel-name", "regex:gemm", "--launch-skip", "2", "--launch-count", "5")


def raw(*rows: str, names: str, units: str) -> str:
    head = f'"ID","Kernel Name",{names}\n"","",{units}\n'
    return "==PROF== noise\n" + head + "".join(f"{row}\n" for row in rows)


def test_units_thousands_and_gaps_of_the_raw_page_are_read() -> None:
    text = raw(
        '"0","k","1,500","2.5","n/a","1,300"',
        '"1","cut","1"',
        names='"gpu__time_duration.sum","dram__bytes.sum","sm__warps_active.avg.pct_of_peak_sustained_active",'
        '"sm__cycles_elapsed.avg.per_second"',
        units='"usecond","Gbyte","%","Mhz"',
    )
    [kernel] = read_kernels(text)
    found = {each.key: each.value for each in kernel.values}
    assert kernel.time_s == pytest.approx(1.5e-3)
    assert found["dram_bytes"] == pytest.approx(2.5e9)
    assert found["sm_clock_hz"] == pytest.approx(1.3e9)
    assert found["warps_active_pct"] is None


@pytest.mark.parametrize("text", ["", "==ERROR== no", '"ID","Kernel Name"\n', '"ID","Kernel Name"\n"",""\n'])
def test_a_page_without_rows_has_no_kernels(text: str) -> None:
    assert read_kernels(text) == ()


def test_a_stall_share_is_made_of_two_ratios_where_the_counter_is_missing() -> None:
    names = (
        '"gpu__time_duration.sum","smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
        '"smsp__average_warp_latency_per_inst_issued.ratio"'
    )
    kernels = read_kernels(raw('"0","k","10","2","5"', names=names, units='"ns","",""'))
    found = {each.key: each for each in over_all(kernels, ALL)}
    assert found["stall_long_scoreboard_pct"].value == pytest.approx(40)
    assert found["dram_bytes"].why_not == "not counted"


def test_sums_are_added_and_shares_are_weighted_by_time() -> None:
    names = '"gpu__time_duration.sum","dram__bytes.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed"'
    text = raw('"0","a","900","10","90"', '"1","b","100","5","10"', names=names, units='"ns","byte","%"')
    found = {each.key: each.value for each in over_all(read_kernels(text), ALL)}
    assert found["dram_bytes"] == 15
    assert found["dram_pct"] == pytest.approx(82)


def test_a_chip_that_shares_the_hosts_memory_says_that_it_has_no_such_counter() -> None:
    bases = frozenset(base for base in ALL if not base.startswith("dram__"))
    assert {metric.key: names for metric, names in ways_open(bases)}["dram_bytes"] == ()
    kernels = read_kernels(raw('"0","k","9"', names='"gpu__time_duration.sum"', units='"ns"'))
    [dram] = [each for each in over_all(kernels, bases) if each.key == "dram_bytes"]
    assert dram.why_not == "this chip has no dram__bytes.sum or dram__bytes_read.sum"


def test_forbidden_counters_name_the_setting_and_what_helps_on_a_plain_machine(tmp_path: Path) -> None:
    files = {
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        "/proc/self/status": "Name:\tx\nCapEff:\t0000000000000000\n",
    }
    found = trouble_in(LOG, machine(tmp_path, files))
    assert found is not None
    assert found.code == "counters-forbidden"
    assert "RmProfilingAdminOnly is 1" in found.says
    assert "no CAP_SYS_ADMIN" in found.says
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.do[1]


def test_forbidden_counters_in_a_container_under_wsl_and_for_root_have_other_ways_out(tmp_path: Path) -> None:
    container = trouble_in(LOG, machine(tmp_path / "c", {"/.dockerenv": ""}))
    windows = trouble_in(LOG, machine(tmp_path / "w", {"/proc/version": "Linux 5.15-microsoft-standard-WSL2"}))
    root = trouble_in(LOG, machine(tmp_path / "r", {"/proc/self/status": "CapEff:\t000001ffffffffff\n"}))
    assert container is not None
    assert windows is not None
    assert root is not None
    assert "--cap-add=SYS_ADMIN" in container.do[0]
    assert "Control Panel" in windows.do[0]
    assert "a host around it decides" in root.says


def test_a_broken_machine_does_not_hide_that_counters_are_forbidden(tmp_path: Path) -> None:
    files = {"/proc/self/status": "CapEff:\tzz\n", "/proc/driver/nvidia/params": "\x00\x00"}
    found = trouble_in(LOG, machine(tmp_path, files))
    assert found is not None
    assert found.says == "the driver refuses performance counters (ERR_NVGPUCTRPERM)"


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ("==ERROR== Driver resource was unavailable.", "counters-taken"),
        ("==ERROR== Profiling is not supported on this device", "gpu-not-supported"),
        ("==ERROR== Failed to open lock file /tmp/nsight-compute-lock", "lock-taken"),
        ("==WARNING== No kernels were profiled.", "no-kernels"),
        ("==ERROR== LibraryNotLoaded", "library-not-loaded"),
    ],
)
def test_other_complaints_are_told_apart(tmp_path: Path, log: str, code: str) -> None:
    found = trouble_in(log, machine(tmp_path))
    assert found is not None
    assert found.code == code


def test_a_log_without_complaints_is_no_trouble(tmp_path: Path) -> None:
    assert trouble_in("==PROF== Disconnected from process 7", machine(tmp_path)) is None
