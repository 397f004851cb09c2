"""gradient_once.cu and gradient_rows.cu, run thread by thread in the emulator, and faults planted into them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from firstlight.kernels.block_attention.lists import lists_of, ranks_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.sm90 import gradient_once
from firstlight.kernels.sm90.gradient_once import Order
from firstlight.kernels.sm90.nvrtc import Nvrtc
from firstlight.kernels.sm90.problem import multiprocessors
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.driver import EmulatingDriver
from tests.kernels.sm90.emulator.faults import NUMBERS, Change, Planted, assert_noticed
from tests.kernels.sm90.emulator.machine import emulated_gpu
from tests.kernels.sm90.emulator.run import EmulatedFault
from tests.kernels.sm90.test_emulated_gradient import TOLERANCE, differentiated, off

pytestmark = needs_compiler
as_measured = gradient_once.takes


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatingDriver]:
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=3) as made:
        yield made


@pytest.fixture(autouse=True)
def in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_once, "takes", lambda *given: True)


def holes(heads: int, q_blocks: int, k_blocks: int, *, q_len: int, k_len: int, seed: int = 0) -> BlockMask:
    """Another list for every head, about half of the blocks; head 1 and the first queries of head 0 see nothing."""
    chosen = torch.rand(1, heads, q_blocks, k_blocks, generator=torch.Generator().manual_seed(seed)) < 0.5
    chosen[0, 1] = False
    chosen[0, 0, 0] = False
    return BlockMask.from_bool(chosen, block_level=True, q_len=q_len, k_len=k_len, block=128)


@pytest.mark.parametrize(
    "mask",
    [
        BlockMask.causal(300, 300, block=128),
        BlockMask.causal(130, 330, block=128, alignment="lower_right"),
        BlockMask.window(330, 200, left=70, right=3, block=128),
        BlockMask.full(256, 128, block=128),
    ],
    ids=["causal", "lower right", "window, rows that see nothing", "full"],
)
def test_partial_blocks_and_ragged_lengths(gpu: EmulatingDriver, mask: BlockMask) -> None:
    assert off(differentiated(mask, heads=1), TOLERANCE[torch.float16]) == []
    assert gpu.launched[-2:] == ["gradient_once", "gradient_rows"]


def test_bfloat16_and_the_gradient_of_the_logarithms(gpu: EmulatingDriver) -> None:
    pairs = differentiated(BlockMask.causal(200, 200, block=128), dtype=torch.bfloat16, with_lse=True)
    assert off(pairs, TOLERANCE[torch.bfloat16]) == []


def test_rows_and_heads_that_see_nothing_get_zeros_where_memory_held_anything(
    gpu: EmulatingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = torch.empty

    def spoiled(*size: int, **options: object) -> torch.Tensor:
        made: torch.Tensor = empty(*size, **options)  # type: ignore[call-overload]
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", spoiled)
    pairs = differentiated(holes(3, 3, 3, q_len=300, k_len=384), heads=3)
    assert off(pairs, TOLERANCE[torch.float16]) == []
    assert all(bool((made[0, 1] == 0).all()) for made, _ in pairs)
    assert bool((pairs[0][0][0, 0, :128] == 0).all())


@pytest.mark.parametrize(("group", "order"), [(2, Order(1, upward=True)), (4, Order(8, upward=False))])
def test_heads_that_share_keys_each_with_its_list(
    gpu: EmulatingDriver, group: int, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_once, "order_for", lambda mask: order)
    mask = holes(4, 3, 2, q_len=300, k_len=256, seed=group)
    assert off(differentiated(mask, heads=4, group=group), TOLERANCE[torch.float16]) == []
    if group == 2:
        causal = BlockMask.causal(200, 200, block=128)  # one list for all
        assert off(differentiated(causal, heads=4, group=group), TOLERANCE[torch.float16]) == []


@pytest.mark.parametrize("order", [Order(2, upward=True), Order(3, upward=False)])
def test_heads_are_handed_out_side_by_side_also_where_some_are_left_over(
    gpu: EmulatingDriver, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_once, "order_for", lambda mask: order)
    assert off(differentiated(BlockMask.causal(256, 256, block=128), heads=3), TOLERANCE[torch.float16]) == []


def test_every_order_of_events_gives_the_same_bits(gpu: EmulatingDriver) -> None:
    mask, found = BlockMask.full(128, 384, block=128), []
    for seed in range(5):
        gpu.seed = 1000 * seed
        found.append([made for made, _ in differentiated(mask, heads=1)])
    assert all(torch.equal(one, other) for each in found[1:] for one, other in zip(found[0], each, strict=True))


def test_one_pass_is_taken_for_masks_of_one_drawn_list_and_head_dimension_128() -> None:
    wide, narrow = torch.empty(1, 3, 300, 128), torch.empty(1, 3, 300, 64)
    causal = BlockMask.causal(300, 300, block=128)
    assert as_measured(wide, wide, causal)
    assert as_measured(wide, wide, BlockMask.full(300, 300, block=128))
    scattered = BlockMask.from_bool(torch.eye(3).bool(), block_level=True, q_len=384, k_len=384, block=128)
    assert not as_measured(wide, wide, scattered)
    assert not as_measured(narrow, narrow, causal)
    assert not as_measured(wide, wide, holes(3, 3, 3, q_len=300, k_len=300))
    assert not as_measured(wide[:, :, :0], wide, causal)


def test_short_rows_and_many_short_sequences_keep_two_passes() -> None:
    long = torch.empty(1, 1, 16384, 128)
    assert as_measured(long, long, BlockMask.window(16384, left=1024))
    assert not as_measured(long, long, BlockMask.window(16384, left=512))
    near = BlockMask.window(16384, left=1024) | (BlockMask.causal(16384) & BlockMask.sink(16384, keys=128))
    assert as_measured(long, long, near)
    # eight of 2048 are as long a row as that window, and lose; one of 8192 among short ones does not
    assert not as_measured(long, long, BlockMask.packed(torch.arange(0, 16385, 2048), causal=True))
    mixed = BlockMask.packed(torch.tensor([0, 10240, *range(10752, 16385, 512)]), causal=True)
    assert as_measured(long, long, mixed)


def test_heads_that_share_keys_keep_two_passes_where_their_items_leave_multiprocessors_idle(
    gpu: EmulatingDriver,
) -> None:
    queries, keys = torch.empty(1, 4, 300, 128), torch.empty(1, 1, 300, 128)
    causal = BlockMask.causal(300, 300, block=128)
    assert multiprocessors(0) == 3
    assert not as_measured(queries, keys, causal)  # three key blocks, three multiprocessors
    assert as_measured(queries, torch.empty(1, 2, 300, 128), causal)


def test_a_compiler_that_puts_products_one_behind_the_other_keeps_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, causal = torch.empty(1, 3, 300, 128), BlockMask.causal(300, 300, block=128)
    taken = {}
    for version in ("12", "12.8", "12.9", "13", "13.0.88"):  # one number: no builtins library lies beside NVRTC
        monkeypatch.setattr(gradient_once, "find_compiler", functools.partial(Nvrtc, "libnvrtc.so", version, "nvrtc"))
        gradient_once.built_well.cache_clear()
        taken[version] = as_measured(queries, queries, causal)
    gradient_once.built_well.cache_clear()
    assert taken == {"12": False, "12.8": False, "12.9": True, "13": True, "13.0.88": True}


def test_heads_abreast_follow_from_the_share_of_blocks() -> None:
    assert gradient_once.order_for(BlockMask.full(512, 512, block=128)) == Order(4, upward=False)
    assert gradient_once.order_for(BlockMask.causal(4096, 4096, block=128)) == Order(16, upward=False)
    assert gradient_once.order_for(BlockMask.window(4096, left=200, block=128)) == Order(32, upward=True)
    packed = BlockMask.packed(torch.arange(0, 8193, 1024), causal=True)
    assert gradient_once.order_for(packed) == Order(32, upward=False)


def test_ranks_say_how_many_blocks_come_before() -> None:
    mask = holes(3, 4, 5, q_len=512, k_len=640)
    ranks, lists = ranks_of(mask), lists_of(mask)
    assert ranks_of(mask) is ranks
    for row in range(12):
        begin, end = int(lists.starts[row]), int(lists.starts[row + 1])
        assert [int(ranks.view(12, 5)[row, column]) for column in lists.columns[begin:end]] == list(range(end - begin))


ONCE = "gradient_once.cu"
_HANDED = "  publish_shared();\n  __syncwarp();\n  if (at.lane == 0) barrier_arrive(shared_address(&at.shared->made"
PLANTED = (
    Planted("the differences are not published",
            (Change(ONCE, "    publish_shared();\n    take_turn(3);", "    take_turn(3);"),), (NUMBERS,)),
    Planted("the warpgroups do not meet at the differences",
            (Change(ONCE, "    take_turn(3);  // D is there,", "    // D is there,"),), (NUMBERS,)),
    Planted("what is added is not published",
            (Change(ONCE, _HANDED, _HANDED.replace("  publish_shared();\n", "")),), (NUMBERS,)),
    Planted("a turn is not waited for", (Change(ONCE, "    wait_for_turn(turn, mark.rank);\n", ""),), (NUMBERS,)),
    Planted("a turn is not ended", (Change(ONCE, "    end_turn(turn, mark.rank + 1);\n", ""),), ("nothing can go on",)),
    Planted("a turn ends before the sums are there", (Change(ONCE, "    stores_done();\n", ""),), (NUMBERS,)),
    Planted("the first one adds to what was there",
            (Change(ONCE, "if (mark.rank == 0) store", "if (mark.rank < 0) store"),), (NUMBERS,)),
    Planted("the place of the sums is given back while they are read",
            (Change(ONCE, "    stores_read<0>();\n", ""),), (NUMBERS,)),
    Planted("key blocks are handed out in the other order",
            (Change(ONCE, "work.row = rest / width;", "work.row = args.blocks - 1 - rest / width;"),),
            ("nothing can go on",)),
    Planted("the sums are read before they are there",
            (Change(ONCE, "    wgmma_wait<0>();  // what the stage before began\n", "    wgmma_wait<1>();\n"),),
            (NUMBERS, "accumulators were written", "nothing can go on")),
    Planted("keys and values are left while products read them",
            (Change(ONCE, "  wgmma_wait<0>();\n  at.release();\n  if (!item", "  at.release();\n  if (!item"),),
            (NUMBERS, "accumulators were", "ended without a wait")),
    Planted("turns stay as they are", (Change("gradient_rows.cu", "args.turns[tile] = 0;", ";"),),
            (NUMBERS, "nothing can go on"), runs=2),
)  # fmt: skip


def seen_in(planted: Planted) -> str:
    mask = BlockMask.causal(384, 384, block=128)
    try:
        pairs = [pair for _ in range(planted.runs) for pair in differentiated(mask, heads=1)]
    except EmulatedFault as fault:
        return str(fault)
    return NUMBERS if off(pairs, TOLERANCE[torch.float16]) else ""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_it_is_noticed_that(tmp_path: Path, planted: Planted) -> None:
    assert_noticed(planted, tmp_path, seen_in)


@pytest.mark.parametrize("seed", range(2))
def test_without_a_fault_it_is_right_under_other_seeds(gpu: EmulatingDriver, seed: int) -> None:
    gpu.seed = 100 * seed
    assert off(differentiated(BlockMask.causal(384, 384, block=128), heads=2), 3e-3) == []
