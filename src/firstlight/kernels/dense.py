"""The products over a dense copy of the matrix, by the vendor's library: what wins where many blocks are stored.

The copy is kept beside the values and made anew when they change. It takes rows * cols * element size of memory. While
a CUDA graph is captured it is made inside the graph, so that a replay sees the values of that moment. Values made in
inference mode do not count their changes, so their copy is made for each call.
Unlike the other backends this one multiplies the blocks that are not stored too, by zero: a NaN or infinity in the
dense operand reaches outputs whose stored blocks do not use it. A change that torch does not count (through
`values.data`, or by a foreign kernel) is not noticed: call `forget(matrix)` after one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.convert import scatter
from firstlight.kernels.index import Index
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.memo import Ready, TensorMemo, being_captured, keepable, ready_after, still_pending
from firstlight.kernels.pattern import Pattern, pattern_behind, rows_of_entries, transpose
from firstlight.kernels.product import Activation, Epilogue, Layout


class _Copy:
    """A dense copy of the matrix as stored, and what a reader on another stream has to wait for."""

    def __init__(self, dense: Tensor, address: int) -> None:
        self.dense = dense
        self.address = address  # of the values: `parameter.data = other` moves them and counts no change
        self.ready: Ready | None = ready_after(dense)


def multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """out = activation(alpha * (W @ dense) + beta * addend + bias), fully overwritten.

    The product is rounded to the output's dtype before a second summand or the activation is applied.
    """
    weights = dense_copy(index, values)
    if dense.dtype != out.dtype:
        weights, dense = weights.to(out.dtype), dense.to(out.dtype)
    left, right = (weights, _plain(dense)) if layout is Layout.COLUMNS else (_plain(dense), weights.mT)
    addend = None if epilogue.addend is None or epilogue.beta == 0.0 else _plain(epilogue.addend).to(out.dtype)
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
    """[rows, cols] of the matrix that `index` reads `values` as; kept, and shared with its transpose."""
    pattern = pattern_behind(index)
    if pattern is None:
        return _built_by_hand(index, _plain(values))
    copies: TensorMemo[_Copy] = pattern.dense_copies
    found = None if being_captured(values) else copies.get(values, values)
    if found is None or found.address != values.data_ptr():
        found = _Copy(_built(pattern, _plain(values)), values.data_ptr())
        if keepable(values, found.dense):
            copies.put(values, values, found)
    elif found.ready is not None:
        found.ready = still_pending(found.ready)
    return found.dense.mT if index.blocks_transposed else found.dense


def forget(matrix: BlockSparseMatrix) -> None:
    """Drops the dense copy of a matrix, after a change to its values that torch does not count."""
    matrix.pattern.dense_copies.forget(matrix.values)


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
