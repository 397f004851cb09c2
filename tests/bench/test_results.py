"""The result file: written, read back to the same run, and refused with the field when it is not one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.bench.results import (
    RESULTS,
    Regime,
    RunResult,
    TimeSummary,
    Verdict,
    from_json,
    read_run,
    to_json,
    to_text,
)
from firstlight.errors import BadInput
from firstlight.records import decode, encode
from tests.bench.recorded_runs import a_case, a_figure, a_run

SCHEMAS = Path(__file__).parents[2] / "src" / "firstlight" / "schemas"
RUN = a_run(
    a_case("gemm/fp16/8192", a_figure([1.4e-3, 1.41e-3, 1.39e-3]), a_figure([1.5e-3] * 3, regime=Regime.SUSTAINED)),
    a_case("softmax/fp16/huge"),
    a_case("gemm/fp8/8192", verdict=Verdict.IMPOSSIBLE, reason="2200 TFLOPS is 103 % of the ceiling"),
)


def test_a_run_reads_back_to_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(to_text(RUN))
    assert read_run(str(path)) == RUN


def test_the_schema_comes_first_and_the_document_fits_the_shipped_schema() -> None:
    document = to_json(RUN)
    assert next(iter(document)) == "schema"
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "bench-1.json").read_text())).validate(document)


def test_what_is_not_known_is_null_and_a_skipped_case_is_there_with_its_reason() -> None:
    document = json.loads(to_text(RUN))
    assert document["software"]["nccl"] is None
    skipped = document["cases"][1]
    assert (skipped["verdict"], skipped["reason"], skipped["figures"]) == ("skipped", "needs 9.7 GB, 7.9 free", [])


def test_parameters_and_throttle_reasons_are_objects() -> None:
    document = json.loads(to_text(RUN))
    assert document["cases"][0]["params"] == {"m": "8192", "n": "8192", "k": "8192"}
    assert document["cases"][0]["figures"][0]["telemetry"]["reasons_pct"] == {"sw_power": 31.2}


def test_both_regimes_are_kept_and_the_headline_says_which_is_shown() -> None:
    case = from_json(json.loads(to_text(RUN)), "run.json").cases[0]
    assert case.headline is Regime.BURST
    assert case.shown is case.figure(Regime.BURST)
    sustained = case.figure(Regime.SUSTAINED)
    assert sustained is not None
    assert sustained.time_s.median == 1.5e-3


def test_keys_of_a_later_version_are_passed_over() -> None:
    document = json.loads(to_text(RUN))
    document["cases"][0]["colour"] = "red"
    document["weather"] = {}
    assert from_json(document, "run.json") == RUN


def test_nan_is_never_written() -> None:
    figure = a_figure([1e-3, float("nan"), 1e-3])
    with pytest.raises(ValueError, match="cannot be written"):
        to_text(a_run(a_case("gemm/x", figure)))


def _changed(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


def _without(*path: str | int) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


FIGURE = ("cases", 0, "figures", 0)
BAD = {
    "a future schema": (_changed("schema", value="firstlight.bench/2"), "Upgrade firstlight"),
    "a foreign schema": (_changed("schema", value="nvbench/1"), r"schema is 'nvbench/1'; accepted: firstlight.bench/1"),
    "no schema": (_without("schema"), "schema is missing"),
    "a case without an id": (_without("cases", 0, "id"), r"run\.cases\[0\]\.id: missing"),
    "a verdict nobody knows": (_changed("cases", 0, "verdict", value="great"), r"cases\[0\]\.verdict: 'great'"),
    "a time of 0": (_changed(*FIGURE, "passes", 1, "median", value=0), r"passes\[1\]: a time must be above 0"),
    "a negative median": (_changed(*FIGURE, "time_s", "median", value=-1.0), r"time_s\.median: -1\.0"),
    "an interval beside its median": (_changed(*FIGURE, "time_s", "ci95", value=[9.0, 9.5]), r"time_s\.median"),
    "three ends of an interval": (_changed(*FIGURE, "time_s", "ci95", value=[1, 2, 3]), "expected 2 items, found 3"),
    "text for a time": (_changed(*FIGURE, "time_s", "median", value="fast"), "expected a number, found 'fast'"),
    "NaN": (_changed(*FIGURE, "time_s", "mad", value=float("nan")), "mad: expected a number, found nan"),
    "true for a count": (_changed(*FIGURE, "time_s", "n", value=True), "n: expected a whole number, found True"),
    "a clock of 0": (_changed(*FIGURE, "passes", 0, "sm_mhz", value=0.0), "what is not known is null, never 0"),
    "a graph of no calls": (_changed("cases", 0, "graph_calls", value=0), r"cases\[0\]\.graph_calls: 0; accepted: 1"),
    "no passes": (_changed(*FIGURE, "passes", value=[]), "one pass at least"),
    "two figures of one regime": (_changed("cases", 0, "figures", 1, "regime", value="burst"), "two figures of one"),
    "a headline that is not there": (_changed("cases", 0, "headline", value=None), r"cases\[0\]\.headline"),
    "a skip without a reason": (_changed("cases", 1, "reason", value=""), "a case that is skipped says why"),
    "a case twice": (_changed("cases", 1, "id", value="gemm/fp16/8192"), "there twice"),
    "a GPU that is not there": (_changed("cases", 0, "gpu", value=4), "4 is not an index of gpus"),
    "a terminal escape": (_changed("cases", 0, "id", value="\x1b[2J"), "control character"),
    "a list for an object": (_changed("host", value=[]), r"host: expected an object, found list"),
    "an object for a list": (_changed("cases", value={}), r"cases: expected a list, found dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_a_result_is_refused_with_the_field(name: str) -> None:
    change, words = BAD[name]
    document = to_json(RUN)
    change(document)
    with pytest.raises(BadInput, match=words):
        from_json(document, "run")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    text = to_text(RUN)
    for share in (0.0, 0.3, 0.9):
        path = tmp_path / "cut.json"
        path.write_text(text[: int(len(text) * share)])
        with pytest.raises(BadInput, match="not JSON"):
            read_run(str(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe\x00", "not text"), (b"[]", "expected a JSON object"), (b"[" * 100_000, "nested too deeply")],
)
def test_other_bytes_are_refused_in_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_run(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent\.json: no such file"):
        read_run(str(tmp_path / "absent.json"))


@given(st.builds(
    TimeSummary,
    median=st.floats(1e-9, 1e3), ci95=st.tuples(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3)), min=st.floats(1e-9, 1e3),
    q1=st.floats(1e-9, 1e3), q3=st.floats(1e-9, 1e3), mad=st.just(0.0) | st.floats(1e-12, 1), n=st.integers(1, 10**6),
    n_eff=st.floats(1, 1e6), ci_reached=st.booleans(), p95=st.none() | st.floats(1e-9, 1e3),
))  # fmt: skip
def test_every_summary_survives_writing_and_reading(summary: TimeSummary) -> None:
    assert decode(TimeSummary, json.loads(json.dumps(encode(summary))), "summary", RESULTS) == summary


def test_the_size_of_a_list_is_bounded() -> None:
    document = to_json(RUN)
    document["cases"] = [{}] * 200_001
    with pytest.raises(BadInput, match="at most 200000"):
        decode(RunResult, document, "run", RESULTS)
