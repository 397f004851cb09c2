"""attention.cu itself, run thread by thread in the emulator behind its real arguments, and faults planted into it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.sm90 import attention
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.driver import EmulatingDriver
from tests.kernels.sm90.emulator.faults import NUMBERS, Change, Planted, assert_noticed
from tests.kernels.sm90.emulator.machine import emulated_gpu
from tests.kernels.sm90.emulator.products import attended
from tests.kernels.sm90.emulator.run import EmulatedFault

pytestmark = needs_compiler
BUILDS = list(itertools.product((128, 64), (128, 64)))
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 2e-2}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatingDriver]:
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=2) as made:
        yield made


@pytest.mark.parametrize(("block", "head_dim"), BUILDS)
def test_masks_with_partial_blocks_and_ragged_lengths(gpu: EmulatingDriver, block: int, head_dim: int) -> None:
    causal = BlockMask.causal(200, 330, block=block, alignment="lower_right")
    assert attended(causal, heads=(2, 1), head_dim=head_dim).wrong(TOLERANCE[torch.float16]) == 0
    window = BlockMask.window(330, 200, left=70, right=3, block=block)  # its last rows see no key
    assert attended(window, heads=(2, 2), head_dim=head_dim, batch=2).wrong(TOLERANCE[torch.float16]) == 0


@pytest.mark.parametrize(("block", "head_dim"), [(128, 64), (64, 128)])
def test_bfloat16(gpu: EmulatingDriver, block: int, head_dim: int) -> None:
    causal = BlockMask.causal(200, 200, block=block)
    found = attended(causal, heads=(2, 1), head_dim=head_dim, dtype=torch.bfloat16)
    assert found.wrong(TOLERANCE[torch.bfloat16]) == 0


@pytest.mark.parametrize(("block", "head_dim"), BUILDS)
def test_another_list_for_every_head_some_of_them_empty(gpu: EmulatingDriver, block: int, head_dim: int) -> None:
    chosen = torch.rand(1, 3, 4, 3, generator=torch.Generator().manual_seed(block)) < 0.4
    chosen[0, 1] = False
    chosen[0, 2, :, 1:] = False
    mask = BlockMask.from_bool(chosen.repeat_interleave(block, 2).repeat_interleave(block, 3), block=block)
    first = attended(mask, heads=(3, 3), head_dim=head_dim)
    assert first.wrong(TOLERANCE[torch.float16]) == 0
    assert (first.out[0, 1] == 0).all()
    again = attended(mask, heads=(3, 3), head_dim=head_dim)
    assert torch.equal(again.out, first.out), f"seed {gpu.seed}"
    assert torch.equal(again.lse, first.lse)


@pytest.mark.parametrize("block", [128, 64])
def test_a_row_gets_the_same_bits_whatever_the_other_rows_hold(gpu: EmulatingDriver, block: int) -> None:
    generator = torch.Generator().manual_seed(block)
    q, k, v = (torch.randn(1, 1, length, 64, generator=generator).half() for length in (block, 3 * block, 3 * block))
    q = q * 2  # maxima grow from tile to tile, by less than what has a row scaled anew
    mask = BlockMask.full(block, 3 * block, block=block)

    def rows_of(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = torch.empty_like(given), torch.empty(given.shape[:3])
        attention.forward(given, k, v, mask, scale=0.125, out=out, lse=lse)
        return out, lse

    out, lse = rows_of(q)
    changed = torch.arange(3, block, 16)  # one in every warp's rows
    others = torch.ones(block, dtype=torch.bool).index_fill(0, changed, value=False)
    for number in (math.nan, 60.0):
        other_q = q.clone()
        other_q[:, :, changed] = number
        other_out, other_lse = rows_of(other_q)
        assert torch.equal(other_out[:, :, others], out[:, :, others]), number
        assert torch.equal(other_lse[:, :, others], lse[:, :, others]), number


_KEY_LEAVES = "    if (signals) barrier_arrive(shared_address(&shared->empty[engine][key]));\n"
_WAIT = "    wgmma_wait<1>();  // the scores are there\n"
_TAKEN = "    taken_over(p, fresh);\n    held = ring.slot;\n"
_NEXT_SCORES = "    wgmma_fence();\n    multiply_scores(s, QUERIES, tiles + key * TILE_BYTES);"
PLANTED = (
    Planted(
        "a tile of keys is released before the scores are there",
        (Change("attention.cu", _WAIT + _KEY_LEAVES, _KEY_LEAVES + _WAIT),),
        (NUMBERS, "nothing can go on"),
    ),
    Planted(
        "scores are read before they are there",
        (Change("attention.cu", _WAIT, "    wgmma_wait<2>();\n"),),
        (NUMBERS, "accumulators were written"),
    ),
    Planted(
        "new shares are packed into registers that a product still reads",
        (
            Change("attention.cu", _TAKEN, "    held = ring.slot;\n"),
            Change("attention.cu", _NEXT_SCORES, "    taken_over(p, fresh);\n" + _NEXT_SCORES),
        ),
        (NUMBERS,),
    ),
    Planted(
        "staging is used again before it was read",
        (Change("attention.cu", "  if (lane == 0) stores_read<0>();\n", ""),),
        (NUMBERS,),
        block=64,
    ),
    Planted(
        "the queries' seat is given up before their last scores are there",
        (Change("attention.cu", "      LEAVE_QUERIES();\n      advance<SEATS>(seat);",
                "      advance<SEATS>(seat);"),
         Change("attention.cu", _WAIT, "    if (left == 0) { LEAVE_QUERIES(); }\n" + _WAIT)),
        (NUMBERS, "nothing can go on", "one more arrival"),
    ),
    Planted(
        "an item is published over one that the loader has not taken",
        (Change("attention_queue.cuh", "    barrier_wait(shared_address(&counter.taken), parity);\n", ""),),
        (NUMBERS, "nothing can go on", "one more arrival"),
    ),
    Planted(
        "the sums of an item go on in the next one",
        (Change("attention.cu", "      sums = last ? no_sums() : sums;\n", ""),),
        (NUMBERS,),
    ),
    Planted(
        "an output leaves for the rows of the next item",
        (Change("attention.cu", "      before = last ? owner : before;\n      owner = next;\n",
                "      owner = next;\n      before = last ? owner : before;\n"),),
        (NUMBERS,),
    ),
    Planted(
        "a warpgroup passes the turn to itself",
        (Change("attention.cu", "pass_turn(TURN + 1 - half);", "pass_turn(TURN + half);"),),
        ("nothing can go on",),
    ),
)  # fmt: skip


def seen(planted: Planted) -> str:
    mask = BlockMask.causal(6 * planted.block, 6 * planted.block, block=planted.block)
    try:
        found = attended(mask, heads=(2, 1), head_dim=64)
    except EmulatedFault as fault:
        return str(fault)
    return NUMBERS if found.wrong(TOLERANCE[torch.float16]) else ""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_it_is_noticed_that(tmp_path: Path, planted: Planted) -> None:
    assert_noticed(planted, tmp_path, seen)


@pytest.mark.parametrize("block", [128, 64])
def test_without_a_fault_the_same_attention_is_right(gpu: EmulatingDriver, block: int) -> None:
    for seed in range(2):
        gpu.seed = 100 * seed
        assert seen(Planted("none", (), (), block)) == ""
