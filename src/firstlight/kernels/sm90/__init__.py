"""The Hopper backend: block-sparse products with wgmma and TMA, compiled on the machine they run on.

`multiply` and `sample` are the two requests every backend takes; see firstlight.kernels.product. CUDA C++ in cuda/;
what is compiled in variants.py, by compile.py, kept by cache.py, loaded and launched by driver.py.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue, Layout, Second
from firstlight.kernels.sm90.again import ProductAgain, product_of, sample_of
from firstlight.kernels.sm90.problem import EIGHTH, Padding, padding_of, problem_of, require_one_dtype
from firstlight.kernels.sm90.sample_plan import sampling_of

__all__ = ["multiply", "prepare", "sample"]


def multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """out = activation(alpha * (W @ dense) + beta * addend + bias), fully overwritten, on the current stream.

    COLUMNS: dense [batch, cols, n] or [cols, n]; TOKENS: dense [n, cols], out [n, rows]. Inputs are contiguous and
    16-byte aligned. The same bits at every call: portions of a sum are added in the order of the list. Where a row of
    X or of the output is not a multiple of 16 bytes, the product is computed in padded copies.
    """
    if out.numel() == 0:
        return
    dtype = dense.dtype
    require_one_dtype(values.dtype, dtype, out.dtype)
    addend, bias = epilogue.addend, epilogue.bias
    if addend is not None:  # beta 0 does not read it
        addend = None if epilogue.beta == 0.0 else addend.to(dtype)
    if bias is not None and bias.dtype is not dtype:
        bias = bias.to(dtype)
    if addend is not None and epilogue.second is Second.MULTIPLIED and layout is Layout.COLUMNS:
        plain = replace(epilogue, addend=None, bias=bias, second=Second.ADDED)
        multiply(index, values, dense, out, layout=layout, epilogue=plain)
        out.mul_(addend)  # the kernel multiplies by token alone
        return
    problem = problem_of(index, dense, layout)
    padding = padding_of(problem, with_addend=addend is not None)
    if padding is not None:
        epilogue = replace(epilogue, addend=addend, bias=bias)
        _multiply_padded(index, values, dense, out, padding=padding, layout=layout, epilogue=epilogue)
        return
    again = product_of(index, problem, epilogue)
    again(values, dense, out, bias, addend, (dense.data_ptr(), values.data_ptr()))


def prepare(index: Index, dense: Tensor, *, layout: Layout, epilogue: Epilogue) -> ProductAgain | None:
    """How to start the same product again with other tensors of these shapes; None where it takes more than that."""
    problem = problem_of(index, dense, layout)
    gated = epilogue.addend is not None and epilogue.second is Second.MULTIPLIED
    added = epilogue.addend is not None and epilogue.beta != 0.0
    if padding_of(problem, with_addend=added) is not None or (gated and layout is Layout.COLUMNS):
        return None
    return product_of(index, problem, epilogue)


def sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """out_values[block of entry] = alpha * A[row block] @ B[:, column block], summed over tokens and batch.

    COLUMNS: a [rows, n], b [cols, n] or both with a batch in front; TOKENS: a [n, rows], b [n, cols]. What lies past a
    ragged edge is written as 0.
    """
    if out_values.numel() == 0:
        return
    require_one_dtype(b.dtype, a.dtype, out_values.dtype)
    if layout is Layout.COLUMNS and a.shape[-1] % EIGHTH:  # zeros add nothing to the sums
        missing = -a.shape[-1] % EIGHTH
        a, b = functional.pad(a, (0, missing)), functional.pad(b, (0, missing))
    sample_of(index, sampling_of(index, a, layout), alpha)(a, b, out_values)


def _multiply_padded(
    index: Index, values: Tensor, dense: Tensor, out: Tensor, *, padding: Padding, layout: Layout, epilogue: Epilogue
) -> None:
    """The same product with zeros around X; the lists are the same, as block rows and columns do not become more."""
    tokens = layout is Layout.TOKENS
    n = dense.shape[0] if tokens else dense.shape[-1]
    # the last dimension of X and of the output, how much longer each becomes
    more_x, more_out = (padding.cols - index.cols, padding.rows - index.rows) if tokens else (padding.n - n,) * 2
    wide = out.new_empty((*out.shape[:-1], out.shape[-1] + more_out))
    addend, bias = epilogue.addend, epilogue.bias
    padded = replace(
        epilogue,
        addend=None if addend is None else functional.pad(addend, (0, more_out)),
        bias=None if bias is None else functional.pad(bias, (0, padding.rows - index.rows)),
    )
    larger = replace(index, rows=padding.rows, cols=padding.cols)
    with torch.no_grad():
        dense = functional.pad(dense, (0, more_x)) if more_x else dense
        multiply(larger, values, dense, wide, layout=layout, epilogue=padded)
        out.copy_(wide[..., : out.shape[-1]])
