"""A call of linear or matmul that was made before: found by what it was asked, without looking at the rest again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firstlight.kernels.eager import is_ordinary
from firstlight.kernels.gradients import fused_with_gradients, recorded
from firstlight.kernels.launch import Extras, Request, call_key
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.prepared import Prepared, keep
from firstlight.kernels.product import Activation, Second
from firstlight.kernels.reference import activated

# what is recorded: nothing, gradients but not of the values, gradients of the values too
PLAIN, RECORDED, TRAINED = 0, 1, 2


def again(
    w: BlockSparseMatrix, x: Tensor, bias: Tensor | None, c: Tensor | None, asked: tuple[Any, ...]
) -> Tensor | None:
    """The result, if a call like this was made before and nothing is unusual; None: go the long way.

    asked: the other arguments as they were given. Not under torch.compile, where no such thing can be kept.
    """
    values, pattern = w.values, w.pattern
    if not is_ordinary(x, values, bias, c):
        return None
    mode = _mode(values, x, bias, c) if torch.is_grad_enabled() else PLAIN
    try:
        found = pattern.calls.get((x.shape, x.dtype, bias is None, c is None, w.is_transposed, mode, asked))
    except (TypeError, RuntimeError):  # asked cannot be a key, or x has no shape: the long way says what is wrong
        return None
    if found is None:
        return None
    call: Prepared = found[0]
    addresses = call.look(values, x, bias, c)
    if addresses is None:
        return None
    if mode == PLAIN:
        return call.run(values, x, bias, c, addresses)
    made = recorded(pattern, values, x, Extras(bias, c), call, addresses)
    return made if found[1] is None else activated(made, found[1])


def remember(w: BlockSparseMatrix, x: Tensor, extras: Extras, asked: tuple[Any, ...], request: Request) -> None:
    """Keeps the way that a call has just gone for the next one like it, if it can be gone again."""
    bias, c, _ = extras
    mode = _mode(w.values, x, bias, c) if torch.is_grad_enabled() else PLAIN
    after: Activation | None = None
    if mode != PLAIN and request.second is Second.MULTIPLIED:
        return
    if mode != PLAIN and not fused_with_gradients(request):
        request, after = request._replace(activation=Activation.NONE), request.activation
    call = w.pattern.calls.get(call_key(x, bias, c, request))
    if call is not None:
        key = (x.shape, x.dtype, bias is None, c is None, w.is_transposed, mode, asked)
        keep(w.pattern, key, (call, after))


def prepared_calls(w: BlockSparseMatrix) -> int:
    """How many kinds of products with this matrix's pattern are prepared, e.g. 2; for tests and the curious."""
    return sum(isinstance(call, Prepared) for call in w.pattern.calls.values())


def _mode(values: Tensor, x: Tensor, bias: Tensor | None, c: Tensor | None) -> int:
    if values.requires_grad:
        return TRAINED
    recording = x.requires_grad or (bias is not None and bias.requires_grad) or (c is not None and c.requires_grad)
    return RECORDED if recording else PLAIN
