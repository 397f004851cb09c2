"""One backward pass: what is needed of every query row, then dq by query blocks, then dk and dv by key blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.kernels.block_attention.lists import lists_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.block_attention.triton.arguments import (
    BackwardStrides,
    BackwardTensors,
    RowStrides,
    RowTensors,
    Sizes,
)
from firstlight.kernels.block_attention.triton.calls import (
    are_aligned,
    like,
    pointers_of,
    problem_of,
    ready_for,
    require_runnable,
    rows_contiguous,
    sizes_of,
    strides_of,
)
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.block_attention.triton.plan import ROWS_TILE, Problem, rows_spec
from firstlight.kernels.block_attention.triton.tiles import Pass


def backward(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv in the layouts of q, k and v; exactly 0 for rows that see no key and keys that nobody sees."""
    q, k, v, out, lse = made
    require_runnable(q)
    q, k, v, grad = (rows_contiguous(given) for given in (q, k, v, upstream.out.to(q.dtype)))
    dq, dk, dv = like(q), like(k), like(v)
    if dq.numel() == 0 or dk.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    operands = (q, k, v, grad, dq, dk, dv)
    strides = strides_of(operands)
    problem = problem_of(mask, operands, strides, scale=scale)
    sizes = sizes_of(q, k, mask, scale)
    log_sums, deltas = _rows_before((rows_contiguous(out), grad), (lse, upstream.lse), problem, sizes)
    tensors = BackwardTensors(q, k, v, grad, log_sums, deltas, dq, dk, dv)
    by_dq, by_dkdv = ready_for(Pass.DQ, problem), ready_for(Pass.DKDV, problem)
    listed, turned = pointers_of(lists_of(mask), mask), pointers_of(turned_lists_of(mask), mask)
    grid = q.shape[0] * k.shape[1] * sizes.k_blocks * (mask.block // by_dkdv.tile.bn)
    by_dkdv.run(grid, (tensors, turned, BackwardStrides(*strides), sizes, None))
    grid = q.shape[0] * q.shape[1] * sizes.q_blocks * (mask.block // by_dq.tile.bm)
    by_dq.run(grid, (tensors, listed, BackwardStrides(*strides), sizes, None))
    return dq, dk, dv


def row_sums(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor]:
    """(log_sums, deltas) [B, H, Sq] of every query row, for another backend's passes; upstream.out as q's type."""
    q, k, v, out, lse = made
    operands = (q, k, v, upstream.out)
    problem = problem_of(mask, operands, strides_of(operands), scale=scale)
    sizes = sizes_of(q, k, mask, scale)
    return _rows_before((rows_contiguous(out), rows_contiguous(upstream.out)), (lse, upstream.lse), problem, sizes)


def _rows_before(
    values: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor | None], problem: Problem, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """(log_sums, deltas) of every query row, from (out, its gradient) and (lse, its gradient)."""
    (out, grad), (lse, grad_lse) = values, sums
    lse = lse.contiguous()
    made = torch.empty((2, *lse.shape), dtype=torch.float32, device=lse.device)
    given = lse if grad_lse is None else grad_lse.to(torch.float32).contiguous()
    tensors, strides = RowTensors(out, grad, lse, given, made[0], made[1]), strides_of((out, grad))
    # the sums are read by the row: only out and its gradient are worth wide loads
    problem = problem._replace(has_grad_lse=grad_lse is not None, aligned=are_aligned(strides, (out, grad)))
    run = runner_for(rows_spec(problem), lse.device)
    run(lse.shape[0] * lse.shape[1] * -(-lse.shape[2] // ROWS_TILE), (tensors, RowStrides(*strides), sizes, None))
    return made[0], made[1]
