"""Rows about GPU models, compute capabilities, which code runs where, and Jetson releases."""

from enum import Enum

from firstlight.tables.row import Row, row_class
from firstlight.versions import ComputeCapability, CudaVersion


class GpuKind(Enum):
    """The product line; forward compatibility is for data-center GPUs, some workstation ones, and Jetson."""

    DATA_CENTER = "data-center"
    WORKSTATION = "workstation"
    GEFORCE = "geforce"
    TITAN = "titan"
    JETSON = "jetson"
    NOT_CERTAIN = "not certain"


class OpenModule(Enum):
    """Whether the open kernel modules drive an architecture."""

    NOT_SUPPORTED = "proprietary only"
    SUPPORTED = "open or proprietary"
    REQUIRED = "open only"


class Runs(Enum):
    """Whether code built for one capability runs on a device of another; not known is not no."""

    YES = "yes"
    NO = "no"
    NOT_KNOWN = "not known"


@row_class(frozen=True, slots=True, kw_only=True)
class GpuModel(Row):
    """A product and how NVML spells it: H100, found in 'NVIDIA H100 80GB HBM3', capability 9.0."""

    model: str
    pattern: str  # a regular expression, searched in the device name
    example: str  # a device name that it finds
    capability: ComputeCapability
    kind: GpuKind
    memory_gb: tuple[int, ...] = ()  # sizes that device names of this model carry
    host_arch: str = ""  # aarch64 where it sits beside an Arm processor in every machine there is; "" = any


@row_class(frozen=True, slots=True, kw_only=True)
class Capability(Row):
    """A compute capability and its architecture: 9.0 is Hopper. renamed_to: 10.1 became 11.0 with CUDA 13."""

    capability: ComputeCapability
    architecture: str
    renamed_to: ComputeCapability | None = None


@row_class(frozen=True, slots=True, kw_only=True)
class CodeRule(Row):
    """Where machine code built for one capability runs: 8.0 runs on 8.x but not on 8.7.

    only_on lists the devices in full; without it: the same major, equal or higher minor, less not_on.
    A row with torch_cuda_from replaces the plain one for wheels built with that CUDA or later.
    """

    code: ComputeCapability
    only_on: tuple[ComputeCapability, ...] = ()
    not_on: tuple[ComputeCapability, ...] = ()
    torch_cuda_from: CudaVersion | None = None


@row_class(frozen=True, slots=True, kw_only=True)
class KernelModule(Row):
    """Which kind of kernel module drives an architecture: Volta has the proprietary ones only."""

    architecture: str
    open_module: OpenModule


@row_class(frozen=True, slots=True, kw_only=True)
class TegraRelease(Row):
    """The CUDA of a Jetson Linux (L4T) line, matched from the left: 38 is CUDA 13.0, 36.4 is 12.6.

    wheel_python is the one that NVIDIA's own torch wheels of that line are for, torch_wheel the address of the
    newest one; "" = not known.
    """

    l4t: str
    cuda: CudaVersion
    wheel_python: str = ""
    torch_wheel: str = ""


@row_class(frozen=True, slots=True, kw_only=True)
class JetPack(Row):
    """The JetPack of an exact Jetson Linux (L4T) release: 38.4.0 is JetPack 7.1."""

    l4t: str
    jetpack: str
