"""A product by block rows: what is compiled, how it is split, and one call of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue
from firstlight.kernels.schedule import most_slots, most_split_rows, schedule_of
from firstlight.kernels.triton_backend.arguments import (
    INDEX_POINTER,
    POINTER,
    SIZE_TYPES,
    Data,
    Lists,
    ProductTraits,
    Sizes,
    SplitLists,
)
from firstlight.kernels.triton_backend.boxes import Boxes, fits_boxes
from firstlight.kernels.triton_backend.launch import Constant, Runner, Spec, runner_for
from firstlight.kernels.triton_backend.partials import add_partials
from firstlight.kernels.triton_backend.problem import Gpu, Problem
from firstlight.kernels.triton_backend.rows import block_rows
from firstlight.kernels.triton_backend.segments import order_here, split_rows_here
from firstlight.kernels.triton_backend.tiles import Tile

UNEVEN = 12  # a row this many times the mean is split; at densities from 1/12 up no row can be
FULL = 2  # programs per multiprocessor below which rows are split
LEAST_STEPS = 4  # of 64 elements in a portion: shorter ones cost more to add up than they save
WORTH_STEPS = 16  # of 64 elements in a mean row: shorter rows are done before a second kernel has been started
ADDING_WARPS = 4
INT32_END = 1 << 31


class Operands(NamedTuple):
    """The tensors of one call."""

    values: Tensor
    dense: Tensor
    out: Tensor


class Launch(NamedTuple):
    """One kernel to start."""

    run: Runner
    grid: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """Ready to run any product of one shape."""

    problem: Problem
    how: ProductTraits
    tiles: int  # of tokens, in one batch
    limit: int  # entries of a portion; 0: rows are never split
    run: Runner
    add: Runner | None

    def __call__(self, index: Index, operands: Operands, epilogue: Epilogue) -> None:
        out, room = operands.out, self.room(index)
        partials = torch.empty(room, dtype=torch.float32, device=out.device) if room else out
        for run, grid, args in self.launches(index, operands, epilogue, partials):
            run(grid, args)

    def room(self, index: Index) -> int:
        """How many float32 the partial sums need, e.g. 393216; 0: no row can be split."""
        if not self.limit:
            return 0
        slots = most_slots(self.problem.block_rows, index.entries, self.limit)
        return max(1, slots * self.tiles * self.problem.batch * self.how.height * self.how.bn)

    def launches(self, index: Index, operands: Operands, epilogue: Epilogue, partials: Tensor) -> list[Launch]:
        """What is started, in this order: the product and, where rows are split, the kernel that adds their parts."""
        values, dense, out = operands
        problem = self.problem
        tiles = self.tiles * problem.batch
        schedule = schedule_of(index)
        segments = schedule.segments(self.limit, make=split_rows_here) if self.limit else None
        items = schedule.ordered(make=order_here) if segments is None else segments.items
        count = items.shape[0]
        data = Data(
            values,
            dense,
            out,
            out if epilogue.addend is None else epilogue.addend,
            out if epilogue.bias is None else epilogue.bias,
            partials,
            values,
            dense,
        )
        sizes = Sizes(
            problem.rows,
            problem.cols,
            problem.n,
            problem.n,
            problem.batch,
            self.tiles,
            count,
            problem.block_rows,
            epilogue.alpha,
            epilogue.beta,
        )
        blocks = index.columns if index.blocks is None else index.blocks
        lists = Lists(index.row_starts, index.columns, blocks, items)
        started = [Launch(self.run, count * tiles, (*row_boxes(problem, self.how, operands), lists, data, sizes, None))]
        if segments is not None and self.add is not None:
            split = SplitLists(segments.split_rows, segments.first_slot, segments.slot_counts)
            started.append(Launch(self.add, segments.split_rows.shape[0] * tiles, (split, data, sizes, None)))
        return started


def row_boxes(
    problem: Problem, how: ProductTraits, operands: Operands
) -> tuple[Boxes | None, Boxes | None, Boxes | None]:
    """Stored blocks, dense operand and output as the copy engine sees them; None for what goes without it."""
    values, dense, out = operands
    dense_shape = (problem.n, problem.cols) if problem.tokens else (problem.batch * problem.cols, problem.n)
    out_shape = (problem.n, problem.rows) if problem.tokens else (problem.batch * problem.rows, problem.n)
    return (
        Boxes(values, problem.entries * problem.block, problem.block) if how.block_tiles else None,
        Boxes(dense, *dense_shape) if how.dense_tiles else None,
        Boxes(out, *out_shape) if how.out_tiles else None,
    )


def portion_limit(problem: Problem, tile: Tile, *, multiprocessors: int) -> int:
    """Entries above which a row is split, 0 for never: rows far longer than the mean, or too few to fill the GPU.

    Known without looking at the lists, so no host wait; a row has block_cols entries at most.
    """
    mean = -(-problem.entries // max(1, problem.block_rows))
    limit = UNEVEN * mean
    tiles = -(-problem.n // tile.bn) * problem.batch
    wanted = FULL * multiprocessors
    if problem.block_rows * tiles < wanted and mean * problem.block >= WORTH_STEPS * 64:
        limit = min(limit, -(-problem.entries * tiles // wanted))
    least = max(1, LEAST_STEPS * 64 // problem.block)
    limit = max(limit, least)
    return limit if limit < problem.block_cols and limit < problem.entries else 0


def rows_traits(problem: Problem, tile: Tile, *, has_boxes: bool) -> ProductTraits:
    """What the kernel is compiled for."""
    dtype, block, batch = problem.dtype, problem.block, problem.batch
    stored = has_boxes and fits_boxes(problem.entries * block, block, dtype=dtype)
    if problem.tokens:
        dense = fits_boxes(problem.n, problem.cols, dtype=dtype)
        out = fits_boxes(problem.n, problem.rows, dtype=dtype)
    else:
        # a box that reaches past the last row of one batch would read the next batch's first
        whole = batch == 1 or problem.cols % block == 0
        dense = whole and fits_boxes(batch * problem.cols, problem.n, dtype=dtype)
        whole = batch == 1 or problem.rows % tile.height == 0
        out = whole and fits_boxes(batch * problem.rows, problem.n, dtype=dtype)
    pitch = max(problem.rows, problem.cols) if problem.tokens else problem.n
    return ProductTraits(
        block=block,
        height=tile.height,
        bn=tile.bn,
        bk=tile.bk,
        super_tile=tile.super_tile,
        precision="tf32" if problem.tf32 else "ieee",
        tokens=problem.tokens,
        tokens_first=tile.tokens_first,
        block_tiles=stored,
        dense_tiles=stored and dense,
        out_tiles=stored and out,
        blocks_transposed=problem.blocks_transposed,
        has_blocks=problem.has_blocks,
        wide=pitch * max(tile.bn, tile.bk, tile.height) >= INT32_END,
        has_addend=problem.has_addend,
        multiplied=problem.multiplied,
        has_bias=problem.has_bias,
        activation=problem.activation,
    )


def aligned_sizes(problem: Problem, place: int) -> tuple[tuple[int, int], ...]:
    """Places of rows, cols, n and pitch (the first fields of Sizes) where they are multiples of 16."""
    given = (problem.rows, problem.cols, problem.n, problem.n)
    return tuple((place, field) for field, size in enumerate(given) if size % 16 == 0)


def rows_spec(problem: Problem, how: ProductTraits, tile: Tile) -> Spec:
    """The kernel by block rows as it is compiled."""
    pointer, index = POINTER[problem.dtype], INDEX_POINTER[problem.index_dtype]
    element = pointer[1:]
    stored = f"{how.bk},{how.block}" if how.blocks_transposed else f"{how.block},{how.bk}"
    dense = f"{how.bn},{how.bk}" if how.tokens else f"{how.bk},{how.bn}"
    out = f"{how.bn},{how.block}" if how.tokens else f"{how.block},{how.bn}"
    boxes = ((how.block_tiles, stored), (how.dense_tiles, dense), (how.out_tiles, out))
    return Spec(
        kernel=block_rows,
        types=(
            *(f"tensordesc<{element}[{box}]>" if used else Constant(None) for used, box in boxes),
            Lists(index, index, index, "*i32"),
            Data(*(pointer,) * 5, "*fp32", pointer, pointer),
            SIZE_TYPES,
            Constant(how),
        ),
        # stored, dense, out and addend; a bias may be a slice of something
        aligned=(*((4, field) for field in range(4)), *aligned_sizes(problem, 5)),
        warps=tile.warps,
        stages=tile.stages,
    )


def adding_spec(problem: Problem, how: ProductTraits) -> Spec:
    """The kernel that adds partial sums."""
    pointer = POINTER[problem.dtype]
    types: tuple[Any, ...] = (
        SplitLists("*i32", "*i32", "*i32"),
        Data(*(pointer,) * 5, "*fp32", pointer, pointer),
        SIZE_TYPES,
        Constant(how),
    )
    aligned = (*((1, field) for field in (*range(4), 5)), *aligned_sizes(problem, 2))
    return Spec(add_partials, types, aligned, warps=ADDING_WARPS if how.height * how.bn <= 16384 else 8, stages=1)


def plan_rows(problem: Problem, tile: Tile, gpu: Gpu) -> RowsPlan:
    """A plan for the problem with that tile on that GPU."""
    limit = portion_limit(problem, tile, multiprocessors=gpu.multiprocessors)
    if limit and not most_split_rows(problem.block_rows, problem.entries, limit):
        limit = 0
    how = rows_traits(problem, tile, has_boxes=gpu.has_boxes)._replace(split=limit > 0)
    return RowsPlan(
        problem=problem,
        how=how,
        tiles=-(-problem.n // tile.bn),
        limit=limit,
        run=runner_for(rows_spec(problem, how, tile), problem.device),
        add=runner_for(adding_spec(problem, how), problem.device) if limit else None,
    )
