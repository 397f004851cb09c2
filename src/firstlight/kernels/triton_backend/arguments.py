"""What the kernels are given: named tuples, so that a kernel has seven arguments and not thirty.

The same classes hold the types when a kernel is compiled ('*fp16') and the tensors and numbers when it is launched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

POINTER = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
INDEX_POINTER = {torch.int32: "*i32", torch.int64: "*i64"}


class Lists(NamedTuple):
    """Which entries a block row has, and in which order rows are taken."""

    starts: Any
    columns: Any
    blocks: Any
    items: Any  # int32: the rows' order, or [items, 4] of Segments


class GroupLists(NamedTuple):
    """The lists of the rows, as above, and those of their groups; items is the groups' order."""

    starts: Any
    columns: Any
    blocks: Any
    items: Any
    group_starts: Any
    group_columns: Any


class SplitLists(NamedTuple):
    """Which rows were split, and where their partial sums are."""

    rows: Any
    first_slot: Any
    slot_counts: Any


class SampledLists(NamedTuple):
    """Block row, block column and stored block of each entry."""

    rows: Any
    columns: Any
    blocks: Any


class Data(NamedTuple):
    """The operands of a product; what a product does not have repeats another pointer and is not read."""

    stored: Any
    dense: Any
    out: Any
    addend: Any
    bias: Any
    partials: Any  # float32
    packed: Any
    gathered: Any


class SampledData(NamedTuple):
    """The operands of a sampled product."""

    a: Any
    b: Any
    out: Any


class Sizes(NamedTuple):
    """Shapes of a product; tiles: token tiles of one batch; items: row items; pitch: of the gathered operand's rows."""

    rows: Any
    cols: Any
    n: Any
    pitch: Any
    batch: Any
    tiles: Any
    items: Any
    block_rows: Any
    alpha: Any
    beta: Any


class SampledSizes(NamedTuple):
    """Shapes of a sampled product."""

    rows: Any
    cols: Any
    n: Any
    batch: Any
    alpha: Any


class PortionLists(NamedTuple):
    """The lists of a schedule's portions, to be written; see firstlight.kernels.schedule.Segments."""

    items: Any
    first_slot: Any
    slot_counts: Any
    split: Any


class PortionSizes(NamedTuple):
    """Block rows, entries of a portion at most, room for portions, room for rows in several."""

    rows: Any
    limit: Any
    bound: Any
    most: Any


# all fields of the first are tensors, all of the second are numbers
POINTERS = frozenset({Lists, GroupLists, SplitLists, SampledLists, PortionLists, Data, SampledData})
NUMBERS = frozenset({Sizes, SampledSizes, PortionSizes, int, float, type(None)})
SIZE_TYPES = Sizes(*("i32",) * 8, "fp32", "fp32")
SAMPLED_SIZE_TYPES = SampledSizes(*("i32",) * 4, "fp32")


class ProductTraits(NamedTuple):
    """What a product kernel is compiled for."""

    block: int
    height: int
    bn: int
    bk: int
    super_tile: int
    precision: str  # ieee or tf32, of float32 products
    tokens: bool  # the linear layout: dense [n, cols], out [n, rows]
    tokens_first: bool = False  # the accumulator is [tokens, rows]
    block_tiles: bool = False  # stored or packed blocks, dense operand and output through the copy engine
    dense_tiles: bool = False
    out_tiles: bool = False
    blocks_transposed: bool = False
    has_blocks: bool = False
    split: bool = False
    wide: bool = False  # offsets inside a tile need 64 bits
    has_addend: bool = False
    multiplied: bool = False  # by the addend
    has_bias: bool = False
    activation: str = "none"
    dense_by_token: bool = False  # groups: the gathered operand is [n, cols]
    members: int = 0  # groups: stored blocks that a step can hold
