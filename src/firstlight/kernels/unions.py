"""Union lists: for each group of block rows the block columns that any of them stores, and which block is whose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import Held, held_after
from firstlight.kernels.memo import TensorMemo, keepable
from firstlight.kernels.pairs import grouped_order
from firstlight.kernels.pattern import pattern_behind, rows_of_entries
from firstlight.kernels.schedule import longest_first


@dataclass(frozen=True, slots=True)
class Unions:
    """Groups of `rows` block rows; step s covers `width` union columns, columns[s * width] on.

    Where `grouped` is given, group g has the block rows grouped[g * rows] on, else rows in their order. A group's list
    is filled up to whole steps with column = block_cols, which no dense operand has. `bound` is the most steps there
    can be: how many there are is known on the device alone.
    """

    starts: Tensor  # int32 [groups + 1], in steps
    columns: Tensor  # int32 [bound * width]
    members: Tensor  # int32 [bound, width, rows]: stored block, -1 where the row has none
    order: Tensor  # int32 [groups], longest first
    bound: int
    grouped: Tensor | None = None  # int32 [groups * rows]; rows that do not exist have numbers past the last

    @property
    def groups(self) -> int:
        return int(self.order.shape[0])


@dataclass(frozen=True, slots=True)
class _Kept:
    unions: Unions
    held: Held | None


_UNIONS: TensorMemo[_Kept] = TensorMemo()


def unions_of(index: Index, *, rows: int, width: int, grouped: bool = False) -> Unions:
    """The union lists of an index, computed at first use and kept as long as the index's tensors live unchanged.

    grouped: the rows of a group are those that have most columns in common, see pairs.py, where that is worth while.
    """
    # a matrix and its transpose do not share these tensors, so which blocks are meant needs no place in the key
    tag = (rows, width, grouped)
    kept = _UNIONS.get(index.row_starts, index.columns, tag)
    if kept is not None:
        if kept.held is not None:
            kept.held.use()
        return kept.unions
    pattern = pattern_behind(index)
    make = find_unions if pattern is not None and pattern.distinct else sorted_unions
    with torch.inference_mode(mode=False):
        made = make(index, rows=rows, width=width, order=grouped_order(index, rows) if grouped else None)
    if keepable(index.row_starts, made.columns):
        kept = _Kept(made, held_after(made.columns, made.starts, made.members, made.order, made.grouped))
        _UNIONS.put(index.row_starts, index.columns, kept, tag)
    return made


def most_steps(index: Index, *, rows: int, width: int) -> int:
    """The most steps all groups can have together, e.g. 6681, where no block is stored twice; known without looking."""
    groups = -(-index.block_rows // rows)
    columns = min(index.entries, groups * index.block_cols)
    return min(columns // width + groups, groups * -(-index.block_cols // width))


def find_unions(index: Index, *, rows: int, width: int, order: Tensor | None = None) -> Unions:
    """The union lists, on the index's device, without a host wait: a table of all places, then a scan over it.

    For patterns that store no block twice: a place of the table holds one. The table has an int32 for every block of
    the dense matrix: 1 MB for 8192 x 8192 at block 16.
    """
    device = index.columns.device
    groups, block_cols = -(-index.block_rows // rows), index.block_cols
    bound = most_steps(index, rows=rows, width=width)
    row = _places(index, order)
    number = torch.arange(index.entries, device=device) if index.blocks is None else index.blocks
    table = torch.full((groups, block_cols, rows), -1, dtype=torch.int32, device=device)
    place = (row // rows * block_cols + index.columns) * rows + row % rows
    table.view(-1).scatter_(0, place.to(torch.int64), number.to(torch.int32))
    used = (table >= 0).any(2)
    steps = (used.sum(1) + (width - 1)) // width
    starts = torch.zeros(groups + 1, dtype=torch.int64, device=device)
    torch.cumsum(steps, 0, out=starts[1:])
    # where each used column goes; those that are not used share one place after the end
    target = torch.where(used, starts[:-1, None] * width + torch.cumsum(used, 1) - 1, bound * width).view(-1)
    names = torch.arange(block_cols, dtype=torch.int32, device=device).repeat(groups)
    columns = torch.full((bound * width + 1,), block_cols, dtype=torch.int32, device=device).scatter_(0, target, names)
    members = torch.full((bound * width + 1, rows), -1, dtype=torch.int32, device=device)
    members.index_copy_(0, target, table.view(-1, rows))
    return Unions(
        starts=starts.to(torch.int32),
        columns=columns[:-1],
        members=members[:-1].view(bound, width, rows),
        order=longest_first(starts),
        bound=bound,
        grouped=None if order is None else order.to(torch.int32),
    )


def sorted_unions(index: Index, *, rows: int, width: int, order: Tensor | None = None) -> Unions:
    """The union lists of a pattern that may store a block twice: a column comes as often as its fullest row has it.

    Sorts the entries by group, column and how often the row has had the column before; slower than the table.
    """
    device, entries = index.columns.device, index.entries
    groups, block_cols = -(-index.block_rows // rows), index.block_cols
    bound = entries // width + groups
    row = _places(index, order)
    number = torch.arange(entries, device=device) if index.blocks is None else index.blocks
    place, by_place = torch.sort(row * block_cols + index.columns, stable=True)
    again = torch.arange(entries, device=device) - torch.searchsorted(place, place)
    row = torch.div(place, max(1, block_cols), rounding_mode="floor")
    group, column = torch.div(row, rows, rounding_mode="floor"), place - row * block_cols
    name, second = torch.sort((group * block_cols + column) * max(1, entries) + again)
    row, group, column, number = row[second], group[second], column[second], number[by_place][second]
    first = torch.ones(entries, dtype=torch.bool, device=device)
    torch.ne(name[1:], name[:-1], out=first[1:])
    used = torch.zeros(groups, dtype=torch.int64, device=device).scatter_add_(0, group, first.to(torch.int64))
    starts = torch.zeros(groups + 1, dtype=torch.int64, device=device)
    torch.cumsum((used + (width - 1)) // width, 0, out=starts[1:])
    before = torch.cumsum(used, 0) - used
    target = starts[group] * width + torch.cumsum(first, 0) - 1 - before[group]
    columns = torch.full((bound * width,), block_cols, dtype=torch.int32, device=device)
    columns.scatter_(0, target, column.to(torch.int32))
    members = torch.full((bound * width * rows,), -1, dtype=torch.int32, device=device)
    members.scatter_(0, target * rows + row % rows, number.to(torch.int32))
    return Unions(
        starts.to(torch.int32), columns, members.view(bound, width, rows), longest_first(starts), bound,
        None if order is None else order.to(torch.int32),
    )  # fmt: skip


def _places(index: Index, order: Tensor | None) -> Tensor:
    """Int64 [entries]: the block row of each entry, or its place in the given order."""
    row = rows_of_entries(index.row_starts, index.columns).to(torch.int64)
    if order is None:
        return row
    return torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))[row]
