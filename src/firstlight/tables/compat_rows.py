"""Rows about forward compatibility: packages, what they accept, where they are, which GPUs may use them."""

from enum import Enum

from firstlight.tables.row import Row, row_class
from firstlight.versions import CudaVersion, DriverVersion


class CompatEvidence(Enum):
    """Where a list of accepted kernel branches was read."""

    ELF_NOTE = "elf-note"
    NVIDIA_TABLE = "nvidia-table"


@row_class(frozen=True, slots=True, kw_only=True)
class CompatPackage(Row):
    """A forward-compatibility package: cuda-compat-13-0 in /usr/local/cuda-13.0/compat."""

    cuda: CudaVersion
    package: str
    folder: str


@row_class(frozen=True, slots=True, kw_only=True)
class CompatAccepts(Row):
    """One list of the kernel-driver branches a package works with, from NVIDIA's table or from the library itself."""

    cuda: CudaVersion
    evidence: CompatEvidence
    library: str  # the libcuda that was read, e.g. libcuda.so.580.95.05; for NVIDIA's table the package
    accepts: tuple[int, ...]
    refuses: tuple[int, ...] = ()


@row_class(frozen=True, slots=True, kw_only=True)
class CompatBuild(Row):
    """A driver build that a compat package was seen to carry: 13.0 carried 580.95.05. Later builds replace it."""

    cuda: CudaVersion
    driver: DriverVersion
    seen_in: str


@row_class(frozen=True, slots=True, kw_only=True)
class CompatDownload(Row):
    """A file that holds a compat library: the apt package of 13.0, 65.4 MB; sha256 "" where it is not known."""

    cuda: CudaVersion
    channel: str  # NVIDIA apt, NVIDIA redist
    machine: str
    driver: DriverVersion
    file: str
    download_bytes: int
    sha256: str


@row_class(frozen=True, slots=True, kw_only=True)
class CompatChannel(Row):
    """A place that has, or measurably lacks, the compat libraries: conda-forge has them, PyPI has none."""

    channel: str
    offers: bool
    name: str
    folder: str


@row_class(frozen=True, slots=True, kw_only=True)
class CompatFile(Row):
    """A library of the compat package, e.g. libcuda; from_cuda where only later packages have it."""

    library: str
    from_cuda: CudaVersion | None = None


@row_class(frozen=True, slots=True, kw_only=True)
class CompatBrand(Row):
    """An NVML brand id and whether compat libraries list it: 14 (NVIDIA) yes, 5 (GeForce) no."""

    brand: int
    name: str
    listed: bool


@row_class(frozen=True, slots=True, kw_only=True)
class ImageRequirement(Row):
    """The kernel branches an image's NVIDIA_REQUIRE_CUDA lets in below its own CUDA: nvidia/cuda:13.2.0, 535 ..."""

    image: str
    cuda_at_least: CudaVersion
    branches: tuple[int, ...]
    brands: str = "not geforce or titan"  # whose branches they are; "all" = of every GPU
