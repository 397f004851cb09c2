"""The work of attention: what the mask leaves is counted, both causal alignments apart."""

from __future__ import annotations

import math
import re

from firstlight.bench.operator_counts import Work
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

MASKS = "full, causal (first query sees the first key), causal-bottom-right (last query sees all), window-N"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes of one attention: batch 16, heads 96, kv_heads 96, q_len 4096, kv_len 4096, qk_dim 128, v_dim 128."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    qk_dim: int
    v_dim: int

    @classmethod
    def square(cls, batch: int, heads: int, *, seq: int, head_dim: int, kv_heads: int = 0) -> AttentionShape:
        """Self-attention: one length, one head size; kv_heads 0 means as many as heads."""
        return cls(batch, heads, kv_heads or heads, seq, seq, head_dim, head_dim)


def attention(shape: AttentionShape, *, element_bytes: float, mask: str = "full") -> Work:
    """Forward attention under a mask, e.g. 6.5987e12 FLOP for B16 H96 S4096 D128 causal; dense_flops ignores the mask.

    The exponentials (about 5 operations a score, on other units) are not counted. 'causal' is torch's is_causal.
    """
    return attention_pairs(shape, element_bytes=element_bytes, pairs=kept_pairs(shape, mask), mask=mask)


def attention_pairs(shape: AttentionShape, *, element_bytes: float, pairs: int, mask: str) -> Work:
    """Attention over a counted number of (query, key) pairs per head: for block-sparse masks."""
    each = 2 * shape.batch * shape.heads * (shape.qk_dim + shape.v_dim)
    return Work(
        each * pairs,
        each * shape.q_len * shape.kv_len,
        math.ceil(element_bytes * _elements(shape)),
        f"attention-{mask}",
        "min-rw",
    )


def attention_backward(shape: AttentionShape, *, element_bytes: float, mask: str = "full") -> Work:
    """Backward attention: five products against the forward's two, so 2.5 times its work."""
    forward = attention(shape, element_bytes=element_bytes, mask=mask)
    queries = shape.batch * shape.heads * shape.q_len
    # q, k, v, o and do are read with one fp32 logsumexp a query; dq, dk and dv are written: q, k, v, o twice in size.
    traffic = element_bytes * 2 * _elements(shape) + 4 * queries
    return Work(
        forward.flops * 5 // 2,
        forward.dense_flops * 5 // 2,
        math.ceil(traffic),
        f"attention-backward-{mask}",
        "min-rw",
    )


def kept_pairs(shape: AttentionShape, mask: str) -> int:
    """How many (query, key) pairs of one head a mask leaves: 8390656 for causal at 4096."""
    queries, keys = shape.q_len, shape.kv_len
    if mask == "full":
        return queries * keys
    if mask == "causal":
        short = min(queries, keys)
        return short * (short + 1) // 2 + max(0, queries - keys) * keys
    if mask == "causal-bottom-right":
        return _window_pairs(queries, keys, keys)
    if match := re.fullmatch(r"window-([1-9]\d{0,9})", mask):
        return _window_pairs(queries, keys, int(match[1]))
    raise BadInput(f"attention mask is {mask!a}; accepted: {MASKS}")


def _window_pairs(queries: int, keys: int, window: int) -> int:
    """Query i of the last `queries` positions sees the keys up to its own position, at most `window` of them."""
    first = max(0, keys - queries) + 1  # keys that the first query with any sees
    seeing = min(queries, keys)
    last = first + seeing - 1
    if window <= first:
        return window * seeing
    growing = min(last, window)
    return (first + growing) * (growing - first + 1) // 2 + window * (last - growing)


def _elements(shape: AttentionShape) -> int:
    queries = shape.heads * shape.q_len * (shape.qk_dim + shape.v_dim)
    keys = shape.kv_heads * shape.kv_len * (shape.qk_dim + shape.v_dim)
    return shape.batch * (queries + keys)
