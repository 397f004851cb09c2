"""One backward pass: what is needed of every query row, then dq by query blocks, then dk and dv by key blocks."""

from __future__ import annotations

from typing import NamedTuple

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
    kept_with,
    like,
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
from firstlight.kernels.block_attention.triton.launch import runner_for
from firstlight.kernels.block_attention.triton.plan import ROWS_TILE, Problem, rows_spec
from firstlight.kernels.block_attention.triton.tiles import Pass
from firstlight.kernels.triton_backend.launch import Runner


class _Rows(NamedTuple):
    """The kernel before a backward pass and its arguments besides the tensors."""

    run: Runner
    grid: int
    strides: RowStrides
    sizes: Sizes


class _Passes(NamedTuple):
    """The kernels of a backward pass and their arguments besides the tensors."""

    rows: _Rows
    by_dkdv: Runner
    dkdv_grid: int
    by_dq: Runner
    dq_grid: int
    strides: BackwardStrides


def backward(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv in the layouts of q, k and v; exactly 0 for rows that see no key and keys that nobody sees."""
    q, k, v, out, lse = made
    require_runnable(q)
    grad = rows_contiguous(upstream.out if upstream.out.dtype is q.dtype else upstream.out.to(q.dtype))
    q, k, v, out = rows_contiguous(q), rows_contiguous(k), rows_contiguous(v), rows_contiguous(out)
    dq, dk, dv = like(q), like(k), like(v)
    if dq.numel() == 0 or dk.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    operands = (q, k, v, grad, dq, dk, dv)
    key = (
        "backward", q.stride(), k.stride(), v.stride(), grad.stride(), dq.stride(), dk.stride(), dv.stride(),
        out.stride(), start_aligned(operands), start_aligned((out, grad)), q.shape, k.shape, q.dtype, q.device, scale,
        upstream.lse is None, takes_tf32(q),
    )  # fmt: skip
    passes = kept_with(mask, key, lambda: _passes(operands, out, upstream.lse, mask, scale))
    log_sums, deltas = _rows_before((out, grad), (lse, upstream.lse), passes.rows)
    tensors = BackwardTensors(q, k, v, grad, log_sums, deltas, dq, dk, dv)
    listed, turned = pointers_of(lists_of(mask), mask), pointers_of(turned_lists_of(mask), mask)
    passes.by_dkdv(passes.dkdv_grid, (tensors, turned, passes.strides, passes.rows.sizes, None))
    passes.by_dq(passes.dq_grid, (tensors, listed, passes.strides, passes.rows.sizes, None))
    return dq, dk, dv


def _passes(
    operands: tuple[Tensor, ...], out: Tensor, grad_lse: Tensor | None, mask: BlockMask, scale: float
) -> _Passes:
    q, k, _, grad, *_ = operands
    strides = strides_of(operands)
    problem = problem_of(mask, operands, strides, scale=scale)
    sizes = sizes_of(q, k, mask, scale)
    rows = _rows((out, grad), grad_lse, problem, sizes)
    by_dq, by_dkdv = ready_for(Pass.DQ, problem), ready_for(Pass.DKDV, problem)
    dkdv_grid = q.shape[0] * k.shape[1] * sizes.k_blocks * (mask.block // by_dkdv.tile.bn)
    dq_grid = q.shape[0] * q.shape[1] * sizes.q_blocks * (mask.block // by_dq.tile.bm)
    return _Passes(rows, by_dkdv.run, dkdv_grid, by_dq.run, dq_grid, BackwardStrides(*strides))


def row_sums(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor]:
    """(log_sums, deltas) [B, H, Sq] of every query row, for another backend's passes; upstream.out as q's type."""
    q, k, v = made.q, made.k, made.v
    out, grad = rows_contiguous(made.out), rows_contiguous(upstream.out)

    def make() -> _Rows:
        operands = (q, k, v, upstream.out)
        problem = problem_of(mask, operands, strides_of(operands), scale=scale)
        return _rows((out, grad), upstream.lse, problem, sizes_of(q, k, mask, scale))

    key = (
        "rows", q.stride(), k.stride(), v.stride(), upstream.out.stride(), out.stride(), grad.stride(),
        start_aligned((out, grad)), q.shape, k.shape, q.dtype, q.device, scale, upstream.lse is None, takes_tf32(q),
    )  # fmt: skip
    return _rows_before((out, grad), (made.lse, upstream.lse), kept_with(mask, key, make))


def _rows(values: tuple[Tensor, Tensor], grad_lse: Tensor | None, problem: Problem, sizes: Sizes) -> _Rows:
    """For (out, its gradient)."""
    out, strides = values[0], strides_of(values)
    # the sums are read by the row: only out and its gradient are worth wide loads
    problem = problem._replace(has_grad_lse=grad_lse is not None, aligned=are_aligned(strides, values))
    grid = out.shape[0] * out.shape[1] * -(-out.shape[2] // ROWS_TILE)
    return _Rows(runner_for(rows_spec(problem), out.device), grid, RowStrides(*strides), sizes)


def _rows_before(
    values: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor | None], rows: _Rows
) -> tuple[Tensor, Tensor]:
    """(log_sums, deltas) of every query row, from (out, its gradient) and (lse, its gradient)."""
    (out, grad), (lse, grad_lse) = values, sums
    lse = lse.contiguous()
    log_sums, deltas = torch.empty((2, *lse.shape), dtype=torch.float32, device=lse.device).unbind()
    given = lse if grad_lse is None else grad_lse.to(torch.float32).contiguous()
    rows.run(rows.grid, (RowTensors(out, grad, lse, given, log_sums, deltas), rows.strides, rows.sizes, None))
    return log_sums, deltas
