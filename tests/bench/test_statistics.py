"""Intervals, tests and verdicts: against known values, by property, and by simulation of the whole rule."""

from __future__ import annotations

import math
import random
import statistics as plain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firstlight.bench.distributions import median_ranks, t_quantile, t_tail
from firstlight.bench.statistics import (
    Background,
    Change,
    compare_passes,
    effective_count,
    false_discoveries_held,
    median_interval,
    noise_floor,
    smallest_detectable,
    summarise,
    verdict_of,
)

TIMES = st.floats(1e-6, 1.0)
PASSES = st.lists(TIMES, min_size=2, max_size=6)


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    [
        (0.975, 1, 12.7062047364), (0.975, 2, 4.30265272991), (0.975, 3, 3.18244630528), (0.975, 4, 2.7764451052),
        (0.95, 4, 2.13184678632), (0.975, 8, 2.30600413503), (0.95, 8, 1.85954803752), (0.975, 10, 2.22813885196),
        (0.995, 30, 2.7499956536), (0.9, 1, 3.07768353718), (0.75, 2, 0.816496580928), (0.975, 1000, 1.96233908082),
        (0.9999, 5, 9.67756630), (0.5, 7, 0.0), (0.025, 4, -2.7764451052),
    ],
)  # fmt: skip
def test_t_quantiles_are_those_of_the_printed_tables(probability: float, df: float, value: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(value, rel=1e-8, abs=1e-8)


@given(st.floats(-50, 50))
@example(1.8794503617519823e-09)
def test_tails_with_one_and_two_degrees_of_freedom_have_their_closed_forms(t: float) -> None:
    assert t_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, rel=1e-9, abs=1e-12)
    assert t_tail(t, 2) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)), rel=1e-9, abs=1e-9)


@given(st.floats(0.501, 0.9999), st.integers(1, 200))
def test_a_quantile_has_its_probability_below_it(probability: float, df: int) -> None:
    assert 1 - t_tail(t_quantile(probability, df), df) == pytest.approx(probability, abs=1e-10)


def test_a_probability_of_1_is_refused() -> None:
    with pytest.raises(ValueError, match="accepted"):
        t_quantile(1.0, 4)


@given(st.integers(1, 400))
def test_median_ranks_are_the_narrowest_that_keep_95_percent(n: int) -> None:
    low, high = median_ranks(n, 0.95)
    below = [sum(math.comb(n, k) for k in range(rank)) / 2**n for rank in (low, low + 1)]
    assert low + high == n + 1
    if n >= 6:
        assert 1 - 2 * below[0] >= 0.95
    if low + 1 <= n // 2:
        assert 1 - 2 * below[1] < 0.95


def test_six_samples_give_the_whole_range_and_eleven_drop_the_ends() -> None:
    assert median_ranks(6, 0.95) == (1, 6)
    assert median_ranks(11, 0.95) == (2, 10)
    assert median_interval([5.0, 1.0, 3.0, 2.0, 4.0, 6.0]) == (1.0, 6.0)


@given(st.lists(TIMES, min_size=1, max_size=60))
def test_a_summary_is_in_order_and_no_sample_is_outside_it(samples: list[float]) -> None:
    summary = summarise(samples, half_width=0.005, least_n=11)
    assert summary.min <= summary.q1 <= summary.median <= summary.q3 <= max(samples)
    assert summary.ci95[0] <= summary.median <= summary.ci95[1]
    assert summary.n == len(samples)
    assert 1 <= summary.n_eff <= len(samples)
    assert (summary.p95 is None) == (len(samples) < 40)


def test_the_interval_holds_the_true_median_about_95_times_in_100() -> None:
    source = random.Random(5)
    true = math.exp(0.0)  # of the log-normal with mu 0
    hits = 0
    for _ in range(1500):
        low, high = median_interval([source.lognormvariate(0, 0.3) for _ in range(21)])
        hits += low <= true <= high
    assert 0.94 <= hits / 1500 <= 0.99  # ranks are whole, so it is a little more than 95


def test_samples_that_follow_each_other_are_worth_fewer_and_widen_the_interval() -> None:
    source = random.Random(2)
    noise, value = [], 0.0
    for _ in range(400):
        value = 0.9 * value + source.gauss(0, 1)
        noise.append(10 + value)
    assert effective_count(noise) < 60
    wide, narrow = median_interval(noise), median_interval(source.sample(noise, len(noise)))
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_samples_that_are_all_equal_count_in_full() -> None:
    assert effective_count([0.1] * 50) == 50
    assert median_interval([0.1] * 50) == (0.1, 0.1)


def test_an_interval_is_reached_only_with_enough_samples_and_little_noise() -> None:
    steady = [1.0, 1.001] * 10
    assert summarise(steady, half_width=0.005, least_n=11).ci_reached
    assert not summarise(steady, half_width=0.005, least_n=21).ci_reached
    assert not summarise([1.0, 1.1] * 10, half_width=0.005, least_n=11).ci_reached


def test_welchs_t_gives_the_known_numbers() -> None:
    # logs: base 0, 0.01, 0.02; new 0.05, 0.06, 0.07: difference 0.05, error 0.01 * sqrt(2 / 3), 4 degrees of freedom
    found = compare_passes([math.exp(x) for x in (0, 0.01, 0.02)], [math.exp(x) for x in (0.05, 0.06, 0.07)])
    assert found is not None
    assert found.df == 4
    assert found.log_ratio == pytest.approx(0.05)
    half = 2.7764451 * 0.01 * math.sqrt(2 / 3)
    assert found.ci95 == pytest.approx((0.05 - half, 0.05 + half))
    assert found.p_value == pytest.approx(2 * t_tail(0.05 / (0.01 * math.sqrt(2 / 3)), 4))


def test_degrees_of_freedom_are_rounded_down() -> None:
    found = compare_passes([1.0, 1.001, 1.002], [1.0, 1.1, 1.2])
    assert found is not None
    assert found.df == 2


@given(PASSES, PASSES)
def test_swapping_the_sides_mirrors_the_verdict(base: list[float], new: list[float]) -> None:
    there, back = compare_passes(base, new), compare_passes(new, base)
    assert there is not None
    assert back is not None
    assert back.log_ratio == pytest.approx(-there.log_ratio, abs=1e-12)
    mirror = {Change.SLOWER: Change.FASTER, Change.FASTER: Change.SLOWER}
    verdict = verdict_of(there, 0.03)
    assert verdict_of(back, 0.03) is mirror.get(verdict, verdict)


@given(PASSES, PASSES, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(base: list[float], new: list[float], factor: float) -> None:
    one = compare_passes(base, new)
    other = compare_passes([value * factor for value in base], [value * factor for value in new])
    assert one is not None
    assert other is not None
    assert other.log_ratio == pytest.approx(one.log_ratio, abs=1e-9)


@given(PASSES, PASSES)
def test_a_slower_verdict_means_slower_and_beyond_the_margin(base: list[float], new: list[float]) -> None:
    found = compare_passes(base, new)
    assert found is not None
    if verdict_of(found, 0.03) is Change.SLOWER:
        assert plain.geometric_mean(new) > 1.03 * plain.geometric_mean(base)
        assert found.p_value < 0.05
    if verdict_of(found, 0.03) is Change.SAME:
        assert 1 / 1.03 < found.ratio < 1.03


def test_equal_passes_are_the_same_and_a_single_pass_is_unclear() -> None:
    assert verdict_of(compare_passes([1.0] * 3, [1.0] * 3), 0.03) is Change.SAME
    assert compare_passes([1.0], [2.0, 2.0]) is None
    assert verdict_of(None, 0.03) is Change.UNCLEAR


def test_a_sure_but_small_change_is_the_same_and_a_large_unsure_one_unclear() -> None:
    assert verdict_of(compare_passes([1.0, 1.0001, 1.0002], [1.01, 1.0101, 1.0102]), 0.03) is Change.SAME
    assert verdict_of(compare_passes([1.0, 1.1, 0.9], [1.1, 1.2, 1.0]), 0.03) is Change.UNCLEAR


def test_the_noise_floor_pools_the_passes_of_many_cases() -> None:
    source = random.Random(3)
    passes = [[math.exp(source.gauss(0, 0.02)) for _ in range(3)] for _ in range(300)]
    assert noise_floor(passes) == pytest.approx(0.02, rel=0.06)
    assert noise_floor([[1.0]]) is None


def test_the_smallest_detectable_change_is_found_about_four_times_in_five() -> None:
    background = Background(floor=0.02)
    found = smallest_detectable(background, 5, 0.001)
    assert found == pytest.approx(math.expm1((2.1788 + 0.84) * 0.02 * math.sqrt(2 / 5)), rel=1e-3)
    assert smallest_detectable(Background(floor=0.0001), 3, 0.03) == 0.03
    source, effect, hits = random.Random(4), math.log1p(found or 0), 0
    for _ in range(1500):
        base = [math.exp(source.gauss(0, 0.02)) for _ in range(5)]
        new = [math.exp(effect + source.gauss(0, 0.02)) for _ in range(5)]
        hits += verdict_of(compare_passes(base, new, background), 0.001) is Change.SLOWER
    assert 0.74 <= hits / 1500 <= 0.88


def _called_slower(between: float, told: float, *, effect: float = 0.0, trials: int = 1500) -> float:
    """Share of pairs of processes called SLOWER; each process has a shift of its own, and the test is told of it."""
    source, found = random.Random(12), 0
    for _ in range(trials):
        sides = []
        for shift in (0.0, effect):
            fixed = shift + source.gauss(0, between)
            sides.append([math.exp(fixed + source.gauss(0, 0.003)) for _ in range(3)])
        found += verdict_of(compare_passes(sides[0], sides[1], Background(0.003, told)), 0.03) is Change.SLOWER
    return found / trials


def test_a_spread_between_processes_that_is_told_raises_no_alarms_and_one_that_is_not_does() -> None:
    """Passes of one process agree to 0.3 %, processes to 5 %: passes alone call a third of all pairs slower."""
    assert _called_slower(0.05, 0.0) > 0.25
    assert _called_slower(0.05, 0.05) < 0.04
    assert _called_slower(0.05, 0.05, effect=math.log(1.25)) > 0.8


def test_a_change_of_five_percent_is_found_where_processes_agree_to_half_a_percent() -> None:
    assert _called_slower(0.005, 0.005, effect=math.log(1.05)) > 0.95
    assert _called_slower(0.005, 0.005) == 0.0


def test_three_passes_that_agree_by_luck_are_not_believed_alone() -> None:
    """2 % is the noise of the family; three passes within 0.01 % of each other are luck."""
    lucky = [1.0, 1.0001, 1.0], [1.05, 1.0501, 1.05]
    alone, among = compare_passes(*lucky), compare_passes(*lucky, Background(floor=0.02))
    assert alone is not None
    assert among is not None
    assert alone.ci95[0] > 0.048
    assert among.ci95[0] < 0.03
    assert among.df > alone.df


def test_benjamini_hochberg_keeps_the_textbook_set() -> None:
    values = [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216]
    assert false_discoveries_held(values) == (True, True) + (False,) * 8
    assert false_discoveries_held([0.04, 0.045]) == (True, True)
    assert false_discoveries_held([]) == ()


@given(st.lists(st.floats(0, 1), max_size=30))
def test_benjamini_hochberg_keeps_no_large_value_while_dropping_a_smaller(values: list[float]) -> None:
    kept = false_discoveries_held(values)
    largest_kept = max((value for value, held in zip(values, kept, strict=True) if held), default=-1)
    assert all(value > largest_kept for value, held in zip(values, kept, strict=True) if not held)
    assert largest_kept <= 0.05


def _whole_rule(noise: float, effect: float, *, trials: int, source: random.Random) -> tuple[float, float]:
    """Shares of cases that were run again and that ended as SLOWER, with a second look at 5 passes a side."""

    def passes(count: int, shift: float) -> list[float]:
        return [math.exp(shift + source.gauss(0, noise)) for _ in range(count)]

    again = slower = 0
    for _ in range(trials):
        verdict = verdict_of(compare_passes(passes(3, 0), passes(3, effect)), 0.03)
        if verdict is not Change.SAME:
            again += 1
            second = verdict_of(compare_passes(passes(5, 0), passes(5, effect)), 0.03)
            verdict = second if verdict in (Change.UNCLEAR, second) else Change.UNCLEAR
        slower += verdict is Change.SLOWER
    return again / trials, slower / trials


@pytest.mark.parametrize(
    ("noise", "again", "false_alarms", "found_5", "found_10"),
    [
        (0.005, 0.0, 0.0, 1.0, 1.0),
        (0.01, 0.35, 0.0, 0.998, 1.0),
        (0.02, 0.92, 0.0058, 0.87, 1.0),
        (0.03, 0.98, 0.017, 0.56, 0.985),
    ],
)
def test_the_whole_rule_has_the_stated_rates(
    noise: float, again: float, false_alarms: float, found_5: float, found_10: float
) -> None:
    source = random.Random(11)
    trials = 1500
    rerun, alarms = _whole_rule(noise, 0.0, trials=trials, source=source)
    assert rerun == pytest.approx(again, abs=0.05)
    assert alarms == pytest.approx(false_alarms, abs=0.012)
    assert _whole_rule(noise, math.log(1.05), trials=trials, source=source)[1] == pytest.approx(found_5, abs=0.05)
    assert _whole_rule(noise, math.log(1.10), trials=trials // 3, source=source)[1] == pytest.approx(found_10, abs=0.03)


def test_a_test_on_pooled_samples_would_cry_wolf_where_the_pass_test_does_not() -> None:
    source, pooled, by_pass = random.Random(6), 0, 0
    for _ in range(300):
        sides = [
            [[level * source.lognormvariate(0, 0.005) for _ in range(20)] for level in levels]
            for levels in ([source.lognormvariate(0, 0.01) for _ in range(3)] for _ in range(2))
        ]
        flat = [[math.log(sample) for each in side for sample in each] for side in sides]
        error = math.sqrt(sum(plain.variance(side) / len(side) for side in flat))
        pooled += abs(plain.fmean(flat[0]) - plain.fmean(flat[1])) > 1.96 * error
        medians = [[plain.median(each) for each in side] for side in sides]
        by_pass += verdict_of(compare_passes(medians[0], medians[1]), 0.03) in (Change.SLOWER, Change.FASTER)
    assert pooled / 300 > 0.45
    assert by_pass == 0
