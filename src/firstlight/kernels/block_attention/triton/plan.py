"""Attention as a plan sees it: what is compiled for which call, and what is launched."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from firstlight.kernels.block_attention.triton.arguments import (
    LIST_TYPES,
    POINTER,
    SIZE_TYPES,
    AttentionTraits,
    BackwardStrides,
    BackwardTensors,
    ForwardStrides,
    ForwardTensors,
    RowStrides,
    RowTensors,
)
from firstlight.kernels.block_attention.triton.backward_kernels import attention_dkdv, attention_dq, rows_before
from firstlight.kernels.block_attention.triton.forward_kernel import attention_forward
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile, choose_tile, width_of
from firstlight.kernels.triton_backend.launch import Constant, Spec
from firstlight.kernels.triton_backend.tiles import Family

ROWS_TILE = 64  # query rows of a program of rows_before
ROWS_WARPS = 4
_KERNELS: dict[Pass, Any] = {Pass.FORWARD: attention_forward, Pass.DQ: attention_dq, Pass.DKDV: attention_dkdv}


class Problem(NamedTuple):
    """What a call is compiled for, e.g. float16, head dimension 128, blocks of 128; a named tuple: it is a dict key."""

    dtype: torch.dtype
    head_dim: int
    block: int
    group: int
    has_bits: bool
    ragged_q: bool
    ragged_k: bool
    scale_first: bool
    wide: bool
    tf32: bool
    has_grad_lse: bool
    aligned: bool  # every tensor starts at a multiple of 16 bytes, and every stride is a multiple of 16 elements
    device: torch.device


def how_of(problem: Problem, tile: Tile) -> AttentionTraits:
    """What a kernel is compiled for."""
    return AttentionTraits(
        block=problem.block,
        bm=tile.bm,
        bn=tile.bn,
        head_dim=problem.head_dim,
        width=width_of(problem.head_dim),
        group=problem.group,
        precision="tf32" if problem.tf32 else "ieee",
        has_bits=problem.has_bits,
        ragged_q=problem.ragged_q,
        ragged_k=problem.ragged_k,
        scale_first=problem.scale_first,
        wide=problem.wide,
        has_grad_lse=problem.has_grad_lse,
    )


def _stride_types(kind: type[Any]) -> Any:
    """Batches and heads can be far apart, rows are not."""
    return kind(*("i32" if name.endswith("_row") else "i64" for name in kind._fields))


def _aligned(
    problem: Problem, tensors: tuple[str, ...], strides: tuple[str, ...], at: int
) -> tuple[tuple[int, int], ...]:
    """Places of what is a multiple of 16: operands, which are argument 0, and all strides, which are argument `at`."""
    if not problem.aligned:
        return ()
    operands = tuple((0, field) for field, type_ in enumerate(tensors) if type_ == POINTER[problem.dtype])
    return (*operands, *((at, field) for field in range(len(strides))))


def spec_of(which: Pass, problem: Problem, tile: Tile) -> Spec:
    """One of the three large kernels as it is compiled."""
    pointer = POINTER[problem.dtype]
    if which is Pass.FORWARD:
        tensors: Any = ForwardTensors(*(pointer,) * 4, "*fp32")
        strides = _stride_types(ForwardStrides)
    else:
        tensors = BackwardTensors(*(pointer,) * 4, "*fp32", "*fp32", *(pointer,) * 3)
        strides = _stride_types(BackwardStrides)
    return Spec(
        kernel=_KERNELS[which],
        types=(tensors, LIST_TYPES, strides, SIZE_TYPES, Constant(how_of(problem, tile))),
        aligned=_aligned(problem, tensors, strides, 2),
        warps=tile.warps,
        stages=tile.stages,
    )


def rows_spec(problem: Problem) -> Spec:
    """The kernel before a backward pass as it is compiled."""
    pointer = POINTER[problem.dtype]
    tensors, strides = RowTensors(pointer, pointer, *("*fp32",) * 4), _stride_types(RowStrides)
    how = how_of(problem._replace(ragged_q=True), Tile(ROWS_TILE, ROWS_TILE, ROWS_WARPS, 1))
    types = (tensors, strides, SIZE_TYPES, Constant(how))
    return Spec(rows_before, types, _aligned(problem, tensors, strides, 1), warps=ROWS_WARPS, stages=1)


def tile_for(which: Pass, problem: Problem, family: Family) -> Tile:
    """The table's tile for a problem."""
    return choose_tile(
        which, family, element_bytes=problem.dtype.itemsize, head_dim=problem.head_dim, block=problem.block
    )
