"""One forward pass."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from firstlight.kernels.block_attention.lists import lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.triton.arguments import ForwardStrides, ForwardTensors, Sizes
from firstlight.kernels.block_attention.triton.calls import (
    kept_with,
    pointers_of,
    problem_of,
    ready_for,
    require_runnable,
    rows_contiguous,
    sizes_of,
    start_aligned,
    strides_of,
    takes_tf32,
)
from firstlight.kernels.block_attention.triton.tiles import Pass
from firstlight.kernels.triton_backend.launch import Runner


class _Launch(NamedTuple):
    """The kernel of a call and its arguments besides the tensors."""

    run: Runner
    grid: int
    strides: ForwardStrides
    sizes: Sizes


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
    key = (
        "forward", q.stride(), k.stride(), v.stride(), out.stride(), start_aligned(operands), q.shape, k.shape, q.dtype,
        q.device, scale, takes_tf32(q),
    )  # fmt: skip
    launch = kept_with(mask, key, lambda: _launch(operands, mask, scale))
    lists = pointers_of(lists_of(mask), mask)
    launch.run(launch.grid, (ForwardTensors(*operands, lse), lists, launch.strides, launch.sizes, None))


def _launch(operands: tuple[Tensor, ...], mask: BlockMask, scale: float) -> _Launch:
    q, k, strides = operands[0], operands[1], strides_of(operands)
    ready = ready_for(Pass.FORWARD, problem_of(mask, operands, strides, scale=scale))
    sizes = sizes_of(q, k, mask, scale)
    grid = q.shape[0] * q.shape[1] * sizes.q_blocks * (mask.block // ready.tile.bm)
    return _Launch(ready.run, grid, ForwardStrides(*strides), sizes)
