"""A dense operand turned over: [n, cols] to [cols, pitch], for kernels that gather its rows."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# Triton's language: a kernel's arguments have types that Python's cannot say.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def turn_over(dense, turned, n, cols, pitch, how: tl.constexpr):
    """One tile of `turned`, whose rows are `pitch` elements apart; 64 x 64 tiles through shared memory."""
    tiles = tl.cdiv(n, how.bn)
    program = tl.program_id(0)
    token = (program % tiles) * how.bn + tl.arange(0, how.bn)
    col = (program // tiles) * how.bk + tl.arange(0, how.bk)
    inside = (token < n)[:, None] & (col < cols)[None, :]
    tile = tl.load(dense + token.to(tl.int64)[:, None] * cols + col[None, :], mask=inside, other=0.0)
    tl.store(turned + col.to(tl.int64)[:, None] * pitch + token[None, :], tile.T, mask=inside.T)
