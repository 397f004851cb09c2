"""The lists of patterns and masks for compute-sanitizer: lists.cu in one launch and by phases, mask_lists.cu.

Each is held against what torch makes of the same pattern or mask on the processor; see cases.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from benchmarks.sanitizer.where import Where
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix
from firstlight.kernels.block_attention.bits import FULL, NONE, PARTIAL
from firstlight.kernels.block_attention.lists import fill, order_of
from firstlight.kernels.schedule import split_rows
from firstlight.kernels.sm90 import listing, mask_lists
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.lists import step_width
from firstlight.kernels.sm90.variants import LISTS, LISTS_AT_ONCE, MASK_LISTS

LIMIT = 5  # steps of a portion


@dataclass(frozen=True, slots=True)
class ListsCase:
    """The lists of a pattern, e.g. blocks of 16, 70 x 45 of them, in one launch."""

    block: int
    rows: int
    cols: int
    density: float
    at_once: bool = True
    wide: bool = False  # 64-bit numbers
    turned: bool = False
    what: str = "lists"

    @property
    def id(self) -> str:
        """E.g. lists/16/70x45/by-phase/turned."""
        words = ["lists", str(self.block), f"{self.rows}x{self.cols}", "at-once" if self.at_once else "by-phase"]
        return "/".join(words + [name for name in ("wide", "turned") if getattr(self, name)])

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (LISTS_AT_ONCE if self.at_once else LISTS,)


@dataclass(frozen=True, slots=True)
class MaskListsCase:
    """The lists of a mask, e.g. two batches of three heads with 7 x 33 blocks, by key block."""

    shape: tuple[int, int, int, int]
    turned: bool = False
    partial: bool = True
    what: str = "mask_lists"

    @property
    def id(self) -> str:
        """E.g. mask_lists/2x3x7x33/turned."""
        words = ["mask_lists", "x".join(map(str, self.shape))]
        return "/".join(words + [name for name in ("turned", "partial") if getattr(self, name)])

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (MASK_LISTS,)


def lists() -> Iterator[ListsCase]:
    """Every block, at once and by phases, both directions, both widths of numbers."""
    for at_once in (True, False):
        yield from (
            ListsCase(16, 70, 45, 0.1, at_once), ListsCase(128, 40, 11, 0.3, at_once, wide=True),
            ListsCase(64, 24, 40, 0.2, at_once, turned=True), ListsCase(32, 30, 70, 0.15, at_once, wide=True),
            ListsCase(128, 300, 9, 0.5, at_once, turned=True), ListsCase(16, 19, 520, 0.05, at_once),
        )  # fmt: skip
    yield ListsCase(64, 1100, 6, 0.3)  # more rows than are paired


def masks() -> Iterator[MaskListsCase]:
    """One head and several, short lists and long ones, with blocks that are seen in part and without."""
    for turned in (False, True):
        yield from (
            MaskListsCase((1, 1, 32, 32), turned), MaskListsCase((2, 3, 7, 33), turned, partial=False),
            MaskListsCase((1, 1, 3, 200), turned), MaskListsCase((1, 40, 33, 8), turned),
            MaskListsCase((1, 1, 1, 1), turned),
        )  # fmt: skip


def run_lists(case: ListsCase, where: Where) -> str:
    """What is wrong with the lists; empty: nothing. Without a GPU there is nothing to hold against torch's."""
    numbers = torch.Generator().manual_seed(case.rows)
    places = torch.rand(case.rows, case.cols, generator=numbers) < case.density
    places[case.rows // 2] = False
    places[0, 0] = True
    matrix = BlockSparseMatrix.from_mask(places, block=case.block)
    pattern = matrix.to(device=where.device).pattern
    if case.wide:
        pattern = type(pattern)(pattern.crow.long(), pattern.col.long(), pattern.shape, case.block)
    index = pattern.transposed if case.turned else pattern.forward
    if where.device == "cpu":
        return ""
    sizes = listing.sizes_of(index, width=step_width(case.block), limit=LIMIT)
    before, listing.MOST_AT_ONCE = listing.MOST_AT_ONCE, (1 << 30) if case.at_once else -1
    try:
        steps, segments, _ = listing.listed(index, sizes)
    finally:
        listing.MOST_AT_ONCE = before
    wanted = split_rows(steps.starts.cpu(), sizes.bound, limit=LIMIT)
    if not torch.equal(segments.items.cpu(), wanted.items):
        return "the portions are not those of the steps"
    stored = steps.members.cpu().reshape(-1)[: int(steps.starts[-1]) * sizes.width * sizes.height]
    found = torch.sort(stored[stored >= 0]).values
    if not torch.equal(found, torch.arange(index.entries, dtype=found.dtype)):
        return f"{found.numel()} blocks are walked of {index.entries}"
    return ""


def run_masks(case: MaskListsCase, where: Where) -> str:
    """What is wrong with the lists of a mask; empty: nothing."""
    numbers = torch.Generator().manual_seed(sum(case.shape))
    kept = torch.rand(case.shape, generator=numbers) < 0.4
    partly = torch.rand(case.shape, generator=numbers) < 0.5
    kinds = torch.where(kept, torch.where(partly, PARTIAL, FULL), NONE).to(torch.uint8)
    which = torch.randint(0, 99, case.shape, generator=numbers, dtype=torch.int32) if case.partial else None
    if where.device == "cpu":
        return ""
    used = int(kept.sum())
    there = None if which is None else which.to(where.device)
    found = mask_lists.filled(kinds.to(where.device), there, used, turned=case.turned).apart
    if case.turned:
        kinds, which = kinds.mT.contiguous(), None if which is None else which.mT.contiguous()
    starts, columns, masks_ = fill(kinds, which, used)
    wanted = (starts, columns, masks_, order_of(starts, (kinds.shape[0] * kinds.shape[1], kinds.shape[2])))
    wrong = [name for name, one, right in zip(found._fields, found, wanted, strict=True) if not _same(one, right, used)]
    return f"other {', '.join(wrong)} than torch's" if wrong else ""


def _same(found: Tensor, right: Tensor, used: int) -> bool:
    if found.shape != right.shape:
        return False
    end = used if found.dim() == 1 and found.shape[0] == max(used, 1) else found.numel()
    return torch.equal(found.cpu().reshape(-1)[:end], right.reshape(-1)[:end])
