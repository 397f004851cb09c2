"""Compiling a kernel for a GPU and launching it: what is compiled is said once, and launching it costs microseconds.

Triton's own `kernel[grid](...)` looks at every argument of every call to find the compiled kernel again. Here the types
are fixed when a plan is made, and a call hands the compiled kernel's launcher its numbers. That launcher is not an
interface Triton promises, so it is used only with the version it was written for; others take `kernel[grid]`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import triton

from firstlight.kernels.sm90 import libcuda
from firstlight.kernels.torch_private import current_device, raw_stream
from firstlight.kernels.triton_backend.arguments import NUMBERS, POINTERS
from firstlight.kernels.triton_backend.boxes import Boxes, box_map

DIRECT_VERSIONS = ("3.6.",)  # whose launcher this file knows
PLAIN_LAUNCH = (False, False, None, None)  # not cooperative, no programmatic dependence, two scratch buffers
NO_HOOKS = (None, None, None)  # launch metadata, enter, exit


class Launching(enum.Enum):
    """How kernels are started."""

    DIRECT = "direct"  # the compiled kernel's launcher
    JIT = "jit"  # kernel[grid], any Triton
    INTERPRETED = "interpreted"  # TRITON_INTERPRET=1: on the processor, no GPU


class Constant(NamedTuple):
    """An argument that is known when the kernel is compiled."""

    value: Any


class Spec(NamedTuple):
    """What is compiled: the kernel, the type of every argument, which are multiples of 16, warps and buffers."""

    kernel: Any
    types: tuple[Any, ...]  # '*fp16', 'i32', 'tensordesc<fp16[128,64]>', a named tuple of such, or a Constant
    aligned: tuple[tuple[int, ...], ...]  # places of arguments, (4, 0) is field 0 of argument 4
    warps: int
    stages: int


class Runner(Protocol):
    """A kernel that is ready to be launched on one device."""

    def __call__(self, grid: int, args: tuple[Any, ...]) -> None: ...


def launching() -> Launching:
    """How kernels are started in this process, e.g. DIRECT with Triton 3.6.0."""
    if triton.knobs.runtime.interpret:
        return Launching.INTERPRETED
    return Launching.DIRECT if triton.__version__.startswith(DIRECT_VERSIONS) else Launching.JIT


def source_of(spec: Spec) -> Any:
    """The spec as Triton's compiler takes it."""
    from triton.compiler import ASTSource

    typed = dict(zip(spec.kernel.arg_names, spec.types, strict=True))
    constants = {name: type_.value for name, type_ in typed.items() if isinstance(type_, Constant)}
    signature = {name: "constexpr" if isinstance(type_, Constant) else type_ for name, type_ in typed.items()}
    return ASTSource(spec.kernel, signature, constants, {place: [["tt.divisibility", 16]] for place in spec.aligned})


def compiled_for(spec: Spec, capability: tuple[int, int]) -> Any:
    """The kernel compiled for a GPU of that capability; needs no GPU."""
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    return triton.compile(source_of(spec), target=target, options={"num_warps": spec.warps, "num_stages": spec.stages})


def unwrapped(launch: Any) -> Any:
    """The launcher that takes maps of boxes; Triton wraps it in one that makes them again at every call."""
    if getattr(launch, "__closure__", None) is None:
        return launch
    return dict(zip(launch.__code__.co_freevars, launch.__closure__, strict=True))["launcher"].cell_contents


def flattened(args: tuple[Any, ...], boxes: list[dict[str, Any]]) -> list[Any]:
    """The arguments as the launcher takes them: addresses for tensors, maps for boxes, which `boxes` describes."""
    flat: list[Any] = []
    box = 0
    for arg in args:
        kind = type(arg)  # not isinstance: torch.Tensor's takes a microsecond to say no
        if kind in POINTERS:
            flat.append(tuple([tensor.data_ptr() for tensor in arg]))
        elif kind is Boxes:
            flat += box_map(arg, boxes[box])
            box += 1
        else:
            flat.append(arg if kind in NUMBERS else arg.data_ptr())
    return flat


class DirectRunner:
    """Calls the launcher of Triton 3.6's compiled kernel: a few microseconds."""

    def __init__(self, spec: Spec, device: torch.device) -> None:
        assert device.index is not None, device
        self._device = device.index
        with torch.cuda.device(device):
            self._kernel: Any = compiled_for(spec, torch.cuda.get_device_capability(device))
            launcher = self._kernel.run  # loads the binary
        metadata = self._kernel.metadata
        assert metadata.global_scratch_size == 0, f"{self._kernel.name} wants scratch memory"
        self.launch: Any = unwrapped(launcher.launch)
        self._function: int = self._kernel.function
        self._packed: Any = self._kernel.packed_metadata
        self._boxes: list[dict[str, Any]] = list(metadata.tensordesc_meta or ())

    def __call__(self, grid: int, args: tuple[Any, ...]) -> None:
        if current_device() != self._device:
            with torch.cuda.device(self._device):
                self._start(grid, args)
        else:
            self._start(grid, args)

    def _start(self, grid: int, args: tuple[Any, ...]) -> None:
        self.launch(*self.arguments(grid, args, raw_stream(self._device)))

    def arguments(self, grid: int, args: tuple[Any, ...], stream: int) -> tuple[Any, ...]:
        """All that `launch` takes, as numbers: valid as long as the tensors lie where they are."""
        flat = flattened(args, self._boxes)
        return (grid, 1, 1, stream, self._function, *PLAIN_LAUNCH, self._packed, *NO_HOOKS, *flat)


@dataclass(frozen=True, slots=True)
class JitRunner:
    """Starts a kernel through kernel[grid]: any Triton, and its interpreter."""

    spec: Spec
    device: torch.device

    def __call__(self, grid: int, args: tuple[Any, ...]) -> None:
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                libcuda.enter_context(torch.cuda.current_device())
                self._start(grid, args)
        else:
            self._start(grid, args)

    def _start(self, grid: int, args: tuple[Any, ...]) -> None:
        spec = self.spec
        given = [
            type_.value if isinstance(type_, Constant) else arg.descriptor(type_) if isinstance(arg, Boxes) else arg
            for arg, type_ in zip(args, spec.types, strict=True)
        ]
        spec.kernel[(grid,)](*given, num_warps=spec.warps, num_stages=spec.stages)


_RUNNERS: dict[tuple[Spec, torch.device, Launching], Runner] = {}


def runner_for(spec: Spec, device: torch.device, direct: type[DirectRunner] = DirectRunner) -> Runner:
    """The runner of a spec on a device; compiled at the first call. direct: how its arguments are handed over."""
    how = launching()
    key = (spec, device, how)
    found = _RUNNERS.get(key)
    if found is None:
        found = _RUNNERS[key] = direct(spec, device) if how is Launching.DIRECT else JitRunner(spec, device)
    return found
