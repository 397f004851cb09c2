"""One forward pass."""

from __future__ import annotations

from torch import Tensor

from firstlight.kernels.block_attention.lists import lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.triton.arguments import ForwardStrides, ForwardTensors
from firstlight.kernels.block_attention.triton.calls import (
    pointers_of,
    problem_of,
    ready_for,
    require_runnable,
    rows_contiguous,
    sizes_of,
    strides_of,
)
from firstlight.kernels.block_attention.triton.tiles import Pass


def forward(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> None:
    """out = softmax(scale * q k') v over what the mask lets each query see, lse its logarithmic sums.

    Both are fully overwritten. Any layout whose last dimension is contiguous is read and written as it is; lse is
    contiguous.
    """
    require_runnable(q)
    if out.numel() == 0:
        return
    assert out.stride(3) == 1, out.stride()
    assert lse.is_contiguous(), lse.stride()
    q, k, v = rows_contiguous(q), rows_contiguous(k), rows_contiguous(v)
    operands = (q, k, v, out)
    strides = strides_of(operands)
    ready = ready_for(Pass.FORWARD, problem_of(mask, operands, strides, scale=scale))
    sizes = sizes_of(q, k, mask, scale)
    tensors, lists = ForwardTensors(*operands, lse), pointers_of(lists_of(mask), mask)
    grid = q.shape[0] * q.shape[1] * sizes.q_blocks * (mask.block // ready.tile.bm)
    ready.run(grid, (tensors, lists, ForwardStrides(*strides), sizes, None))
