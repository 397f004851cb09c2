"""What two processes running the same code differ in: told to the comparison as data, said in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.between_processes import SPREADS, SpreadKind, row_of
from firstlight.bench.cases.convolution import IN_QUICK, Layout, convolution_case
from firstlight.bench.cases.settings import Search, Settings, apply_settings, switches_kept
from firstlight.bench.compare import Strictness, compare_runs, exit_code
from firstlight.bench.statistics import Change
from firstlight.report.bench_compare_text import compare_text
from tests.bench.recorded_runs import a_case, a_figure, a_run
from tests.bench.test_compare import STEADY, _pair, _scaled

SAME_CODE = Path(__file__).parents[2] / "results" / "bench-aa-h200.json"


@pytest.mark.parametrize(
    ("changes", "kind", "factor", "change"),
    [
        ({}, SpreadKind.DEVICE, 1.05, Change.SLOWER),
        ({"mode": "host", "launch_bound": 0.01}, SpreadKind.DEVICE, 1.05, Change.SLOWER),
        ({"mode": "host", "launch_bound": 0.3}, SpreadKind.HOST, 1.14, Change.UNCLEAR),
        ({"mode": "host", "launch_bound": 0.3}, SpreadKind.HOST, 1.60, Change.SLOWER),
        ({"mode": "host", "family": "transfer"}, SpreadKind.HOST_COPY, 1.14, Change.UNCLEAR),
        ({"flags": ("algorithmic", "searched")}, SpreadKind.SEARCHED, 1.19, Change.UNCLEAR),
        ({"flags": ("compile",), "mode": "host"}, SpreadKind.SEARCHED, 1.19, Change.UNCLEAR),
    ],
)
def test_what_processes_differ_in_is_not_called_a_change(
    changes: dict[str, Any], kind: SpreadKind, factor: float, change: Change
) -> None:
    base, new = (a_case("some/case", a_figure(_scaled(each)), **changes) for each in (1.0, factor))
    [case] = _pair(base, new).cases
    assert (case.kind, case.change) == (kind, change)
    assert case.smallest is not None
    assert (case.smallest < 0.05) is (kind is SpreadKind.DEVICE)


def test_a_figure_that_can_never_be_clear_does_not_fail_a_strict_comparison() -> None:
    eager = a_case("resnet/eager", a_figure(STEADY), mode="host", launch_bound=0.5)
    comparison = _pair(eager, eager)
    assert comparison.cases[0].change is Change.UNCLEAR
    assert exit_code(comparison, Strictness.STRICT) == 3  # where it is all there is, nothing is told
    clear = a_case("gemm/a", a_figure(STEADY))
    beside = compare_runs(a_run(eager, clear), a_run(eager, clear, name="run-b"))
    assert exit_code(beside, Strictness.STRICT) == 0


def test_every_kind_has_a_spread_with_its_source() -> None:
    assert [row.kind for row in SPREADS] == list(SpreadKind)
    assert all(row.source and row.why and row.confidence in ("measured", "supposed") for row in SPREADS)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", row.date) for row in SPREADS)


@pytest.mark.parametrize("kind", [SpreadKind.DEVICE, SpreadKind.HOST, SpreadKind.HOST_COPY])
def test_a_spread_is_no_smaller_than_what_runs_of_the_same_code_showed(kind: SpreadKind) -> None:
    document = json.loads(SAME_CODE.read_text())
    found = [each["spreads"][kind.value] for each in document["sets"] if kind.value in each["spreads"]]
    assert found
    assert {row["told_to_compare"] for row in found} == {row_of(kind).spread}
    assert all(row_of(kind).spread >= row["between_processes"] for row in found)
    assert document["false_alarms"] == 0


def test_the_report_says_which_figures_cannot_be_told_apart_and_why() -> None:
    base, new = (
        a_run(
            a_case("resnet50/b1/eager", a_figure(_scaled(factor)), mode="host", launch_bound=0.8),
            a_case("resnet50/b8/eager", a_figure(STEADY), mode="host", launch_bound=0.7),
            a_case("gemm/a", a_figure(STEADY)),
        )
        for factor in (1.0, 1.12)
    )
    text = compare_text(compare_runs(base, new), base, new, 0)
    assert (
        "no verdict: two runs of the same code differ by more than the margin\n"
        "  2 figures, by about 10.4 %: the time of the processor is in it; a change of 51 % and more would be "
        "(largest here +12.0 %, resnet50/b1/eager)\n"
    ) in text
    assert "second look" not in text
    assert "exit code 0: no regression in 1 figure; 2 have no verdict\n" in text


def test_convolutions_take_the_same_algorithm_in_every_process_unless_a_search_is_asked_for() -> None:
    from torch import backends

    with switches_kept():
        for search, is_on in ((Search.HEURISTIC, False), (Search.TIMED, True)):
            apply_settings(Settings(search=search))
            assert backends.cudnn.benchmark is is_on
    plain, searched = (convolution_case("fp16", Layout.NHWC, IN_QUICK[0], search=each) for each in Search)
    assert dict(plain.params)["algorithm"] == "cudnn heuristics"
    assert dict(searched.params)["algorithm"] == "cudnn search"
    assert searched.id == f"{plain.id}/searched"
    assert ("searched" in plain.flags, "searched" in searched.flags) == (False, True)
