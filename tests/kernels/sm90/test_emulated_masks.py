"""attention.cu run on the processor, thread by thread, with copies and products at the worst moments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.sm90.compile import SOURCES
from tests.kernels.sm90.attention_cases import Run, Sizes, computed, faults, tensors
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.run import EmulatedFault

pytestmark = needs_compiler
HALF, BRAIN = torch.float16, torch.bfloat16


def random_blocks(q_len: int, k_len: int, *, block: int, density: float, heads: int = 2, batch: int = 1) -> BlockMask:
    source = torch.Generator().manual_seed(3)
    shape = (batch, heads, -(-q_len // block), -(-k_len // block))
    kept = torch.rand(shape, generator=source) < density
    return BlockMask.from_bool(kept, block_level=True, q_len=q_len, k_len=k_len, block=block)


def masks(block: int) -> dict[str, BlockMask]:
    """Small and awkward: ragged ends, lists of all lengths, rows without keys."""
    element = torch.rand(1, 1, 2 * block + 7, 2 * block + 9, generator=torch.Generator().manual_seed(1)) < 0.02
    element[..., :block, :block] = False
    element[..., 3, :] = False
    element[..., 5, :] = False
    element[..., 5, -1] = True
    return {
        "full": BlockMask.full(block, 3 * block, block=block),
        "causal": BlockMask.causal(3 * block - 20, block=block),
        "lower right": BlockMask.causal(block + 40, 2 * block + 5, alignment="lower_right", block=block),
        "window": BlockMask.window(3 * block, left=block // 2, right=9, block=block),
        "random": random_blocks(4 * block - 1, 5 * block - 3, block=block, density=0.4),
        "few": random_blocks(6 * block, 2 * block, block=block, density=0.2),
        "none": random_blocks(2 * block, 2 * block, block=block, density=0.0),
        "elements": BlockMask.from_bool(element, block=block),
        "one key": BlockMask.sink(block + 1, 1, keys=1, block=block),
    }


@pytest.mark.parametrize("name", list(masks(128)))
@pytest.mark.parametrize(("block", "head_dim", "dtype"), [(128, 128, HALF), (64, 128, HALF), (64, 64, BRAIN)])
def test_a_mask_gives_what_the_definition_says(
    name: str, block: int, head_dim: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    mask, run = masks(block)[name], Run(tmp_path, seed=len(name))
    given = tensors(mask, Sizes(head_dim=head_dim), dtype, run)
    computed(given, mask, run)
    assert faults(given, mask) == []


@pytest.mark.parametrize("multiprocessors", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_and_heads_with_lists_of_their_own_share_keys(multiprocessors: int, seed: int, tmp_path: Path) -> None:
    mask = random_blocks(260, 300, block=128, density=0.5, heads=4, batch=2)
    run = Run(tmp_path, multiprocessors, seed)
    given = tensors(mask, Sizes(batch=2, heads=4, kv_heads=2, head_dim=64), BRAIN, run)
    computed(given, mask, run)
    assert faults(given, mask) == []


def test_a_mask_of_each_batch_serves_all_heads(tmp_path: Path) -> None:
    mask, run = random_blocks(130, 200, block=64, density=0.5, heads=1, batch=2), Run(tmp_path)
    given = tensors(mask, Sizes(batch=2, heads=2, kv_heads=2, head_dim=64), HALF, run)
    computed(given, mask, run)
    assert faults(given, mask) == []


def test_large_scores_do_not_overflow(tmp_path: Path) -> None:
    mask, run = BlockMask.causal(300), Run(tmp_path, louder=200.0)
    given = tensors(mask, Sizes(), HALF, run)
    computed(given, mask, run)
    assert faults(given, mask) == []


def below_zero(run: Run, block: int, head_dim: int, dtype: torch.dtype) -> list[str]:
    """Faults with scores that are all negative, and nearer to 0 by some 2^60 from tile to tile."""
    mask = BlockMask.full(block, 4 * block, block=block)
    given = tensors(mask, Sizes(head_dim=head_dim), dtype, run)
    nearer = torch.linspace(24.0, 0.0, mask.k_len).view(-1, 1)
    given.q.copy_(given.q.abs())
    given.k.copy_(-given.k.abs() * nearer)
    computed(given, mask, run)
    return faults(given, mask)


@pytest.mark.parametrize(("block", "head_dim", "dtype"), [(128, 128, HALF), (128, 64, HALF), (64, 64, BRAIN)])
def test_scores_below_zero_that_grow(block: int, head_dim: int, dtype: torch.dtype, tmp_path: Path) -> None:
    assert below_zero(Run(tmp_path), block, head_dim, dtype) == []


@pytest.mark.parametrize("head_dim", [128, 64])
def test_a_maximum_by_the_bits_against_a_negative_limit_shows(head_dim: int, tmp_path: Path) -> None:
    text, limits = (SOURCES / "attention_tiles.cuh").read_text(), " | top0 < -KEPT | top1 < -KEPT;"
    assert text.count(limits) == 1
    changed = {"attention_tiles.cuh": text.replace(limits, ";")}
    assert below_zero(Run(tmp_path, replaced=changed), 128, head_dim, HALF)


def test_the_bits_do_not_depend_on_who_computes_what(tmp_path: Path) -> None:
    mask = random_blocks(400, 500, block=64, density=0.6)
    given = tensors(mask, Sizes(head_dim=64), HALF, Run(tmp_path))
    computed(given, mask, Run(tmp_path, 1, seed=4))
    first = given.out.clone(), given.lse.clone()
    computed(given, mask, Run(tmp_path, 3, seed=5))
    assert torch.equal(first[0], given.out)
    assert torch.equal(first[1], given.lse)


# Faults of the pipeline that a GPU would show now and then; more in test_emulated_attention.py

VALUES_WAIT = "    wgmma_wait<1>();                                        // now it is done\n"
PLANTED = {
    "a tile of values given back before its product is done": (
        VALUES_WAIT, VALUES_WAIT.replace("<1>", "<2>")
    ),
    "a store of what was not published": ("  publish_shared();\n  __syncwarp();", "  __syncwarp();"),
    "keys past the end counted": ("  if (mark.bits < 0 && mark.keys >= KEYS) return;", "  if (mark.bits < 0) return;"),
    "a tile expected larger than it is": (
        "  barrier_expect(full, TILE_BYTES);", "  barrier_expect(full, TILE_BYTES + 16);"
    ),
    "the queue not made ready again": ("    args.queue[0] = 0;\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_fault_shows(name: str, tmp_path: Path) -> None:
    right, wrong = PLANTED[name]
    texts = {file: (SOURCES / file).read_text() for file in ("attention.cu", "attention_queue.cuh")}
    [file] = [each for each, text in texts.items() if text.count(right) == 1]
    one_each, several = BlockMask.window(900, left=0, right=0), random_blocks(500, 500, block=128, density=0.7)
    changed = {file: texts[file].replace(right, wrong)}
    assert any(
        _shows(mask, Run(tmp_path, 1, seed, changed, times=2)) for mask in (one_each, several) for seed in range(8)
    )


def _shows(mask: BlockMask, run: Run) -> bool:
    given = tensors(mask, Sizes(head_dim=64), HALF, run)
    try:
        computed(given, mask, run)
    except EmulatedFault:
        return True
    return bool(faults(given, mask))
