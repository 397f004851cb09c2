"""The process-wide switches of torch that decide which kernel runs. Each call sets the ones it depends on.

Cases are interleaved in passes, so nobody can rely on what the last one left behind. Setting them costs 1 to 2 us of
host time; `torch.nn.attention.sdpa_kernel` sets the same four switches for 34 us a call, which would be billed to the
case as host time, so the switches are set directly.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

from firstlight.frozen import dataclass


class Products(enum.Enum):
    """How fp32 products and convolutions are computed."""

    IEEE = "fp32"
    TF32 = "tf32"


class Backend(enum.Enum):
    """Kernel family behind scaled_dot_product_attention."""

    FLASH = "flash"
    CUDNN = "cudnn"
    MEM_EFFICIENT = "mem_efficient"
    MATH = "math"
    ANY = "any"  # torch chooses
    UNUSED = "unused"  # no attention in the call: the switches are left alone


class Search(enum.Enum):
    """How cuDNN chooses the algorithm of a convolution."""

    HEURISTIC = "cudnn heuristics"  # torch's default: the same choice in every process
    TIMED = "cudnn search"  # torch.backends.cudnn.benchmark: one timing of each candidate, which may end differently


_SWITCHED = [Backend.FLASH, Backend.CUDNN, Backend.MEM_EFFICIENT, Backend.MATH]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a call depends on, e.g. Settings(Products.TF32): TF32 allowed, any attention kernel."""

    products: Products = Products.IEEE
    backend: Backend = Backend.ANY
    search: Search = Search.HEURISTIC


def settings_for(dtype: str, *, backend: Backend = Backend.UNUSED) -> Settings:
    """The switches of a dtype: 'tf32' allows TF32 in products and convolutions, everything else forbids it."""
    return Settings(Products.TF32 if dtype == "tf32" else Products.IEEE, backend)


def under(settings: Settings, operation: Callable[[], Any]) -> Callable[[], Any]:
    """The operation with its switches set first."""
    set_switches = _setter(settings)

    def call() -> Any:
        set_switches()
        return operation()

    return call


def apply_settings(settings: Settings) -> None:
    """Set torch's switches now."""
    _setter(settings)()


def _setter(settings: Settings) -> Callable[[], None]:
    """Sets the switches when called; a search of cuDNN happens on the first call of a shape, before measurements."""
    from torch import backends

    allowed = settings.products is Products.TF32
    searches = settings.search is Search.TIMED
    attention = [] if settings.backend is Backend.UNUSED else _SWITCHED
    switches = [(_switch(each), settings.backend in (each, Backend.ANY)) for each in attention]
    matmul, cudnn = backends.cuda.matmul, backends.cudnn

    def set_switches() -> None:
        # The older of torch's two ways: torch.compile refuses to run after the newer `fp32_precision` was used.
        matmul.allow_tf32 = allowed
        cudnn.allow_tf32 = allowed
        cudnn.benchmark = searches
        for switch, state in switches:
            switch(state)

    return set_switches


def _switch(backend: Backend) -> Callable[[bool], Any]:
    """The function that allows or forbids a kernel family; one that does nothing where torch has no such family."""
    from torch import backends

    switch: Callable[[bool], Any] = getattr(backends.cuda, f"enable_{backend.value}_sdp", _nothing)
    return switch


def _nothing(_: object) -> None:
    """For cudnn attention before torch 2.5."""


def apply_reference_settings() -> None:
    """The switches of a reference: no TF32, any attention kernel, and no search among cuDNN's algorithms."""
    apply_settings(Settings())


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """Puts back at the end what calls have set: for whoever runs cases in a process that goes on afterwards."""
    from torch import backends

    cuda: Any = backends.cuda
    cudnn: Any = backends.cudnn
    before = cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    allowed = {backend: getattr(cuda, f"{backend.value}_sdp_enabled", bool)() for backend in _SWITCHED}
    try:
        yield
    finally:
        cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
        for backend, state in allowed.items():
            _switch(backend)(state)
