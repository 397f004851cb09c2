"""What sets the pace of a case, what a run of bench says of it, and how a whole profile of one reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.peaks import NO_PEAKS, peaks_named
from firstlight.bench.place import ASSUMED
from firstlight.errors import BadInput
from firstlight.profile import session
from firstlight.profile.children import Ended
from firstlight.profile.ncu import read_kernels
from firstlight.profile.result import Limit, Pace, Profile, Source, Value, Work
from firstlight.profile.subject import kind_by_counters, kind_of_case, limit_from_file
from firstlight.profile.tiers import SHIPPED, read_tiers
from firstlight.report.profile_text import profile_text, verdict_lines
from firstlight.tables import load

RUN = str(Path(__file__).parents[2] / "results/bench-h200-standard.json")
GEMM = "gemm/fp16/8192x8192x8192"
NAMES = (
    '"gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed","dram__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"dram__bytes.sum","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum","sm__cycles_active.sum"'
)
UNITS = '"ns","%","%","%","byte","",""'


@pytest.mark.parametrize(
    ("case_id", "kind"),
    [
        (GEMM, Pace.TENSOR),
        ("gemm/fp32/8192x8192x8192", Pace.VECTOR),
        ("bandwidth/copy/fp16/512MiB", Pace.MEMORY),
        ("softmax/fp16/32x12x512x512", Pace.MEMORY),
    ],
)
def test_the_counts_of_a_case_say_what_sets_its_pace(case_id: str, kind: Pace) -> None:
    [case] = [case for case in ALL_CASES(ASSUMED) if case.id == case_id]
    assert kind_of_case(case, peaks_named(load(), "h200-sxm"))[0] is kind
    if kind is not Pace.MEMORY:
        assert kind_of_case(case, NO_PEAKS)[0] is Pace.UNKNOWN


@pytest.mark.parametrize(
    ("dram", "tensor", "rest", "kind"),
    [
        (90.0, 0.0, 40.0, Pace.MEMORY),
        (20.0, 80.0, 85.0, Pace.TENSOR),
        (20.0, 5.0, 85.0, Pace.VECTOR),
        (20.0, None, 85.0, Pace.VECTOR),
        (None, 80.0, 85.0, Pace.UNKNOWN),
    ],
)
def test_the_busiest_unit_says_what_sets_the_pace_of_a_command(
    dram: float | None, tensor: float | None, rest: float, kind: Pace
) -> None:
    found = (Value("dram_pct", dram, ()), Value("tensor_pct", tensor, ()), Value("sm_pct", rest, ()))
    assert kind_by_counters(found)[0] is kind


def test_the_share_of_the_limit_comes_from_a_run_of_bench() -> None:
    limit = limit_from_file(RUN, GEMM)
    assert limit.tier in ("S", "A", "B")
    assert limit.pct is not None
    assert 50 < limit.pct <= 102
    assert RUN in limit.seen_in
    with pytest.raises(BadInput, match="was not measured there"):
        limit_from_file(RUN, "gemm/fp16/1x1x1")


def case_profile(row: str, limit: Limit, *, correct: bool = True) -> Profile:
    """A profile of the product as it would come of this one line of counters."""
    work = Work(
        GEMM, is_case=True, flops=1, least_bytes=402_653_184, kind=Pace.TENSOR, kind_from="told", correct=correct,
        correct_from="error 1e-4 of 2e-3 allowed",
    )  # fmt: skip
    kernels = read_kernels(f'"ID","Kernel Name",{NAMES}\n"","",{UNITS}\n"0","sm90_gemm",{row}\n')
    looked = session._Looked(Source.NCU, "ncu 2025", ("ncu",), "r", kernels, None, None, Ended(0, in_time=True))
    wanted = session.Wanted(read_tiers(SHIPPED))
    return session._finished(looked, work, wanted=wanted, limit=limit, device="NVIDIA H200", report="r.ncu-rep")


GOOD = '"1,500,000","88","90","20","805,306,368","0","300"'
FAST = Limit("A", 80.0, 1.6e-3, "run.json, sustained")


def test_a_good_product_reaches_the_highest_tier_and_says_so_first() -> None:
    profile = case_profile(GOOD, FAST)
    assert profile.reached == "T3"
    assert verdict_lines(profile) == ["T3, the highest tier"]
    text = profile_text(profile)
    assert "805.3 MB moved to and from memory, 402.7 MB at least: 2 times the least" in text
    assert "tier A: 1.6 ms is 80.0 % of the limit at its clock (run.json, sustained)" in text


def test_what_is_lacking_is_named_with_what_was_seen() -> None:
    idle = case_profile(GOOD.replace('"88"', '"40"').replace('"90"', '"41"'), FAST)
    assert verdict_lines(idle) == ["T1", "T2 lacks: tensor_pct >= 65 (saw 40 %)"]
    assert "nothing is busy for 60 % of the time" in profile_text(idle)
    slow = case_profile(GOOD, Limit("B", 60.0, 2e-3, "run.json"))
    assert verdict_lines(slow) == ["T2", "T3 lacks: limit_pct >= 75 (saw 60 %)"]
    untimed = case_profile(GOOD, Limit(None, None, None, "left out by --no-bench"))
    assert verdict_lines(untimed) == [
        "T3, the highest tier, as far as can be known", "not known: limit_pct >= 75 (left out by --no-bench)",
    ]  # fmt: skip


def test_a_wrong_result_is_said_before_everything() -> None:
    wrong = case_profile(GOOD, FAST, correct=False)
    assert wrong.reached == ""
    assert "the result is wrong" in verdict_lines(wrong)[0]
    assert verdict_lines(wrong)[1] == "no tier is reached"


def test_traffic_below_the_least_is_explained() -> None:
    profile = case_profile(GOOD.replace("805,306,368", "390,000,000"), FAST)
    assert any("still lay in the L2" in note for note in profile.notes)
