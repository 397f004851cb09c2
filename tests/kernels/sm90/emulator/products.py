"""Products and attention on the emulated GPU, compared with sums in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, sm90
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.product import Epilogue, Layout
from firstlight.kernels.sm90 import attention
from tests.kernels.products import Case, bound, wanted


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> Tensor:
    """Numbers that are the same at every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random(
    rows: int, cols: int, block: int, *, density: float = 0.5, dtype: torch.dtype = torch.float16
) -> BlockSparseMatrix:
    """A matrix that is the same at every call."""
    generator = torch.Generator().manual_seed(3)
    return BlockSparseMatrix.random(rows, cols, block=block, density=density, dtype=dtype, generator=generator)


def case_of(
    matrix: BlockSparseMatrix, n: int, layout: Layout, epilogue: Epilogue | None = None, batch: tuple[int, ...] = ()
) -> Case:
    """A product with n tokens."""
    cols = matrix.shape[1]
    shape = (n, cols) if layout is Layout.TOKENS else (*batch, cols, n)
    return Case(matrix, randn(*shape, seed=1, dtype=matrix.dtype), layout, epilogue or Epilogue())


def multiplied(case: Case) -> Tensor:
    """What the kernel writes over NaN."""
    shape = list(case.dense.shape)
    shape[-2 if case.layout is Layout.COLUMNS else -1] = case.matrix.shape[0]
    out = torch.full(shape, math.nan, dtype=case.dense.dtype)
    sm90.multiply(case.matrix.index, case.matrix.values, case.dense, out, layout=case.layout, epilogue=case.epilogue)
    return out


def wrong(case: Case, out: Tensor) -> int:
    """How many elements are off by more than rounding allows; NaN is."""
    return int((~((out.double() - wanted(case)).abs() <= bound(case))).sum())


def right(case: Case) -> Tensor:
    """The output, every element of it compared."""
    out = multiplied(case)
    off = wrong(case, out)
    assert off == 0, f"{off} of {out.numel()} off"
    return out


class Attended(NamedTuple):
    """Output and logarithms of the sums of attention.cu, and the same in float64."""

    out: Tensor
    lse: Tensor
    exact_out: Tensor
    exact_lse: Tensor

    def wrong(self, tolerance: float) -> int:
        """How many elements are off; NaN is."""
        out_off = ~((self.out.double() - self.exact_out).abs() <= tolerance)
        both_empty = self.lse.double().eq(self.exact_lse)
        lse_off = ~(both_empty | ((self.lse.double() - self.exact_lse).abs() <= 1e-4))
        return int(out_off.sum()) + int(lse_off.sum())


def attended(
    mask: BlockMask, *, heads: tuple[int, int], head_dim: int, dtype: torch.dtype = torch.float16, batch: int = 1
) -> Attended:
    """Attention on random numbers; heads: of the queries, of the keys."""
    q = randn(batch, heads[0], mask.q_len, head_dim, seed=1, dtype=dtype)
    k, v = (randn(batch, heads[1], mask.k_len, head_dim, seed=seed, dtype=dtype) for seed in (2, 3))
    out, lse = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan)
    scale = head_dim**-0.5
    attention.forward(q, k, v, mask, scale=scale, out=out, lse=lse)
    all_k, all_v = (each.double().repeat_interleave(heads[0] // heads[1], 1) for each in (k, v))
    seen = mask.to_bool().expand(batch, heads[0], mask.q_len, mask.k_len)
    scores = (scale * q.double() @ all_k.mT).masked_fill(~seen, -math.inf)
    exact_lse = scores.logsumexp(-1)
    shares = (scores - exact_lse.unsqueeze(-1)).exp().nan_to_num(0.0)
    return Attended(out, lse, shares @ all_v, exact_lse)
