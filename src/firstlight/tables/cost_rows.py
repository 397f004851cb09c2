"""Rows about what things take: how large downloads are that no package index lists, and how long work takes."""

from enum import Enum

from firstlight.tables.row import Row, row_class


class FetchedBy(Enum):
    """What fetches a download."""

    SYSTEM = "the system's package manager"
    CONDA = "conda"
    CONTAINERS = "a container engine"
    GIT = "git"
    PIP = "pip"


@row_class(frozen=True, slots=True, kw_only=True)
class Download(Row):
    """What one name brings with all that it requires: cuda-toolkit-13-* on x86_64 is 4.0 GB.

    name may end in *; of several rows that fit, the one with the longest name counts.
    """

    fetched_by: FetchedBy
    name: str
    machine: str  # x86_64, aarch64 or any
    bytes: int


class Work(Enum):
    """What takes time besides the download."""

    PIP = "pip"  # its start and its questions to the index
    PIP_LIBRARIES = "pip, wheels of shared libraries"
    PIP_LARGE = "pip, wheels over 100 MB"
    PIP_SMALL = "pip, other wheels"
    UV = "uv"
    UV_LIBRARIES = "uv, wheels of shared libraries"
    UV_WHEELS = "uv, other wheels"
    VENV = "a virtual environment"
    APT = "apt"
    APT_PACKAGES = "apt, packages"
    APT_LISTS = "apt, lists of packages"
    ARCHIVE = "an archive unpacked"
    DKMS = "kernel modules built"
    EARLY_IMAGE = "rebuilding the early boot image"
    GPU_START = "starting a GPU"
    RESTART_METAL = "a restart, bare metal"
    RESTART_GUEST = "a restart, virtual machine"
    COMPILE_TORCH = "torch compiled"
    COMPILE_FLASH_ATTN = "flash-attn compiled"


class Per(Enum):
    """What the seconds of a row are counted by."""

    ONCE = "once"
    GIGABYTE = "gigabyte fetched"  # 10^9 bytes
    GPU = "GPU"
    PROCESSOR = "one processor at work"  # n processors take the n-th part


@row_class(frozen=True, slots=True, kw_only=True)
class Duration(Row):
    """How long work takes: pip takes 26 seconds for each gigabyte of large wheels."""

    work: Work
    seconds: float
    per: Per
