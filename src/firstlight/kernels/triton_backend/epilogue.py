"""What happens to a finished tile: alpha, addend, bias, activation, and the store."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(x, how: tl.constexpr):
    """how.activation of x in float32; NaN stays NaN, as in torch."""
    if how.activation == "relu":
        x = tl.where(x < 0.0, 0.0, x)
    elif how.activation == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif how.activation == "gelu_tanh":
        # 0.5 (1 + tanh u) = sigmoid(2 u)
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif how.activation == "silu":
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def finished(acc, where, data, sizes, how: tl.constexpr):
    """activation(alpha * acc + beta * addend + bias), or times addend, for a tile whose places are `where`."""
    acc = acc * sizes.alpha
    if how.has_addend:
        addend = tl.load(data.addend + where.base + where.offset, mask=where.inside, other=0.0)
        if not how.multiplied:
            acc += sizes.beta * addend.to(tl.float32)
    if how.has_bias:
        acc += tl.load(data.bias + where.row, mask=where.row < sizes.rows, other=0.0).to(tl.float32)
    acc = activated(acc, how)
    if how.multiplied:
        acc *= addend.to(tl.float32)
    return acc
