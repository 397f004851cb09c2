"""Lists of patterns and masks on a Hopper GPU: one launch, several, and what torch makes of the same on the processor.

From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_lists_gpu.py
"""

from __future__ import annotations

import pytest
import torch

from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, linear
from firstlight.kernels.block_attention.bits import FULL, NONE, PARTIAL
from firstlight.kernels.block_attention.lists import fill, order_of
from firstlight.kernels.block_attention.triton import lists as by_triton
from firstlight.kernels.sm90 import listing, mask_lists
from firstlight.kernels.sm90.lists import WHOLE, step_width

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
    ),
]
MASKS = [
    ((1, 1, 1, 1), 1.0), ((1, 1, 32, 32), 0.25), ((1, 32, 64, 64), 0.25), ((2, 3, 7, 33), 0.3),
    ((1, 1, 1024, 1024), 0.1), ((1, 1, 5000, 3), 0.5), ((1, 1, 3, 5000), 0.5),
    ((4, 8, 16, 16), 0.0), ((8, 32, 64, 64), 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "density"), MASKS)
@pytest.mark.parametrize("turned", [False, True])
def test_lists_of_a_mask_are_those_of_torch_and_of_triton(
    shape: tuple[int, int, int, int], density: float, turned: bool  # noqa: FBT001
) -> None:  # fmt: skip
    kept, partial = torch.rand(shape) < density, torch.rand(shape) < 0.4
    kinds = torch.where(kept, torch.where(partial, PARTIAL, FULL), NONE).to(torch.uint8)
    which, used = torch.randint(0, 1000, shape, dtype=torch.int32), int(kept.sum())
    there, place = kinds.cuda(), which.cuda()
    assert mask_lists.can_list(there)
    found = mask_lists.filled(there, place, used, turned=turned)
    other = (by_triton.fill_turned if turned else by_triton.fill)(there, place, used)
    if turned:
        kinds, which = kinds.mT.contiguous(), which.mT.contiguous()
    starts, columns, masks = fill(kinds, which, used)
    right = (starts, columns, masks, order_of(starts, (shape[0] * shape[1], kinds.shape[2])))
    for name, one, second, wanted in zip(found.apart._fields, found.apart, other, right, strict=True):
        end = used if name in ("columns", "masks") else wanted.numel()
        assert torch.equal(one.cpu().view(-1)[:end], wanted.view(-1)[:end])
        assert torch.equal(second.cpu().view(-1)[:end], wanted.view(-1)[:end])


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("turned", [False, True])
def test_one_launch_and_several_make_the_same_lists_of_a_pattern(
    block: int, turned: bool, monkeypatch: pytest.MonkeyPatch  # noqa: FBT001
) -> None:  # fmt: skip
    for rows, cols, density in ((8192, 8192, 0.1), (11008, 4096, 0.3), (block, 8192, 0.5), (1000, 3000, 0.02)):
        w = BlockSparseMatrix.random(rows, cols, block=block, density=density, dtype=torch.bfloat16, device="cuda")
        index = w.pattern.transposed if turned else w.pattern.forward
        for limit in (7, WHOLE):
            sizes = listing.sizes_of(index, width=step_width(block), limit=limit)
            made = []
            for most in (1 << 40, -1):
                monkeypatch.setattr(listing, "MOST_AT_ONCE", most)
                made.append(listing.listed(index, sizes))
            once, by_phase = made
            end = int(once.steps.starts[-1])
            assert torch.equal(once.segments.items, by_phase.segments.items)
            assert torch.equal(once.segments.first_slot, by_phase.segments.first_slot)
            assert torch.equal(once.segments.slot_counts, by_phase.segments.slot_counts)
            assert torch.equal(once.steps.starts, by_phase.steps.starts)
            columns, members = end * sizes.width, end * sizes.width * sizes.height
            assert torch.equal(once.steps.columns[:columns], by_phase.steps.columns[:columns])
            assert torch.equal(once.steps.members.view(-1)[:members], by_phase.steps.members.view(-1)[:members])
            stored = once.steps.members.view(-1)[:members]
            assert torch.equal(stored[stored >= 0].sort().values.cpu(), torch.arange(index.entries, dtype=torch.int32))


def test_many_new_patterns_and_masks_on_two_streams_at_once_are_multiplied_right() -> None:
    """Two launches of one cluster each may run side by side; each call is held against float32."""
    torch.manual_seed(5)
    streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    x = torch.randn(300, 1024, dtype=torch.bfloat16, device="cuda")
    q, k, v = (torch.randn(1, 4, 512, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    made = []
    for number in range(40):
        with torch.cuda.stream(streams[number % 2]):
            block = (16, 32, 64, 128)[number // 2 % 4]
            w = BlockSparseMatrix.random(
                768, 1024, block=block, density=0.2 + 0.01 * number, dtype=torch.bfloat16, device="cuda"
            )
            kept = torch.rand(1, 4, 8, 8, device="cuda") < 0.5
            mask = BlockMask.from_bool(kept, block_level=True, q_len=512, k_len=512, block=64)
            made.append((w, kept, linear(x, w, backend="sm90"), attention(q, k, v, mask, backend="sm90")))
    torch.cuda.synchronize()
    for w, kept, product, seen in made:
        right = x.float() @ w.to_dense().float().T
        assert float((product.float() - right).norm() / right.norm()) < 5e-3
        allowed = kept.repeat_interleave(64, 2).repeat_interleave(64, 3)
        scores = (q.float() @ k.float().mT / 8.0).masked_fill(~allowed, -torch.inf)
        wanted = torch.nan_to_num(scores.softmax(-1)) @ v.float()
        assert float((seen.float() - wanted).norm() / wanted.norm()) < 2e-2
