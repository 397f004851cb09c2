"""Rows about torch wheels, their variants, Triton's ptxas, companions and newest releases."""

import datetime
from enum import Enum

from firstlight.tables.row import Pin, Row, row_class
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion


class VariantStatus(Enum):
    """What PyTorch calls a variant; IN_WHEEL_TABLE: only torch's own list of builds names it."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"
    IN_WHEEL_TABLE = "in the wheel's table"


class IndexChannel(Enum):
    """A channel of the PyTorch wheel index."""

    STABLE = "stable"
    TEST = "test"
    NIGHTLY = "nightly"


@row_class(frozen=True, slots=True, kw_only=True)
class TorchRelease(Row):
    """A torch wheel on PyPI for one machine: 2.9.0 on x86_64 is CUDA 12.8; wheel_cuda None = CPU only."""

    torch: TorchVersion
    machine: str
    wheel_cuda: CudaVersion | None
    released: datetime.date
    cpython: tuple[str, ...]
    compiled_for: tuple[ComputeCapability, ...]
    wheel_mb: float
    platform_tag: str
    pins: tuple[Pin, ...]

    def pin(self, project: str) -> Pin | None:
        """The pin on a project, e.g. 'triton'; a name without its suffix finds nvidia-nccl-cu13 for nvidia-nccl."""
        for pin in self.pins:
            if pin.project == project or pin.project.rpartition("-cu")[0] == project:
                return pin
        return None


@row_class(frozen=True, slots=True, kw_only=True)
class TorchVariant(Row):
    """A CUDA variant of a torch minor on the PyTorch wheel index: 2.9 has 13.0, experimental."""

    torch: str
    wheel_cuda: CudaVersion
    status: VariantStatus


@row_class(frozen=True, slots=True, kw_only=True)
class VariantTargets(Row):
    """The capabilities one variant is compiled for: 2.15 with CUDA 12.6 on x86_64: 5.0 ... 9.0.

    machine 'any': the list is not split by machine, and one wheel need not have all of it.
    """

    torch: str
    wheel_cuda: CudaVersion
    machine: str
    compiled_for: tuple[ComputeCapability, ...]


@row_class(frozen=True, slots=True, kw_only=True)
class VariantSighting(Row):
    """A variant's wheel seen by address in a channel of the PyTorch wheel index: 2.9.0 cu130, stable."""

    torch: TorchVersion
    wheel_cuda: CudaVersion
    channel: IndexChannel
    platform: str


@row_class(frozen=True, slots=True, kw_only=True)
class TorchIndex(Row):
    """The PyTorch wheel index of a channel: below its address a folder for each local part that begins with a build."""

    channel: IndexChannel
    address: str
    builds: tuple[str, ...]


@row_class(frozen=True, slots=True, kw_only=True)
class TritonPtxas(Row):
    """A ptxas inside a Triton wheel: Triton 3.6 has ptxas 12.8.93 and ptxas-blackwell 12.9.86."""

    triton: str
    torch: tuple[str, ...]
    program: str
    ptxas: CudaVersion


@row_class(frozen=True, slots=True, kw_only=True)
class CompilePython(Row):
    """Up to which Python torch.compile works: with torch 2.9 below 3.14, though 2.9 has wheels for 3.14."""

    torch: str  # 2.9
    below: str  # 3.14


@row_class(frozen=True, slots=True, kw_only=True)
class Companion(Row):
    """A project built against torch and what its wheel requires: vllm 0.11.0 requires torch==2.8.0.

    No pin on torch in `requires` means that the wheel names none, not that any torch works.
    """

    project: str
    version: str
    machines: tuple[str, ...]
    requires: tuple[Pin, ...]

    def pins(self, machine: str) -> tuple[Pin, ...]:
        """What it requires, by the markers of Linux on x86_64."""
        return self.requires

    def pin(self, project: str) -> Pin | None:
        """The requirement on a project, e.g. 'torch'."""
        return next((pin for pin in self.requires if pin.project == project), None)


@row_class(frozen=True, slots=True, kw_only=True)
class ReleaseWheel(Row):
    """A wheel that a project's setup.py fetches from its release page: flash-attn 2.7.4.post1 for torch 2.6."""

    project: str
    version: str
    torch: str  # 2.6
    strings: str  # as torch's own were compiled: cxx11, before cxx11
    cuda_major: int


@row_class(frozen=True, slots=True, kw_only=True)
class NewestRelease(Row):
    """The newest release of a project on PyPI on the day it was looked at: cuda-toolkit 13.4.3."""

    project: str
    version: str
