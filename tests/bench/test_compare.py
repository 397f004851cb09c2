"""Two runs compared: verdicts, causes, refusals, exit codes, and the command itself."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from firstlight.bench.compare import (
    Cause,
    Comparison,
    Strictness,
    compare_runs,
    exit_code,
)
from firstlight.bench.results import Bound, CaseResult, Regime, RunResult, Verdict, to_text
from firstlight.bench.second_look import needs_second_look, second_look_ids, with_second_look
from firstlight.bench.statistics import Change
from firstlight.cli.bench_compare import command
from firstlight.errors import BadInput
from tests.bench.recorded_runs import GPU, a_case, a_figure, a_run

SCHEMAS = Path(__file__).parents[2] / "src" / "firstlight" / "schemas"
STEADY = (1.000e-3, 1.002e-3, 0.998e-3)


def _scaled(factor: float) -> list[float]:
    return [median * factor for median in STEADY]


def _pair(base: CaseResult, new: CaseResult) -> Comparison:
    return compare_runs(a_run(base), a_run(new, name="run-b"))


def _changed(factor: float, **figure: Any) -> Comparison:
    return _pair(a_case("gemm/a", a_figure(STEADY)), a_case("gemm/a", a_figure(_scaled(factor), **figure)))


@pytest.mark.parametrize(
    ("factor", "change", "code"),
    [(1.0, Change.SAME, 0), (1.01, Change.SAME, 0), (1.08, Change.SLOWER, 1), (0.9, Change.FASTER, 0)],
)
def test_a_change_above_the_margin_is_seen_and_decides_the_exit_code(factor: float, change: Change, code: int) -> None:
    comparison = _changed(factor)
    [case] = comparison.cases
    assert case.change is change
    assert case.ratio == pytest.approx(factor)
    assert case.ci95 is not None
    assert case.ci95[0] < factor < case.ci95[1]
    assert exit_code(comparison, Strictness.LENIENT) == code


def test_the_margin_is_the_users() -> None:
    runs = [a_run(a_case("gemm/a", a_figure(_scaled(factor)))) for factor in (1.0, 1.016)]
    assert compare_runs(*runs).cases[0].change is Change.SAME
    assert compare_runs(*runs, margin=0.01).cases[0].change is Change.SLOWER


def test_noisy_passes_are_unclear_and_say_what_could_have_been_found() -> None:
    noisy = a_figure([1.0e-3, 1.08e-3, 0.93e-3])
    comparison = _pair(a_case("gemm/a", noisy), a_case("gemm/a", noisy))
    [case] = comparison.cases
    assert case.change is Change.UNCLEAR
    assert case.smallest is not None
    assert case.smallest > 0.1
    assert exit_code(comparison, Strictness.LENIENT) == exit_code(comparison, Strictness.STRICT) == 3


def test_two_passes_give_no_verdict_however_large_the_change() -> None:
    quick = [a_case("gemm/a", a_figure([time, time * 1.0001])) for time in (1e-3, 2e-3)]
    [case] = _pair(*quick).cases
    assert case.change is Change.UNCLEAR
    assert "a verdict needs 3 a side" in case.note


def test_a_kernel_below_the_timers_resolution_has_a_wider_margin() -> None:
    """8 microseconds, read to half a microsecond: 4 % is less than a tick and no change."""
    short = [a_case("gemm/a", a_figure([time * 8e-6] * 3)) for time in (1.0, 1.04)]
    assert _pair(*short).cases[0].change is Change.SAME
    graphs = [replace(case, graph_calls=100) for case in short]
    assert _pair(*graphs).cases[0].change is Change.SLOWER


@pytest.mark.parametrize(
    ("sm_mhz", "cause", "cycles"),
    [
        ((1755.0, 1755.0, 1755.0), Cause.SOFTWARE, 1.10),
        ((1755 / 1.10, 1755 / 1.10, 1755 / 1.10), Cause.CLOCK, 1.0),
        ((1755.0, None, 1755.0), Cause.NOT_CERTAIN, None),
        ((1755.0, 1595.0, 1500.0), Cause.NOT_CERTAIN, 1.01),
    ],
    ids=["the same clock", "a lower clock", "a clock that is not known", "clocks all over"],
)
def test_clock_and_software_are_told_apart_in_cycles(
    sm_mhz: tuple[float | None, ...], cause: Cause, cycles: float | None
) -> None:
    [case] = _changed(1.10, sm_mhz=sm_mhz).cases
    assert case.change is Change.SLOWER
    assert case.cause is cause
    assert case.cycle_ratio == (None if cycles is None else pytest.approx(cycles, abs=0.01))


@pytest.mark.parametrize(
    ("mem_mhz", "cause"), [(3201.0, Cause.MEMORY), (2619.0, Cause.MEMORY_CLOCK), (None, Cause.NOT_CERTAIN)]
)
def test_a_case_bound_by_memory_is_not_blamed_on_the_sm_clock(mem_mhz: float | None, cause: Cause) -> None:
    base = a_case("stream/add", a_figure(STEADY, bound=Bound.MEMORY))
    new = a_case("stream/add", a_figure(_scaled(1.2), bound=Bound.MEMORY, sm_mhz=(1400.0,) * 3, mem_mhz=mem_mhz))
    assert _pair(base, new).cases[0].cause is cause


def test_host_times_and_links_have_causes_of_their_own() -> None:
    host = [a_case("resnet/eager", a_figure(_scaled(factor)), mode="host") for factor in (1.0, 1.6)]
    link = [a_case("link/h2d", a_figure(_scaled(factor), bound=Bound.LINK)) for factor in (1.0, 1.3)]
    assert _pair(*host).cases[0].cause is Cause.HOST
    assert _pair(*link).cases[0].cause is Cause.LINK


def test_burst_and_sustained_are_never_mixed() -> None:
    both = (a_figure(STEADY), a_figure(_scaled(1.3), regime=Regime.SUSTAINED))
    comparison = _pair(a_case("gemm/a", *both), a_case("gemm/a", *reversed(both)))
    assert [(case.regime, case.change) for case in comparison.cases] == [
        (Regime.BURST, Change.SAME),
        (Regime.SUSTAINED, Change.SAME),
    ]
    apart = _pair(a_case("gemm/a", both[0]), a_case("gemm/a", both[1]))
    assert apart.cases == ()
    assert "different regimes" in apart.lost[0].reason
    assert exit_code(apart, Strictness.LENIENT) == 3


REFUSED = {
    "GPU model": {"gpu": replace(GPU, name="NVIDIA H100 80GB HBM3")},
    "ECC mode": {"gpu": replace(GPU, ecc=False)},
    "MIG mode": {"gpu": replace(GPU, mig=True)},
    "number of SMs": {"gpu": replace(GPU, sms=66)},
    "data": {"case": {"data": "zeros"}},
    "cache state": {"case": {"cache": "warm"}},
    "FLOP model": {"case": {"flops_model": "gemm-mnk"}},
    "FLOP count": {"case": {"flops": 1}},
    "dtype": {"case": {"dtype": "bf16"}},
    "parameters": {"case": {"params": (("m", "4096"),)}},
    "mode": {"case": {"mode": "host"}},
}


@pytest.mark.parametrize("meaning", REFUSED)
def test_runs_that_ask_different_questions_are_refused(meaning: str) -> None:
    change: Any = REFUSED[meaning]
    case = a_case("gemm/a", a_figure(STEADY))
    new = a_run(replace(case, **change.get("case", {})), gpu=change.get("gpu", GPU))
    comparison = compare_runs(a_run(case), new)
    assert len(comparison.refused) == 1
    assert meaning in comparison.refused[0]
    assert comparison.cases == ()
    assert exit_code(comparison, Strictness.LENIENT) == 3


def test_runs_without_a_common_case_are_refused() -> None:
    comparison = _pair(a_case("gemm/a", a_figure(STEADY)), a_case("gemm/b", a_figure(STEADY)))
    assert comparison.refused == ("no case is in both runs",)


def test_times_of_another_cpu_are_refused_for_cases_of_the_cpu() -> None:
    case = a_case("gemm/cpu", a_figure(STEADY), gpu=-1)
    base, new = a_run(case), a_run(case)
    new = replace(new, host=replace(new.host, cpu="Intel Xeon"))
    assert compare_runs(base, new).refused == ("CPU model is AMD EPYC 9554 in the base and Intel Xeon in the new run",)


def test_an_ecc_mode_that_is_not_known_refuses_nothing() -> None:
    case = a_case("gemm/a", a_figure(STEADY))
    assert compare_runs(a_run(case), a_run(case, gpu=replace(GPU, ecc=None))).refused == ()


def test_driver_torch_power_limit_and_host_are_labels() -> None:
    case = a_case("gemm/a", a_figure(STEADY))
    base, new = a_run(case), a_run(case, torch="2.9.1+cu128", gpu=replace(GPU, power_limit_w=500.0))
    new = replace(new, host=replace(new.host, cpu="Intel Xeon"), software=replace(new.software, driver="570.133.20"))
    found = {label.what: (label.base, label.new) for label in compare_runs(base, new).labels}
    assert found == {
        "driver": ("580.159.04", "570.133.20"),
        "torch": ("2.11.0+cu130", "2.9.1+cu128"),
        "host cpu": ("AMD EPYC 9554", "Intel Xeon"),
        "power_limit_w": ("700", "500"),
    }


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.INVALID, Verdict.IMPOSSIBLE])
def test_a_case_that_broke_in_the_new_run_fails_the_comparison(verdict: Verdict) -> None:
    good = a_case("gemm/a", a_figure(STEADY))
    broken = replace(good, verdict=verdict, reason="NaN in the result", figures=(), headline=None)
    comparison = _pair(good, broken)
    assert [lost.reason for lost in comparison.broken] == ["NaN in the result"]
    assert exit_code(comparison, Strictness.LENIENT) == 1


def test_a_case_that_was_broken_before_or_is_skipped_now_is_only_named() -> None:
    good = a_case("gemm/a", a_figure(STEADY))
    broken = replace(good, verdict=Verdict.INVALID, reason="throttled", figures=(), headline=None)
    other = a_case("add/a", a_figure(STEADY))
    before, now = (
        compare_runs(a_run(first, other), a_run(second, other, name="run-b"))
        for first, second in ((broken, good), (good, a_case("gemm/a")))
    )
    assert before.lost[0].reason == "in the base: throttled"
    for comparison in (before, now):
        assert exit_code(comparison, Strictness.LENIENT) == 0
        assert exit_code(comparison, Strictness.STRICT) == 1
    assert _pair(a_case("gemm/a"), a_case("gemm/a")).lost == ()


def test_cases_of_one_run_alone_are_listed() -> None:
    cases = [a_case(f"gemm/{name}", a_figure(STEADY)) for name in "abc"]
    comparison = compare_runs(a_run(*cases[:2]), a_run(*cases[1:]))
    assert (comparison.only_in_base, comparison.only_in_new) == (("gemm/a",), ("gemm/c",))


def test_a_change_that_does_not_hold_over_the_suite_is_unclear() -> None:
    """A p-value of half a percent among forty cases is what chance gives."""
    base = [a_case(f"gemm/{index}", a_figure(STEADY)) for index in range(40)]
    wobbly = a_figure([1.018e-3, 1.052e-3, 1.037e-3])
    new = [a_case("gemm/0", wobbly), *base[1:]]
    alone = compare_runs(a_run(base[0]), a_run(new[0]))
    assert alone.cases[0].change is Change.SLOWER
    assert alone.cases[0].p_value is not None
    assert 0.002 < alone.cases[0].p_value < 0.05
    first = compare_runs(a_run(*base), a_run(*new)).cases[0]
    assert first.change is Change.UNCLEAR
    assert first.cause is None
    assert first.note == "slower, but not surely so among so many cases"


def test_a_family_has_the_geometric_mean_of_its_ratios() -> None:
    base = [a_case(f"gemm/{index}", a_figure(STEADY)) for index in range(2)] + [a_case("conv/a", a_figure(STEADY))]
    new = [a_case(f"gemm/{index}", a_figure(_scaled(factor))) for index, factor in enumerate((1.10, 1 / 1.10))]
    families = compare_runs(a_run(*base), a_run(*new, base[2])).families
    assert [(family.family, family.figures) for family in families] == [("gemm", 2), ("conv", 1)]
    assert families[0].ratio == pytest.approx(1.0)
    assert families[0].ci95 is not None
    assert families[0].ci95[0] < 1 < families[0].ci95[1]


def test_a_second_look_is_asked_for_everything_but_what_is_the_same() -> None:
    noisy = a_figure([1.0e-3, 1.08e-3, 0.93e-3])
    eager = a_case("resnet/eager", noisy, mode="host")
    base = [
        a_case("add/same", a_figure(STEADY)),
        a_case("gemm/noisy", noisy),
        a_case("conv/slow", a_figure(STEADY)),
        eager,
    ]
    new = [base[0], base[1], a_case("conv/slow", a_figure(_scaled(1.2))), eager]
    comparison = compare_runs(a_run(*base), a_run(*new))
    assert [case.id for case in needs_second_look(comparison)] == ["conv/slow", "gemm/noisy"]
    assert comparison.count(Change.UNCLEAR) == 2  # five passes more would not clear up the eager one
    assert [case.id for case in comparison.unsettled] == ["gemm/noisy"]


def test_a_second_look_takes_as_many_cases_as_fit_its_time_changed_ones_first() -> None:
    """57.1 s for 3 passes of 3 cases: five passes of one are 32 s, so that one fits into a minute."""
    base = [a_case(f"gemm/{name}", a_figure(STEADY)) for name in "abc"]
    new = [base[0], *(a_case(f"gemm/{name}", a_figure(_scaled(1.2))) for name in "bc")]
    first, second = a_run(*base), a_run(*new)
    comparison = compare_runs(first, second)
    assert second_look_ids(comparison, second) == ("gemm/b",)
    hurried = replace(second, run=replace(second.run, gpu_seconds=5.0))
    assert second_look_ids(comparison, hurried) == ("gemm/b", "gemm/c")
    assert second_look_ids(compare_runs(first, first), first) == ()


@pytest.mark.parametrize(
    ("first", "second", "final"),
    [
        (Change.UNCLEAR, Change.SLOWER, Change.SLOWER),
        (Change.UNCLEAR, Change.SAME, Change.SAME),
        (Change.SLOWER, Change.SLOWER, Change.SLOWER),
        (Change.SLOWER, Change.SAME, Change.UNCLEAR),
        (Change.SLOWER, Change.FASTER, Change.UNCLEAR),
        (Change.FASTER, Change.UNCLEAR, Change.UNCLEAR),
        (Change.SAME, Change.SLOWER, Change.SAME),
    ],
)
def test_a_second_look_settles_what_was_unclear_and_confirms_what_changed(
    first: Change, second: Change, final: Change
) -> None:
    one = _changed(1.0)
    looks = [replace(one, cases=(replace(one.cases[0], change=change),)) for change in (first, second)]
    assert with_second_look(*looks).cases[0].change is final


def test_a_runs_are_quiet() -> None:
    """Sixty cases, 0.5 % between passes, the same code three times over: not one verdict of a change."""
    source = random.Random(8)

    def run() -> RunResult:
        return a_run(
            *(
                a_case(f"gemm/{index}", a_figure([1e-3 * source.lognormvariate(0, 0.005) for _ in range(3)]))
                for index in range(60)
            )
        )

    for _ in range(3):
        comparison = compare_runs(run(), run())
        assert comparison.count(Change.SLOWER) + comparison.count(Change.FASTER) == 0
        assert comparison.count(Change.SAME) >= 58


# The command


def _written(tmp_path: Path, **runs: RunResult) -> list[str]:
    for name, run in runs.items():
        (tmp_path / f"{name}.json").write_text(to_text(run))
    return [str(tmp_path / f"{name}.json") for name in runs]


def _invoked(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_the_text_says_what_changed_how_sure_it_is_and_whose_doing_it_is(tmp_path: Path) -> None:
    base = a_run(a_case("gemm/fp16/8192", a_figure(STEADY)), a_case("add/512MiB", a_figure(STEADY)))
    new = a_run(a_case("gemm/fp16/8192", a_figure(_scaled(1.1))), base.cases[1], torch="2.12.0", name="run-b")
    files = _written(tmp_path, base=base, new=new)
    result = _invoked(*files)
    assert result.exit_code == 1
    assert result.output == (
        "base     2026-11-15T01:02:03Z  NVIDIA H200, torch 2.11.0+cu130, 3 passes\n"
        "new      2026-11-15T01:02:03Z  NVIDIA H200, torch 2.12.0, 3 passes\n"
        "differs  torch: 2.11.0+cu130 -> 2.12.0\n"
        "\n"
        "slower\n"
        "  gemm/fp16/8192 [burst]  1 ms -> 1.1 ms  +10.0 % (+8.4 to +11.6 %)\n"
        "      software: another number of clock cycles; in cycles +10.0 %\n"
        "\n"
        "families, new time over base time (95 % interval)\n"
        "  gemm          burst      1.100 (1.095 to 1.105), 1 figure\n"
        "  add           burst      1.000 (0.995 to 1.005), 1 figure\n"
        "\n"
        "2 figures: 1 slower, 0 faster, 1 same, 0 unclear; margin 3 %\n"
        "exit code 1: slower than the base\n"
        "\n"
        "A second look confirms changes and settles what is unclear:\n"
        "  firstlight bench --effort rigorous --only gemm/fp16/8192 --out again.json\n"
        f"  firstlight bench compare {files[0]} {files[1]} --again again.json\n"
    )


def test_a_refusal_is_said_with_its_reason_and_exit_code_3(tmp_path: Path) -> None:
    case = a_case("gemm/a", a_figure(STEADY))
    result = _invoked(*_written(tmp_path, a=a_run(case), b=a_run(case, gpu=replace(GPU, name="NVIDIA B200"))))
    assert result.exit_code == 3
    assert "GPU model of GPU 0 is NVIDIA H200 in the base and NVIDIA B200 in the new run" in result.output


@pytest.mark.parametrize("factor", [1.0, 1.1, 0.9])
def test_the_document_fits_the_shipped_schema(factor: float, tmp_path: Path) -> None:
    runs = {
        name: a_run(a_case("gemm/a", a_figure(_scaled(scale))), name=name)
        for name, scale in (("a", 1.0), ("b", factor))
    }
    result = _invoked(*_written(tmp_path, **runs), "--json")
    document = json.loads(result.output)
    assert next(iter(document)) == "schema"
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "compare-1.json").read_text())).validate(document)
    assert document["exit_code"] == result.exit_code
    assert sum(document["counts"].values()) == len(document["cases"]) == 1
    assert (document["base"]["id"], document["new"]["id"]) == ("a", "b")


def test_a_refused_comparison_is_a_document_too(tmp_path: Path) -> None:
    runs = {"a": a_run(a_case("gemm/a", a_figure(STEADY))), "b": a_run(a_case("gemm/b", a_figure(STEADY)))}
    document = json.loads(_invoked(*_written(tmp_path, **runs), "--json").output)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "compare-1.json").read_text())).validate(document)
    assert (document["comparable"], document["exit_code"]) == (False, 3)


def test_a_second_run_can_be_given_to_settle_what_was_unclear(tmp_path: Path) -> None:
    noisy = a_figure([1.0e-3, 1.08e-3, 0.93e-3])
    base = a_run(a_case("gemm/a", a_figure(STEADY)))
    files = _written(tmp_path, base=base, new=a_run(a_case("gemm/a", noisy)), again=base)
    unclear = _invoked(*files[:2]).output
    assert "1 unclear" in unclear
    assert "--only gemm/a --out again.json" in unclear
    settled = _invoked(*files[:2], "--again", files[2], "--strict")
    assert settled.exit_code == 0
    assert "1 same" in settled.output
    assert "second look" not in settled.output


@pytest.mark.parametrize("margin", ["0", "3 percent", "-1%", "100%", "nan", ""])
def test_a_margin_that_makes_no_sense_is_refused(margin: str, tmp_path: Path) -> None:
    result = _invoked(*_written(tmp_path, a=a_run(), b=a_run()), "--margin", margin)
    assert isinstance(result.exception, BadInput)
    assert "accepted: a share above 0" in str(result.exception)


def test_margins_may_be_written_both_ways(tmp_path: Path) -> None:
    files = _written(
        tmp_path, **{name: a_run(a_case("gemm/a", a_figure(_scaled(each)))) for name, each in (("a", 1), ("b", 1.08))}
    )
    assert [_invoked(*files, "--margin", margin).exit_code for margin in ("10%", "0.1", "5 %", "0.05")] == [0, 0, 1, 1]
