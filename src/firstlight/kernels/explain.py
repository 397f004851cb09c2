"""Which backend a product takes, and why, without computing it: the question that the call itself would ask."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.choice.answer import Choice
from firstlight.kernels.choose import Question, explained
from firstlight.kernels.eager import autocast_dtype
from firstlight.kernels.functions import activation_of, refuse_operand
from firstlight.kernels.gradients import fused_with_gradients
from firstlight.kernels.launch import Request
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.product import Activation, Layout, Second

FORWARD, DX, DVALUES = "forward", "dx", "dvalues"
DIRECTIONS = (FORWARD, DX, DVALUES)


def explain_choice(
    w: BlockSparseMatrix, n: int | Tensor, *, layout: str | Layout = "tokens", training: bool = False,
    activation: str | Activation | None = None, bias: Tensor | bool | None = None, c: Tensor | bool | None = None,
    gate: BlockSparseMatrix | Tensor | bool | None = None, direction: str = FORWARD, backend: str = "auto",
) -> Choice:  # fmt: skip
    """Which backend a product of w with n tokens (or columns) takes, and why: Choice('sm90', 'sm90 83 us, ...').

    n is a number, or x itself. activation, bias, c (of matmul) and gate (of gated_linear) as the call has them; True
    stands for a tensor that is not at hand. training: as if gradients of the values were recorded, so that no dense
    copy of them could be kept (see BlockSparseMatrix.keep_dense), and gelu, silu and gate follow the product.
    direction: 'forward', 'dx' (the gradient of x) or 'dvalues' (that of the values, and sampled_matmul). A pattern's
    first two calls may take what is cheaper to prepare.
    """
    if not isinstance(w, BlockSparseMatrix):
        refuse_operand(w)
    if direction not in DIRECTIONS:
        raise UnsupportedInput(f"direction is {direction!r}; accepted: {', '.join(DIRECTIONS)}.")
    if _is_there(c) and _is_there(gate):
        raise UnsupportedInput("c and gate are both given; matmul takes c and gated_linear takes gate. Give one.")
    chosen, dtype = _layout(layout), autocast_dtype(w.values)
    kept = dtype == w.dtype and w.pattern.keeps_copy(w.values)
    question = Question(
        operation="multiply", device=w.values.get_device(), dtype=dtype, shape=w.pattern.shape, block=w.block,
        entries=w.nnz_blocks, n=_tokens(w, n, chosen), layout=chosen, training=training or not kept,
        turned=w.is_transposed,
    )  # fmt: skip
    request = Request(
        chosen,
        w.is_transposed,
        activation_of(activation),
        second=Second.MULTIPLIED if _is_there(gate) else Second.ADDED,
    )
    if direction == DX:
        question = replace(question, turned=not question.turned)
    elif direction == DVALUES:
        question = replace(question, operation="sample")
    elif fused_with_gradients(request) or not (training or _is_recorded(w, n, bias, c, gate)):
        extras = sum(map(_is_there, (bias, c, gate)))
        question = replace(question, activation=request.activation, extras=extras)
    else:  # torch's own activation and gate follow the product
        question = replace(question, extras=sum(map(_is_there, (bias, c))))
    return explained(backend, question)


def _is_there(given: object) -> bool:
    return given is not None and given is not False


def _is_recorded(*given: object) -> bool:
    """Whether a call with these would record gradients."""
    tensors = (one.values if isinstance(one, BlockSparseMatrix) else one for one in given)
    return torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in tensors)


def _tokens(w: BlockSparseMatrix, n: object, layout: Layout) -> int:
    """How many tokens or columns a product has, from their number or from x."""
    if isinstance(n, Tensor):
        tokens = layout is Layout.TOKENS
        cols, least = w.shape[1], 1 if tokens else 2
        if n.dim() < least or n.shape[-least] != cols:
            accepted = f"[..., {cols}]" if tokens else f"[..., {cols}, n]"
            raise UnsupportedInput(
                f"n is a tensor of shape {list(n.shape)}; x of shape {accepted} is accepted for this matrix and "
                f"layout, or the number of tokens, e.g. {max(1, n.shape[0] if n.dim() else 1)}."
            )
        return n.numel() // cols
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UnsupportedInput(
            f"n is {n!r}; a number of tokens (or columns) of 0 or more is accepted, e.g. 4096, or x itself."
        )
    return n


def _layout(given: str | Layout) -> Layout:
    names = [layout.value for layout in Layout]
    if not isinstance(given, Layout) and given not in names:
        raise UnsupportedInput(f"layout is {given!r}; accepted: {' and '.join(names)}.")
    return Layout(given)
