"""Three ceilings, tiers, and results that cannot be true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.bench.attention_counts import AttentionShape, attention
from firstlight.bench.limits import (
    Achieved,
    Band,
    Clocks,
    Timed,
    achieved_of,
    band_of,
    impossible_reasons,
    limit_of,
    tier_of,
)
from firstlight.bench.operator_counts import ConvShape, Work, add, conv2d, gemm, layernorm, transfer
from firstlight.bench.peaks import NO_PEAKS, Peaks, find_peaks, peaks_named, peaks_of
from firstlight.bench.results import Bound, LimitResult, Rate, Verdict
from firstlight.tables import load
from tests.bench.recorded_runs import GPU, a_case, a_figure

TABLES = load()
H200 = peaks_of(GPU, TABLES)
H100 = peaks_named(TABLES, "h100-sxm")
GEMM = gemm(8192, 8192, 8192, in_bytes=2, out_bytes=2)
CAUSAL = attention(AttentionShape.square(16, 96, seq=4096, head_dim=128), element_bytes=2, mask="causal")
NOTHING = Achieved()


def _limit(timed: Timed, peaks: Peaks, **clocks: float) -> LimitResult:
    return limit_of(timed, peaks, clocks=Clocks(**clocks), achieved=NOTHING)


def test_the_three_ceilings_of_a_product_on_an_h200() -> None:
    limit = limit_of(
        Timed(GEMM, "fp16", 1.4e-3),
        H200,
        clocks=Clocks(sm_mhz=1755.0, mem_mhz=3201.0),
        achieved=Achieved((("fp16", 800.0),), 4300.0),
    )
    assert limit.bound is Bound.COMPUTE
    assert limit.peaks == "db:h200-sxm"
    assert limit.t_spec_s == pytest.approx(1.1113e-3, rel=1e-3)
    assert limit.pct_spec == pytest.approx(79.4, abs=0.1)
    assert limit.pct_clock == pytest.approx(100 * GEMM.flops / (132 * 4096 * 1755e6) / 1.4e-3)
    assert limit.pct_max_clock == pytest.approx(73.4, abs=0.1)
    assert limit.pct_achieved == pytest.approx(98.2, abs=0.1)


@pytest.mark.parametrize(
    ("work", "peak", "bound", "h200_ms"),
    [
        (GEMM, "fp16", Bound.COMPUTE, 1.1113),
        (gemm(8192, 8192, 8192, in_bytes=4, out_bytes=4), "tf32", Bound.COMPUTE, 2.2226),
        (gemm(8192, 8192, 8192, in_bytes=8, out_bytes=8), "fp64", Bound.COMPUTE, 16.4352),
        (CAUSAL, "fp16", Bound.COMPUTE, 6.6694),
        (conv2d(ConvShape(8, 3, 64, 512, 512, kernel=7, padding=3), element_bytes=4), "tf32", Bound.MEMORY, 0.1171),
        (layernorm(16384, 4096, element_bytes=2), "bandwidth", Bound.MEMORY, 0.0559),
        (add(2**28, element_bytes=2), "bandwidth", Bound.MEMORY, 0.3355),
    ],
)  # fmt: skip
def test_the_known_limits_of_an_h200(work: Work, peak: str, bound: Bound, h200_ms: float) -> None:
    limit = _limit(Timed(work, peak, 1.0), H200)
    assert limit.bound is bound
    assert limit.t_spec_s is not None
    assert limit.t_spec_s * 1e3 == pytest.approx(h200_ms, rel=2e-3)


def test_a_launch_floor_above_both_roofs_is_the_bound() -> None:
    tiny = gemm(64, 64, 64, in_bytes=2, out_bytes=2)
    assert _limit(Timed(tiny, "fp16", 5e-6, launch_floor_s=2e-6), H200).bound is Bound.LAUNCH


def test_a_link_is_held_against_its_own_rate() -> None:
    limit = _limit(Timed(transfer(1_048_576_000), "link", 42.89e-3, link_gbps=63.0), NO_PEAKS)
    assert limit.bound is Bound.LINK
    assert limit.pct_spec == pytest.approx(38.8, abs=0.1)


def test_a_gpu_without_peaks_still_gets_the_achieved_ceiling() -> None:
    limit = limit_of(
        Timed(GEMM, "fp16", 2e-3), NO_PEAKS, clocks=Clocks(1700.0), achieved=Achieved((("fp16", 600.0),), 1000.0)
    )
    assert (limit.peaks, limit.pct_spec, limit.pct_clock) == ("none", None, None)
    assert limit.pct_achieved == pytest.approx(91.6, abs=0.1)
    assert tier_of(limit, None) == "S"


def test_without_any_ceiling_there_is_no_percentage_no_bound_and_no_tier() -> None:
    limit = _limit(Timed(GEMM, "fp16", 2e-3), NO_PEAKS)
    assert limit.bound is Bound.NONE
    assert limit.pct_achieved is None
    assert tier_of(limit, 0.1) is None
    assert impossible_reasons(Timed(GEMM, "fp16", 1e-9), NO_PEAKS, clocks=Clocks()) == ()


def test_an_estimated_gpu_has_a_clock_ceiling_but_no_datasheet() -> None:
    unknown = find_peaks(
        TABLES, "NVIDIA H800", capability="9.0", sms=132, clocks_mhz=(1980.0, 2619.0), mem_bus_bits=5120
    )
    limit = _limit(Timed(GEMM, "fp16", 1.4e-3), unknown, sm_mhz=1755.0)
    assert limit.peaks == "estimated:9.0"
    assert limit.pct_spec is None
    assert limit.pct_clock is not None


def test_the_careless_causal_count_is_above_the_ceiling_and_the_honest_one_is_not() -> None:
    careless = replace(CAUSAL, flops=CAUSAL.dense_flops)
    [reason] = impossible_reasons(Timed(careless, "fp16", 12.27e-3), H100, clocks=Clocks())
    assert reason == (
        "1075.3 TFLOPS is 100.4 % of the fp16 ceiling at the card's highest clock (1070.5 TFLOPS at 1980 MHz)"
    )
    assert impossible_reasons(Timed(CAUSAL, "fp16", 12.27e-3), H100, clocks=Clocks()) == ()


def test_two_percent_above_the_measured_clock_is_refused_and_a_little_less_is_not() -> None:
    ceiling = H200.tflops_at("fp16", 1500.0)
    assert ceiling is not None
    for share, count in ((1.019, 0), (1.021, 1)):
        time_s = GEMM.flops / (ceiling * share * 1e12)
        reasons = impossible_reasons(Timed(GEMM, "fp16", time_s), H200, clocks=Clocks(1500.0, 1500.0))
        assert len(reasons) == count, share
    assert "the clock measured during the case" in reasons[0]


def test_the_highest_clock_of_the_case_judges_and_not_the_median_of_a_short_one() -> None:
    ceiling = H200.tflops_at("fp16", 1900.0)
    assert ceiling is not None
    timed = Timed(GEMM, "fp16", GEMM.flops / (ceiling * 1e12))
    assert impossible_reasons(timed, H200, clocks=Clocks(sm_mhz=1500.0, sm_mhz_high=1950.0)) == ()
    assert impossible_reasons(timed, H200, clocks=Clocks(sm_mhz=1500.0)) != ()


def test_winograd_may_pass_the_ceiling_and_a_product_may_not() -> None:
    conv = conv2d(ConvShape(32, 256, 512, 28, 28, kernel=3, padding=1), element_bytes=2)
    fast = Timed(conv, "fp16", 40e-6, flags=("algorithmic",))
    assert impossible_reasons(fast, H200, clocks=Clocks()) == ()
    assert impossible_reasons(replace(fast, flags=()), H200, clocks=Clocks()) != ()


@pytest.mark.parametrize(
    ("cache", "flags", "l2_bytes", "reasons"),
    [
        ("n/a", (), 0, 1),
        ("cold", (), 0, 1),
        ("warm", (), 0, 0),
        ("n/a", ("l2_resident",), 0, 0),
        ("cold", (), 1 << 30, 0),
    ],
)
def test_only_traffic_that_must_reach_the_memory_is_judged(
    cache: str, flags: tuple[str, ...], l2_bytes: int, reasons: int
) -> None:
    work = add(2**28, element_bytes=2)
    timed = Timed(work, "bandwidth", work.bytes / 5200e9, cache=cache, flags=flags, l2_bytes=l2_bytes)
    assert len(impossible_reasons(timed, H200, clocks=Clocks())) == reasons


def test_a_card_that_boosts_above_its_datasheet_is_not_refused() -> None:
    peaks = peaks_named(TABLES, "rtx 5090")
    timed = Timed(GEMM, "fp16", 4.71e-3)
    limit = _limit(timed, peaks, sm_mhz=2800.0)
    assert limit.pct_spec == pytest.approx(111, abs=0.5)
    assert limit.pct_clock is not None
    assert limit.pct_clock < 100
    assert impossible_reasons(timed, peaks, clocks=Clocks(2800.0, 2830.0)) == ()


def test_a_link_faster_than_itself_is_refused() -> None:
    timed = Timed(transfer(10**9), "link", 1e-3, link_gbps=63.0)
    [reason] = impossible_reasons(timed, NO_PEAKS, clocks=Clocks())
    assert "1587.3 % of what the link carries" in reason


@pytest.mark.parametrize(
    ("share", "launch_bound", "tier"),
    [(95.0, None, "S"), (90.0, 0.1, "S"), (89.9, None, "A"), (75.0, None, "A"), (60.0, None, "B"), (30.0, None, "C"),
     (3.0, None, "D"), (3.0, 0.51, "L"), (3.0, 0.5, "D"), (101.0, None, "S")],
)  # fmt: skip
def test_tiers_are_taken_from_the_clock_ceiling(share: float, launch_bound: float | None, tier: str) -> None:
    limit = LimitResult(bound=Bound.COMPUTE, peaks="db:x", pct_clock=share, pct_achieved=50.0)
    assert tier_of(limit, launch_bound) == tier


@pytest.mark.parametrize(
    ("rate", "band"),
    [(794.5, Band.NORMAL), (760.0, Band.NORMAL), (730.0, Band.LOOK), (650.0, Band.SUSPECT), (500.0, Band.DEFECTIVE)],
)
def test_a_rate_is_placed_against_what_healthy_cards_reach(rate: float, band: Band) -> None:
    assert band_of(rate, H200.seen_tflops("bf16") or 0) is band


def test_the_achieved_ceiling_is_the_best_valid_product_and_stream_of_the_run() -> None:
    fast, slow = (replace(a_figure([1e-3] * 3), rate=Rate(tflops=rate)) for rate in (780.0, 640.0))
    stream = replace(a_figure([1e-3] * 3), rate=Rate(gbps=4300.0))
    cases = [
        a_case("gemm/a", slow),
        a_case("gemm/b", fast),
        a_case("gemm/c", replace(fast, rate=Rate(tflops=1500.0)), verdict=Verdict.IMPOSSIBLE, reason="too fast"),
        a_case("attention/a", replace(fast, rate=Rate(tflops=900.0))),
        a_case("stream/add", stream, peak="bandwidth"),
        a_case("stream/small", replace(stream, rate=Rate(gbps=9000.0)), peak="bandwidth", cache="warm"),
    ]
    assert achieved_of(cases) == Achieved((("fp16", 780.0),), 4300.0)
