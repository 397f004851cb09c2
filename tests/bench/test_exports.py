"""Exports of a run: which numbers go out, under which names, and what the consumers' own definitions make of them."""

from __future__ import annotations

import importlib
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from firstlight.bench.results import (
    CaseResult,
    Health,
    HealthFinding,
    Regime,
    RunResult,
    Verdict,
)
from firstlight.cli import main
from firstlight.cli.bench import _exit_code
from firstlight.cli.bench_export import FORMATS
from firstlight.report.exports import Format, exported
from firstlight.report.exports_rows import rows, started
from tests.bench.recorded_runs import GPU, a_case, a_figure, a_run

ROOT = Path(__file__).parents[2]
H200 = ROOT / "results" / "bench-h200-standard.json"
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/export-1.json").read_text())
BURST = a_figure((0.0011, 0.0012, 0.0013))
SUSTAINED = a_figure((0.0014, 0.0015, 0.0016), regime=Regime.SUSTAINED)
GEMM = a_case("gemm/fp16/8192x8192x8192", SUSTAINED, BURST)
COPY = a_case("bandwidth/copy/fp16/512MiB", a_figure((0.0002, 0.0002, 0.0002), regime=Regime.SUSTAINED))
SKIPPED = a_case("gemm/nvfp4/8192x8192x8192")


def bad(verdict: Verdict, reason: str = "12345 TFLOPS is 1.3 of the peak") -> CaseResult:
    figure = a_figure((7.77e-5, 7.77e-5, 7.77e-5))
    return replace(a_case(f"gemm/{verdict.value}", figure), verdict=verdict, reason=reason)


def saved(tmp_path: Path, run: RunResult, name: str = "run.json") -> str:
    from firstlight.bench.results import to_text

    path = tmp_path / name
    path.write_text(to_text(run))
    return str(path)


# Which numbers, under which names


def test_two_regimes_are_two_figures_and_the_regime_is_in_the_name() -> None:
    names = [row.name for row in rows(a_run(GEMM, COPY, SKIPPED))]
    assert names == [
        "gemm/fp16/8192x8192x8192[sustained]",
        "gemm/fp16/8192x8192x8192[burst]",
        "bandwidth/copy/fp16/512MiB[sustained]",
    ]


def test_with_two_gpus_the_name_says_which() -> None:
    run = replace(a_run(COPY, replace(COPY, gpu=1)), gpus=(GPU, replace(GPU, index=1, uuid="gpu-1")))
    assert [row.name.partition("[")[2] for row in rows(run)] == ["sustained-gpu0]", "sustained-gpu1]"]
    root = ET.fromstring(exported(run, Format.JUNIT))
    assert [case.get("name") for case in root.iter("testcase")][:2] == [f"{COPY.id}[gpu0]", f"{COPY.id}[gpu1]"]


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.INVALID, Verdict.IMPOSSIBLE])
@pytest.mark.parametrize("wanted", Format)
def test_a_number_that_was_refused_leaves_in_no_format(verdict: Verdict, wanted: Format) -> None:
    text = exported(a_run(COPY, bad(verdict)), wanted)
    for written in ("7.77", "77.7", "0.0000777"):
        assert written not in text
    assert COPY.id in text
    assert (f"gemm/{verdict.value}" in text) == (wanted in (Format.JUNIT, Format.OPENMETRICS))


@pytest.mark.parametrize("text", ["", "yesterday", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_is_left_out(text: str) -> None:
    run = a_run(COPY)
    run = replace(run, run=replace(run.run, started=text))
    assert started(run) is None
    assert "start_timestamp" not in exported(run, Format.OPENMETRICS)
    assert "timestamp" not in exported(run, Format.JUNIT)


# pytest-benchmark: its own statistics of the same samples


@given(st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=41))
def test_statistics_are_those_that_pytest_benchmark_computes(samples: list[float]) -> None:
    figure = a_figure((1e-3,))
    figure = replace(figure, passes=(replace(figure.passes[0], n=len(samples), samples=tuple(samples)),))
    [benchmark] = json.loads(exported(a_run(a_case("gemm/x", figure)), Format.PYTEST_BENCHMARK))["benchmarks"]
    theirs: Any = importlib.import_module("pytest_benchmark.stats").Stats()
    for sample in samples:
        theirs.update(sample)
    ours = benchmark["stats"]
    for name in ("min", "max", "mean", "stddev", "median", "q1", "q3", "iqr", "ops", "total"):
        assert math.isclose(ours[name], getattr(theirs, name), rel_tol=1e-9, abs_tol=1e-15), name
    assert ours["rounds"] == theirs.rounds
    assert set(ours) == {*theirs.fields, "data", "iterations"}


def test_outliers_are_counted_as_pytest_benchmark_counts_them() -> None:
    samples = (1.0, 1.01, 1.02, 1.02, 1.03, 1.03, 1.04, 1.05, 9.0)
    figure = a_figure((1.03,))
    figure = replace(figure, passes=(replace(figure.passes[0], n=9, samples=samples),))
    [benchmark] = json.loads(exported(a_run(a_case("gemm/x", figure)), Format.PYTEST_BENCHMARK))["benchmarks"]
    theirs: Any = importlib.import_module("pytest_benchmark.stats").Stats()
    for sample in samples:
        theirs.update(sample)
    for name in ("outliers", "iqr_outliers", "stddev_outliers", "ld15iqr", "hd15iqr"):
        assert benchmark["stats"][name] == getattr(theirs, name), name
    assert benchmark["stats"]["outliers"] == "1;1"


def test_a_file_without_samples_gives_pass_medians_and_says_so() -> None:
    bare = replace(SUSTAINED, passes=tuple(replace(each, samples=()) for each in SUSTAINED.passes))
    [benchmark] = json.loads(exported(a_run(a_case("gemm/x", bare)), Format.PYTEST_BENCHMARK))["benchmarks"]
    assert benchmark["stats"]["data"] == [0.0014, 0.0015, 0.0016]
    assert benchmark["extra_info"]["stats_of"] == "pass medians, because the file holds no samples"


# JUnit: it fails where bench fails

ILL = Health(findings=(HealthFinding("hw-thermal", "blocks", "the card slowed itself down", gpu=0),))
TIRED = Health(findings=(HealthFinding("slow-link", "warns", "PCIe runs at x8", gpu=0),), contention=("shared",))


@pytest.mark.parametrize(
    "run",
    [
        a_run(GEMM, COPY, SKIPPED),
        a_run(SKIPPED),
        a_run(),
        *(a_run(GEMM, bad(verdict)) for verdict in (Verdict.FAILED, Verdict.INVALID, Verdict.IMPOSSIBLE)),
        replace(a_run(GEMM), health=ILL),
        replace(a_run(GEMM), health=TIRED),
        replace(a_run(GEMM), run=replace(a_run().run, interrupted=True)),
    ],
)
def test_junit_is_red_exactly_where_bench_ends_with_another_code_than_0(run: RunResult) -> None:
    root = ET.fromstring(exported(run, Format.JUNIT))
    red = int(root.get("failures", "0")) + int(root.get("errors", "0"))
    assert (red > 0) == (_exit_code(run) != 0)


def test_junit_tells_the_reason_of_a_failure_and_of_a_skip() -> None:
    root = ET.fromstring(exported(replace(a_run(bad(Verdict.IMPOSSIBLE), SKIPPED), health=ILL), Format.JUNIT))
    told = {case.get("name"): case for case in root.iter("testcase")}
    [failure] = told["gemm/impossible"]
    assert (failure.tag, failure.get("type")) == ("failure", "impossible")
    assert failure.get("message") == "impossible: 12345 TFLOPS is 1.3 of the peak"
    [skipped] = told[SKIPPED.id]
    assert (skipped.tag, skipped.get("message")) == ("skipped", SKIPPED.reason)
    assert told["health"][0].get("message") == "the card slowed itself down [hw-thermal]"


# The command


@pytest.mark.parametrize("wanted", FORMATS)
def test_what_is_printed_is_what_is_written(wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = saved(tmp_path, a_run(GEMM, COPY, SKIPPED)), tmp_path / "out"
    assert main.run(["bench", "export", run, "--to", wanted]) == 0
    printed = capsys.readouterr()
    assert printed.err == "firstlight: 3 figures of 2 cases; without numbers: 1 skipped\n"
    assert main.run(["bench", "export", run, "--to", wanted, "--out", str(out)]) == 0
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"firstlight: wrote {out}: 3 figures of 2 cases")
    assert out.read_text() == printed.out


def test_the_formats_of_the_command_are_those_of_the_report() -> None:
    assert tuple(each.value for each in Format) == FORMATS


def test_json_says_what_was_left_out_and_fits_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = saved(tmp_path, a_run(GEMM, SKIPPED, bad(Verdict.FAILED, "off by 0.5")))
    assert main.run(["bench", "export", run, "--to", "openmetrics", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"
    Draft202012Validator(SCHEMA).validate(document)
    assert [(each["verdict"], each["reason"]) for each in document["left_out"]] == [
        ("skipped", SKIPPED.reason),
        ("failed", "off by 0.5"),
    ]
    assert document["text"].endswith("# EOF\n")
    out = str(tmp_path / "out")
    assert main.run(["bench", "export", run, "--to", "openmetrics", "--json", "--out", out]) == 0
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(document)
    assert (document["text"], document["out"]) == (None, out)
    assert document["bytes"] == Path(out).stat().st_size


@pytest.mark.parametrize("wanted", ["pytest-benchmark", "github-action-benchmark"])
def test_a_run_without_a_figure_is_refused_where_the_reader_would_refuse_it(
    wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(tmp_path, a_run(SKIPPED))
    assert main.run(["bench", "export", run, "--to", wanted]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "holds no figure to export (1 skipped)" in said.err
    assert "--to junit" in said.err


@pytest.mark.parametrize("wanted", list(Format))
def test_a_run_without_a_case_is_refused(wanted: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "export", saved(tmp_path, a_run()), "--to", wanted.value]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "holds no case, so there is nothing to export" in said.err


@pytest.mark.parametrize("wanted", ["openmetrics", "junit"])
def test_a_run_without_a_figure_still_names_its_cases(
    wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["bench", "export", saved(tmp_path, a_run(SKIPPED)), "--to", wanted]) == 0
    assert SKIPPED.id in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "--to", "prometheus"], "'prometheus' is not one of 'pytest-benchmark'"),
        (["RUN"], "Missing option '--to'"),
        (["nowhere.json", "--to", "junit"], "nowhere.json: no such file"),
        ([__file__, "--to", "junit"], "not JSON"),
        (["RUN", "--to", "junit", "--out", "/nowhere/at/all.xml"], "there is no folder /nowhere/at"),
    ],
)
def test_a_bad_call_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(tmp_path, a_run(COPY))
    assert main.run(["bench", "export", *(run if each == "RUN" else each for each in arguments)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert said in told.err


def test_a_broken_off_run_says_so_everywhere_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(a_run(GEMM), run=replace(a_run().run, interrupted=True))
    assert main.run(["bench", "export", saved(tmp_path, run), "--to", "openmetrics"]) == 0
    said = capsys.readouterr()
    assert "firstlight_bench_interrupted 1.0\n" in said.out
    assert "the run was broken off" in said.err
