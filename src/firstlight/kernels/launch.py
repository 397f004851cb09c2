"""One product, now: inputs made ready, an output allocated, the chosen backend called. No gradient is recorded here."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.kernels.checks import prepared, require_memory, require_values
from firstlight.kernels.choose import backend_module
from firstlight.kernels.eager import is_ordinary
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.prepared import Launch, ModuleLaunch, Prepared, empty_on, keep, may_be_kept
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout, Second
from firstlight.kernels.torch_private import current_device

_new = object.__new__
_put = object.__setattr__
ALIGNED_BYTES = 16


class Request(NamedTuple):
    """What is asked of a product besides its tensors.

    A NamedTuple and not a frozen dataclass: one is made for every call, and it costs 0.3 us instead of 3.
    """

    layout: Layout
    transposed: bool  # the pattern's transpose is the matrix
    activation: Activation = Activation.NONE
    backend: str = "auto"
    alpha: float = 1.0
    beta: float = 0.0
    training: bool = False  # gradients of the values are recorded
    names: tuple[str, str] = ("x", "")  # what a warning calls the dense operands
    second: Second = Second.ADDED  # what is done with the addend


class Extras(NamedTuple):
    """The optional tensors of a product: bias [rows], addend and out of the output's shape."""

    bias: Tensor | None = None
    addend: Tensor | None = None
    out: Tensor | None = None


NOTHING = Extras()


def multiply_now(pattern: Pattern, values: Tensor, dense: Tensor, request: Request, extras: Extras = NOTHING) -> Tensor:
    """activation(alpha * (W @ dense) + beta * addend + bias) in a new tensor or in extras.out."""
    bias, addend, given_out = extras
    key: Any = None
    if given_out is None and not is_compiling() and is_ordinary(dense, values, bias, addend):
        key = call_key(dense, bias, addend, request)
        call: Prepared | None = pattern.calls.get(key)
        addresses = None if call is None else call.look(values, dense, bias, addend)
        if call is not None and addresses is not None:
            return call.run(values, dense, bias, addend, addresses)
    return _multiply_anew(pattern, values, dense, request, extras, key)


def call_key(dense: Tensor, bias: Tensor | None, addend: Tensor | None, request: Request) -> Any:
    """What a product is kept under in its pattern's calls."""
    return (dense.shape, dense.dtype, bias is None, addend is None, request)


def _multiply_anew(
    pattern: Pattern, values: Tensor, dense: Tensor, request: Request, extras: Extras, key: Any
) -> Tensor:
    changes = 0 if key is None else pattern.count_changes()  # before the index is read
    index = pattern.transposed if request.transposed else pattern.forward
    index.use()
    if not is_compiling():
        require_values(values, pattern.entries, pattern.block)
    given, dense = dense, ready(dense, request.names[0])
    shape, tokens = dense.shape, request.layout is Layout.TOKENS
    flat_shape: tuple[int, ...]
    if len(shape) == 2:
        n = shape[0] if tokens else shape[1]
        flat, flat_shape = dense, (n, index.rows) if tokens else (index.rows, n)
        place = dense.get_device()
        if extras.out is not None:
            out = extras.out
        elif key is not None and (place < 0 or place == current_device()):  # as later calls make it
            out = empty_on(dense.device)(flat_shape, (max(1, flat_shape[1]), 1), dense.dtype)
        else:
            out = dense.new_empty(flat_shape)
        target = out
    else:
        batch = shape[:-1].numel() if tokens else shape[:-2].numel()
        n = batch if tokens else batch * shape[-1]
        flat = dense.view((batch, index.cols) if tokens else (batch, index.cols, shape[-1]))
        flat_shape = (batch, index.rows) if tokens else (batch, index.rows, shape[-1])
        out_shape = (*shape[:-1], index.rows) if tokens else (*shape[:-2], index.rows, shape[-1])
        out = dense.new_empty(out_shape) if extras.out is None else extras.out
        target = out.view(flat_shape)
    if n:
        epilogue = PLAIN
        if extras is not NOTHING or request.alpha != 1.0 or request.activation is not Activation.NONE:
            epilogue = _epilogue(request, extras, flat_shape)
        module, is_settled = backend_module("multiply", pattern, values, n, request=request, epilogue=epilogue)
        require_memory(values)
        as_given, values = values, ready(values, "values")
        operands = Operands(values, flat, target)
        if values.is_cuda and values.get_device() != current_device():
            with torch.cuda.device(values.device):  # a kernel is launched on the current device
                module.multiply(index, *operands, layout=request.layout, epilogue=epilogue)
        elif is_settled and key is not None and dense is given and values is as_given and may_be_kept(pattern, dense):
            launch = _started(module, index, operands, request, epilogue)
            call = Prepared(pattern, dense, out, request, launch)
            if pattern.count_changes() == changes:  # else the call may hold an index older than the count it goes by
                keep(pattern, key, call)
        else:
            module.multiply(index, *operands, layout=request.layout, epilogue=epilogue)
    return out


class Operands(NamedTuple):
    """What a backend reads and writes, as it wants it."""

    values: Tensor
    flat: Tensor
    target: Tensor


def _started(module: Any, index: Index, operands: Operands, request: Request, epilogue: Epilogue) -> Launch:
    """Computes the product, and says how it is started again."""
    values, flat, target = operands
    launch: Launch | None = None
    if hasattr(module, "prepare") and target.numel():
        launch = module.prepare(index, flat, layout=request.layout, epilogue=epilogue)
    if launch is None:
        module.multiply(index, values, flat, target, layout=request.layout, epilogue=epilogue)
        return ModuleLaunch(index, module, request, (flat.shape, target.shape))
    addend = epilogue.addend if epilogue.beta != 0.0 else None
    launch(values, flat, target, epilogue.bias, addend, (flat.data_ptr(), values.data_ptr()))
    return launch


def sample_now(pattern: Pattern, a: Tensor, b: Tensor, request: Request) -> Tensor:
    """Values [stored blocks, block, block] of alpha * A @ B at the pattern's blocks; summed over leading dimensions.

    With request.transposed, a belongs to the columns of the pattern and b to its rows.
    """
    index = pattern.forward
    index.use()
    a, b = ready(a, request.names[0]), ready(b, request.names[1])
    if request.transposed:
        a, b = b, a
    out = a.new_empty((index.entries, index.block, index.block))
    tokens = request.layout is Layout.TOKENS
    n = a.shape[:-1].numel() if tokens else a.shape[-1] * a.shape[:-2].numel()
    if not n:
        return out.zero_()
    if tokens:
        a, b = a.view(-1, index.rows), b.view(-1, index.cols)
    elif a.dim() > 3:
        a, b = a.view(-1, index.rows, a.shape[-1]), b.view(-1, index.cols, b.shape[-1])
    if index.entries:
        module, _ = backend_module("sample", pattern, a, n, request=request)
        if a.is_cuda and a.get_device() != current_device():
            with torch.cuda.device(a.device):
                module.sample(index, a, b, out, layout=request.layout, alpha=request.alpha)
        else:
            module.sample(index, a, b, out, layout=request.layout, alpha=request.alpha)
    return out


def ready(tensor: Tensor, name: str) -> Tensor:
    """The tensor as every backend wants it; copied, with one warning, when it is not so already."""
    if tensor.is_contiguous() and tensor.data_ptr() % ALIGNED_BYTES == 0:
        return tensor
    return prepared(tensor, name)


def _epilogue(request: Request, extras: Extras, flat_shape: tuple[int, ...]) -> Epilogue:
    bias, addend = extras.bias, extras.addend
    made = _new(Epilogue)  # the same as Epilogue(...), at a fifth of its cost
    _put(made, "alpha", request.alpha)
    _put(made, "activation", request.activation)
    _put(made, "second", request.second)
    _put(made, "bias", bias if bias is None else ready(bias, "bias"))
    if addend is None:
        _put(made, "beta", 0.0)
        _put(made, "addend", None)
    else:
        _put(made, "beta", request.beta)
        _put(made, "addend", ready(addend, "c").view(flat_shape))
    return made
