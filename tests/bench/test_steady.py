"""Figures that disagree with themselves: no verdict, no 'no regression', no 'nothing stands out'."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firstlight.bench.compare import Strictness, compare_runs, exit_code
from firstlight.bench.judgement import Tone, judged
from firstlight.bench.outliers import outliers
from firstlight.bench.results import CaseResult, Health, RunResult, to_text
from firstlight.bench.second_look import needs_second_look, repeated
from firstlight.bench.statistics import Change
from firstlight.bench.steady import NOT_STEADY, PUT_OFF, unsteady
from firstlight.cli.bench_compare import command
from firstlight.report.bench_markdown import bench_markdown
from firstlight.report.bench_normal import normal_lines
from firstlight.report.bench_text import bench_text
from firstlight.report.html.cases import cases_section
from firstlight.report.html.comparison import comparison_section
from firstlight.tables import Tables, load
from tests.bench.recorded_runs import a_case, a_figure, a_run
from tests.report.runs_to_show import processor_run

STEADY = (1.000e-3, 1.002e-3, 0.998e-3)
WILD = (0.08e-3, 7.84e-3, 0.11e-3)


def a_user_case(medians: tuple[float, ...], **changes: Any) -> CaseResult:
    return a_case("user/axpy", a_figure(medians), gpu=-1, peak="none", **changes)


def on_processor(*cases: CaseResult, name: str = "run-a", argv: tuple[str, ...] = ("bench",)) -> RunResult:
    run = a_run(*cases, name=name)
    return replace(run, gpus=(), run=replace(run.run, argv=argv))


SHAKY: dict[str, tuple[tuple[float, ...], dict[str, Any], str]] = {
    "a flag of the warm-up": (STEADY, {"flags": (NOT_STEADY,)}, "had not settled"),
    "cores held by others": (STEADY, {"flags": (PUT_OFF,)}, "other processes held its cores"),
    "passes that differ": ((1e-3, 1.8e-3, 1e-3), {}, "its passes lie 80 % apart"),
    "passes far apart": (WILD, {}, "its slowest pass took 98 times as long as its fastest"),
}


@pytest.mark.parametrize("kind", SHAKY)
@pytest.mark.parametrize("side", ["base", "new"])
def test_an_unsteady_figure_gets_no_verdict_however_large_the_change(kind: str, side: str) -> None:
    medians, changes, words = SHAKY[kind]
    shaky = a_user_case(tuple(2 * median for median in medians), **changes)
    calm = a_user_case(STEADY)
    runs = (shaky, calm) if side == "base" else (calm, shaky)
    comparison = compare_runs(on_processor(runs[0]), on_processor(runs[1], name="run-b"))
    [case] = comparison.cases
    assert case.change is Change.UNCLEAR
    assert words in (case.unsteady_base if side == "base" else case.unsteady_new)
    assert exit_code(comparison, Strictness.LENIENT) == 3
    assert bool(needs_second_look(comparison)) is (side == "new")  # what is wrong with the base stays wrong


def test_a_steady_figure_that_takes_twice_as_long_is_found_beside_unsteady_ones() -> None:
    twice = tuple(2 * median for median in STEADY)
    base, new = (
        on_processor(a_user_case(medians), a_case("user/wild", a_figure(WILD), gpu=-1, peak="none"), name=name)
        for name, medians in (("run-a", STEADY), ("run-b", twice))
    )
    comparison = compare_runs(base, new)
    assert [case.change for case in comparison.cases] == [Change.SLOWER, Change.UNCLEAR]
    assert [(family.figures, round(family.ratio, 3)) for family in comparison.families] == [(1, 2.0)]
    assert exit_code(comparison, Strictness.LENIENT) == 1


@pytest.mark.parametrize("medians", [STEADY, WILD, (1e-3,)], ids=["steady", "unsteady", "of one pass"])
def test_a_file_compared_with_itself_is_the_same(medians: tuple[float, ...], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(to_text(on_processor(a_user_case(medians, flags=(NOT_STEADY,)))))
    result = CliRunner().invoke(command, [str(path), str(path), "--strict"])
    assert result.exit_code == 0
    assert "1 figure: 0 slower, 0 faster, 1 same, 0 unclear" in result.output
    assert "both files hold the same run, so nothing differs" in result.output


def test_nothing_told_is_not_called_no_regression_and_the_way_out_repeats_all_that_was_given(tmp_path: Path) -> None:
    argv = ("bench", "own/my cases.py", "--effort=quick", "--only=user", "--device=cpu", "--strict")
    busy = Health(contention=("while it was timed, others used 1.4 of 2 cores",))
    runs = {
        "base": on_processor(a_user_case(STEADY), argv=argv),
        "new": replace(on_processor(a_user_case(WILD), name="run-b", argv=argv), health=busy),
    }
    paths = [tmp_path / f"{name}.json" for name in runs]
    for path, run in zip(paths, runs.values(), strict=True):
        path.write_text(to_text(run))
    result = CliRunner().invoke(command, [*map(str, paths), "--margin", "5%", "--strict"])
    assert result.exit_code == 3
    assert "no regression" not in result.output
    assert "exit code 3: no verdict: no figure is clear\n" in result.output
    assert "         while it was timed, others used 1.4 of 2 cores\n" in result.output
    assert result.output.endswith(
        "  firstlight bench 'own/my cases.py' --device=cpu --strict"
        " --effort rigorous --only user/axpy --out again.json\n"
        f"  firstlight bench compare {paths[0]} {paths[1]} --margin 5% --strict --again again.json\n"
    )


def test_a_margin_that_could_be_told_is_offered_where_processes_differ_too_much(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        path.write_text(to_text(on_processor(a_user_case(STEADY), name=path.stem)))
    result = CliRunner().invoke(command, [*map(str, paths)])
    assert result.exit_code == 3
    assert result.output.endswith(f"  firstlight bench compare {paths[0]} {paths[1]} --margin 55%\n")
    assert CliRunner().invoke(command, [*map(str, paths), "--margin", "55%"]).exit_code == 0


@pytest.mark.parametrize("word", ["$(reboot)", "; rm -rf x", "--out=/etc/passwd", "--device=cpu; ls", "-c.py"])
def test_a_command_repeats_nothing_of_a_file_but_what_bench_writes(word: str) -> None:
    run = on_processor(a_user_case(STEADY), argv=("bench", word, "--device=cpu"))
    assert repeated(run, effort="rigorous", only=(), out="x.json") == (
        "firstlight", "bench", "--device=cpu", "--effort", "rigorous", "--out", "x.json"
    )  # fmt: skip


def test_a_report_of_unsteady_cases_alone_does_not_say_that_nothing_stands_out() -> None:
    said = judged(on_processor(a_user_case(WILD)), load())
    assert said.sentence == "This processor was measured, but no figure is steady; 1 thing to look at."
    assert said.tone is Tone.WARN
    assert said.things[0].title == "1 of 1 case not steady"
    calm = judged(on_processor(a_user_case(STEADY)), load())
    assert "nothing stands out" in calm.sentence


def test_no_product_that_is_unsteady_says_whether_a_card_is_normal() -> None:
    product = a_case("gemm/bf16/8192", a_figure(STEADY), peak="bf16", dtype="bf16")
    assert list(normal_lines(a_run(product), load()))
    assert judged(a_run(product), load()).bests
    shaky = a_run(replace(product, flags=(NOT_STEADY,)))
    assert not list(normal_lines(shaky, load()))
    assert not judged(shaky, load()).bests
    assert "no figure is steady" in judged(shaky, load()).sentence


def test_an_unsteady_case_makes_no_gpu_the_odd_one_out() -> None:
    cases = [a_case("gemm/a", a_figure(tuple(t * m for m in STEADY)), gpu=gpu) for gpu, t in enumerate((1, 1, 1, 1.4))]
    assert [finding.gpu for finding in outliers(cases)] == [3]
    assert outliers([*cases[:3], replace(cases[3], flags=(NOT_STEADY,))]) == ()


def test_the_way_out_of_an_unsteady_base_ends_in_a_verdict(tmp_path: Path) -> None:
    other = a_case("user/other", a_figure(STEADY), gpu=-1, peak="none")
    runs = {
        "base.json": on_processor(a_user_case(WILD), other),
        "new.json": on_processor(a_user_case(STEADY), other, name="run-b"),
        "base-again.json": on_processor(a_user_case(STEADY), name="run-c"),  # of what the advice names with --only
    }
    for name, run in runs.items():
        (tmp_path / name).write_text(to_text(run))
    base, new = str(tmp_path / "base.json"), str(tmp_path / "new.json")
    said = CliRunner().invoke(command, [base, new, "--margin", "60%"]).stdout
    measure, compare = said.partition("The base is not steady.")[2].split("\n")[1:3]
    assert measure.endswith("--only user/axpy --out base-again.json")
    assert compare.split() == f"firstlight bench compare base-again.json {new} --margin 60%".split()
    after = CliRunner().invoke(command, [str(tmp_path / "base-again.json"), *compare.split()[4:]])
    assert after.exit_code == 0, after.stdout
    assert "no regression" in after.stdout


def test_the_way_out_of_two_unsteady_runs_measures_both(tmp_path: Path) -> None:
    runs = {
        "base.json": on_processor(a_user_case(WILD)),
        "new.json": on_processor(a_user_case(WILD), name="run-b"),
        "base-again.json": on_processor(a_user_case(STEADY), name="run-c"),
        "new-again.json": on_processor(a_user_case(STEADY), name="run-d"),
    }
    for name, run in runs.items():
        (tmp_path / name).write_text(to_text(run))
    said = (
        CliRunner().invoke(command, [str(tmp_path / "base.json"), str(tmp_path / "new.json"), "--margin", "60%"]).stdout
    )
    first, second, compare = said.partition("Neither run is steady.")[2].split("\n")[1:4]
    assert first.endswith("--only user/axpy --out base-again.json")
    assert second.endswith("--only user/axpy --out new-again.json")
    assert compare.split() == ["firstlight", "bench", "compare", "base-again.json", "new-again.json", "--margin", "60%"]
    after = CliRunner().invoke(command, [*(str(tmp_path / each) for each in list(runs)[2:]), "--margin", "60%"])
    assert "no regression" in after.stdout


@pytest.mark.parametrize("shown", [bench_text, bench_markdown, lambda run, tables: cases_section(run)])
def test_cores_that_others_held_and_a_wide_spread_are_said_in_words(shown: Callable[[RunResult, Tables], str]) -> None:
    figure = a_figure(STEADY)
    wide = replace(figure, time_s=replace(figure.time_s, ci95=(0.0, 0.5), ci_reached=False))
    text = shown(on_processor(a_case("user/axpy", wide, gpu=-1, peak="none", flags=(PUT_OFF,))), load())
    assert "other processes held its cores" in text
    assert "put off" not in text
    assert "over 100 % (wide)" in text


@pytest.mark.parametrize("shown", [bench_text, lambda run, tables: cases_section(run)])
def test_why_a_figure_is_not_steady_is_said_once(shown: Callable[[RunResult, Tables], str]) -> None:
    text = shown(on_processor(a_user_case(WILD, flags=(NOT_STEADY,))), load())
    assert text.count("not steady") == 1
    assert "not steady: its slowest pass took 98 times as long as its fastest" in text


def test_the_page_names_no_change_of_what_is_not_steady() -> None:
    """53.58 us before and 53.60 us after were '+430.2 %', by the passes that other processes held up."""
    base, new = on_processor(a_user_case(STEADY)), on_processor(a_user_case(WILD), name="run-b")
    page = comparison_section(compare_runs(base, new), base, new, place=0)
    assert "unclear</span>" in page
    assert not re.search(r"[+-]\d+\.\d %", page)


def test_the_screen_of_a_processor_has_no_columns_of_limits() -> None:
    text = bench_text(processor_run(), load())
    assert "of limit" not in text
    assert "tier" not in text
    assert " -  " not in text
    assert "of limit" in bench_text(on_processor(a_user_case(STEADY)), load())  # it has a limit


def test_the_shipped_run_of_an_h200_has_few_unsteady_figures() -> None:
    """The bounds were taken from it: three eager or pageable cases, by their warm-up."""
    from firstlight.bench.results import read_run

    run = read_run(str(Path(__file__).parents[2] / "results" / "bench-h200-standard.json"))
    found = [case.id for case in run.cases for figure in case.figures if unsteady(case, figure)]
    assert len(found) == 3
    assert all("pageable" in name or "eager" in name for name in found)
