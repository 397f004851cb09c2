"""A product by groups of block rows: pack the stored blocks, turn the dense operand over where wanted, multiply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue
from firstlight.kernels.triton_backend.arguments import (
    INDEX_POINTER,
    POINTER,
    SIZE_TYPES,
    Data,
    GroupLists,
    ProductTraits,
    Sizes,
)
from firstlight.kernels.triton_backend.boxes import Boxes, fits_boxes
from firstlight.kernels.triton_backend.groups import pack_groups, row_groups
from firstlight.kernels.triton_backend.launch import Constant, Runner, Spec, runner_for
from firstlight.kernels.triton_backend.problem import Gpu, Problem
from firstlight.kernels.triton_backend.rows_plan import Operands, aligned_sizes, rows_traits
from firstlight.kernels.triton_backend.tiles import Tile
from firstlight.kernels.triton_backend.transposed import turn_over
from firstlight.kernels.unions import unions_of

PITCH = 64  # the turned operand's rows are a multiple of this many elements apart: whole cache lines
TURNING = ProductTraits(block=0, height=0, bn=64, bk=64, super_tile=1, precision="ieee", tokens=True)


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    """Ready to run any product of one shape."""

    problem: Problem
    how: ProductTraits
    tiles: int
    pitch: int
    pack: Runner
    run: Runner
    turn: Runner | None

    def __call__(self, index: Index, operands: Operands, epilogue: Epilogue) -> None:
        values, dense, out = operands
        problem, how = self.problem, self.how
        unions = unions_of(index, rows=how.height // how.block, width=how.bk // how.block)
        packed = torch.empty(max(1, unions.bound) * how.height * how.bk, dtype=values.dtype, device=values.device)
        if unions.bound:
            self.pack(unions.bound, (values, packed, unions.members, unions.starts, unions.groups, None))
        data = Data(
            values,
            dense,
            out,
            out if epilogue.addend is None else epilogue.addend,
            out if epilogue.bias is None else epilogue.bias,
            out,
            packed,
            self._gathered(dense),
        )
        sizes = Sizes(
            problem.rows,
            problem.cols,
            problem.n,
            self.pitch,
            problem.batch,
            self.tiles,
            unions.groups,
            problem.block_rows,
            epilogue.alpha,
            epilogue.beta,
        )
        blocks = index.columns if index.blocks is None else index.blocks
        lists = GroupLists(index.row_starts, index.columns, blocks, unions.order, unions.starts, unions.columns)
        out_shape = (problem.n, problem.rows) if problem.tokens else (problem.batch * problem.rows, problem.n)
        boxes = (
            Boxes(packed, unions.bound * how.height, how.bk) if how.block_tiles else None,
            Boxes(out, *out_shape) if how.out_tiles else None,
        )
        self.run(unions.groups * self.tiles * problem.batch, (*boxes, lists, data, sizes, None, None))

    def _gathered(self, dense: Tensor) -> Tensor:
        if self.turn is None:
            return dense
        problem = self.problem
        turned = torch.empty(problem.cols * self.pitch, dtype=dense.dtype, device=dense.device)
        tiles = -(-problem.n // TURNING.bn) * -(-problem.cols // TURNING.bk)
        self.turn(tiles, (dense, turned, problem.n, problem.cols, self.pitch, None))
        return turned


def plan_groups(problem: Problem, tile: Tile, gpu: Gpu) -> GroupsPlan:
    """A plan for the problem with that tile on that GPU."""
    turned = problem.tokens and tile.turned
    pitch = -(-problem.n // PITCH) * PITCH if turned else problem.n
    how = groups_traits(problem, tile, has_boxes=gpu.has_boxes)
    device = problem.device
    return GroupsPlan(
        problem=problem,
        how=how,
        tiles=-(-problem.n // tile.bn),
        pitch=pitch,
        pack=runner_for(packing_spec(problem, how), device),
        run=runner_for(groups_spec(problem, how, tile, pitch=pitch), device),
        turn=runner_for(turning_spec(problem), device) if turned else None,
    )


def groups_traits(problem: Problem, tile: Tile, *, has_boxes: bool) -> ProductTraits:
    """What the kernel is compiled for."""
    how = rows_traits(problem, tile, has_boxes=has_boxes)
    return how._replace(
        has_blocks=False,
        dense_by_token=problem.tokens and not tile.turned,
        dense_tiles=False,
        block_tiles=how.block_tiles and fits_boxes(most_rows(problem, tile), tile.bk, dtype=problem.dtype),
        members=tile.height // problem.block * (tile.bk // problem.block),
    )


def most_rows(problem: Problem, tile: Tile) -> int:
    """At least as many rows as the packed tiles have, stacked."""
    groups = -(-problem.rows // tile.height)
    width = tile.bk // problem.block
    return (min(problem.entries, groups * problem.block_cols) // width + groups) * tile.height


def strict_how(problem: Problem, how: ProductTraits) -> ProductTraits:
    """The same tile computed block by block, without the copy engine: only where a number is not finite."""
    return how._replace(
        height=problem.block,
        bk=problem.block,
        has_blocks=problem.has_blocks,
        block_tiles=False,
        out_tiles=False,
    )


def groups_spec(problem: Problem, how: ProductTraits, tile: Tile, *, pitch: int) -> Spec:
    """The kernel by groups as it is compiled."""
    pointer, index = POINTER[problem.dtype], INDEX_POINTER[problem.index_dtype]
    packed = f"tensordesc<{pointer[1:]}[{how.height},{how.bk}]>"
    out = f"{how.bn},{how.height}" if how.tokens else f"{how.height},{how.bn}"
    aligned_pitch = ((4, 3),) if pitch % 16 == 0 else ()
    sizes = tuple(place for place in aligned_sizes(problem, 4) if place != (4, 3))
    return Spec(
        kernel=row_groups,
        types=(
            packed if how.block_tiles else Constant(None),
            f"tensordesc<{pointer[1:]}[{out}]>" if how.out_tiles else Constant(None),
            GroupLists(index, index, index, "*i32", "*i32", "*i32"),
            Data(*(pointer,) * 5, "*fp32", pointer, pointer),
            SIZE_TYPES,
            Constant(how),
            Constant(strict_how(problem, how)),
        ),
        aligned=(*((3, field) for field in (0, 1, 2, 3, 6, 7)), *sizes, *aligned_pitch),
        warps=tile.warps,
        stages=tile.stages,
    )


def packing_spec(problem: Problem, how: ProductTraits) -> Spec:
    """The kernel that packs stored blocks into tiles."""
    pointer = POINTER[problem.dtype]
    types = (pointer, pointer, "*i32", "*i32", "i32", Constant(how))
    return Spec(pack_groups, types, ((0,), (1,)), warps=4, stages=1)


def turning_spec(problem: Problem) -> Spec:
    """The kernel that turns the dense operand over."""
    pointer = POINTER[problem.dtype]
    aligned = ((0,), (1,), *(((3,),) if problem.cols % 16 == 0 else ()), (4,))
    return Spec(turn_over, (pointer, pointer, "i32", "i32", "i32", Constant(TURNING)), aligned, warps=4, stages=1)
