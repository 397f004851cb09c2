"""Which blocks are stored: block rows as offsets, block columns as a list, and what is derived from them once."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import Held, held_after, held_of_caller, use
from firstlight.kernels.memo import TensorMemo, keepable
from firstlight.kernels.torch_private import is_functorch_wrapped, without_functorch

if TYPE_CHECKING:
    from firstlight.kernels.choice.answer import Answer

BLOCKS = (16, 32, 64, 128)


class Pattern:
    """The stored blocks of a matrix, e.g. 3 of 4 blocks of [256, 256] at block 128; shared by matrices of one pattern.

    crow: [block_rows + 1] offsets into col; col: [stored blocks] block columns; int32 or int64 both. What is derived is
    computed on their device at first use and kept; changing crow or col in place is noticed and it is computed again.
    """

    def __init__(self, crow: Tensor, col: Tensor, shape: tuple[int, int], block: int, *, distinct: bool = True) -> None:
        self.crow = crow
        self.col = col
        self.shape = shape
        self.block = block
        self.distinct = distinct  # no block is stored twice: promised by whoever made the pattern
        self._tracked = not (crow.is_inference() or col.is_inference())
        self._changes = -1  # nothing is derived yet
        self._start_over()

    def _start_over(self) -> None:
        changes = self.count_changes()
        rows, cols = self.shape
        self._forward = Index(
            self.crow, self.col, None, rows, cols, self.block, blocks_transposed=False,
            held=held_of_caller(self.crow, self.col),
        )  # fmt: skip
        self._transposed: Index | None = None
        self._rows: Tensor | None = None
        self._rows_held: Held | None = None
        self.dense_copies: TensorMemo[Any] = TensorMemo()  # see dense.py; goes with the pattern
        self.backends: dict[tuple[Any, ...], Answer] = {}  # see choose.py
        self.new_calls: dict[tuple[str, bool], int] = {}  # by direction; see choose.py
        self.calls: dict[Hashable, Any] = {}  # see prepared.py and repeated.py
        _register(self, self._forward)
        self._changes = changes  # last: another thread that sees it finds nothing old

    def count_changes(self) -> int:
        """A number that grows with every change of the index tensors in place, e.g. 2; 0 where those do not count."""
        # versions only grow, so their sum changes when either does
        return self.crow._version + self.col._version if self._tracked else 0

    def _look_for_changes(self) -> None:
        # dynamo cannot branch on a version counter: a compiled region uses the pattern as it was when traced
        if not is_dynamo_compiling() and self.count_changes() != self._changes:
            self._start_over()

    @property
    def block_rows(self) -> int:
        return -(-self.shape[0] // self.block)

    @property
    def block_cols(self) -> int:
        return -(-self.shape[1] // self.block)

    @property
    def entries(self) -> int:
        """Number of stored blocks, e.g. 1638."""
        return self.col.shape[0]

    @property
    def counts_changes(self) -> bool:
        """Whether a change of the index tensors in place is noticed; not for those made in inference mode."""
        return self._tracked

    def keeps_copy(self, values: Tensor) -> bool:
        """Whether a dense copy of these values is kept (dense.keep), so that calls by `dense` need not make one."""
        return not values.requires_grad and self.dense_copies.get_changed(values) is not None

    @property
    def watched(self) -> tuple[Tensor, ...]:
        """The tensors that must not change before a backward pass; saved for it, so that torch complains if they do."""
        return (self.crow, self.col) if self._tracked else ()

    @property
    def forward(self) -> Index:
        """The matrix as stored: entry e is stored block e."""
        if is_dynamo_compiling() or not self._tracked or self.crow._version + self.col._version == self._changes:
            return self._forward  # the test written out: this is on the way of every call
        self._start_over()
        return self._forward

    @property
    def transposed(self) -> Index:
        """The transposed matrix over the same stored blocks."""
        self._look_for_changes()
        found = self._transposed
        if found is None:
            return self._transpose()
        if not is_dynamo_compiling():
            found.use()
        return found

    @property
    def rows_of_entries(self) -> Tensor:
        """Block row of each stored block, e.g. [0, 0, 1]; same dtype as col."""
        self._look_for_changes()
        if self._rows is not None:
            if not is_dynamo_compiling():
                use(self._rows_held)
            return self._rows
        if is_dynamo_compiling():
            return rows_of_entries(self.crow, self.col)  # part of the graph: computed by each call, not kept
        changes = self.count_changes()
        with _plainly(self.crow, self.col):
            rows = rows_of_entries(self.crow, self.col)
        if keepable(self.crow, rows) and self.count_changes() == changes:
            self._rows_held = held_after(rows)
            self._rows = rows  # last: another thread that sees it finds what it has to use
        return rows

    def _transpose(self) -> Index:
        if is_dynamo_compiling():
            return transpose(self._forward)
        changes = self.count_changes()
        with _plainly(self.crow, self.col):
            made = transpose(self._forward)
        if keepable(self.crow, made.columns) and self.count_changes() == changes:
            made = replace(made, held=held_after(made.row_starts, made.columns, made.blocks))
            self._transposed = made
            _register(self, made)
        return made

    def to(self, device: torch.device | str) -> Pattern:
        """The same pattern on another device; itself when it is there already."""
        with torch.inference_mode(mode=False):
            crow, col = self.crow.to(device), self.col.to(device)
        if crow is self.crow and col is self.col:
            return self
        return Pattern(crow, col, self.shape, self.block, distinct=self.distinct)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.crow, self.col, self.shape, self.block, self.distinct)

    def __repr__(self) -> str:
        return f"Pattern(shape={self.shape}, block={self.block}, entries={self.entries}, device={self.crow.device})"


_PATTERNS: TensorMemo[tuple[weakref.ReferenceType[Pattern], ...]] = TensorMemo()
_ADOPTED: TensorMemo[Pattern] = TensorMemo()
_WRITTEN_ANEW = 8  # torch's GraphLowering.can_inline_constant: longer constants stay tensors of their own


def _register(pattern: Pattern, index: Index) -> None:
    """Lets pattern_behind find the pattern by an index of it, beside the living ones over the same tensors."""
    tag = (index.rows, index.cols, index.block)
    others = _PATTERNS.get(index.row_starts, index.columns, tag) or ()
    living = [other for other in others if other() not in (None, pattern)]
    _PATTERNS.put(index.row_starts, index.columns, (*living, weakref.ref(pattern)), tag)


@contextmanager
def _plainly(*sources: Tensor) -> Iterator[None]:
    """What is computed here outlives inference mode and the torch.func call around it, unless that made the sources."""
    with torch.inference_mode(mode=False):
        if any(is_functorch_wrapped(source) for source in sources):
            yield
        else:
            with without_functorch():
                yield


def _rebuild(crow: Tensor, col: Tensor, shape: tuple[int, int], block: int, distinct: object) -> Pattern:
    return Pattern(crow, col, shape, block, distinct=bool(distinct))


def rows_of_entries(row_starts: Tensor, columns: Tensor) -> Tensor:
    """Block row of each entry, e.g. [0, 0, 1] for row_starts [0, 2, 3]; computed where they lie, no host wait."""
    entries = torch.arange(columns.shape[0], dtype=row_starts.dtype, device=row_starts.device)
    return _rows_at(row_starts, entries)


def _rows_at(row_starts: Tensor, entries: Tensor) -> Tensor:
    # the number of rows that end at or before an entry is the row it is in; a search stays inside [0, block_rows]
    # whatever the offsets hold, which repeat_interleave does not
    ends, narrow = row_starts[1:].contiguous(), entries.dtype == torch.int32
    return torch.searchsorted(ends, entries, right=True, out_int32=narrow).clamp_(max=max(ends.shape[0] - 1, 0))


def transpose(index: Index) -> Index:
    """The other direction of an index over the same stored blocks; transposing twice gives the first one back."""
    # entries lie row by row, so a stable sort by column leaves the rows of each column in order
    columns, order = torch.sort(index.columns, stable=True)
    heads = torch.arange(index.block_cols + 1, dtype=columns.dtype, device=columns.device)
    starts = torch.searchsorted(columns, heads, out_int32=columns.dtype == torch.int32)
    entries = order.to(columns.dtype)
    rows = _rows_at(index.row_starts, entries)
    blocks = entries if index.blocks is None else index.blocks[order]
    return Index(starts, rows, blocks, index.cols, index.rows, index.block, not index.blocks_transposed)


def pattern_of(crow: Tensor, col: Tensor, shape: tuple[int, int], block: int) -> Pattern:
    """The Pattern over these very tensors, with all that it has derived already; a new one is kept while they live.

    For code that only has the tensors, such as a registered operator. Small ones are not kept: compiled code writes
    constants of a few numbers again into tensors that it has used before, and no version counts that.
    """
    tag = (*shape, block)
    for reference in _PATTERNS.get(crow, col, tag) or ():
        known = reference()
        if known is not None and known.crow is crow and known.col is col:
            return known
    adopted = _ADOPTED.get(crow, col, tag)
    if adopted is None:
        adopted = Pattern(crow.detach(), col.detach(), shape, block, distinct=False)
        if min(crow.numel(), col.numel()) > _WRITTEN_ANEW:
            _ADOPTED.put(crow, col, adopted, tag)
    return adopted


def pattern_behind(index: Index) -> Pattern | None:
    """The living Pattern that this index is a direction of, or None for an index made by hand."""
    references = _PATTERNS.get(index.row_starts, index.columns, (index.rows, index.cols, index.block))
    if references is None:
        return None
    if len(references) == 1:
        return references[0]()
    # several over the same tensors: its own, whose dense copies are forgotten when values change behind torch's back
    living = [pattern for reference in references if (pattern := reference()) is not None]
    return next((pattern for pattern in living if pattern._forward is index), living[0] if living else None)
