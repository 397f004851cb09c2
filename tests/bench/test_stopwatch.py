"""What the stopwatch decides: how calls are put together, when it stops, which figures a case gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from statistics import median

import pytest

from firstlight.bench.case import Cache, Case, Effort, Mode, Place, Prepared
from firstlight.bench.clocks import NoGauge
from firstlight.bench.operator_counts import gemm
from firstlight.bench.patience import PATIENCE
from firstlight.bench.results import Regime
from firstlight.bench.rotation import Cold, cache_state, how_cold, sets_wanted
from firstlight.bench.stopwatch import PassTiming, Regimes, Stopwatch, Subject
from firstlight.bench.tape import SPAN_S, Launching, Tape, make_shots
from firstlight.bench.timers import Call, CpuTimer, Shot
from tests.bench.fake_device import FakeDevice

STANDARD = PATIENCE[Effort.STANDARD]
QUICK = PATIENCE[Effort.QUICK]
H200 = Place("cuda:0", l2_bytes=60 << 20, free_bytes=140 << 30, capability=(9, 0))
US, MS = 1e-6, 1e-3


def subject(
    *calls: Call,
    mode: Mode = Mode.DEVICE,
    cold: Cold = Cold.AS_IS,
    launching: Launching = Launching.GRAPHS,
    regimes: Regimes = Regimes.BOTH_IF_BIG,
) -> Subject:
    return Subject(calls, mode, cold, launching, regimes)


def timed(device: FakeDevice, what: Subject, *, budget_s: float = STANDARD.pass_budget_s) -> PassTiming:
    return Stopwatch(device, device, patience=STANDARD).time_pass(what, budget_s=budget_s)


def regimes_of(timing: PassTiming) -> list[Regime]:
    return [stretch.regime for stretch in timing.stretches]


# How calls become samples


def test_a_short_call_is_captured_until_a_sample_spans_200_us() -> None:
    device = FakeDevice()
    timing = timed(device, subject(device.call(3 * US)))
    assert timing.graph_calls == 67
    assert timing.graph_calls * median(timing.device) >= SPAN_S
    assert median(timing.device) == pytest.approx(3 * US)


def test_a_graph_goes_through_every_buffer_set_equally_often() -> None:
    device = FakeDevice()
    calls = [device.call(30 * US, name=str(number)) for number in range(5)]
    shots = make_shots(device, calls, cold=Cold.ROTATED, launching=Launching.GRAPHS)
    device.ran.clear()
    device.series(shots.shots)
    assert shots.graph_calls == 10  # 7 would do for 200 us
    assert Counter(device.ran) == dict.fromkeys("01234", 2)


def test_a_call_of_200_us_is_launched_alone_and_the_buffer_sets_take_turns() -> None:
    device = FakeDevice()
    calls = [device.call(250 * US, name=name) for name in "abc"]
    tape = Tape(device, make_shots(device, calls, cold=Cold.ROTATED, launching=Launching.GRAPHS).shots)
    device.ran.clear()
    tape.take(4)
    tape.take(2)
    assert "".join(device.ran) == "abcabc"


def test_the_first_guess_of_a_tiny_call_is_corrected_by_its_graph() -> None:
    device = FakeDevice()
    costs = iter([40 * US] * 3)  # alone, most of what is seen is the gap between two events
    call = device.call(lambda: next(costs, 2 * US))
    shots = make_shots(device, [call], cold=Cold.AS_IS, launching=Launching.GRAPHS)
    assert shots.graph_calls in (100, 101)
    assert shots.call_s == pytest.approx(2 * US)


def test_what_cannot_be_captured_is_timed_alone_and_flagged() -> None:
    device = FakeDevice(captures=False)
    timing = timed(device, subject(device.call(20 * US)))
    assert timing.graph_calls == 1
    assert {"uncaptured", "coarse_timer"} <= set(timing.flags)


def test_a_case_that_says_it_cannot_be_captured_is_not_tried() -> None:
    device = FakeDevice()
    timing = timed(device, subject(device.call(100 * US), launching=Launching.PLAIN))
    assert (timing.graph_calls, timing.flags) == (1, ("uncaptured",))


def test_a_flush_comes_before_every_sample_and_only_one_call_after_it() -> None:
    device = FakeDevice()
    timing = timed(device, subject(device.call(60 * US), cold=Cold.FLUSHED))
    eager = len(timing.host)
    assert timing.graph_calls == 1
    assert device.flushes == len(device.ran) - eager
    assert median(timing.device) == pytest.approx(60 * US)  # the flush itself is outside


def test_a_queue_that_is_too_short_for_a_series_is_filled_one_by_one() -> None:
    device = FakeDevice(queue=2)
    timing = timed(device, subject(device.call(300 * US)))
    assert "launches_not_hidden" not in timing.flags
    assert device.series_sizes[-1] == 1


def test_launches_that_no_block_hides_are_flagged() -> None:
    device = FakeDevice(queue=0)
    assert "launches_not_hidden" in timed(device, subject(device.call(300 * US))).flags


# When it stops


def test_quiet_samples_stop_the_series_at_the_first_narrow_interval() -> None:
    device = FakeDevice(noise=0.001)
    [stretch] = timed(device, subject(device.call(250 * US))).stretches
    assert len(stretch.samples) == 15  # the first multiple of 5 from 11 on


def test_noise_is_sampled_until_the_time_is_up() -> None:
    device = FakeDevice(noise=0.5)
    [stretch] = timed(device, subject(device.call(250 * US)), budget_s=0.009).stretches
    assert 15 < len(stretch.samples) < STANDARD.most_samples
    assert stretch.watch.after.at - stretch.watch.before.at == pytest.approx(0.009, abs=0.002)


def test_no_pass_takes_more_than_the_most_samples() -> None:
    device = FakeDevice(noise=0.5)
    [stretch] = timed(device, subject(device.call(250 * US)), budget_s=100.0).stretches
    assert STANDARD.most_samples <= len(stretch.samples) < STANDARD.most_samples + STANDARD.block


def test_a_slow_call_still_gets_the_least_number_of_samples() -> None:
    device = FakeDevice(noise=0.1)
    timing = timed(device, subject(device.call(0.7), regimes=Regimes.SUSTAINED))
    assert len(timing.stretches[0].samples) == STANDARD.least_samples


def test_warm_up_goes_on_until_three_blocks_agree() -> None:
    device = FakeDevice()
    call = device.call(lambda: 300 * US if device.time > 100.12 else 300 * US * (1 + 50 * (100.12 - device.time)))
    timing = timed(device, subject(call))
    assert "not_steady" not in timing.flags
    assert median(timing.device) == pytest.approx(300 * US)


def test_what_never_becomes_steady_is_flagged_and_not_waited_for() -> None:
    device = FakeDevice()
    call = device.call(lambda: 300 * US * (1 + 20 * (device.time - 100)))
    timing = timed(device, subject(call))
    assert "not_steady" in timing.flags
    assert device.time < 100 + STANDARD.warm_up_limit_s + STANDARD.pass_budget_s + 0.2


# Burst and sustained


def test_a_big_kernel_at_the_power_limit_has_two_figures_that_are_both_true() -> None:
    device = FakeDevice(power_s=0.04)
    timing = timed(device, subject(device.call(1.4 * MS)))
    burst, sustained = timing.stretches
    assert regimes_of(timing) == [Regime.BURST, Regime.SUSTAINED]
    assert median(burst.samples) == pytest.approx(1.4 * MS)
    assert median(sustained.samples) == pytest.approx(1.4 * MS * 1.12)
    assert timing.device == sustained.samples


def test_under_the_power_limit_a_whole_swing_is_sampled_and_thinned() -> None:
    device = FakeDevice(power_s=0.04)
    sustained = timed(device, subject(device.call(1.4 * MS))).stretches[-1]
    assert sustained.watch.after.at - sustained.watch.before.at >= STANDARD.sustain_s
    assert len(sustained.samples) <= STANDARD.most_samples


def test_a_big_kernel_below_the_power_limit_is_not_sampled_for_longer() -> None:
    device = FakeDevice()
    burst, sustained = timed(device, subject(device.call(1.4 * MS))).stretches
    assert median(burst.samples) == pytest.approx(median(sustained.samples))
    assert len(sustained.samples) == 15


def test_a_later_pass_of_a_quick_run_takes_the_burst_alone() -> None:
    device = FakeDevice(power_s=0.05)
    big = timed(device, subject(device.call(1.4 * MS), regimes=Regimes.BURST_IF_BIG))
    assert regimes_of(big) == [Regime.BURST]
    small = timed(device, subject(device.call(30 * US), regimes=Regimes.BURST_IF_BIG))
    assert regimes_of(small) == [Regime.SUSTAINED]


def test_bursts_are_short_and_come_after_pauses() -> None:
    device = FakeDevice(power_s=0.04)
    timed(device, subject(device.call(1.4 * MS)))
    assert device.pauses[0] >= 0.1
    assert all(pause >= 0.04 for pause in device.pauses)
    assert len(device.pauses) <= 6


def test_a_small_kernel_and_a_copy_over_a_link_have_one_figure() -> None:
    device = FakeDevice()
    assert regimes_of(timed(device, subject(device.call(100 * US)))) == [Regime.SUSTAINED]
    link = subject(device.call(5 * MS), regimes=Regimes.SUSTAINED)
    assert regimes_of(timed(device, link)) == [Regime.SUSTAINED]


# Host time


def test_host_time_is_taken_beside_device_time() -> None:
    device = FakeDevice(launch_s=90 * US)
    timing = timed(device, subject(device.call(10 * US)))
    assert median(timing.device) == pytest.approx(10 * US)
    assert median(timing.host) == pytest.approx(100 * US)
    assert len(timing.host) == STANDARD.host_samples


def test_the_headline_of_a_host_case_is_what_the_user_waits_for() -> None:
    device = FakeDevice(launch_s=4 * MS)
    timing = timed(device, subject(device.call(2 * MS), mode=Mode.HOST))
    [stretch] = timing.stretches
    assert median(stretch.samples) == pytest.approx(6 * MS)
    assert median(timing.device) == pytest.approx(2 * MS)
    assert timing.host == stretch.samples


def test_on_a_processor_there_are_no_launches_and_no_second_regime() -> None:
    turns = count()  # a call of some 50 ns: two of the first three would have to be interrupted to look like 200 us
    patience = replace(QUICK, warm_up_s=0.0, warm_up_limit_s=0.02, budget_s=0.02)
    watch = Stopwatch(CpuTimer(), NoGauge("a processor"), patience=patience)
    timing = watch.time_pass(subject(lambda: next(turns), mode=Mode.HOST), budget_s=0.02)
    assert regimes_of(timing) == [Regime.SUSTAINED]
    assert timing.host == ()
    assert timing.graph_calls > 1  # a loop, so that a sample is long enough for the clock
    assert next(turns) >= timing.graph_calls * len(timing.device)  # and every sample goes round it
    assert 1e-9 < median(timing.device) < 0.05


# The cache


def case(set_bytes: int, cache: Cache = Cache.COLD) -> Case:
    def prepare(place: Place, sets: int) -> Prepared:
        return Prepared((lambda: None,) * sets, lambda: 0.0)

    work = gemm(64, 64, 64, in_bytes=2, out_bytes=2)
    return Case("gemm/x", "gemm", (), "fp16", work, "fp16", prepare, set_bytes, 1e-3, cache=cache)


@pytest.mark.parametrize(
    ("set_bytes", "sets"),
    [(6_291_456, 30), (25_165_824, 8), (100_663_296, 2), (402_653_184, 1), (1000, 64)],
    ids=["1024 cubed", "2048 cubed", "4096 cubed", "8192 cubed", "tiny"],
)
def test_three_caches_full_of_buffer_sets_take_turns(set_bytes: int, sets: int) -> None:
    assert sets_wanted(case(set_bytes), H200) == sets


def test_sets_stay_within_a_quarter_of_the_free_memory() -> None:
    little = replace(H200, free_bytes=100 << 20)
    assert sets_wanted(case(6_291_456), little) == 4


def test_a_working_set_of_four_caches_is_neither_cold_nor_warm() -> None:
    assert cache_state(case(402_653_184), H200) is Cache.LARGE
    assert cache_state(case(100_663_296), H200) is Cache.COLD
    assert cache_state(case(402_653_184, Cache.WARM), H200) is Cache.WARM
    assert cache_state(case(1 << 20), replace(H200, l2_bytes=0)) is Cache.WARM


def test_too_few_sets_for_a_cold_cache_mean_a_flush() -> None:
    assert how_cold(case(6_291_456), H200, sets=30) is Cold.ROTATED
    assert how_cold(case(6_291_456), H200, sets=4) is Cold.FLUSHED
    assert how_cold(case(6_291_456, Cache.WARM), H200, sets=1) is Cold.AS_IS


def test_a_tape_takes_fewer_shots_at_once_the_longer_they_are() -> None:
    device = FakeDevice()
    tape = Tape(device, [Shot(device.call(9 * MS), 1)])
    assert len(tape.block_of(5).seconds) == 2
    assert len(tape.block_of(5, within_s=1 * MS).seconds) == 1
