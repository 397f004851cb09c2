"""The kept blocks of a mask as lists, one for each block of queries or of keys; made without the host waiting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.backends import arch_of, triton_installed
from firstlight.kernels.block_attention.bits import NONE, PARTIAL, ordinary
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import keepable
from firstlight.kernels.torch_private import FakeTensor


class Lists(NamedTuple):
    """Row (b, h, q) has entries starts[row] to starts[row + 1]; row = (b * H' + h) * Qb + q, b and h 0 where one.

    A tuple because kernels take it apart. By key block (turned_lists_of) rows are key blocks, columns query blocks.
    """

    starts: Tensor  # int32 [R + 1], R = B' * H' * Qb
    columns: Tensor  # int32 [max(most, 1)], ascending inside a row; behind starts[R] anything
    masks: Tensor  # int32 [max(most, 1)]: row of bits, -1 for a FULL block; behind starts[R] anything
    order: Tensor  # int32 [B' * H', Qb]: blocks of a head, longest list first, equal ones ascending

    @property
    def places(self) -> Places:
        """Where a kernel finds them."""
        return Places(self.starts.data_ptr(), self.columns.data_ptr(), self.masks.data_ptr(), self.order.data_ptr())


class Places(NamedTuple):
    """Addresses of the lists."""

    starts: int
    columns: int
    masks: int
    order: int


class ListsInRoom:
    """The same in one piece of memory, which is not taken apart before anyone asks: that takes 50 us."""

    __slots__ = ("_apart", "_take", "places", "room")

    def __init__(self, room: Tensor, places: Places, take: Callable[[Tensor], Lists]) -> None:
        self.room = room
        self.places = places
        self._take = take
        self._apart: Lists | None = None

    @property
    def apart(self) -> Lists:
        """As tensors."""
        if self._apart is None:
            self._apart = self._take(self.room)
        return self._apart

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.apart)

    @property
    def starts(self) -> Tensor:
        return self.apart.starts

    @property
    def columns(self) -> Tensor:
        return self.apart.columns

    @property
    def masks(self) -> Tensor:
        return self.apart.masks

    @property
    def order(self) -> Tensor:
        return self.apart.order


AnyLists = Lists | ListsInRoom


class _Kept(NamedTuple):
    lists: AnyLists
    held: Held | None


class _Ranks(NamedTuple):
    ranks: Tensor
    held: Held | None


_RANKS = ("ranks",)


def lists_of(mask: BlockMask) -> AnyLists:
    """For each query block its key blocks, e.g. columns [0, 0, 1] of a causal mask of two; kept with the mask."""
    return _kept(mask, turned=False)


def turned_lists_of(mask: BlockMask) -> AnyLists:
    """For each key block its query blocks, e.g. columns [0, 1, 1] of a causal mask of two; kept with the mask."""
    return _kept(mask, turned=True)


def _kept(mask: BlockMask, *, turned: bool) -> AnyLists:
    name = ("turned_lists" if turned else "lists",)
    kept = mask.derived.get(name)
    if isinstance(kept, _Kept):
        use(kept.held)
        return kept.lists
    use(mask.held)
    if torch.is_inference_mode_enabled():
        with ordinary():
            made, room = _make(mask, turned=turned)
    else:
        made, room = _make(mask, turned=turned)
    if mask.counts_changes and keepable(mask.kinds, room[0]):
        mask.derived[name] = _Kept(made, held_after(*room, *mask.parts))  # who reads lists reads bits too
    return made


def ranks_of(mask: BlockMask) -> Tensor:
    """int32 [B', H', Qb, Kb]: how many kept blocks of the row come before each of them; kept with the mask."""
    kept = mask.derived.get(_RANKS)
    if isinstance(kept, _Ranks):
        use(kept.held)
        return kept.ranks
    use(mask.held)
    with ordinary():
        ranks = (mask.kinds != NONE).cumsum(-1, dtype=torch.int32).sub_(1)
    if mask.counts_changes and keepable(mask.kinds, ranks):
        mask.derived[_RANKS] = _Ranks(ranks, held_after(ranks))
    return ranks


def _make(mask: BlockMask, *, turned: bool) -> tuple[AnyLists, tuple[Tensor, ...]]:
    """The lists, and the tensors that hold their memory."""
    kinds, which = mask.kinds, mask.which
    on_gpu = kinds.is_cuda and not isinstance(kinds, FakeTensor)
    maker = _maker_on(kinds.get_device()) if on_gpu else None
    if maker is not None and maker.can_list(kinds):
        found: ListsInRoom = maker.filled(kinds, which, mask.most, turned=turned)
        return found, (found.room,)
    if on_gpu and triton_installed():
        from firstlight.kernels.block_attention.triton import lists as by_triton

        made = (by_triton.fill_turned if turned else by_triton.fill)(kinds, which, mask.most)
        return made, made
    if turned:
        starts, columns, masks = fill(
            kinds.mT.contiguous(), None if which is None else which.mT.contiguous(), mask.most
        )
    else:
        starts, columns, masks = fill(kinds, which, mask.most)
    order = order_of(starts, (kinds.shape[:2].numel(), kinds.shape[3 if turned else 2]))
    made = Lists(starts, columns, masks, order)
    return made, made


@functools.lru_cache(maxsize=64)
def _maker_on(device: int) -> ModuleType | None:
    """What makes lists in one launch there; None: Triton or torch does."""
    arch = arch_of(device)
    return None if arch is None else arch.part("mask_lists")


def order_of(starts: Tensor, shape: tuple[int, int]) -> Tensor:
    """The order of `shape`, (heads, blocks of a head), in plain torch, e.g. [[1, 0]] for starts [0, 1, 3]."""
    return torch.argsort(starts.diff().view(shape), dim=1, descending=True, stable=True).to(torch.int32)


def fill(kinds: Tensor, which: Tensor | None, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """(starts, columns, masks) of a mask in plain torch; an int64 for every block is needed on the way."""
    device, (rows, blocks) = kinds.device, (kinds.shape[:3].numel(), kinds.shape[3])
    flat = kinds.view(rows, blocks)
    used = flat != NONE
    starts = torch.zeros(rows + 1, dtype=torch.int64, device=device)
    torch.cumsum(used.sum(1), 0, out=starts[1:])
    # where each used block goes; those that are not used share one place after the end
    target = torch.where(used, torch.cumsum(used.view(-1), 0).view(rows, blocks) - 1, most).clamp_(max=most).view(-1)
    room = max(most, 1)
    names = torch.arange(blocks, dtype=torch.int32, device=device).repeat(rows)
    columns = torch.zeros(room + 1, dtype=torch.int32, device=device).scatter_(0, target, names)
    masks = torch.full((room + 1,), -1, dtype=torch.int32, device=device)
    if which is not None:
        masks.scatter_(0, target, torch.where(flat == PARTIAL, which.view(rows, blocks), -1).view(-1))
    columns[most:].zero_()
    masks[most:].fill_(-1)
    return starts.clamp_(max=most).to(torch.int32), columns[:room], masks[:room]
