"""To and from the block masks of torch's FlexAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import (
    FULL,
    NONE,
    PARTIAL,
    blocks_in,
    canonical_kinds,
    number_partial,
    ordinary,
    pack,
)
from firstlight.kernels.block_attention.construct import Grid
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.mask_checks import BLOCKS
from firstlight.kernels.block_attention.measured import apart
from firstlight.kernels.torch_private import indexing_with_numbers

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key: whether it is seen

ASKED_AT_ONCE = 256  # blocks whose elements a mask_mod is asked for together: 4 million at block 128


def from_flex(block_mask: FlexBlockMask) -> BlockMask:
    """The mask that a FlexAttention BlockMask stands for; see BlockMask.from_flex."""
    block, (q_len, k_len) = _block_of(block_mask), _lengths_of(block_mask)
    rows, columns = blocks_in(q_len, block), blocks_in(k_len, block)
    with ordinary():
        kinds = _listed(block_mask.kv_num_blocks, block_mask.kv_indices, columns) * PARTIAL
        if block_mask.full_kv_num_blocks is not None and block_mask.full_kv_indices is not None:
            wholly = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, columns)
            kinds = torch.where(wholly == 1, FULL, kinds)
        if kinds.shape[2] != rows:
            raise UnsupportedInput(
                f"the BlockMask lists {kinds.shape[2]} blocks of queries and its seq_lengths are {(q_len, k_len)}; "
                f"{rows} blocks of {block} are accepted. Make a new one with create_block_mask for these lengths."
            )
        most, cut = (int(n) for n in torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum()]).tolist())
        if cut == 0:
            return BlockMask(kinds, q_len=q_len, k_len=k_len, block=block, most=most)
        which, places = number_partial(kinds == PARTIAL, cut)
        parts = [places[first : first + ASKED_AT_ONCE] for first in range(0, cut, ASKED_AT_ONCE)]
        ask = _Questions(block_mask.mask_mod, tuple(kinds.shape), (q_len, k_len), block)
        bits = torch.cat([pack(ask.about(some)) for some in parts])
        kinds = canonical_kinds(kinds, which, bits, (q_len, k_len))
    return BlockMask(kinds, which, bits, q_len=q_len, k_len=k_len, block=block, most=most)


def from_mask_mod(mask_mod: MaskMod, *, batch: int, grid: Grid, device: torch.device) -> BlockMask:
    """The mask of a function of (batch, head, query, key), asked for every element with head 0; the host waits once.

    Right for any function and slow for long sequences: 4 million elements at a time.
    """
    shape, lengths = (batch, 1, grid.rows, grid.columns), (grid.q_len, grid.k_len)
    with ordinary():
        ask = _Questions(mask_mod, shape, lengths, grid.block)
        every = torch.arange(batch * grid.rows * grid.columns, device=device)
        found = [_looked_at(ask.about(some)) for some in torch.split(every, ASKED_AT_ONCE)]
        kinds = torch.cat([kinds for kinds, _ in found]).view(shape)
        most, cut = (int(n) for n in torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum()]).tolist())
        if cut == 0:
            return BlockMask(kinds, q_len=grid.q_len, k_len=grid.k_len, block=grid.block, most=most)
        which, places = number_partial(kinds == PARTIAL, cut)
        bits = torch.cat([bits for _, bits in found])[places]
    return BlockMask(kinds, which, bits, q_len=grid.q_len, k_len=grid.k_len, block=grid.block, most=most)


def _looked_at(seen: Tensor) -> tuple[Tensor, Tensor]:
    """(kinds [n], bits [n, block, block // 32]) of the elements of some blocks."""
    return seen.any(2).any(1).to(torch.uint8) + seen.all(2).all(1).to(torch.uint8), pack(seen)


class _Questions:
    """A mask_mod, asked for all elements of some blocks."""

    def __init__(self, mask_mod: MaskMod, shape: tuple[int, ...], lengths: tuple[int, int], block: int) -> None:
        self._shape, self._lengths, self._block = shape, lengths, block
        # torch.vmap because a mask_mod is written for single numbers and may index tensors with them
        over_keys = torch.vmap(mask_mod, in_dims=(None, None, None, 0))
        over_queries = torch.vmap(over_keys, in_dims=(None, None, 0, None))
        self._over_blocks = torch.vmap(over_queries, in_dims=(0, 0, 0, 0))

    def about(self, places: Tensor) -> Tensor:
        """bool [n, block, block] of the blocks at these flat places."""
        batch, head, row, column = apart(places, self._shape)
        inside = torch.arange(self._block, device=places.device)
        # beyond the lengths the last element is asked for again: a mask_mod may index tensors of that length
        queries, keys = (
            (at[:, None] * self._block + inside).clamp(max=length - 1)
            for at, length in zip((row, column), self._lengths, strict=True)
        )
        with indexing_with_numbers():
            seen = self._over_blocks(batch, head, queries, keys)
        assert isinstance(seen, Tensor), f"mask_mod gave {type(seen).__name__}"
        return seen.to(torch.bool).expand(places.shape[0], self._block, self._block)


def _listed(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """uint8 [batch, heads, rows, columns]: 1 where a block is in the first counts[...] of its row's indices."""
    used = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    found = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.uint8, device=indices.device)
    found.scatter_(-1, torch.where(used, indices, columns).long(), 1)
    return found[..., :columns].contiguous()


def _block_of(block_mask: FlexBlockMask) -> int:
    kind = type(block_mask)
    if kind.__name__ != "BlockMask" or not hasattr(block_mask, "kv_num_blocks"):
        raise UnsupportedInput(
            f"block_mask is a {kind.__module__}.{kind.__name__}; a torch.nn.attention.flex_attention.BlockMask is "
            f"accepted. Make one with create_block_mask; booleans go through BlockMask.from_bool."
        )
    sizes = block_mask.BLOCK_SIZE
    first, second = (sizes, sizes) if isinstance(sizes, int) else sizes
    if first != second or first not in BLOCKS:
        raise UnsupportedInput(
            f"the BlockMask has BLOCK_SIZE ({first}, {second}); (128, 128) and (64, 64) are accepted. Make it with "
            f"create_block_mask(..., BLOCK_SIZE=128)."
        )
    if block_mask.kv_indices.dim() != 4:
        raise UnsupportedInput(
            f"the BlockMask's kv_indices has shape {list(block_mask.kv_indices.shape)}; [batch, heads, query blocks, "
            f"key blocks] is accepted. Make it with create_block_mask."
        )
    return int(first)


def _lengths_of(block_mask: FlexBlockMask) -> tuple[int, int]:
    q_len, k_len = block_mask.seq_lengths
    return int(q_len), int(k_len)


def to_flex(mask: BlockMask) -> FlexBlockMask:
    """The mask for flex_attention; see BlockMask.to_flex."""
    from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask

    with ordinary():
        wholly, some = mask.kinds == FULL, mask.kinds == PARTIAL
        if mask.k_len % mask.block or mask.q_len % mask.block:
            # create_block_mask never calls a block full that reaches beyond the lengths
            inner = torch.ones_like(wholly)
            if mask.q_len % mask.block:
                inner[:, :, -1] = False
            if mask.k_len % mask.block:
                inner[:, :, :, -1] = False
            some, wholly = some | (wholly & ~inner), wholly & inner
        return FlexBlockMask.from_kv_blocks(
            *_ordered(some),
            *_ordered(wholly),
            BLOCK_SIZE=(mask.block, mask.block),
            mask_mod=_mask_mod(mask),
            seq_lengths=(mask.q_len, mask.k_len),
        )


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(number, indices) int32: for each row how many blocks it has, and those first, in order."""
    indices = torch.argsort(blocks.to(torch.uint8), dim=3, descending=True, stable=True)
    return blocks.sum(3).to(torch.int32), indices.to(torch.int32)


def _mask_mod(mask: BlockMask) -> MaskMod:
    kinds, which, bits, block = mask.kinds, mask.which, mask.bits, mask.block
    one_batch, one_head, k_len = kinds.shape[0] == 1, kinds.shape[1] == 1, mask.k_len

    def sees(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        batch, head = b * 0 if one_batch else b, h * 0 if one_head else h
        row, column = q_idx // block, kv_idx // block
        kind = kinds[batch, head, row, column]
        if which is None or bits is None:
            return (kind == FULL) & (kv_idx < k_len)
        key = kv_idx % block
        word = bits[which[batch, head, row, column], q_idx % block, key // 32]
        seen = (kind == FULL) | ((kind == PARTIAL) & (((word >> (key % 32)) & 1) == 1))
        return seen & (kv_idx < k_len)

    return sees
