"""The fit of times to rows: what it recovers, how it scales, what it says of its error, and the fits that ship."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from firstlight.kernels.choice import made, rows
from firstlight.kernels.choice.answer import NEW_CALLS, shortest, together
from firstlight.kernels.choice.cases import BACKWARD, FORWARD, AttentionCase, Case, ProductCase
from firstlight.kernels.choice.drawn import drawn_attention, drawn_products
from firstlight.kernels.choice.fit import corrected, fitted, kind_of, times_by_kind
from firstlight.kernels.choice.models import FIRST, Estimate, Models, base_for, models_for
from firstlight.kernels.choice.rows import Card, Machine, Row
from firstlight.kernels.choice.speeds import wasted
from firstlight.kernels.choice.terms import terms_of
from tests.kernels.choice.measured import H100, H200, UNKNOWN, shipped_machine

CASES: list[Case] = list(drawn_products(160, seed=3, dtypes=("float16",)))


def made_up(case: Case, card: Card = H200) -> float:
    """A backend that follows three of its terms to the letter."""
    floor, work, *_ = terms_of(case, "sm90", card)
    return 4.0 * floor + 1.6 * work + 1.2 * terms_of(case, "sm90", card)[7]


def kept(kind: str) -> list[Case]:
    return [case for case in CASES if kind_of(case, "sm90")[2] == kind]


def test_times_that_follow_the_terms_are_found_again() -> None:
    cases = kept("multiply")
    fit = fitted("sm90", [(case, made_up(case)) for case in cases[:90]], H200)
    assert fit is not None
    assert fit.error < 0.02
    for case in cases[90:]:
        assert fit.us(case, H200) == pytest.approx(made_up(case), rel=0.1)


def test_a_fit_speaks_for_a_card_with_other_bandwidth() -> None:
    cases = kept("multiply")
    fit = fitted("sm90", [(case, made_up(case)) for case in cases[:90]], H200)
    assert fit is not None
    for case in cases[90:]:
        assert fit.us(case, H100) == pytest.approx(made_up(case, H100), rel=0.15)


def test_what_the_terms_leave_is_learned_from_rows_nearby_and_forgotten_far_away() -> None:
    cases = [case for case in kept("multiply") if isinstance(case, ProductCase)]

    def odd(case: ProductCase) -> float:  # blocks of 16 take twice as long as any term says
        return made_up(case) * (2.0 if case.block == 16 and case.layout == "columns" else 1.0)

    fit = fitted("sm90", [(case, odd(case)) for case in cases[:100]], H200)
    assert fit is not None
    off = [abs(math.log(fit.us(case, H200) / odd(case))) for case in cases[100:]]
    assert sorted(off)[len(off) // 2] < 0.1


def test_rows_of_this_card_correct_a_borrowed_fit() -> None:
    cases = kept("multiply")
    base = fitted("sm90", [(case, made_up(case)) for case in cases], H200)
    assert base is not None
    mine = corrected(base, [(case, 1.5 * made_up(case, H100)) for case in cases[:20]], H100)
    assert corrected(base, [], H100) is base
    ratios = [mine.us(case, H100) / base.us(case, H100) for case in cases[20:60]]
    assert sum(ratios) / len(ratios) == pytest.approx(1.5, rel=0.1)


def test_too_few_rows_are_no_fit() -> None:
    assert fitted("sm90", [(CASES[0], 10.0)] * 7, H200) is None


def test_torchs_kernels_by_name_and_with_a_mask_are_two_kinds() -> None:
    masked = next(iter(drawn_attention(1, seed=1, dtypes=("float16",)))).case
    listed, plain = masked._replace(shape="listed"), masked._replace(shape="full")
    assert kind_of(listed, "dense") != kind_of(plain, "dense")
    assert kind_of(listed, "sm90") == kind_of(plain, "sm90")
    assert kind_of(plain._replace(operation=FORWARD), "sm90") != kind_of(plain._replace(operation=BACKWARD), "sm90")


def test_waves_waste_what_the_last_one_leaves_idle() -> None:
    assert wasted(1.0) == 1.0
    assert wasted(1.5) == pytest.approx(4 / 3)
    assert wasted(0.001) == 8.0


@pytest.mark.parametrize("card", [H100, replace(H200, gpu="NVIDIA GH200 480GB"), replace(H200, gpu="NVIDIA H200 NVL")])
def test_a_hopper_borrows_rows_and_another_family_does_not(card: Card) -> None:
    machine = shipped_machine()
    assert base_for(card, (machine,)) is machine
    assert base_for(UNKNOWN, (machine,)) is None
    assert base_for(H200, (replace(machine, card=card), machine)) is machine


def test_a_card_of_no_family_is_told_to_measure() -> None:
    models_for.cache_clear()
    assert models_for(UNKNOWN) == f"{UNKNOWN.gpu} was not measured; `firstlight kernels autotune` does it"


def test_rows_of_autotune_alone_serve_a_card_of_no_family() -> None:
    mine = Machine(UNKNOWN, "", "", "", "", tuple(Row(case, (("triton", made_up(case)),)) for case in CASES))
    models = Models(UNKNOWN, None, mine)
    assert models.estimate(CASES[0], "triton") is not None
    assert models.estimate(CASES[0], "sm90") is None
    assert models.source == "rows of autotune on NVIDIA Test"


def test_the_first_calls_take_another_backend_only_where_that_saves_much() -> None:
    models = Models(H200, shipped_machine())
    offers = {"sm90": Estimate(100.0, 9, 0.05), "triton": Estimate(130.0, 9, 0.05)}
    found = shortest(offers, {"sm90": 2200.0, "triton": 350.0}, models)
    assert (found.settled.backend, found.at_first.backend) == ("sm90", "triton")
    assert (
        f"a new pattern costs triton 0.35 ms, sm90 2.20 ms once; from call {NEW_CALLS + 1} on sm90"
        in found.at_first.why
    )
    assert shortest(offers, {"sm90": 600.0, "triton": 580.0}, models).is_settled
    long = {"sm90": Estimate(40_000.0, 9, 0.05), "triton": Estimate(52_000.0, 9, 0.05)}
    assert shortest(long, {"sm90": 2200.0, "triton": 350.0}, models).is_settled


def test_what_a_new_pattern_costs_is_known_by_backend_and_block() -> None:
    models = Models(H200, shipped_machine())
    case = next(case for case in CASES if isinstance(case, ProductCase) and case.operation == "multiply")
    costs = {
        (name, block): models.prepare_us(case._replace(block=block), name)
        for name in ("sm90", "triton", "dense") for block in (128, 16)
    }  # fmt: skip
    assert all(100 < cost < 20_000 for cost in costs.values()), costs
    assert costs["sm90", 128] > costs["triton", 128], "more is prepared"
    assert models.prepare_us(case._replace(block=7), "sm90") == 0.0


def test_parts_one_after_the_other_add_up() -> None:
    both = together([Estimate(10.0, 5, 0.1), Estimate(30.0, 9, 0.02)])
    assert (both.us, both.rows) == (40.0, 5)
    assert both.error == pytest.approx(0.04)


def test_half_of_the_shipped_rows_are_met_as_the_error_says() -> None:
    machine = shipped_machine()
    models = Models(H200, machine, made=made.made_for("NVIDIA H200"))
    for backend, case in (("sm90", CASES[0]), ("triton", CASES[0])):
        told = models.estimate(case, backend)
        assert told is not None
        assert 0.005 < told.error < 0.2
        assert told.rows > 100


def test_the_fits_that_ship_are_those_of_the_rows_that_ship() -> None:
    machine = shipped_machine()
    fits = made.made_for(machine.card.gpu)
    times = times_by_kind(machine.rows)
    wanted = {
        kind for kind, rows_ in times.items()
        if not kind[0].startswith(FIRST) and "tf32" not in kind and len(rows_) >= 8
    }  # fmt: skip
    assert set(fits) == wanted, "run tools.generate choice-fits"
    for kind in (("sm90", "16 bits", "forward", ""), ("dense", "16 bits", "sample", "")):
        anew, ready = fitted(kind[0], times[kind], machine.card), fits[kind].with_rows(kind[0], times[kind], H200)
        assert anew is not None
        case = times[kind][5][0]
        assert ready.us(case, H200) == pytest.approx(anew.us(case, H200), rel=1e-3), "run tools.generate choice-fits"


def test_fits_of_other_rows_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    path = rows.SHIPPED.with_name("choice-fits.json")  # any other file
    monkeypatch.setattr(rows, "SHIPPED", path)
    assert made.made_for("NVIDIA H200") == {}


def test_the_share_that_a_row_keeps_is_the_masks_and_a_decode_is_not_padded() -> None:
    case = AttentionCase(FORWARD, "full", 128, "bfloat16", 128, 32, 32, 8, 1, 8192, 1, 0)
    one, many = terms_of(case, "dense", H200), terms_of(case._replace(q_len=128), "dense", H200)
    assert many[1] == pytest.approx(128 * one[1])
    assert case._replace(shape="listed", kept=32).share == 0.5


def test_choosing_does_not_depend_on_torchs_default_device_or_modes() -> None:
    models = Models(H200, shipped_machine())
    plain = models.estimate(CASES[0], "sm90")
    with torch.inference_mode(), torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
        assert Models(H200, shipped_machine()).estimate(CASES[0], "sm90") == plain
