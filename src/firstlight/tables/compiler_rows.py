"""Rows about compilers: what ptxas targets, which host compilers nvcc takes, the toolkit as wheels."""

from enum import Enum

from firstlight.tables.row import Pin, Row, row_class
from firstlight.versions import CudaVersion


class HostCompilerName(Enum):
    """A C++ compiler that nvcc drives."""

    GCC = "gcc"
    CLANG = "clang"


@row_class(frozen=True, slots=True, kw_only=True)
class ToolkitTargets(Row):
    """The targets a toolkit's ptxas accepts: 13.0 takes sm_75 ... sm_121f and no sm_70."""

    toolkit: CudaVersion
    ptxas: CudaVersion
    targets: tuple[str, ...]


@row_class(frozen=True, slots=True, kw_only=True)
class HostCompiler(Row):
    """The newest host compiler a toolkit's nvcc accepts: 13.0 takes gcc up to 15."""

    toolkit: CudaVersion
    compiler: HostCompilerName
    newest_major: int


@row_class(frozen=True, slots=True, kw_only=True)
class NvccWheel(Row):
    """What a compiler wheel on PyPI carries: nvidia-cuda-nvcc has nvcc, nvidia-cuda-nvcc-cu12 only ptxas."""

    project: str
    cuda_major: int
    has_nvcc: bool


@row_class(frozen=True, slots=True, kw_only=True)
class ToolkitWheel(Row):
    """One release of the cuda-toolkit meta package on PyPI and the parts it pins on Linux: 13.0.2."""

    release: str
    toolkit: CudaVersion
    parts: tuple[Pin, ...]
    nvcc_extra: tuple[str, ...]  # the projects that the extra `nvcc` alone brings
