"""Which keys the queries of one call see: a plain shape that needs no mask, or a BlockMask, combined with causal.

What is derived here (the mask of a plain shape, mask & causal) is made once and kept.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.choice import answer
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import keepable
from firstlight.kernels.torch_private import is_capturing

FULL, UPPER_LEFT, LOWER_RIGHT, LISTED = "full", "upper_left", "lower_right", "listed"
SHAPE = "shape"  # under which name a constructor notes in mask.derived that the mask is plain
CAUSAL = "and causal"
NEW_CALLS = "new calls"
_KEPT_SHAPES = 4  # each with its lists: 10 MB for 131072 keys


class _Kept(NamedTuple):
    """A mask that was made here, and what a reader has to use first."""

    mask: BlockMask
    held: Held | None


class Attended:
    """What one call attends to, e.g. the upper-left causal half of 4096 x 4096; makes its mask when a kernel asks."""

    __slots__ = ("_mask", "device", "k_len", "q_len", "shape")

    def __init__(self, shape: str, q_len: int, k_len: int, device: torch.device, mask: BlockMask | None = None) -> None:
        self.shape = shape  # full, upper_left, lower_right: exactly that; listed: what the mask says
        self.q_len = q_len
        self.k_len = k_len
        self.device = device
        self._mask = mask

    @property
    def mask(self) -> BlockMask:
        """The blocks, made at first need."""
        if self._mask is None:
            self._mask = _plain_mask(self.shape, self.q_len, self.k_len, self.device)
        return self._mask

    def sees(self, mask: BlockMask) -> bool:
        """Whether this is the mask itself, neither a plain shape nor combined with another."""
        return self._mask is mask

    @property
    def is_plain(self) -> bool:
        """Whether there is no mask, or none was needed yet."""
        return self._mask is None

    @property
    def watched(self) -> tuple[Tensor, ...]:
        """The tensors of a mask that the caller may change before a backward pass; none of a plain shape."""
        return () if self._mask is None or not self._mask.counts_changes else self._mask.parts

    @property
    def block(self) -> int:
        """Side of a block, e.g. 128; a plain shape takes the default."""
        return 128 if self._mask is None else self._mask.block

    @property
    def lists(self) -> int:
        """Batches times heads that have a list of their own, e.g. 1."""
        return 1 if self._mask is None else self._mask.kinds.shape[0] * self._mask.kinds.shape[1]

    @property
    def is_cut(self) -> bool:
        """Whether some blocks are seen in part."""
        return self.shape != FULL if self._mask is None else self._mask.bits is not None

    def is_new(self) -> bool:
        """Counts the calls with a mask; whether this is one of the first, before much is worth preparing for it."""
        if self._mask is None or not self._mask.counts_changes:
            return False
        count = self._mask.derived[NEW_CALLS] = self._mask.derived.get(NEW_CALLS, 0) + 1
        return bool(count <= answer.NEW_CALLS)

    @property
    def share(self) -> float:
        """Blocks that have to be computed, of all; an upper bound that the host knows without waiting.

        Of a plain shape that of the pairs, however its mask came: 0.5 of causal, where blocks of 128 are 0.531 of 2048
        and 0.516 of 4096, so that what was measured at 4096 speaks for 2048.
        """
        if self._mask is None or self.shape in (FULL, UPPER_LEFT):
            return 1.0 if self.shape == FULL else 0.5
        return self._mask.most / max(1, self._mask.kinds.numel())


def seen_by(q: Tensor, k: Tensor, mask: BlockMask | None, causal: str) -> Attended:
    """What a call with these tensors sees; causal is upper_left, lower_right or empty."""
    q_len, k_len = q.shape[2], k.shape[2]
    if mask is None:
        return Attended(_plain_shape(causal or FULL, q_len, k_len), q_len, k_len, q.device)
    shape = shape_of(mask)
    if causal and shape == FULL:
        return Attended(_plain_shape(causal, q_len, k_len), q_len, k_len, q.device)
    if causal and _plain_shape(causal, q_len, k_len) != shape:
        mask, shape = _and_causal(mask, causal), LISTED
    return Attended(shape, q_len, k_len, q.device, mask)


def shape_of(mask: BlockMask) -> str:
    """full, upper_left or lower_right where the mask was made as exactly that and not changed since; else listed."""
    found = mask.derived.get(SHAPE, LISTED)
    assert found in (FULL, UPPER_LEFT, LOWER_RIGHT, LISTED), found
    return _plain_shape(found, mask.q_len, mask.k_len)


def _plain_shape(shape: str, q_len: int, k_len: int) -> str:
    """Both alignments are one for as many keys as queries; one query at the lower right sees all keys."""
    if shape == LOWER_RIGHT and q_len == k_len:
        return UPPER_LEFT
    if shape == LOWER_RIGHT and q_len == 1:
        return FULL
    return shape


def _plain_mask(shape: str, q_len: int, k_len: int, device: torch.device) -> BlockMask:
    if device.type == "cuda" and is_capturing():
        return _made(shape, q_len, k_len, device)  # belongs to the graph that is captured
    mask, held = _kept_plain_mask(shape, q_len, k_len, device)
    if held is not None:
        held.use()
    return mask


@functools.lru_cache(maxsize=_KEPT_SHAPES)
def _kept_plain_mask(shape: str, q_len: int, k_len: int, device: torch.device) -> _Kept:
    with torch.inference_mode(mode=False):
        made = _made(shape, q_len, k_len, device)
    return _Kept(made, held_after(*made.parts))


def _made(shape: str, q_len: int, k_len: int, device: torch.device) -> BlockMask:
    if shape == FULL:
        return BlockMask.full(q_len, k_len, device=device)
    return BlockMask.causal(q_len, k_len, alignment=shape, device=device)


def _and_causal(mask: BlockMask, alignment: str) -> BlockMask:
    found = mask.derived.get((CAUSAL, alignment))
    if isinstance(found, _Kept):
        use(found.held)
        return found.mask
    with torch.inference_mode(mode=False):
        made = mask & BlockMask.causal(
            mask.q_len, mask.k_len, alignment=alignment, block=mask.block, device=mask.kinds.device
        )
    if mask.counts_changes and keepable(mask.kinds, made.kinds):
        mask.derived[(CAUSAL, alignment)] = _Kept(made, held_after(*made.parts))
    return made
