"""A product that was asked for before, again: what does not change between calls is kept, what can is looked at.

The first call of a kind goes the long way (functions.py, launch.py: checks, choice of a backend, plan, schedule) and
leaves a Prepared in the pattern's `calls`. A later call with the same shapes finds it and is left with one look at
each thing that may have changed, an allocation and the launch. Whatever is not as it was, or not plain eager execution
on plain tensors, is refused here and goes the long way again: this file decides nothing and raises nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from firstlight.kernels.choice import answer as answers
from firstlight.kernels.eager import ORDINARY
from firstlight.kernels.index import Index
from firstlight.kernels.memo import being_captured
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.product import PLAIN, Activation, Epilogue, Layout
from firstlight.kernels.torch_private import Empty, current_device, quick_empty

ALIGNED = 15  # an address with none of these bits is a multiple of 16
MOST_CALLS = 256  # kept for one pattern; a server whose batches have thousands of sizes starts over now and then


class Launch(Protocol):
    """The rest of a prepared call, by one backend: operands in, `out` fully written.

    It says `use` of what it reads besides the operands, as lifetimes.py has it.
    """

    def __call__(
        self, values: Tensor, dense: Tensor, out: Tensor, bias: Tensor | None, addend: Tensor | None,
        addresses: tuple[int, int],
    ) -> None: ...  # fmt: skip


class Prepared:
    """One product of a pattern with a dense operand of one shape: everything that stays."""

    __slots__ = (
        "_bias_shape", "_changes", "_col", "_crow", "_device", "_dtype", "_empty", "_generation", "_launch", "_ordinal",
        "_out_shape", "_out_strides", "_reads_addend", "_still", "_values_shape", "request",
    )  # fmt: skip

    def __init__(self, pattern: Pattern, dense: Tensor, out: Tensor, request: Any, launch: Launch) -> None:
        self.request = request
        # not the pattern itself, which holds this
        self._crow, self._col = pattern.crow, pattern.col
        self._changes = pattern.crow._version + pattern.col._version
        self._generation = answers.generation
        self._dtype, self._device, self._ordinal = dense.dtype, dense.device, dense.get_device()
        self._out_shape, self._out_strides = tuple(out.shape), tuple(out.stride())
        self._bias_shape = (out.shape[-1 if request.layout is Layout.TOKENS else -2],)
        self._reads_addend = request.beta != 0.0
        self._values_shape = (pattern.entries, pattern.block, pattern.block)
        self._empty = empty_on(dense.device)
        self._launch = launch.__call__  # bound: calling an object finds this again each time, 0.3 us
        self._still: Callable[[], bool] | None = getattr(launch, "still", None)

    def look(self, values: Tensor, dense: Tensor, bias: Tensor | None, addend: Tensor | None) -> tuple[int, int] | None:
        """Where dense and values lie, when everything is as it was; None: the caller goes the long way."""
        device = self._device
        addresses = dense.data_ptr(), values.data_ptr()
        if (
            (addresses[0] | addresses[1]) & ALIGNED
            or self._crow._version + self._col._version != self._changes
            or values.dtype is not self._dtype
            or values.shape != self._values_shape
            or not addresses[1]  # freed under the tensor, as FSDP does
            or not dense.is_contiguous()
            or not values.is_contiguous()
            or dense.device != device
            or values.device != device
            or self._generation != answers.generation
            or (self._ordinal >= 0 and current_device() != self._ordinal)
            or (bias is not None and not self._fits(bias, self._bias_shape))
            or (addend is not None and not self._fits(addend, self._out_shape))
            or (self._still is not None and not self._still())
        ):
            return None
        return addresses

    def run(
        self, values: Tensor, dense: Tensor, bias: Tensor | None, addend: Tensor | None, addresses: tuple[int, int]
    ) -> Tensor:
        """The product in a new tensor, after a look that found nothing."""
        out = self._empty(self._out_shape, self._out_strides, self._dtype)
        self._launch(values, dense, out, bias, addend if self._reads_addend else None, addresses)
        return out

    def _fits(self, tensor: Tensor, shape: tuple[int, ...]) -> bool:
        return (
            tensor.dtype is self._dtype
            and tensor.shape == shape
            and tensor.device == self._device
            and tensor.is_contiguous()
            and not tensor.data_ptr() & ALIGNED
        )


class ModuleLaunch:
    """A launch through a backend's `multiply`, for backends that have nothing quicker."""

    __slots__ = ("_flat_in", "_flat_out", "_index", "_multiply", "_request")

    def __init__(
        self, index: Index, module: Any, request: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> None:
        self._index, self._multiply, self._request = index, module.multiply, request
        self._flat_in, self._flat_out = shapes

    def __call__(
        self, values: Tensor, dense: Tensor, out: Tensor, bias: Tensor | None, addend: Tensor | None,
        addresses: tuple[int, int],
    ) -> None:  # fmt: skip
        request, epilogue = self._request, PLAIN
        self._index.use()
        target = out.view(self._flat_out)
        if bias is not None or addend is not None or request.alpha != 1.0 or request.activation is not Activation.NONE:
            flat = None if addend is None else addend.view(self._flat_out)
            beta = 0.0 if addend is None else request.beta
            epilogue = Epilogue(request.alpha, beta, flat, bias, request.activation, request.second)
        dense = dense.view(self._flat_in)
        self._multiply(self._index, values, dense, target, layout=request.layout, epilogue=epilogue)


def may_be_kept(pattern: Pattern, tensor: Tensor) -> bool:
    """Whether a call made now may be kept: its lists stay, and a change of the pattern will be noticed."""
    return pattern.counts_changes and type(tensor) in ORDINARY and not being_captured(tensor)


def keep(pattern: Pattern, key: Any, call: Any) -> None:
    """Keeps a call under a key; a pattern with very many of them starts over."""
    if len(pattern.calls) >= MOST_CALLS:
        pattern.calls.clear()
    pattern.calls[key] = call


@functools.lru_cache(maxsize=64)
def empty_on(device: torch.device) -> Empty:
    """How a tensor is made there: torch's short cut for compiled code where it has one, a third of torch.empty's time.

    It allocates on the current device.
    """
    quick = quick_empty(device.type)
    if quick is not None:
        return quick

    def plain(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return plain
