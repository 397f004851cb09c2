"""What is going on around a call: plain eager execution on plain tensors, or something that has to see it whole."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from firstlight.errors import UnsupportedInput
from firstlight.kernels.torch_private import autocast_anywhere, dispatch_modes, functorch_level, in_dual_level

ORDINARY = frozenset({Tensor, Parameter})


def is_ordinary(x: Tensor, values: Tensor, bias: Tensor | None = None, c: Tensor | None = None) -> bool:
    """Whether this is plain eager execution on plain tensors; torch.compile is the caller's to look for."""
    return (
        type(x) in ORDINARY
        and type(values) in ORDINARY
        and (bias is None or type(bias) in ORDINARY)
        and (c is None or type(c) in ORDINARY)
        and not autocast_anywhere()
        and functorch_level() is None
        and not dispatch_modes()
        and not in_dual_level()
    )


def is_unusual(x: Tensor, values: Tensor, bias: Tensor | None = None, c: Tensor | None = None) -> bool:
    """Whether there is anything but that: one quick look at all the reasons."""
    return torch.compiler.is_compiling() or not is_ordinary(x, values, bias, c)


def is_traced(*tensors: Tensor | None) -> bool:
    """Whether something besides plain eager execution has to see the call; autocast alone does not."""
    if not torch.compiler.is_compiling() and in_dual_level():
        refuse_tangents(*tensors)
    return (
        torch.compiler.is_compiling()
        or functorch_level() is not None
        or dispatch_modes() > 0
        or any(tensor is not None and type(tensor) not in ORDINARY for tensor in tensors)
    )


def refuse_tangents(*tensors: Tensor | None) -> None:
    """A tangent would be dropped without a word: nothing below computes with it."""
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            raise UnsupportedInput(
                "a tensor carries a forward-mode derivative (torch.func.jvp, dual_level); reverse mode is accepted. "
                "Use torch.func.vjp or backward()."
            )


def under_autocast(tensor: Tensor) -> bool:
    """Whether autocast is on for the device of a tensor."""
    return torch.is_autocast_enabled(tensor.device.type)


def autocast_dtype(tensor: Tensor) -> torch.dtype:
    """The type in which a call computes: the autocast dtype where that is on; float64 is left alone, as torch does."""
    if not under_autocast(tensor) or tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor.dtype
    return torch.get_autocast_dtype(tensor.device.type)


def cast_to(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """The tensor in the autocast dtype; float64 and what is no floating point, which is refused, are left alone."""
    return tensor if tensor.dtype == torch.float64 or not tensor.is_floating_point() else tensor.to(dtype)
