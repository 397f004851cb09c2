"""Attention over the blocks of a mask in plain torch: what the other backends are measured against.

One query sees the keys j that the mask lets it see:
    s_j = scale * <q, k_j>        lse = log sum_j exp(s_j)        out = sum_j exp(s_j - lse) v_j
A query that sees no key has lse = -inf and out = 0, and no gradient comes from it. A block of kind NONE is not read:
what stands in its keys (NaN, infinity) reaches nothing. fp16, bf16 and fp32 are computed in fp32 and rounded once,
float64 in float64. The host reads which blocks there are, so this backend cannot be captured into a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.bits import PARTIAL, unpack
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream


@torch.no_grad()
def forward(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> None:
    """out and lse of softmax(scale * q k') v over the keys that the mask lets each query see, fully overwritten."""
    out.zero_()
    lse.fill_(-torch.inf)
    with torch.autocast(q.device.type, enabled=False):  # it would round the products to 16 bits
        for part in _parts(mask, q, k):
            queries, keys, values = part.queries(q), part.keys(k), part.keys(v)
            scores = part.hidden(scale * (queries @ keys.mT))
            total, weights = _softmax(scores)
            part.put(out, weights @ values)
            part.put(lse, total)


@torch.no_grad()
def backward(upstream: Upstream, made: Forward, mask: BlockMask, *, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv in the dtypes of q, k and v; the same bits on every run.

    With p = exp(s - lse) and delta = <dout, out> - dlse:  dv = p' dout,  ds = p (dout v' - delta),
    dq = scale * ds k,  dk = scale * ds' q; the query heads of one key head are summed.
    """
    (q, k, v, out, lse), grad_lse = made, upstream.lse
    precision = _precision(q)
    dq, dk, dv = (torch.zeros_like(tensor, dtype=precision) for tensor in (q, k, v))
    alive = lse != -torch.inf  # what comes back to a query without keys, even NaN, goes nowhere
    d_out = torch.where(alive[..., None], upstream.out.to(precision), 0.0)
    delta = (d_out * out.to(precision)).sum(-1)
    if grad_lse is not None:
        delta = delta - torch.where(alive, grad_lse.to(precision), 0.0)
    base = torch.where(alive, lse, 0.0).to(precision)
    with torch.autocast(q.device.type, enabled=False):
        for part in _parts(mask, q, k):
            queries, keys, values = part.queries(q), part.keys(k), part.keys(v)
            d_part = part.queries(d_out)
            weights = part.hidden(scale * (queries @ keys.mT)).sub_(part.queries(base)[..., None]).exp_()
            d_scores = (d_part @ values.mT).sub_(part.queries(delta)[..., None]).mul_(weights)
            part.add_to_keys(dv, weights.mT @ d_part)
            part.add_to_keys(dk, scale * (d_scores.mT @ queries))
            part.put(dq, scale * (d_scores @ keys))
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """out and lse in whole, from the element mask [B|1, H|1, Sq, Sk]: of any derivative, with memory Sq * Sk a head."""
    group = q.shape[1] // k.shape[1]
    keys, values = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
    scores = (scale * (q @ keys.mT)).masked_fill(~seen, -torch.inf)
    empty = ~seen.any(-1)
    finite = scores.masked_fill(empty[..., None], 0.0)  # a row of -inf has no softmax, and its derivative is NaN
    out = (finite.softmax(-1) @ values).masked_fill(empty[..., None], 0.0)
    return out, finite.logsumexp(-1).masked_fill(empty, -torch.inf)


def gradients(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, grad_lse: Tensor | None, seen: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """dq, dk and dv in whole, themselves differentiable; see attended."""
    with torch.enable_grad():
        out, lse = attended(q, k, v, seen, scale)
        alive = lse != -torch.inf
        total = (out * grad_out).sum()
        if grad_lse is not None:
            total = total + (torch.where(alive, lse, 0.0) * grad_lse.to(lse.dtype)).sum()
        return torch.autograd.grad(total, (q, k, v), create_graph=True)


class _Part(NamedTuple):
    """One block of queries of the heads that share a list, and the blocks of keys that they see any of."""

    batches: slice
    heads: slice
    key_heads: slice
    rows: slice
    columns: Tensor  # key numbers, int64
    seen: Tensor | None  # [rows, columns]; None: all of them

    def queries(self, tensor: Tensor) -> Tensor:
        """[batches, key heads, queries of their heads, ...] in the precision of the computation."""
        taken = tensor[self.batches, self.heads, self.rows]
        batches, rows = taken.shape[0], taken.shape[1] * taken.shape[2] // (self.key_heads.stop - self.key_heads.start)
        return taken.reshape(batches, -1, rows, *taken.shape[3:]).to(_precision(tensor))

    def keys(self, tensor: Tensor) -> Tensor:
        """[batches, key heads, keys, head dim]."""
        return tensor[self.batches, self.key_heads].index_select(2, self.columns).to(_precision(tensor))

    def hidden(self, scores: Tensor) -> Tensor:
        """The scores with -inf where a query may not see a key."""
        if self.seen is None:
            return scores
        by_head = scores.view(*scores.shape[:2], -1, *self.seen.shape)
        return by_head.masked_fill(~self.seen, -torch.inf).view(scores.shape)

    def put(self, target: Tensor, made: Tensor) -> None:
        """Writes what was made for the queries into the whole tensor."""
        place = target[self.batches, self.heads, self.rows]
        place.copy_(made.reshape(place.shape))

    def add_to_keys(self, target: Tensor, made: Tensor) -> None:
        """Adds what was made for the keys to the whole tensor."""
        target[self.batches, self.key_heads].index_add_(2, self.columns, made)


def _softmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The log of the sum of exponentials, and each one's share; -inf and zeros for a row of -inf."""
    highest = scores.amax(-1, keepdim=True)
    highest = torch.where(highest == -torch.inf, 0.0, highest)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    lse = (highest + total.log()).squeeze(-1)
    return lse, weights / torch.where(total == 0.0, 1.0, total)


def _parts(mask: BlockMask, q: Tensor, k: Tensor) -> Iterator[_Part]:
    """Every block of queries that sees anything; heads that share a list go together."""
    batch, heads, group = q.shape[0], q.shape[1], q.shape[1] // k.shape[1]
    kinds = mask.kinds.cpu()
    for b in range(kinds.shape[0]):
        batches = slice(b, b + 1) if kinds.shape[0] > 1 else slice(0, batch)
        for h in range(kinds.shape[1]):
            whole = kinds.shape[1] == 1
            these = slice(0, heads) if whole else slice(h, h + 1)
            key_heads = slice(0, k.shape[1]) if whole else slice(h // group, h // group + 1)
            for i, row in enumerate(kinds[b, h]):
                listed = row.nonzero().flatten()
                if listed.numel():
                    rows = slice(i * mask.block, min((i + 1) * mask.block, mask.q_len))
                    columns = _keys_of(listed, mask).to(q.device)
                    seen = _elements(mask, (b, h, i), listed, rows) if bool((row == PARTIAL).any()) else None
                    yield _Part(batches, these, key_heads, rows, columns, seen)


def _keys_of(listed: Tensor, mask: BlockMask) -> Tensor:
    columns = (listed[:, None] * mask.block + torch.arange(mask.block)).flatten()
    return columns[columns < mask.k_len]


def _elements(mask: BlockMask, place: tuple[int, int, int], listed: Tensor, rows: slice) -> Tensor:
    """[queries, keys] of the listed blocks of one block row: whether the query may see the key."""
    assert mask.which is not None
    assert mask.bits is not None
    here = listed.to(mask.kinds.device)
    partial = mask.kinds[place][here] == PARTIAL
    words = mask.bits[torch.where(partial, mask.which[place][here], 0)]  # [listed, block, block / 32]
    seen = unpack(words) | ~partial[:, None, None]
    inside = seen.permute(1, 0, 2).flatten(1)[: rows.stop - rows.start]
    return inside[:, _keys_inside(listed, mask).to(inside.device)]


def _keys_inside(listed: Tensor, mask: BlockMask) -> Tensor:
    columns = (listed[:, None] * mask.block + torch.arange(mask.block)).flatten()
    return columns < mask.k_len


def _precision(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
