"""From samples to a verdict: rates, limits, what is impossible, what is invalid, and the odd GPU out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firstlight.bench.attempts import Attempt
from firstlight.bench.case import Cache, Case, Effort, Mode
from firstlight.bench.clocks import Counters, Reading, Watch
from firstlight.bench.figures import Setting, case_results, link_gbps
from firstlight.bench.operator_counts import gemm, transfer
from firstlight.bench.outliers import outliers
from firstlight.bench.patience import PATIENCE
from firstlight.bench.peaks import peaks_of
from firstlight.bench.results import Bound, CaseResult, GpuResult, Regime, Verdict
from firstlight.bench.stopwatch import PassTiming, Stretch
from firstlight.tables import load
from tests.bench.tiny_cases import product

H200 = GpuResult(
    index=0, uuid="gpu-0", name="NVIDIA H200", cc="9.0", sms=132, l2_bytes=60 << 20, mem_bytes=150754820096,
    mem_bus_bits=6016, clock_max_mhz=1980.0, mem_clock_max_mhz=3201.0, power_limit_w=700.0, power_default_w=700.0,
    ecc=True, mig=False, pcie_gen=5, pcie_width=16, vbios=None,
)  # fmt: skip
SETTING = Setting(H200, 0, peaks_of(H200, load()), PATIENCE[Effort.STANDARD], ())
LARGE = product(
    "gemm/bf16/8192x8192x8192",
    dtype="bf16",
    peak="bf16",
    cache=Cache.LARGE,
    params=(("m", "8192"), ("n", "8192"), ("k", "8192")),
)
LARGE = replace(LARGE, work=gemm(8192, 8192, 8192, in_bytes=2, out_bytes=2))


def stretch(
    seconds: float,
    *,
    regime: Regime = Regime.SUSTAINED,
    mhz: float | None = 1590.0,
    grown: dict[str, int] | None = None,
    reasons: int = 0,
    spin: tuple[float, ...] = (),
) -> Stretch:
    readings = (Reading(10.5, mhz, 3201.0, 700.0, 55.0, None, reasons),) if mhz is not None else ()
    names = {"sw_power": 0, "sw_thermal": 0, "hw_thermal": 0, **(grown or {})}
    before = Counters(10.0, tuple((name, 7) for name in names))
    after = Counters(11.0, tuple((name, 7 + value) for name, value in names.items()))
    samples = tuple(seconds * (1 + 0.0005 * (place % 5)) for place in range(15))
    return Stretch(regime, samples, Watch(before, after, readings), spin)


def timing(*stretches: Stretch, host: tuple[float, ...] = (), device: tuple[float, ...] = ()) -> PassTiming:
    return PassTiming(stretches, device or stretches[-1].samples, host, 1, ())


def result(case: Case, *passes: PassTiming, setting: Setting = SETTING, **changed: Any) -> CaseResult:
    [only] = case_results([Attempt(case, case.cache, passes=passes, **changed)], setting)
    return only


def test_a_large_product_on_an_h200_stands_at_86_percent_of_its_clock_ceiling() -> None:
    case = result(LARGE, *(timing(stretch(1.485e-3)) for _ in range(3)))
    figure = case.shown
    assert case.verdict is Verdict.OK
    assert figure is not None
    assert figure.limit is not None
    assert figure.rate.tflops == pytest.approx(740, rel=0.01)
    assert figure.limit.bound is Bound.COMPUTE
    assert figure.limit.pct_clock == pytest.approx(86, abs=1)  # 132 SMs x 4096 x 1590 MHz = 860 TFLOPS
    assert figure.limit.pct_spec == pytest.approx(75, abs=1)
    assert figure.tier == "A"
    assert [each.sm_mhz for each in figure.passes] == [1590.0] * 3


def test_burst_and_sustained_are_kept_apart_and_sustained_is_the_headline() -> None:
    both = (
        stretch(1.364e-3, regime=Regime.BURST, mhz=1965.0),
        stretch(1.58e-3, grown={"sw_power": 950_000_000}, reasons=0x4),
    )
    case = result(LARGE, timing(*both), timing(*both), timing(*both))
    assert [figure.regime for figure in case.figures] == [Regime.BURST, Regime.SUSTAINED]
    assert case.headline is Regime.SUSTAINED
    burst, sustained = case.figures
    assert burst.flags == ()
    assert sustained.flags == ("power_capped",)
    assert case.verdict is Verdict.OK  # the power limit is normal for a large product
    assert burst.limit is not None
    assert sustained.limit is not None
    assert burst.limit.pct_clock == pytest.approx(75.8, abs=0.5)
    assert sustained.limit.pct_clock == pytest.approx(81, abs=0.5)


def test_faster_than_the_clock_allows_is_impossible() -> None:
    case = result(LARGE, timing(stretch(1.0e-3)))  # 1099.5 TFLOPS; the card ends at 1070.5
    assert case.verdict is Verdict.IMPOSSIBLE
    assert "highest clock" in case.reason
    slow_clock = result(LARGE, timing(stretch(1.05e-3, mhz=1590.0)))
    assert slow_clock.verdict is Verdict.IMPOSSIBLE
    assert "clock measured during the case" in slow_clock.reason


def test_without_nvml_the_cycle_counter_sets_the_ceiling() -> None:
    case = result(LARGE, timing(stretch(1.05e-3, mhz=None, spin=(1588.0, 1592.0))))
    assert case.verdict is Verdict.IMPOSSIBLE
    assert "1590 MHz" in case.reason


@pytest.mark.parametrize(
    ("grown", "reasons", "words"),
    [
        ({"hw_thermal": 1_000_000}, 0, "slowed itself down for heat (0.1 % of the time)"),
        ({}, 0x8, "slowed itself down in hardware (100.0 % of the time)"),
        ({}, 0x80 | 0x4, "power supply told the card to slow down"),
        ({"sw_thermal": 20_000_000}, 0, "the driver held the clock down for heat (2.0 % of the time)"),
    ],
    ids=["hw thermal", "hw slowdown", "power brake", "sw thermal"],
)
def test_heat_and_brakes_make_a_figure_invalid(grown: dict[str, int], reasons: int, words: str) -> None:
    case = result(LARGE, timing(stretch(1.5e-3, grown=grown, reasons=reasons)))
    assert case.verdict is Verdict.INVALID
    assert words in case.reason
    assert case.figures  # the numbers stay, marked


def test_a_little_software_heat_and_the_power_limit_are_not_invalid() -> None:
    grown = {"sw_thermal": 5_000_000, "sw_power": 900_000_000}
    assert result(LARGE, timing(stretch(1.5e-3, grown=grown))).verdict is Verdict.OK


def test_a_gpu_without_a_peak_row_still_has_the_achieved_ceiling() -> None:
    unknown = replace(H200, name="NVIDIA X999", cc="99.0")
    setting = replace(SETTING, gpu=unknown, peaks=peaks_of(unknown, load()))
    case = result(LARGE, timing(stretch(1.5e-3)), setting=setting)
    assert case.verdict is Verdict.OK
    assert case.shown is not None
    assert case.shown.limit is not None
    assert case.shown.limit.peaks == "none"
    assert case.shown.limit.pct_spec is None


def test_launch_bound_is_the_share_that_an_eager_call_waits() -> None:
    case = result(LARGE, timing(stretch(10e-6, mhz=None), host=(100e-6, 100e-6)))
    assert case.launch_bound == pytest.approx(0.9, abs=0.001)
    assert case.host_time_s is not None
    assert case.host_time_s.median == 100e-6


def test_a_launch_bound_host_figure_gets_an_l_and_not_a_d() -> None:
    eager = replace(LARGE, mode=Mode.HOST)
    case = result(eager, timing(stretch(0.1), host=(0.1,), device=(0.01,)))
    assert case.shown is not None
    assert case.shown.tier == "L"


def test_items_per_second_come_from_the_parameters() -> None:
    images = replace(LARGE, params=(("batch", "64"), ("items", "64"), ("item", "image")))
    case = result(images, timing(stretch(8e-3)))
    assert case.shown is not None
    assert case.shown.rate.items_per_s == pytest.approx(8000, rel=0.01)


def test_a_failed_case_keeps_no_figures() -> None:
    case = result(LARGE, timing(stretch(1.5e-3)), verdict=Verdict.FAILED, reason="lost a handle")
    assert (case.figures, case.headline, case.reason) == ((), None, "lost a handle")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ((("direction", "h2d"), ("host_memory", "pinned")), 63.0),
        ((("direction", "one way"), ("link", "NV18")), 450.0),
        ((("direction", "both ways, sum of both"), ("link", "NV18")), 900.0),
        ((("direction", "one way"), ("link", "SYS, staged through host")), 63.0),
    ],
    ids=["pcie", "nvlink", "nvlink both ways", "staged"],
)
def test_a_copy_is_held_against_the_link_it_takes(params: tuple[tuple[str, str], ...], expected: float) -> None:
    case = replace(LARGE, params=params, peak="link", work=transfer(1 << 28))
    assert link_gbps(case, H200, SETTING.peaks) == pytest.approx(expected, rel=0.01)


def on_gpu(place: int, seconds: float) -> CaseResult:
    setting = replace(SETTING, gpu_place=place)
    return result(LARGE, *(timing(stretch(seconds)) for _ in range(3)), setting=setting)


def test_the_odd_gpu_out_is_named() -> None:
    times = [1.500e-3, 1.505e-3, 1.498e-3, 1.70e-3]
    [finding] = outliers([on_gpu(place, seconds) for place, seconds in enumerate(times)])
    assert (finding.code, finding.gpu) == ("slow-gpu", 3)
    assert finding.text == "gemm/bf16/8192x8192x8192: 12 % slower than the median of 4 GPUs"


def test_healthy_neighbours_differ_by_five_percent_and_nobody_is_accused() -> None:
    assert outliers([on_gpu(place, seconds) for place, seconds in enumerate((1.5e-3, 1.5e-3, 1.58e-3))]) == ()


def test_of_two_gpus_nobody_can_say_which_is_odd() -> None:
    assert outliers([on_gpu(0, 1.5e-3), on_gpu(1, 2.5e-3)]) == ()
