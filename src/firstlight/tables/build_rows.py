"""Rows about builds from source: which release reads which option or takes which CUDA, what a unit takes."""

from enum import Enum

from firstlight.tables.row import Row, row_class
from firstlight.versions import CudaVersion, TorchVersion


class OptionKind(Enum):
    """How a build reads a name."""

    OPTION = "option"
    DEPENDENT_OPTION = "dependent option"
    CACHE = "cache entry"
    CMAKE_ENVIRONMENT = "environment, in CMake"
    ENVIRONMENT = "environment, in Python"


class UnitKind(Enum):
    """A kind of unit by what it takes: C++, CUDA, and the CUDA units of attention kernels."""

    CXX = "c++"
    CUDA = "cuda"
    ATTENTION = "attention"


@row_class(frozen=True, slots=True, kw_only=True)
class BuildOption(Row):
    """A name that a project's build reads: USE_NCCL of torch, in every release read from 1.13.1 to 2.6.0."""

    project: str
    name: str
    kind: OptionKind
    first: str  # the first and the last of the releases that were read, not of all that exist
    last: str
    where: str  # in the last of them, without the line
    default: str


@row_class(frozen=True, slots=True, kw_only=True)
class UnitMemory(Row):
    """The most memory that one unit of a kind takes to compile: 5.3 GB for PyTorch's attention kernels."""

    kind: UnitKind
    project: str  # "" = any
    peak_bytes: int
    object_bytes: int  # of one object file on average; 0 = not known


@row_class(frozen=True, slots=True, kw_only=True)
class UnitSeconds(Row):
    """How long one processor compiles one unit of a kind for one architecture: 33 s for C++ with torch's headers."""

    kind: UnitKind
    project: str  # "" = any
    seconds: float


@row_class(frozen=True, slots=True, kw_only=True)
class BuildFloor(Row):
    """The oldest toolkit that a project's build takes from a release on: torch 2.9.0 wants CUDA 12.0."""

    project: str
    first: TorchVersion
    toolkit: CudaVersion
