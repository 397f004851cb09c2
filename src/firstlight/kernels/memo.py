"""Results kept beside the tensors they were computed from, and dropped with them."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch
from torch._subclasses.fake_tensor import FakeTensor

V = TypeVar("V")
Reference = weakref.ReferenceType[Tensor]


class TensorMemo(Generic[V]):
    """Maps one or two tensors (by identity) and a tag to a value; a tensor changed in place or gone is a miss.

    The value must not hold the key tensors themselves, or neither ever goes: hold `tensor.detach()`, which shares
    memory and version counter. A hit takes under a microsecond: it is on the way of every call.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Reference, Reference, int, V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, first: Tensor, second: Tensor, tag: Hashable = None) -> V | None:
        """The value kept for these very tensors as they are now, or None."""
        found = self._kept.get((id(first), id(second), tag))
        if found is None:
            return None
        one, other, changes, value = found
        same = one() is first and other() is second and first._version + second._version == changes
        return value if same else None

    def put(self, first: Tensor, second: Tensor, value: V, tag: Hashable = None) -> None:
        """Keeps the value until one of the tensors is changed in place or goes.

        Not beside tensors made in inference mode: those do not count changes, and a stale value would be served.
        """
        if first.is_inference() or second.is_inference():
            return
        key = (id(first), id(second), tag)
        kept = self._kept

        def forget(reference: Reference) -> None:
            found = kept.get(key)
            if found is not None and (found[0] is reference or found[1] is reference):
                del kept[key]

        # versions only grow, so their sum changes when either does
        changes = first._version + second._version
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
        and not _functorch.is_functorch_wrapped_tensor(made)
    )


class Ready:
    """Lets another stream wait for what was computed on this one, without the host waiting.

    What one call computes and keeps (a transposed index, a schedule) may be read by the next call on another stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._event: torch.cuda.Event | None = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(self._stream)

    @property
    def done(self) -> bool:
        """Whether the work was seen finished: nobody has to wait any more."""
        return self._event is None

    def wait(self) -> None:
        """Makes the current stream wait, if the work is not known to be done."""
        event = self._event
        if event is None or torch.cuda.is_current_stream_capturing():
            return  # torch.cuda.graph synchronizes before it captures; a captured stream may not wait for outside work
        if event.query():  # type: ignore[no-untyped-call]
            self._event = None
            return
        stream = torch.cuda.current_stream(self._stream.device)
        if stream != self._stream:
            stream.wait_event(event)


def ready_after(made: Tensor) -> Ready | None:
    """What a later reader of `made` has to wait for; None on the CPU."""
    return Ready(made.device) if made.is_cuda and not isinstance(made, FakeTensor) else None


def still_pending(ready: Ready) -> Ready | None:
    """Waits on the current stream; None once the work was seen finished and nobody has to wait any more."""
    ready.wait()
    return None if ready.done else ready
