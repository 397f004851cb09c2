"""The products of a block-sparse matrix: matmul, linear, sampled_matmul; explain.py says which backend they take.

Three ways in, one result. In eager mode the backend is called directly (a few us of checks and choice); with
gradients through an autograd function; under torch.compile, fake tensors or torch.func through the operators of ops.py.
Under torch.autocast the operands are cast to the autocast dtype first, as torch does for its own linear and matmul.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import called, require_same_device, require_same_dtype, require_shape, require_tensor
from firstlight.kernels.eager import cast_to, is_traced, is_unusual, under_autocast
from firstlight.kernels.gradients import EAGER, Engine, followed, fused_with_gradients, product_alone
from firstlight.kernels.jagged import is_nested, jagged_of, refuse_nested, rows_of
from firstlight.kernels.launch import NOTHING, Extras, Request
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.ops import OPERATORS, Parts
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.product import Activation, Layout, Second
from firstlight.kernels.repeated import again, remember
from firstlight.kernels.torch_private import functorch_level
from firstlight.kernels.transforms import TRANSFORMED

_ACTIVATIONS: dict[object, Activation] = {None: Activation.NONE, **{kind.value: kind for kind in Activation}}


def linear(
    x: Tensor, w: BlockSparseMatrix, bias: Tensor | None = None, *,
    activation: str | Activation | None = None, backend: str = "auto",
) -> Tensor:  # fmt: skip
    """activation(x @ W.T + bias) as torch.nn.functional.linear: x [..., cols of W], result [..., rows of W].

    activation: relu, gelu (with erf), gelu_tanh or silu, applied before the result is rounded to x's dtype. A jagged
    nested x [batch, lengths, cols of W] gives a jagged result.
    """
    if not is_dynamo_compiling():
        if not isinstance(w, BlockSparseMatrix):
            refuse_operand(w)
        done = again(w, x, bias, None, (activation, backend))
        if done is not None:
            return done
    return linear_anew(x, w, bias, None, (activation, backend))


def linear_anew(
    x: Tensor, w: BlockSparseMatrix, bias: Tensor | None, factor: Tensor | None, asked: tuple[Any, ...]
) -> Tensor:
    """linear the long way, its result times factor if one is given; asked: activation, backend, and whatever else
    tells this call from others."""
    values = w.values
    unusual = is_unusual(x, values, bias, factor)
    if unusual:
        _require_tensors(x, bias)
    if is_nested(x):
        lengths = rows_of(x, "x")
        factor = None if factor is None else jagged_of(factor, "gate's product").tokens
        return lengths.like(linear_anew(lengths.tokens, w, bias, factor, asked))
    if unusual and under_autocast(x):
        x, values, bias, factor = _cast(x, values, bias, factor)
    rows, cols = w.shape
    if x.dtype != values.dtype or x.device != values.device or x.dim() < 1 or x.shape[-1] != cols:
        _complain_about_x(x, values, f"[..., {cols}]", x.dim() >= 1 and x.shape[-1] == cols)
    if bias is not None and (bias.shape != (rows,) or bias.dtype != x.dtype or bias.device != x.device):
        _complain_about(bias, "bias", (rows,), x)
    request = _linear_request(asked, factor, transposed=w.is_transposed, training=values.requires_grad)
    extras = NOTHING if bias is None and factor is None else Extras(bias, factor)
    if unusual and is_traced(x, values, bias, factor):
        return _traced(w.pattern, values, x, request, extras)
    out = EAGER.multiply(w.pattern, values, x, request, extras)
    if not unusual:
        remember(w, x, extras, asked, request)
    return out


def _linear_request(asked: tuple[Any, ...], factor: Tensor | None, *, transposed: bool, training: bool) -> Request:
    activation, backend = asked[:2]
    training = training and torch.is_grad_enabled()
    if factor is None:
        return Request(Layout.TOKENS, transposed, activation_of(activation), backend, training=training)
    return Request(
        Layout.TOKENS, transposed, activation_of(activation), backend, 1.0, 1.0, training=training,
        second=Second.MULTIPLIED,
    )  # fmt: skip


def matmul(
    w: BlockSparseMatrix, x: Tensor, *, alpha: float = 1.0, beta: float = 0.0, c: Tensor | None = None,
    bias: Tensor | None = None, activation: str | Activation | None = None, backend: str = "auto",
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """activation(alpha * W @ x + beta * c + bias): x [..., cols of W, n], result [..., rows of W, n].

    c and out have the result's shape (c may be out); bias has one number for each row of W. With beta 0, c is not read.
    out cannot be used with gradients and is neither copied nor cast.
    """
    asked = (activation, backend, alpha, beta)
    if not is_dynamo_compiling() and not isinstance(w, BlockSparseMatrix):
        refuse_operand(w)
    if out is None and not is_dynamo_compiling():
        done = again(w, x, bias, c, asked)
        if done is not None:
            return done
    values = w.values
    unusual = is_unusual(x, values, bias, c)
    if unusual:
        _require_tensors(x, bias, c)
    refuse_nested(x=x, c=c)
    if unusual and under_autocast(x):
        x, values, bias, c = _cast(x, values, bias, c)
    rows, cols = w.shape
    if x.dtype != values.dtype or x.device != values.device or x.dim() < 2 or x.shape[-2] != cols:
        _complain_about_x(x, values, f"[..., {cols}, n]", x.dim() >= 2 and x.shape[-2] == cols)
    if bias is not None and (bias.shape != (rows,) or bias.dtype != x.dtype or bias.device != x.device):
        _complain_about(bias, "bias", (rows,), x)
    shape = (*x.shape[:-2], rows, x.shape[-1])
    if c is None and beta != 0.0:
        raise UnsupportedInput(f"beta is {beta} and c is not given; pass c of shape {list(shape)}, or leave beta out.")
    if c is not None and (c.shape != shape or c.dtype != x.dtype or c.device != x.device):
        _complain_about(c, "c", shape, x)
    training = values.requires_grad and torch.is_grad_enabled()
    request = Request(
        Layout.COLUMNS, w.is_transposed, activation_of(activation), backend, float(alpha), float(beta), training
    )
    if unusual and is_traced(x, values, bias, c):
        if out is not None:
            raise UnsupportedInput("out= is not accepted under torch.compile and torch.func. Use the returned tensor.")
        return _traced(w.pattern, values, x, request, Extras(bias, c))
    if out is not None:
        _require_out(out, shape, (x, values, bias, c))
    made = EAGER.multiply(w.pattern, values, x, request, Extras(bias, c, out))
    if out is None and not unusual and type(alpha) in (int, float) and type(beta) in (int, float):
        remember(w, x, Extras(bias, c), asked, request)
    return made


def sampled_matmul(
    a: Tensor, b: Tensor, w: BlockSparseMatrix, *, alpha: float = 1.0, backend: str = "auto"
) -> BlockSparseMatrix:
    """alpha * a @ b at the blocks that w stores, as a matrix with w's pattern: a [rows, n], b [n, cols].

    The kernel sums along n with both operands in one order. Nothing is copied when b is the transpose of a contiguous
    [cols, n] tensor, or a that of a contiguous [n, rows] tensor; else the smaller one is, turned.
    """
    if not is_dynamo_compiling() and not isinstance(w, BlockSparseMatrix):
        refuse_operand(w)
    unusual = is_unusual(a, b)
    if unusual:
        require_tensor(a, "a")
        require_tensor(b, "b")
    refuse_nested(a=a, b=b)
    if unusual and under_autocast(a):
        a, b = _cast(a, b)
    rows, cols = w.shape
    if a.dim() != 2 or b.dim() != 2 or a.shape != (rows, b.shape[0]) or b.shape[1] != cols:
        raise UnsupportedInput(
            f"a has shape {list(a.shape)} and b {list(b.shape)}; [{rows}, n] and [n, {cols}] are accepted for a matrix "
            f"of shape [{rows}, {cols}]. Reshape them, and sum over a batch yourself."
        )
    require_same_dtype(a, "a", b, "b")
    for name, tensor in (("a", a), ("b", b)):
        require_same_device(w.values, "w", tensor, name)
    columns = b.mT.is_contiguous() or (not a.mT.is_contiguous() and b.numel() <= a.numel())
    layout, names = (Layout.COLUMNS, ("a", "b.T")) if columns else (Layout.TOKENS, ("a.T", "b"))
    left, right = (a, _turned(b)) if columns else (_turned(a), b)
    request = Request(layout, w.is_transposed, backend=backend, alpha=float(alpha), names=names)
    if unusual and is_traced(a, b):
        engine, place = _engine(w.pattern)
        return w.with_values(engine.sample(place, left, right, request))
    return w.with_values(EAGER.sample(w.pattern, left, right, request))


def _turned(tensor: Tensor) -> Tensor:
    """The transpose; of a contiguous tensor a copy without a warning: its own .contiguous() would not spare it."""
    return tensor.mT.contiguous() if tensor.is_contiguous() else tensor.mT


def refuse_operand(w: object) -> None:
    """Raises for what stands in a matrix's place."""
    raise UnsupportedInput(
        f"w is {called(w)}; a BlockSparseMatrix is accepted. matmul takes (w, x), linear (x, w), sampled_matmul "
        "(a, b, w)."
    )


def _require_tensors(x: object, bias: object, c: object = None) -> None:
    require_tensor(x, "x")
    for name, given in (("bias", bias), ("c", c)):
        if given is not None:
            require_tensor(given, name)


def linear_traced(
    x: Tensor, values: Tensor, parts: Parts, bias: Tensor | None, *, activation: str | None, backend: str,
    factor: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """linear on plain tensors, for a layer under torch.compile, where no BlockSparseMatrix can be made."""
    if is_nested(x):
        lengths = rows_of(x, "x")
        given = None if factor is None else jagged_of(factor, "gate's product").tokens
        made = linear_traced(lengths.tokens, values, parts, bias, activation=activation, backend=backend, factor=given)
        return lengths.like(made)
    if under_autocast(x):
        x, values, bias, factor = _cast(x, values, bias, factor)
    if x.dtype != values.dtype or x.device != values.device or x.shape[-1] != parts.cols:
        _complain_about_x(x, values, f"[..., {parts.cols}]", x.shape[-1] == parts.cols)
    request = _linear_request((activation, backend), factor, transposed=False, training=values.requires_grad)
    return _traced(parts, values, x, request, NOTHING if bias is None and factor is None else Extras(bias, factor))


def _traced(pattern: Pattern | Parts, values: Tensor, dense: Tensor, request: Request, extras: Extras) -> Tensor:
    given = (values, dense, extras.bias, extras.addend)
    engine, place = _engine(pattern)
    wanted = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    if fused_with_gradients(request) or not wanted:
        return engine.multiply(place, values, dense, request, extras)
    plain, left = product_alone(request, extras)
    return followed(engine.multiply(place, values, dense, plain, left), request, extras)


def _engine(pattern: Pattern | Parts) -> tuple[Engine, Any]:
    """torch.func looks into autograd functions, everything else into operators; and the pattern as they take it."""
    if isinstance(pattern, Pattern):
        if not torch.compiler.is_compiling() and functorch_level() is not None:
            return TRANSFORMED, pattern
        return OPERATORS, Parts(pattern.crow, pattern.col, pattern.shape[0], pattern.shape[1], pattern.block)
    return OPERATORS, pattern


def _cast(x: Tensor, *others: Tensor | None) -> Any:
    """Every tensor in the autocast dtype."""
    dtype = torch.get_autocast_dtype(x.device.type)
    return (cast_to(dtype, x), *(None if each is None else cast_to(dtype, each) for each in others))


def activation_of(given: object) -> Activation:
    """The activation that a caller named, e.g. Activation.SILU of 'silu'."""
    if isinstance(given, Activation):
        return given
    try:
        return _ACTIVATIONS[given]
    except (KeyError, TypeError):
        names = ", ".join(kind.value for kind in Activation)
        raise UnsupportedInput(
            f"activation is {given!r}; accepted: {names}, or None. Apply another one to the result yourself."
        ) from None


def _complain_about_x(x: Tensor, values: Tensor, accepted: str, fits: object) -> None:
    if not fits:
        raise UnsupportedInput(f"x has shape {list(x.shape)}; {accepted} is accepted for this matrix. Reshape x.")
    require_same_device(values, "w", x, "x")
    require_same_dtype(values, "w", x, "x")


def _complain_about(tensor: Tensor, name: str, shape: tuple[int, ...], x: Tensor) -> None:
    require_shape(tensor, name, shape)
    require_same_device(x, "x", tensor, name)
    require_same_dtype(x, "x", tensor, name)


def _require_out(out: Tensor, shape: tuple[int, ...], given: tuple[Tensor | None, ...]) -> None:
    x, values, bias, c = given
    assert x is not None
    require_tensor(out, "out")
    _complain_about(out, "out", shape, x)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (*given, out)):
        raise UnsupportedInput(
            "out= is given and a tensor requires a gradient; out= is accepted without gradients only. "
            "Leave out= out, or call under torch.no_grad()."
        )
    if not out.is_contiguous() or out.data_ptr() % 16:
        raise UnsupportedInput(
            "out is not contiguous or does not start at a multiple of 16 bytes; it is written in place, never copied. "
            "Pass torch.empty(...) of the result's shape."
        )
    memory = out.untyped_storage().data_ptr()
    for name, tensor in (("x", x), ("w", values), ("bias", bias)):
        if tensor is not None and tensor.numel() and tensor.untyped_storage().data_ptr() == memory:
            raise UnsupportedInput(f"out shares its memory with {name}, which is still read while out is written.")
    if c is not None and c is not out and c.untyped_storage().data_ptr() == memory and c.data_ptr() != out.data_ptr():
        raise UnsupportedInput("out overlaps c at another place; pass c itself as out, or another tensor.")
