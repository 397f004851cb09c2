"""What a user writes in a file of cases: plain data and functions of theirs; nothing here imports torch.

N = 1 << 26
CASES = (
    UserCase(
        name="axpy/fp32",
        inputs=lambda make: (make.normal((N,), "fp32"), make.normal((N,), "fp32")),
        run=lambda x, y: torch.add(y, x, alpha=2.0),
        reference=lambda x, y: 2.0 * x + y,
        flops=2 * N,
        bytes=3 * 4 * N,
    ),
)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from firstlight.bench.case import Cache
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Dtype: TypeAlias = "str | torch.dtype"  # 'fp16' or torch.float16
META = "meta"  # torch's device for shapes without memory: how large the buffers will be is learned on it


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes buffers on the device of a run; every set and every look has random numbers of its own."""

    device: str
    random: torch.Generator | None

    def normal(self, shape: Sequence[int], dtype: Dtype = "fp32", *, std: float = 1.0) -> Tensor:
        """Normal numbers, e.g. make.normal((4096, 4096), 'fp16', std=4096**-0.5)."""
        return self.empty(shape, dtype).normal_(0, std, generator=self.random)

    def uniform(self, shape: Sequence[int], dtype: Dtype = "fp32", *, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Evenly spread numbers between `low` and `high`."""
        return self.empty(shape, dtype).uniform_(low, high, generator=self.random)

    def integers(self, shape: Sequence[int], *, low: int, high: int) -> Tensor:
        """int64 numbers from `low` up to but without `high`, e.g. indices into a table."""
        import torch

        return torch.randint(low, high, tuple(shape), device=self.device, generator=self.random)

    def empty(self, shape: Sequence[int], dtype: Dtype = "fp32") -> Tensor:
        """Memory that nobody has written to, for `outputs`; any type of torch's, or one of our names."""
        import torch

        from firstlight.bench.cases.data import ELEMENT_BYTES, spelled, torch_dtype

        if isinstance(dtype, torch.dtype):
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        if not (name := spelled(dtype)):
            accepted = f"torch's own types, {', '.join(ELEMENT_BYTES)}"
            raise TypeError(f"make: dtype is {dtype!a:.40}; accepted: {accepted}, e.g. torch.float16 or 'fp16'")
        return torch.empty(tuple(shape), dtype=torch_dtype(name), device=self.device)


@dataclass(frozen=True, slots=True)
class Grid:
    """One launch of a kernel: Grid((1024, 1, 1), (256, 1, 1), arguments=(n, 2.0, x, y, out)).

    Tensors become their addresses; whole and broken numbers take the width that the compiled kernel has for them.
    """

    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CudaFile:
    """A kernel in a .cu file: `entry` is its name, declared extern "C" __global__; `launch` gives the grid.

    The path counts from the folder of the file that names it. `launch` gets the inputs, then the outputs.
    """

    path: str
    entry: str
    launch: Callable[..., Grid]
    options: tuple[str, ...] = ()  # for nvcc, e.g. ("--use_fast_math",)


@dataclass(frozen=True, slots=True)
class UserCase:
    """One thing to measure. `run` gets the inputs (and the outputs, where there are any); `reference` gets the inputs
    as double precision and returns what `run` should have returned, or written to the outputs."""

    name: str
    inputs: Callable[[Maker], tuple[Any, ...]]
    run: Callable[..., Any] | CudaFile
    reference: Callable[..., Any]
    flops: int = 0
    bytes: int = 0  # each input read once, each output written once
    dtype: str = "fp32"  # torch.float32 is taken too
    outputs: Callable[[Maker], tuple[Any, ...]] | None = None  # buffers that `run` writes to, instead of returning some
    peak: str = ""  # the ceiling: a dtype or 'bandwidth'; '' is bandwidth up to one FLOP a byte, else the dtype
    tolerance: float = 0.0  # largest relative error; 0 is the tolerance of the dtype
    cache: Cache = Cache.COLD
    in_place: tuple[int, ...] = ()  # positions of inputs that `run` may overwrite
    may_repeat: tuple[int, ...] = ()  # positions of inputs that are constant for a reason, e.g. a mask
