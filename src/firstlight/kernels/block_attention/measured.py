"""Masks that follow from tensors: elements or blocks given as booleans, documents, scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import functional

from firstlight.errors import UnsupportedInput
from firstlight.kernels.backends import why_not_triton
from firstlight.kernels.block_attention.bits import (
    FULL,
    NONE,
    PARTIAL,
    blocks_in,
    canonical_numbered,
    number_partial,
    ordinary,
    pack,
    portions,
)
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.mask_checks import (
    require_length,
    require_mask_block,
    require_number,
    require_sizes,
)
from firstlight.kernels.checks import require_dtype, require_same_device, require_tensor
from firstlight.kernels.torch_private import FakeTensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def from_elements(
    allowed: Tensor, *, q_len: int | None = None, k_len: int | None = None, block: int = 128, count: bool = True
) -> BlockMask:
    """The mask that keeps where [.., q_len, k_len] booleans are True; see BlockMask.from_bool."""
    require_mask_block(block)
    elements = _four_dimensions(allowed, "allowed")
    queries, keys = elements.shape[2:]
    for name, given, found in (("q_len", q_len, queries), ("k_len", k_len, keys)):
        if given not in (None, found):
            raise UnsupportedInput(
                f"{name} is {given} and allowed has {found}; equal ones are accepted. Leave {name} out, or say "
                f"block_level=True where allowed has an entry for each block."
            )
    require_sizes(queries, keys, block)
    with ordinary():
        missing = (0, -keys % block, 0, -queries % block)
        # batch, heads, block row, query, block column, key
        shape = (*elements.shape[:2], blocks_in(queries, block), block, blocks_in(keys, block), block)
        blocked = functional.pad(elements, missing).reshape(shape)
        wholly = functional.pad(elements, missing, value=True).reshape(shape).all(5).all(3)
        # any and all, not a sum: that would write every element as eight bytes first
        kinds = blocked.any(5).any(3).to(torch.uint8) + wholly.to(torch.uint8)
        if count:
            most, cut = (
                int(number) for number in torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum()]).tolist()
            )
            which, places = number_partial(kinds == PARTIAL, cut)
        else:
            most = cut = kinds.numel()
            places = torch.arange(cut, device=kinds.device)
            which = places.to(torch.int32).view(kinds.shape)
        if cut == 0:
            return BlockMask(kinds, q_len=queries, k_len=keys, block=block, most=most)
        bits = torch.cat([_packed_at(blocked, some) for some in portions(places)])
        return BlockMask(kinds, which, bits, q_len=queries, k_len=keys, block=block, most=most)


def _packed_at(blocked: Tensor, places: Tensor) -> Tensor:
    batch, head, row, column = apart(places, (*blocked.shape[:3], blocked.shape[4]))
    return pack(blocked[batch, head, row, :, column, :])


def apart(places: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The indices of flat places of a tensor of this shape, e.g. (tensor([1]), tensor([0])) of [2] in (2, 2)."""
    found: list[Tensor] = []
    for size in reversed(shape):
        found.insert(0, places % size)
        places = torch.div(places, size, rounding_mode="floor")
    return tuple(found)


def from_keys(seen: Tensor, *, q_len: int, block: int = 128) -> BlockMask | None:
    """Every query sees the keys where [batch, k_len] booleans are True, as with padding; None where all are.

    The host waits once.
    """
    batch, k_len = seen.shape
    rows, columns = blocks_in(q_len, block), blocks_in(k_len, block)
    with ordinary():
        missing = (0, columns * block - k_len)
        by_block = functional.pad(seen, missing).view(batch, columns, block)
        wholly = functional.pad(seen, missing, value=True).view(batch, columns, block).all(2)
        kinds = by_block.any(2).to(torch.uint8) + wholly.to(torch.uint8)
        counts = torch.stack([(kinds != NONE).sum(), (kinds == PARTIAL).sum(), (kinds != FULL).sum()]).tolist()
        kept, cut, lacking = (int(number) for number in counts)
        if not lacking:
            return None
        whole = kinds[:, None, None].expand(batch, 1, rows, columns).contiguous()
        if cut == 0:
            return BlockMask(whole, q_len=q_len, k_len=k_len, block=block, most=kept * rows)
        which, places = number_partial(kinds == PARTIAL, cut)
        bits = pack(by_block.flatten(0, 1)[places])[:, None].expand(cut, block, block // 32).contiguous()
        which = which[:, None, None].expand(whole.shape).contiguous()
        return BlockMask(whole, which, bits, q_len=q_len, k_len=k_len, block=block, most=kept * rows)


def from_blocks(
    allowed: Tensor, *, q_len: int | None, k_len: int | None, block: int = 128, count: bool = True
) -> BlockMask:
    """The mask that keeps whole blocks where [.., query blocks, key blocks] booleans are True."""
    blocks = _four_dimensions(allowed, "allowed")
    queries, keys = _given(q_len, "q_len"), _given(k_len, "k_len")
    require_sizes(queries, keys, block)
    _require_blocks(blocks, "allowed", (queries, keys), block)
    with ordinary():
        kinds = blocks.contiguous().view(torch.uint8) * FULL  # one pass over bytes
        most = int(blocks.sum()) if count else kinds.numel()
    return BlockMask(kinds.contiguous(), q_len=queries, k_len=keys, block=block, most=most)


def top_k(scores: Tensor, k: int, *, q_len: int, k_len: int, block: int = 128) -> BlockMask:
    """Each query block sees the k key blocks with the highest scores; see BlockMask.top_k."""
    require_sizes(q_len, k_len, block)
    require_number(k, "k", least=0)
    require_tensor(scores, "scores")
    require_dtype(scores, "scores", FLOATS)
    _require_blocks(scores, "scores", (q_len, k_len), block)
    with ordinary():
        kinds = _best_blocks(scores.detach(), k)
    most = scores.shape[:3].numel() * min(k, scores.shape[3])
    return BlockMask(kinds, q_len=q_len, k_len=k_len, block=block, most=most)


def _best_blocks(scores: Tensor, k: int) -> Tensor:
    # torch.compile traces the sort: it cannot look into a launch
    real = scores.is_cuda and not is_dynamo_compiling() and not isinstance(scores, FakeTensor)
    if real and not why_not_triton(scores.device.index, scores.dtype):
        from firstlight.kernels.block_attention.triton import select

        if select.fits(scores):
            return select.best_blocks(scores, k)
    return best_by_sort(scores, k)


def best_by_sort(scores: Tensor, k: int) -> Tensor:
    """uint8 kinds in plain torch: FULL for the k best blocks of each row, e.g. [[2, 0]] for [[1.0, nan]]."""
    ranked = torch.where(scores.isnan(), -torch.inf, scores)
    # a stable sort, not torch.topk: of equal scores topk takes any, and another one on another device
    best, places = torch.sort(ranked, dim=3, descending=True, stable=True)
    chosen = (best[..., :k] > -torch.inf).to(torch.uint8) * FULL
    kinds = torch.zeros(scores.shape, dtype=torch.uint8, device=scores.device)
    return kinds.scatter_(3, places[..., :k], chosen)


def document(ids_q: Tensor, ids_k: Tensor | None = None, *, block: int = 128) -> BlockMask:
    """A query sees the keys of its own document; see BlockMask.document."""
    require_mask_block(block)
    ids_k = ids_q if ids_k is None else ids_k
    queries, keys = _documents(ids_q, "ids_q"), _documents(ids_k, "ids_k")
    require_same_device(queries, "ids_q", keys, "ids_k")
    if queries.shape[0] != keys.shape[0] and 1 not in (queries.shape[0], keys.shape[0]):
        raise UnsupportedInput(
            f"ids_q has batch {queries.shape[0]} and ids_k {keys.shape[0]}; equal ones, or 1 on one side, are "
            f"accepted. Pass both for batch {max(queries.shape[0], keys.shape[0])}."
        )
    q_len, k_len = queries.shape[1], keys.shape[1]
    with ordinary():
        queries, keys = (blocked(ids, block, max(queries.shape[0], keys.shape[0])) for ids in (queries, keys))
        (q_low, q_high), (k_low, k_high) = ((ids.amin(2), ids.amax(2)) for ids in (queries, keys))
        # ids that lie apart have none in common; where they overlap, the elements decide
        near = (q_low[:, :, None] <= k_high[:, None]) & (k_low[:, None] <= q_high[:, :, None])
        alone = (q_low == q_high)[:, :, None] & (k_low == k_high)[:, None]
        kinds = (near.to(torch.uint8) + (near & alone).to(torch.uint8))[:, None]
        most, cut = (int(number) for number in torch.stack([near.sum(), (near & ~alone).sum()]).tolist())
        if cut == 0:
            return BlockMask(kinds, q_len=q_len, k_len=k_len, block=block, most=most)
        which, places = number_partial(kinds == PARTIAL, cut)
        bits = torch.cat([_same_document(queries, keys, some) for some in portions(places)])
        kinds = canonical_numbered(kinds, places, bits, (q_len, k_len))
        return BlockMask(kinds, which, bits, q_len=q_len, k_len=k_len, block=block, most=most)


def _same_document(queries: Tensor, keys: Tensor, places: Tensor) -> Tensor:
    batch, row, column = apart(places, (queries.shape[0], queries.shape[1], keys.shape[1]))
    return pack(queries[batch, row][:, :, None] == keys[batch, column][:, None, :])


def blocked(ids: Tensor, block: int, batch: int) -> Tensor:
    """[batch, blocks, block] of [1 or batch, length]; the last id goes on to the end of the last block."""
    missing = -ids.shape[1] % block
    whole = torch.cat([ids, ids[:, -1:].expand(-1, missing)], dim=1)
    return whole.view(whole.shape[0], -1, block).expand(batch, -1, -1)


def _documents(ids: Tensor, name: str) -> Tensor:
    require_tensor(ids, name)
    require_dtype(ids, name, WHOLE)
    if ids.dim() not in (1, 2) or 0 in ids.shape:
        raise UnsupportedInput(
            f"{name} has shape {list(ids.shape)}; [length] or [batch, length] is accepted. Pass the id of the document "
            f"of each token, e.g. tensor([0, 0, 1])."
        )
    return ids if ids.dim() == 2 else ids[None]


def _four_dimensions(allowed: Tensor, name: str) -> Tensor:
    require_tensor(allowed, name)
    require_dtype(allowed, name, (torch.bool,))
    if allowed.dim() not in (2, 4) or 0 in allowed.shape:
        raise UnsupportedInput(
            f"{name} has shape {list(allowed.shape)}; [queries, keys] or [batch or 1, heads or 1, queries, keys] is "
            f"accepted. With three dimensions say which one is missing: {name}[:, None] for heads, {name}[None] for "
            f"batch."
        )
    return allowed if allowed.dim() == 4 else allowed[None, None]


def _given(length: int | None, name: str) -> int:
    if length is None:
        raise UnsupportedInput(
            f"{name} is None with block_level=True; a whole number is accepted: a number of blocks does not say where "
            f"the last one ends. Pass {name}."
        )
    require_length(length, name)
    return length


def _require_blocks(blocks: Tensor, name: str, lengths: tuple[int, int], block: int) -> None:
    wanted = tuple(blocks_in(length, block) for length in lengths)
    if blocks.dim() != 4 or tuple(blocks.shape[2:]) != wanted or 0 in blocks.shape:
        raise UnsupportedInput(
            f"{name} has shape {list(blocks.shape)}; [batch or 1, heads or 1, {wanted[0]}, {wanted[1]}] is accepted "
            f"for q_len {lengths[0]}, k_len {lengths[1]} and block {block}. Pass {name} in that shape."
        )
