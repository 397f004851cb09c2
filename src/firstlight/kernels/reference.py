"""The products in plain torch, one block row at a time: what the other backends are measured against.

fp16, bf16 and fp32 are multiplied and summed in fp32 and rounded once; float64 in float64. The host reads the index, so
this backend cannot be captured into a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.index import Index
from firstlight.kernels.pattern import rows_of_entries
from firstlight.kernels.product import Activation, Epilogue, Layout, Second

SAMPLE_ELEMENTS = 1 << 24  # operands gathered at a time: 64 MiB in fp32


def multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """out = activation(alpha * (W @ dense) + beta * addend + bias), fully overwritten."""
    precision = torch.float64 if values.dtype == torch.float64 else torch.float32
    _multiply(index, values.to(precision), dense.to(precision), out, layout=layout, epilogue=epilogue)


def multiply_exact(
    index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue
) -> None:
    """As multiply, computed in float64 whatever the inputs are; `out` may be float64 too."""
    _multiply(index, values.double(), dense.double(), out, layout=layout, epilogue=epilogue)


def sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """out_values[block of entry] = alpha * A[row block] @ B[:, column block]."""
    precision = torch.float64 if a.dtype == torch.float64 else torch.float32
    _sample(index, a.to(precision), b.to(precision), out_values, layout=layout, alpha=alpha)


def sample_exact(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """As sample, computed in float64 whatever the inputs are; `out_values` may be float64 too."""
    _sample(index, a.double(), b.double(), out_values, layout=layout, alpha=alpha)


@torch.no_grad()
def _multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """All in the COLUMNS layout: TOKENS are its transposed views."""
    block = index.block
    columns = _padded(_as_columns(dense, layout), index.block_cols * block)
    blocked = _in_blocks(columns, block)  # [..., block column, block, n]
    result = _as_columns(out, layout)
    addend = None if epilogue.addend is None else _as_columns(epilogue.addend, layout)
    stored = values if index.blocks is None else values[index.blocks]
    starts = index.row_starts.tolist()
    for row in range(index.block_rows):
        entries = slice(starts[row], starts[row + 1])
        here = slice(row * block, min((row + 1) * block, index.rows))
        weights = stored[entries].mT if index.blocks_transposed else stored[entries]
        weights = weights.permute(1, 0, 2).reshape(block, -1)
        used = blocked[..., index.columns[entries], :, :].flatten(-3, -2)
        product = _product(weights, used)[..., : here.stop - here.start, :]
        part = None if addend is None else addend[..., here, :].to(product.dtype)
        bias = None if epilogue.bias is None else epilogue.bias[here].to(product.dtype)
        result[..., here, :] = _finished(product, part, bias, epilogue).to(out.dtype)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in their own precision also inside torch.autocast, which would round them to 16 bits."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def _finished(product: Tensor, addend: Tensor | None, bias: Tensor | None, epilogue: Epilogue) -> Tensor:
    total = product if epilogue.alpha == 1.0 else epilogue.alpha * product
    multiplied = epilogue.second is Second.MULTIPLIED
    if addend is not None and epilogue.beta != 0.0 and not multiplied:  # beta 0 does not read it, as in BLAS
        total = total + epilogue.beta * addend
    if bias is not None:
        total = total + bias[:, None]
    total = activated(total, epilogue.activation)
    return total * addend if multiplied and addend is not None else total


def activated(tensor: Tensor, activation: Activation) -> Tensor:
    """The activation of each element, in the tensor's precision."""
    if activation is Activation.RELU:
        return functional.relu(tensor)
    if activation is Activation.GELU:
        return functional.gelu(tensor)
    if activation is Activation.GELU_TANH:
        return functional.gelu(tensor, approximate="tanh")
    if activation is Activation.SILU:
        return functional.silu(tensor)
    return tensor


@torch.no_grad()
def _sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    block = index.block
    left = _in_blocks(_padded(_as_columns(a, layout), index.block_rows * block), block)
    right = _in_blocks(_padded(_as_columns(b, layout), index.block_cols * block), block)
    rows = rows_of_entries(index.row_starts, index.columns)
    inside_rows = _inside(index.rows, block, index.block_rows, a.device)
    inside_cols = _inside(index.cols, block, index.block_cols, a.device)
    step = max(1, SAMPLE_ELEMENTS // max(1, left[..., 0, :, :].numel()))
    for begin in range(0, index.entries, step):
        these = slice(begin, begin + step)
        row, column = rows[these], index.columns[these]
        product = alpha * _product(left[..., row, :, :], right[..., column, :, :].mT)
        product = product.sum(0) if product.dim() == 4 else product
        # a NaN in the operand reaches the unused part of an edge block as 0 * NaN
        used = inside_rows[row][:, :, None] & inside_cols[column][:, None, :]
        product = torch.where(used, product, 0.0)
        product = product.mT if index.blocks_transposed else product
        if index.blocks is None:
            out_values[these] = product.to(out_values.dtype)
        else:
            out_values[index.blocks[these]] = product.to(out_values.dtype)


def _as_columns(tensor: Tensor, layout: Layout) -> Tensor:
    return tensor.mT if layout is Layout.TOKENS else tensor


def _padded(tensor: Tensor, length: int) -> Tensor:
    """[..., length, n]: zeros after the last row."""
    missing = length - tensor.shape[-2]
    return functional.pad(tensor, (0, 0, 0, missing)) if missing else tensor


def _in_blocks(tensor: Tensor, block: int) -> Tensor:
    """[..., blocks, block, n] of [..., blocks * block, n]."""
    return tensor.reshape(*tensor.shape[:-2], tensor.shape[-2] // block, block, tensor.shape[-1])


def _inside(size: int, block: int, blocks: int, device: torch.device) -> Tensor:
    """[blocks, block]: whether an element of a block is inside the matrix."""
    return (torch.arange(blocks * block, device=device) < size).view(blocks, block)
