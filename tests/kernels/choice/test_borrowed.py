"""Cards that were not measured borrow the H200's rows: with its own rows hidden and its numbers changed, times scale.

The numbers of the other cards are from NVIDIA's datasheets. None of them was measured: this holds the scaling, not its
truth.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

from firstlight.kernels.block_attention import choose as attention_choose
from firstlight.kernels.choice.cases import AttentionCase, ProductCase
from firstlight.kernels.choice.made import made_for
from firstlight.kernels.choice.models import Models
from firstlight.kernels.choice.rows import Card
from firstlight.kernels.choice.terms import terms_of
from firstlight.kernels.choose import Question, best_choice
from firstlight.kernels.product import Layout
from tests.kernels.choice.measured import H100, H200, shipped_machine

HIDDEN = "another card"  # the name under which the H200's rows are borrowed
H100_PCIE = Card("NVIDIA H100 PCIe", "9.0", 114, 1755.0, 2039.0)
H100_NVL = Card("NVIDIA H100 NVL", "9.0", 132, 1785.0, 3938.0)
GH200 = Card("NVIDIA GH200 480GB", "9.0", 132, 1980.0, 4022.8)
CARDS = (H100, H100_PCIE, H100_NVL, GH200)
NO_HURDLES = {"triton": "", "sm90": "", "dense": ""}
# 16-bit products of which the first waits for the tensor cores and the second, of 64 tokens, for memory
WORK = ProductCase("multiply", "tokens", 128, "bfloat16", 16384, 16384, 8192, 8192)
BYTES = ProductCase("multiply", "tokens", 128, "bfloat16", 28672, 8192, 14336, 64)
PASS = AttentionCase("forward", "listed", 128, "bfloat16", 128, 4, 32, 32, 8192, 8192, 1, 1024)


@functools.lru_cache(maxsize=16)
def models(card: Card) -> Models:
    return Models(card, shipped_machine(gpu=HIDDEN), made=made_for(H200.gpu))


def times(case: ProductCase | AttentionCase, card: Card, backend: str) -> float:
    """What a card is expected to take over what an H200 is, both by borrowed rows."""
    there, here = (models(one).estimate(case, backend) for one in (card, H200))
    assert there is not None
    assert here is not None
    return there.us / here.us


@pytest.mark.parametrize("backend", ["sm90", "triton", "dense"])
def test_half_of_one_number_costs_twice_the_time_of_what_waits_for_it(backend: str) -> None:
    clock, memory = replace(H200, clock_mhz=990.0), replace(H200, bandwidth_gbs=H200.bandwidth_gbs / 2)
    assert times(WORK, clock, backend) == pytest.approx(2.0, rel=0.25)
    assert times(PASS, clock, backend) == pytest.approx(2.0, rel=0.35)
    assert times(WORK, replace(H200, sms=66), backend) == pytest.approx(2.0, rel=0.3)
    assert times(PASS, replace(H200, sms=66), backend) == pytest.approx(2.0, rel=0.35)
    assert times(WORK, memory, backend) < 1.4
    assert times(BYTES, memory, backend) > 1.25
    assert times(BYTES, clock, backend) < times(BYTES, memory, backend)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.gpu)
@pytest.mark.parametrize("case", [WORK, BYTES, PASS], ids=["work", "bytes", "pass"])
def test_a_card_takes_longer_by_no_more_than_what_it_lacks(card: Card, case: ProductCase | AttentionCase) -> None:
    compute = H200.sms * H200.clock_mhz / (card.sms * card.clock_mhz)
    memory = H200.bandwidth_gbs / card.bandwidth_gbs
    for backend in ("sm90", "triton", "dense"):
        # the last wave may be fuller or emptier on fewer multiprocessors
        assert 0.97 * min(compute, memory, 1.0) <= times(case, card, backend) <= 1.15 * max(compute, memory)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.gpu)
def test_sm90_is_offered_and_borrowed_is_said(card: Card) -> None:
    taken = []
    for block, density in ((128, 0.1), (128, 0.3), (64, 0.3), (16, 0.1)):
        entries = round(density * (8192 // block) ** 2)
        asked = Question(
            "multiply", 0, torch.bfloat16, (8192, 8192), block, entries, 4096, Layout.TOKENS, training=True
        )
        choice = best_choice(asked, NO_HURDLES, models(card)).settled
        assert "sm90 " in choice.why
        assert f"borrowed rows of {HIDDEN}, scaled to {card.gpu} by multiprocessors, clock and bandwidth" in choice.why
        taken.append(choice.backend)
    assert taken.count("sm90") >= 2
    listed = attention_choose.Question(
        0, torch.bfloat16, 128, "listed", 128, 0.2, (8192, 8192), heads=(2, 32, 32), precision="bfloat16"
    )
    found = attention_choose.by_models(models(card), listed, NO_HURDLES)
    assert found is not None
    assert found.settled.backend == "sm90"
    assert f"borrowed rows of {HIDDEN}, scaled to {card.gpu}" in found.settled.why


def test_a_tile_is_that_of_the_cards_own_multiprocessors() -> None:
    few = ProductCase("multiply", "tokens", 128, "bfloat16", 60 * 128, 8192, 1000, 512)  # 120 wide tiles
    narrow, wide = (terms_of(few, "sm90", replace(H200, sms=sms)) for sms in (132, 114))
    items = 8  # its place among the terms: of each multiprocessor
    assert narrow[items] * 132 == 4 * wide[items] * 114  # 64 tokens of a tile instead of 256
