"""Result files that nobody measured: each verb that reads one shows it or refuses it, and never falls over."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.bench.results import Regime, Verdict, to_json
from firstlight.cli import main
from firstlight.cli.bench_export import FORMATS
from tests.bench.recorded_runs import a_case, a_figure, a_run

STEADY = (1.000e-3, 1.002e-3, 0.998e-3)
RUN = a_run(
    a_case("gemm/fp16/8192", a_figure(STEADY), a_figure(STEADY, regime=Regime.SUSTAINED), flags=("searched",)),
    a_case(
        "transfer/h2d", a_figure(STEADY), params=(("host_memory", "pinned"), ("size_bytes", "1048576")), peak="link"
    ),
    a_case("bandwidth/add", a_figure(STEADY), params=(("operation", "add"), ("array_bytes", "536870912"))),
    a_case("resnet50/b1", a_figure(STEADY), params=(("run", "compiled-graph"), ("batch", "1")), mode="host"),
    a_case("gemm/nvfp4/8192"),
)
DOCUMENT: dict[str, Any] = json.loads(json.dumps(to_json(RUN)))
GOOD = json.dumps(DOCUMENT)
TIMES = ("median", "ci95", "min", "q1", "q3", "mad", "p95", "samples")


def _places(value: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*before, key)
        yield from _places(each, (*before, key))


PLACES = tuple(place for place in _places(DOCUMENT) if "samples" not in place[:-1])
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**29, 10**400, 1e308, -1e308, 1e-320, 1e29, 1e-29, 1e9, 1e-12, 0.5, -0.5,
    float("nan"), float("inf"), "", "x", "²", "9" * 5000, "<b>", "\u202e", "\x1b[2J", [], {}, [[]], {"a": 1},
    [1e308, 1e308],
)  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> str:
    """The text of a run in which one to three places hold something else, or are gone."""
    document = copy.deepcopy(DOCUMENT)
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        inside: Any = document
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in place[:-1]:
                inside = inside[key]
            if draw(st.integers(0, 4)) == 0:
                del inside[place[-1]]
            else:
                inside[place[-1]] = draw(st.sampled_from(ODD))
    return json.dumps(document)


def scaled(value: Any, factor: float) -> Any:
    """A document with every time of its figures multiplied."""
    if isinstance(value, dict):
        return {key: _times(each, factor) if key in TIMES else scaled(each, factor) for key, each in value.items()}
    return [scaled(each, factor) for each in value] if isinstance(value, list) else value


def _times(value: Any, factor: float) -> Any:
    return [_times(each, factor) for each in value] if isinstance(value, list) else value and value * factor


def read_by_every_verb(text: str) -> dict[str, int]:
    """The exit codes; what goes to stderr must be no traceback."""
    with tempfile.TemporaryDirectory() as folder:
        run, good, page = (str(Path(folder, name)) for name in ("run.json", "good.json", "page.html"))
        Path(run).write_text(text)
        Path(good).write_text(GOOD)
        calls = {
            "compare base": ["compare", run, good],
            "compare new": ["compare", good, run, "--strict", "--json"],
            "compare itself": ["compare", run, run, "--margin", "90%"],
            "compare again": ["compare", good, good, "--again", run],
            "report": ["report", good, run, "--out", page],
            **{f"export {each}": ["export", run, "--to", each] for each in FORMATS},
        }
        codes = {}
        for name, call in calls.items():
            said = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                codes[name] = main.run(["bench", *call])
            assert "Traceback" not in said.getvalue(), (name, said.getvalue())
        return codes


@given(changed())
@settings(max_examples=40, deadline=None)
def test_a_changed_file_is_shown_or_refused_by_every_verb(text: str) -> None:
    codes = read_by_every_verb(text)
    assert all(code in (0, 1, 2, 3) for code in codes.values()), codes


@pytest.mark.parametrize(
    ("factor", "accepted"),
    [(1e311, {2}), (1e-317, {2}), (1e13, {2}), (1e-10, {2}), (9e11, {0, 1, 3}), (1e-8, {0, 1, 3})],
)
def test_times_beyond_all_measuring_are_refused_and_those_at_the_edge_are_shown(
    factor: float, accepted: set[int]
) -> None:
    codes = read_by_every_verb(json.dumps(scaled(DOCUMENT, factor)))
    assert set(codes.values()) <= accepted, codes


def test_a_million_samples_are_refused_with_the_place_and_the_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["cases"][0]["figures"][0]["passes"][0]["samples"] = [0.001] * 10**6
    path = tmp_path / "many.json"
    path.write_text(json.dumps(document))
    assert main.run(["bench", "export", str(path), "--to", "junit"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "passes[0].samples: 1000000 items; at most 200000 are accepted" in said


def test_a_pass_without_samples_beside_one_that_has_some_is_drawn() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["cases"][0]["figures"][0]["passes"][0]["samples"] = []
    assert set(read_by_every_verb(json.dumps(document)).values()) <= {0, 1, 3}


def test_markdown_and_csv_show_parameters_that_are_no_numbers() -> None:
    from dataclasses import replace

    from firstlight.report.bench_csv import bench_csv
    from firstlight.report.bench_markdown import bench_markdown
    from firstlight.tables import load

    odd = replace(RUN, cases=tuple(
        replace(case, params=tuple((name, "²") for name, _ in case.params)) for case in RUN.cases
        if case.verdict is Verdict.OK
    ))  # fmt: skip
    assert "²" in bench_markdown(odd, load())
    assert "²" in bench_csv(odd)
