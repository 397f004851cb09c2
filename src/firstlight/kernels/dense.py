"""The products over a dense copy of the matrix, by the vendor's library: what wins where many blocks are stored.

The copy is made for each call, as nothing tells for sure that values have not changed: torch counts changes, but not
those by fused optimizers, `.data`, DLPack, replayed CUDA graphs and foreign kernels. For values that stay as they are
`keep(matrix)` keeps one, rows * cols * element size of memory, until `forget(matrix)`, until the values go, or until
they require a gradient. A change that torch counts is still noticed and the copy made again. While a CUDA graph is
captured the copy is made inside the graph, so that a replay sees the values of that moment.
Unlike the other backends this one multiplies the blocks that are not stored too, by zero: a NaN or infinity in the
dense operand reaches outputs whose stored blocks do not use it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.errors import UnsupportedInput
from firstlight.kernels.convert import scatter
from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.memo import TensorMemo, being_captured, keepable
from firstlight.kernels.pattern import Pattern, pattern_behind, rows_of_entries, transpose
from firstlight.kernels.product import Activation, Epilogue, Layout, Second


class _Copy(NamedTuple):
    """A dense copy of the matrix as stored, and what a reader has to use first."""

    dense: Tensor
    changes: int  # of the values
    address: int  # of the values: `parameter.data = other` moves them and counts no change
    held: Held | None


def multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """out = activation(alpha * (W @ dense) + beta * addend + bias), fully overwritten.

    The product is rounded to the output's dtype before a second summand or the activation is applied.
    """
    weights = dense_copy(index, values)
    if dense.dtype != out.dtype:
        weights, dense = weights.to(out.dtype), dense.to(out.dtype)
    left, right = (weights, _plain(dense)) if layout is Layout.COLUMNS else (_plain(dense), weights.mT)
    addend = None if epilogue.addend is None or epilogue.beta == 0.0 else _plain(epilogue.addend).to(out.dtype)
    factor = None
    if epilogue.second is Second.MULTIPLIED:
        addend, factor = None, addend
    bias = None if epilogue.bias is None else _plain(epilogue.bias).to(out.dtype)
    if bias is not None and layout is Layout.COLUMNS:
        bias = bias[:, None]
    if addend is not None:
        start, beta, rest = addend, epilogue.beta, bias
    elif bias is not None:
        start, beta, rest = bias, 1.0, None
    else:
        start, beta, rest = out, 0.0, None  # beta 0 does not read it
    if out.dim() == 3:
        left = left.expand(out.shape[0], -1, -1)
        torch.baddbmm(start.expand_as(out), left, right, beta=beta, alpha=epilogue.alpha, out=out)
    elif beta == 0.0 and epilogue.alpha == 1.0:
        torch.mm(left, right, out=out)
    else:
        torch.addmm(start, left, right, beta=beta, alpha=epilogue.alpha, out=out)
    if rest is not None:
        out += rest
    _activate(out, epilogue.activation)
    if factor is not None:
        out *= factor


def sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """out_values[block of entry] = alpha * A[row block] @ B[:, column block], by way of the whole product."""
    left, right = _plain(a), _plain(b)
    if layout is Layout.TOKENS:
        left = left.mT
    else:
        right = right.mT
        if left.dim() == 3:  # the sum over the batch is one longer product, summed in fp32
            left = left.permute(1, 0, 2).flatten(1)
            right = right.flatten(0, 1)
    block = index.block
    precision = out_values.dtype
    whole = torch.zeros(index.block_rows * block, index.block_cols * block, dtype=precision, device=a.device)
    inside = whole[: index.rows, : index.cols]
    torch.addmm(inside, left.to(precision), right.to(precision), beta=0.0, alpha=alpha, out=inside)
    blocked = whole.view(index.block_rows, block, index.block_cols, block).permute(0, 2, 1, 3)
    picked = blocked[rows_of_entries(index.row_starts, index.columns), index.columns]
    picked = picked.mT if index.blocks_transposed else picked
    if index.blocks is None:
        out_values.copy_(picked)
    else:
        out_values[index.blocks] = picked


def dense_copy(index: Index, values: Tensor) -> Tensor:
    """[rows, cols] of the matrix that `index` reads `values` as: the one that was kept, or a new one."""
    pattern = pattern_behind(index)
    if pattern is None:
        return _built_by_hand(index, _plain(values))
    dense = _kept(pattern, values)
    if dense is None:
        dense = _built(pattern, _plain(values))
    return dense.mT if index.blocks_transposed else dense


def keep(matrix: BlockSparseMatrix) -> None:
    """Keeps a dense copy of a matrix whose values stay as they are, for `dense` and for what `auto` takes."""
    values = matrix.values
    if values.requires_grad:
        raise UnsupportedInput(
            "keep_dense: the values require a gradient; values that do not are accepted, as a copy of the others would "
            "be old after the next step of an optimizer. Call requires_grad_(False) first, after training."
        )
    if values.is_inference() or being_captured(values):
        raise UnsupportedInput(
            "keep_dense: the values were made in inference mode, or a CUDA graph is being captured; neither is "
            "accepted, as a change would not be noticed. Call it outside of both, with values.clone()."
        )
    _keep_anew(matrix.pattern, values)
    _choose_anew(matrix.pattern)


def forget(matrix: BlockSparseMatrix) -> None:
    """Drops the dense copy of a matrix; the next calls make one each."""
    matrix.pattern.dense_copies.forget(matrix.values)
    _choose_anew(matrix.pattern)


def _kept(pattern: Pattern, values: Tensor) -> Tensor | None:
    """The copy that was asked for, made again where values have changed; None: there is none."""
    copies: TensorMemo[_Copy] = pattern.dense_copies
    found = copies.get_changed(values) if len(copies) else None
    if found is None or being_captured(values):
        return None
    if values.requires_grad:  # they are trained again
        copies.forget(values)
        _choose_anew(pattern)
        return None
    if found.address != values.data_ptr() or found.changes != values._version:
        return _keep_anew(pattern, values)
    use(found.held)
    return found.dense


def _keep_anew(pattern: Pattern, values: Tensor) -> Tensor:
    dense = _built(pattern, _plain(values))
    if keepable(values, dense):
        held = held_after(dense)
        pattern.dense_copies.put(values, values, _Copy(dense, values._version, values.data_ptr(), held))
    return dense


def _choose_anew(pattern: Pattern) -> None:
    """A product costs the copy or does not: what was chosen before may not be the fastest."""
    pattern.calls.clear()
    pattern.backends.clear()


def _built(pattern: Pattern, values: Tensor) -> Tensor:
    with torch.inference_mode(mode=False):
        return scatter(pattern.forward, values, rows=pattern.rows_of_entries, distinct=pattern.distinct)


def _built_by_hand(index: Index, values: Tensor) -> Tensor:
    """The dense copy through an index that no pattern stands behind."""
    stored = transpose(index) if index.blocks_transposed else index
    ordered = values if stored.blocks is None else values[stored.blocks]
    dense = scatter(stored, ordered, rows=rows_of_entries(stored.row_starts, stored.columns), distinct=False)
    return dense.mT if index.blocks_transposed else dense


def _plain(tensor: Tensor) -> Tensor:
    """Outside of autograd: the gradient of a product is the caller's business."""
    return tensor.detach() if tensor.requires_grad else tensor


def _activate(out: Tensor, activation: Activation) -> None:
    if activation is Activation.RELU:
        out.relu_()
    elif activation is Activation.GELU:
        torch.ops.aten.gelu_(out)
    elif activation is Activation.GELU_TANH:
        torch.ops.aten.gelu_(out, approximate="tanh")
    elif activation is Activation.SILU:
        functional.silu(out, inplace=True)
