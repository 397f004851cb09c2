"""Results kept beside the tensors they were computed from, and dropped with them."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from firstlight.kernels.torch_private import FakeTensor, is_functorch_wrapped

V = TypeVar("V")
Reference = weakref.ReferenceType[Tensor]


class TensorMemo(Generic[V]):
    """Maps one or two tensors (by identity) and a tag to a value; a tensor changed in place or gone is a miss.

    The value must not hold the key tensors themselves, or neither ever goes: hold `tensor.detach()`, which shares
    memory and version counter. A hit takes under a microsecond: it is on the way of every call.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Reference, Reference, int | None, V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, first: Tensor, second: Tensor, tag: Hashable = None) -> V | None:
        """The value kept for these very tensors as they are now, or None."""
        found = self._kept.get((id(first), id(second), tag))
        if found is None:
            return None
        one, other, changes, value = found
        same = one() is first and other() is second
        return value if same and (changes is None or first._version + second._version == changes) else None

    def get_changed(self, tensor: Tensor, tag: Hashable = None) -> V | None:
        """The value kept for this very tensor, be it changed since or not, or None."""
        found = self._kept.get((id(tensor), id(tensor), tag))
        return None if found is None or found[0]() is not tensor else found[3]

    def put(self, first: Tensor, second: Tensor, value: V, tag: Hashable = None) -> None:
        """Keeps the value until one of the tensors is changed in place or goes.

        Not beside tensors made in inference mode: those do not count changes, and a stale value would be served.
        """
        if not (first.is_inference() or second.is_inference()):
            # versions only grow, so their sum changes when either does
            self._put(first, second, value, tag, first._version + second._version)

    def put_compared(self, first: Tensor, second: Tensor, value: V, tag: Hashable = None) -> None:
        """Keeps it until one of the tensors goes: who gets it compares what they held with what they hold now."""
        self._put(first, second, value, tag, None)

    def _put(self, first: Tensor, second: Tensor, value: V, tag: Hashable, changes: int | None) -> None:
        key = (id(first), id(second), tag)
        kept = self._kept

        def forget(reference: Reference) -> None:
            found = kept.get(key)
            if found is not None and (found[0] is reference or found[1] is reference):
                del kept[key]

        kept[key] = (weakref.ref(first, forget), weakref.ref(second, forget), changes, value)

    def forget(self, tensor: Tensor) -> None:
        """Drops every value kept for this tensor."""
        for key, found in list(self._kept.items()):
            if found[0]() is tensor or found[1]() is tensor:
                self._kept.pop(key, None)


def being_captured(tensor: Tensor) -> bool:
    """Whether work on this tensor is being recorded into a CUDA graph now."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def keepable(source: Tensor, made: Tensor) -> bool:
    """Whether `made`, computed from `source` now, may be used by later calls.

    Inside a CUDA graph capture nothing is computed until the graph is replayed and the memory is the graph's; under
    FakeTensorMode there are no numbers at all; what torch.func wraps cannot be read after its call.
    """
    return (
        not being_captured(source)
        and isinstance(made, FakeTensor) == isinstance(source, FakeTensor)
        and not is_functorch_wrapped(made)
    )
