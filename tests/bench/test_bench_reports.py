"""A run as text, Markdown and CSV, and the line that says how far it is."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from firstlight.bench.attempts import Turn
from firstlight.bench.case import Mode
from firstlight.bench.operator_counts import gemm
from firstlight.bench.progress import Progress, rough_time, step_text
from firstlight.bench.results import (
    CaseResult,
    Health,
    HealthFinding,
    HostResult,
    Regime,
    RunInfo,
    RunResult,
    SoftwareResult,
    Verdict,
)
from firstlight.numerals import percent_text, significant
from firstlight.report.bench_cells import time_text
from firstlight.report.bench_csv import COLUMNS, bench_csv
from firstlight.report.bench_markdown import bench_markdown
from firstlight.report.bench_text import bench_text
from firstlight.tables import load
from tests.bench.test_figures import H200, LARGE, SETTING, result, stretch, timing

TABLES = load()


def large(dtype: str = "bf16", seconds: float = 1.58e-3) -> CaseResult:
    case = replace(LARGE, id=f"gemm/{dtype}/8192x8192x8192", dtype=dtype, peak=dtype)
    both = (
        stretch(seconds * 0.87, regime=Regime.BURST, mhz=1965.0),
        stretch(seconds, grown={"sw_power": 950_000_000}, reasons=0x4),
    )
    return result(case, timing(*both), timing(*both), timing(*both))


def model(run: str, seconds: float) -> CaseResult:
    case = replace(
        LARGE,
        id=f"resnet50/fp16/b1/{run}",
        family="resnet50",
        dtype="fp16",
        peak="fp16",
        mode=Mode.HOST,
        work=gemm(64, 64, 64, in_bytes=2, out_bytes=2),
        params=(("batch", "1"), ("run", run), ("items", "1"), ("item", "image")),
        flags=("algorithmic", "compile") if run.startswith("compiled") else ("algorithmic",),
    )
    return result(case, timing(stretch(seconds), host=(seconds,), device=(seconds / 10,)), flags=case.flags)


def a_run(*cases: CaseResult, health: Health | None = None, interrupted: bool = False) -> RunResult:
    return RunResult(
        tool="firstlight 0.1.0",
        run=RunInfo("r", "2026-11-15T04:25:33Z", "standard", ("bench",), 3, 60.0, 90.0, interrupted=interrupted),
        host=HostResult("host-a", "Ubuntu 24.04", "x86_64", "AMD EPYC", "docker", "3.12.3"),
        gpus=(replace(H200, peaks=SETTING.peaks.source),),
        software=SoftwareResult("580.159.04", "13.0", "2.11.0+cu130", "9.19.0", None, "3.6.0"),
        health=health or Health(),
        cases=cases,
    )


def refused() -> CaseResult:
    return result(replace(LARGE, id="gemm/bf16/too-fast"), timing(stretch(0.9e-3)))


def test_the_text_has_a_line_per_figure_and_says_whether_the_card_is_normal() -> None:
    text = bench_text(a_run(large()), TABLES)
    [headline] = [line for line in text.splitlines() if line.startswith("gemm/bf16/8192")]
    [burst] = [line for line in text.splitlines() if line.strip().startswith("burst")]
    assert "1.582 ms" in headline
    assert "sustained, power capped" in headline
    assert "81 %" in headline
    assert "1.376 ms" in burst
    flat = " ".join(text.split())
    assert "normal? best bf16 product 799.1 TFLOPS (burst): 101 % of the 794.5 that healthy cards of this model" in flat
    assert "reach; normal verdict This H200 runs as it should; nothing stands out. 1 case" in flat
    assert text.endswith("1 case measured in 90 s.\n")


def test_what_is_not_a_number_is_said_below_the_table() -> None:
    findings = (HealthFinding("hw-thermal", "blocks", "the card slowed itself down", gpu=0),)
    health = Health(contention=("another process uses this GPU",), findings=findings)
    text = " ".join(bench_text(a_run(large(), refused(), health=health, interrupted=True), TABLES).split())
    assert "impossible gemm/bf16/too-fast:" in text
    assert "warn another process uses this GPU" in text
    assert "blocks the card slowed itself down [hw-thermal]" in text
    assert "verdict This H200 does not run as it should; 4 things to look at." in text
    assert "look at" not in text.replace("to look at", "")  # each of the four has its line above
    assert "1 case measured, 1 impossible in 90 s; broken off by the user, what was finished is kept." in text


def test_markdown_has_the_field_s_columns_first_and_the_limits_after_them() -> None:
    text = bench_markdown(a_run(large("fp16"), large("fp32", 25e-3)), TABLES)
    assert "| Matrix Size | Median | TFLOPS | 95 % interval | Regime | Limit (ms) | Bound by | % of limit |" in text
    assert "| 8192 x 8192 | 1.582 ms | 695.2 |" in text
    [fp16] = [line for line in text.splitlines() if "| FP16 |" in line and "sustained" in line]
    assert "| 15.82x |" in fp16  # against the FP32 row
    assert "| FP32 (no TF32) |" in text


def test_every_table_has_as_many_cells_in_each_row_as_in_its_head() -> None:
    text = bench_markdown(a_run(large("fp16"), large(), model("eager", 6e-3), model("compiled-graph", 6e-4)), TABLES)
    for block in text.split("\n\n"):
        rows = [line.count("|") for line in block.splitlines() if line.startswith("|")]
        assert len(set(rows)) <= 1, block


def test_what_a_graph_does_and_what_a_compiler_does_are_told_apart() -> None:
    cases = (model("eager", 6.42e-3), model("graph", 0.9e-3), model("compiled-graph", 0.59e-3))
    text = bench_markdown(a_run(*cases), TABLES)
    [row] = [line for line in text.splitlines() if line.startswith("| FP16 | 1 | 6.") and "x |" in line]
    assert row.count("x |") == 2
    assert "10.88x" in row  # all of it
    assert "7.13x" in row  # by the graph alone
    assert "| - |" in row  # compiled without a graph was not run


def test_reasons_do_not_break_a_table() -> None:
    broken = replace(large(), verdict=Verdict.FAILED, reason="a | b\nc", figures=(), headline=None)
    assert "| `gemm/bf16/8192x8192x8192` | failed | a \\| b c |" in bench_markdown(a_run(broken), TABLES)


def test_csv_keeps_both_regimes_and_marks_the_headline() -> None:
    rows = list(csv.DictReader(io.StringIO(bench_csv(a_run(large(), refused())))))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["regime"], row["headline"]) for row in rows[:2]] == [("burst", "False"), ("sustained", "True")]
    assert rows[2]["verdict"] == "impossible"
    assert rows[0]["params"] == "m=8192 n=8192 k=8192"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.3644e-3, "1.364 ms"), (25.449e-6, "25.45 us"), (2.1149, "2.115 s"), (6.2e-7, "620.0 ns"), (0.99996, "1000 ms")],
)
def test_times_have_four_digits_and_a_unit(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_numbers_keep_four_digits_without_an_exponent() -> None:
    assert [significant(value) for value in (9.99996, 12345.6, 0.00070804, 0)] == ["10.00", "12350", "0.0007080", "0"]
    assert [percent_text(value) for value in (None, 86.4, 3.21)] == ["-", "86 %", "3.2 %"]


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(count: int) -> list[Turn]:
    return [Turn(f"case-{number}", number, count, 1, 2) for number in range(1, count + 1)]


def test_a_log_gets_a_line_now_and_then_and_no_control_characters() -> None:
    log, now = io.StringIO(), [0.0]
    progress = Progress(log, now=lambda: now[0])
    progress.say("looking")
    for step in steps(30):
        progress.tell(step)
        now[0] += 1.0
    progress.clear()
    lines = log.getvalue().splitlines()
    assert lines[0] == "firstlight: looking"
    assert len(lines) == 4  # at 0, 10 and 20 s
    assert "\r" not in log.getvalue()
    assert lines[2].endswith("about 50 s left")


def test_a_terminal_gets_one_line_that_is_rewritten_and_removed() -> None:
    screen = Terminal()
    progress = Progress(screen)
    for step in steps(3):
        progress.tell(step)
    progress.clear()
    assert screen.getvalue().count("\n") == 0
    assert screen.getvalue().endswith(" \r")


def test_a_step_is_told_with_its_number_pass_and_rest() -> None:
    step = Turn("gemm/fp16/8192x8192x8192", 12, 97, 1, 3)
    assert step_text(step, left_s=None) == "[12/97] pass 1 of 3  gemm/fp16/8192x8192x8192"
    assert step_text(step, left_s=130.0).endswith("  about 2 min left")
    assert [rough_time(seconds) for seconds in (0.2, 7.4, 43.0, 200.0)] == ["1 s", "7 s", "45 s", "3 min"]
