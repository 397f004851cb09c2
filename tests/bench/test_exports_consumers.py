"""Each export opened by the program or library that reads such files for a living."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from junitparser import Failure, JUnitXml, Skipped
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from firstlight.bench.results import RunResult, Verdict, read_run
from firstlight.report.exports import Format, exported
from firstlight.report.exports_rows import rows
from tests.bench.recorded_runs import a_case, a_figure, a_run

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics_parser.text_string_to_metric_families
parse_prometheus_text: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
H200_FILE = Path(__file__).parents[2] / "results" / "bench-h200-standard.json"
# Names that break a table, a quoted string, an attribute, a CDATA section or a line of an exposition.
HOSTILE = 'a"b\\c\\n\nd{e="f"} 1 <script>alert(1)</script> ]]> &amp; # EOF \u2603 \ufffe'
# An entry as the action's README describes it; the action itself passes over other keys.
ACTION_ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "unit": {"const": "us"},
        "value": {"type": "number", "exclusiveMinimum": 0},
        "range": {"type": "string", "pattern": r"^± \d+(\.\d+)?(e-?\d+)?$"},
        "extra": {"type": "string"},
    },
    "required": ["name", "unit", "value"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def h200() -> RunResult:
    return read_run(str(H200_FILE))


def hostile_run() -> RunResult:
    case = a_case("gemm/x", a_figure((0.001, 0.001, 0.001)))
    case = replace(case, id=HOSTILE, family=HOSTILE, dtype=HOSTILE, params=(("item", HOSTILE),), flags=(HOSTILE,))
    refused = replace(case, id=f"{HOSTILE}2", verdict=Verdict.FAILED, reason=HOSTILE)
    run = a_run(case, refused, name=HOSTILE, torch=HOSTILE)
    return replace(run, tool=HOSTILE, host=replace(run.host, name=HOSTILE, cpu=HOSTILE))


# pytest-benchmark


def pytest_benchmark(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Failed to load" not in done.stdout + done.stderr
    return done.stdout


def test_pytest_benchmark_reads_every_median_of_the_h200_run(h200: RunResult, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(exported(h200, Format.PYTEST_BENCHMARK))
    told = pytest_benchmark(tmp_path, "compare", "run.json", "--columns=min,median,rounds", "--csv=out.csv")
    assert "benchmark 'bandwidth': 5 tests" in told
    with (tmp_path / "out.csv").open(newline="") as file:
        read = {line["name"]: line for line in csv.DictReader(file)}
    assert len(read) == 108
    for row in rows(h200):
        line = read[row.name]
        assert float(line["median"]) == pytest.approx(row.figure.time_s.median, rel=1e-9)
        assert float(line["min"]) == row.figure.time_s.min
        assert int(line["rounds"]) == row.figure.time_s.n
        assert line["param:regime"] == row.figure.regime.value


def test_pytest_benchmark_compares_two_exports(tmp_path: Path) -> None:
    for name, seconds in (("before", 0.001), ("after", 0.0011)):
        run = a_run(a_case("gemm/fp16/8192x8192x8192", a_figure((seconds,) * 3)))
        (tmp_path / f"{name}.json").write_text(exported(run, Format.PYTEST_BENCHMARK))
    told = pytest_benchmark(tmp_path, "compare", "before.json", "after.json", "--group-by=param:dtype")
    assert "benchmark 'dtype=fp16': 2 tests" in told
    assert "(1.10)" in told


def test_pytest_benchmark_reads_hostile_names(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(exported(hostile_run(), Format.PYTEST_BENCHMARK))
    assert "<script>alert(1)</script>" in pytest_benchmark(tmp_path, "compare", "run.json")


# github-action-benchmark


def test_entries_are_what_github_action_benchmark_documents(h200: RunResult) -> None:
    for run in (h200, hostile_run()):
        entries = json.loads(exported(run, Format.GITHUB_ACTION_BENCHMARK))
        Draft202012Validator({"type": "array", "minItems": 1, "items": ACTION_ENTRY}).validate(entries)
        assert len({entry["name"] for entry in entries}) == len(entries)  # one line of the chart per name
        for entry, row in zip(entries, rows(run), strict=True):
            assert entry["value"] == pytest.approx(row.figure.time_s.median * 1e6, rel=1e-6)


# The action is not on the package registries, so its own parser is run where somebody has a checkout.
_RUN_ACTION = """
const {extractResult} = require(process.argv[1] + '/dist/src/extract.js');
extractResult({tool: process.argv[2], outputFilePath: process.argv[3]})
  .then((found) => console.log(JSON.stringify(found.benches)))
  .catch((error) => { console.error(error.message); process.exit(1); });
"""


@pytest.mark.network
@pytest.mark.parametrize(
    ("wanted", "tool"),
    [(Format.GITHUB_ACTION_BENCHMARK, "customSmallerIsBetter"), (Format.PYTEST_BENCHMARK, "pytest")],
)
def test_the_parser_of_github_action_benchmark_reads_both_files_it_knows(
    h200: RunResult, tmp_path: Path, wanted: Format, tool: str
) -> None:
    checkout = os.environ.get("GITHUB_ACTION_BENCHMARK")
    if not checkout or not shutil.which("node"):
        pytest.skip("GITHUB_ACTION_BENCHMARK names no checkout of benchmark-action/github-action-benchmark, or no node")
    (tmp_path / "out.json").write_text(exported(h200, wanted))
    (tmp_path / "event.json").write_text(json.dumps({"head_commit": {"id": "0" * 40}}))
    done = subprocess.run(
        ["node", "-e", _RUN_ACTION, checkout, tool, str(tmp_path / "out.json")],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert [entry["name"] for entry in read] == [row.name for row in rows(h200)]
    if wanted is Format.GITHUB_ACTION_BENCHMARK:
        assert read == json.loads((tmp_path / "out.json").read_text())


# OpenMetrics


def test_prometheus_s_parser_reads_every_median_of_the_h200_run(h200: RunResult) -> None:
    families = {family.name: family for family in parse_openmetrics(exported(h200, Format.OPENMETRICS))}
    median = families["firstlight_bench_median_seconds"]
    assert (median.type, median.unit) == ("gauge", "seconds")
    read = {(each.labels["case"], each.labels["regime"]): each.value for each in median.samples}
    assert read == {(row.case.id, row.figure.regime.value): row.figure.time_s.median for row in rows(h200)}
    verdicts = [each.labels["verdict"] for each in families["firstlight_bench_case_verdict"].samples]
    assert (verdicts.count("ok"), verdicts.count("skipped")) == (91, 6)
    [about] = families["firstlight_bench_run_info"].samples
    assert about.labels["torch"] == "2.11.0+cu130"


def test_percents_become_ratios_and_units_become_base_units(h200: RunResult) -> None:
    families = {family.name: family for family in parse_openmetrics(exported(h200, Format.OPENMETRICS))}
    row = next(row for row in rows(h200) if row.name == "gemm/fp16/8192x8192x8192[sustained]")
    picked = {"case": row.case.id, "regime": "sustained"}

    def value(name: str, **more: str) -> float:
        [found] = [
            float(each.value)
            for each in families[f"firstlight_bench_{name}"].samples
            if picked.items() <= each.labels.items() and more.items() <= each.labels.items()
        ]
        return found

    assert value("flops_per_second") == pytest.approx(row.case.flops / row.figure.time_s.median)
    assert value("bytes_per_second") == pytest.approx(row.case.bytes / row.figure.time_s.median)
    assert 0.7 < value("limit_ratio", ceiling="clock") < 1
    assert 1e9 < value("sm_clock_hertz") < 2e9


def test_one_file_serves_openmetrics_and_the_older_text_format(h200: RunResult) -> None:
    """node_exporter's textfile collector reads the older one, and takes neither info, stateset nor a timestamp."""
    text = exported(h200, Format.OPENMETRICS)
    new, old = list(parse_openmetrics(text)), list(parse_prometheus_text(text))
    assert {family.type for family in new} == {"gauge"}
    assert [each for family in new for each in family.samples] == [each for family in old for each in family.samples]
    assert not [each for family in new for each in family.samples if each.timestamp is not None]


def test_hostile_names_come_back_as_they_were_and_make_no_lines_of_their_own() -> None:
    families = {family.name: family for family in parse_openmetrics(exported(hostile_run(), Format.OPENMETRICS))}
    [median] = families["firstlight_bench_median_seconds"].samples
    assert median.labels["case"] == HOSTILE
    assert all(name.startswith("firstlight_bench_") for name in families)


# JUnit


def test_junitparser_reads_the_h200_run(h200: RunResult, tmp_path: Path) -> None:
    path = tmp_path / "bench.xml"
    path.write_text(exported(h200, Format.JUNIT), encoding="utf-8")
    read = JUnitXml.fromfile(str(path))
    assert (read.tests, read.failures, read.errors) == (97 + 2, 0, 0)
    suites = {suite.name: suite for suite in read}
    cases = {case.name: case for case in suites["firstlight.bench.gemm"]}
    gemm = cases["gemm/fp16/8192x8192x8192"]
    assert gemm.classname == "firstlight.bench.gemm"
    assert gemm.is_passed
    assert "TFLOPS" in str(gemm.system_out)
    assert cases["gemm/nvfp4/8192x8192x8192"].is_skipped
    for suite in suites.values():
        skipped = sum(case.is_skipped for case in suite)
        assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (len(list(suite)), 0, 0, skipped)


def test_junitparser_reads_hostile_names_and_reasons() -> None:
    read = JUnitXml.fromstring(exported(hostile_run(), Format.JUNIT).encode())
    clean = HOSTILE.replace("\ufffe", "?")
    [suite] = [suite for suite in read if suite.name == f"firstlight.bench.{clean}"]
    passed, failed = list(suite)
    assert passed.name == clean
    [failure] = failed.result
    assert isinstance(failure, Failure)
    assert failure.message == f"failed: {clean}"
    assert not [result for case in suite for result in case.result if isinstance(result, Skipped)]
