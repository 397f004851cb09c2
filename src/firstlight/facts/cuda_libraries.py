"""CUDA libraries on disk, whoever put them there: cuDNN, NCCL, cuBLAS, cudart, cuSPARSELt, NVSHMEM, cuDSS."""

from __future__ import annotations

import enum
import posixpath
import re
from collections.abc import Iterator

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import defines, plain_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine

# One listing per folder: libcudnn, libcudart, libcudss, libcublas, libcusparseLt, libnccl, libnvshmem and few more.
_PATTERN = "lib[cn][cuv][bcds]*.so*"
_NUMBER = r"\.so((?:\.\d{1,9}){0,4})"
_FULL_VERSION_NUMBERS = 3  # libcudart.so.11.0 is a soname, libcudart.so.11.8.89 a version

# name, file name up to .so, header with the version, its defines
_LIBRARIES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("cudnn", "libcudnn", "cudnn_version.h", ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")),
    ("nccl", "libnccl", "nccl.h", ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")),
    ("cublas", "libcublas", "cublas_api.h", ("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH")),
    ("cudart", "libcudart", "cuda_runtime_api.h", ("CUDART_VERSION",)),
    (
        "cusparselt",
        "libcusparseLt",
        "cusparseLt.h",
        ("CUSPARSELT_VER_MAJOR", "CUSPARSELT_VER_MINOR", "CUSPARSELT_VER_PATCH"),
    ),
    (
        "nvshmem",
        "libnvshmem_host",
        "non_abi/nvshmem_version.h",
        ("NVSHMEM_VENDOR_MAJOR_VERSION", "NVSHMEM_VENDOR_MINOR_VERSION", "NVSHMEM_VENDOR_PATCH_VERSION"),
    ),
    ("cudss", "libcudss", "cudss.h", ("CUDSS_VERSION_MAJOR", "CUDSS_VERSION_MINOR", "CUDSS_VERSION_PATCH")),
)


class FoundIn(enum.Enum):
    """What kind of folder holds a library; LD_LIBRARY_PATH wins where a folder is several things."""

    LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
    SYSTEM = "system"
    TOOLKIT = "toolkit"
    CONDA = "conda"
    WHEEL = "wheel"


@dataclass(frozen=True, slots=True)
class LibraryFound:
    """One library file, e.g. cudnn 9.10.2 as libcudnn.so.9 in a wheel."""

    name: str
    file: str  # as a program would ask for it: libcudnn.so.9
    path: str  # the real file
    version: Fact[str]
    found_in: FoundIn


@dataclass(frozen=True, slots=True)
class CudaLibraryFacts:
    """Every CUDA library found, LD_LIBRARY_PATH first."""

    libraries: tuple[LibraryFound, ...]

    def named(self, name: str) -> tuple[LibraryFound, ...]:
        """All copies of one library, e.g. of 'cudnn'."""
        return tuple(library for library in self.libraries if library.name == name)


def probe_cuda_libraries(machine: Machine, *, site_packages: tuple[str, ...] = ()) -> CudaLibraryFacts:
    """The CUDA libraries in system, toolkit, conda and wheel folders and on LD_LIBRARY_PATH; each real file once."""
    seen_folders: set[str] = set()
    seen_files: set[str] = set()
    found: list[LibraryFound] = []
    for folder, found_in in _folders(machine, site_packages):
        real = machine.real_path(folder)
        if real in seen_folders:
            continue
        seen_folders.add(real)
        for library in _in_folder(machine, folder, found_in):
            if library.path not in seen_files:
                seen_files.add(library.path)
                found.append(library)
    return CudaLibraryFacts(tuple(found))


def _folders(machine: Machine, site_packages: tuple[str, ...]) -> Iterator[tuple[str, FoundIn]]:
    for entry in (machine.env("LD_LIBRARY_PATH") or "").split(":"):
        if path := plain_path(entry):
            yield path, FoundIn.LD_LIBRARY_PATH
    arch = machine.host.arch
    for path in (f"/usr/lib/{arch}-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"):
        yield path, FoundIn.SYSTEM
    targets = ("sbsa-linux", "aarch64-linux") if arch == "aarch64" else (f"{arch}-linux",)
    for name in machine.list("/usr/local", "cuda*"):
        for part in ("lib64", "lib", *(f"targets/{target}/lib" for target in targets)):
            yield f"/usr/local/{name}/{part}", FoundIn.TOOLKIT
    if prefix := plain_path(machine.env("CONDA_PREFIX") or ""):
        yield f"{prefix}/lib", FoundIn.CONDA
    for site in site_packages:
        for name in machine.list(f"{site}/nvidia", "*"):
            yield f"{site}/nvidia/{name}/lib", FoundIn.WHEEL
        yield f"{site}/cusparselt/lib", FoundIn.WHEEL  # nvidia-cusparselt-cu12 up to 0.6.3


def _in_folder(machine: Machine, folder: str, found_in: FoundIn) -> Iterator[LibraryFound]:
    names = machine.list(folder, _PATTERN)
    for name, stem, header, numbers in _LIBRARIES:
        if not any(file.startswith(f"{stem}.so") for file in names):
            continue
        by_real: dict[str, list[str]] = {}
        for file in names:
            if re.fullmatch(re.escape(stem) + _NUMBER, file) and machine.stat(f"{folder}/{file}") is not None:
                by_real.setdefault(machine.real_path(f"{folder}/{file}"), []).append(file)
        for real, files in by_real.items():
            version = _version_in_name(real, stem)
            if isinstance(version, Unknown):
                version = _version_in_header(machine, folder, header=header, numbers=numbers)
            yield LibraryFound(name, _as_asked_for(files), real, version, found_in)


def _as_asked_for(files: list[str]) -> str:
    """Of libcudnn.so, libcudnn.so.9 and libcudnn.so.9.10.2 the middle one: what the loader is asked for."""
    numbered = [file for file in files if not file.endswith(".so")]
    return min(numbered or files, key=len)


def _version_in_name(real: str, stem: str) -> Fact[str]:
    match = re.fullmatch(re.escape(stem) + _NUMBER, posixpath.basename(real))
    numbers = match.group(1).strip(".") if match else ""
    if numbers.count(".") + 1 >= _FULL_VERSION_NUMBERS:
        return Known(numbers, seen_in=real)
    return Unknown(f"{posixpath.basename(real)} does not carry its version")


def _version_in_header(machine: Machine, folder: str, *, header: str, numbers: tuple[str, ...]) -> Fact[str]:
    parent = posixpath.dirname(folder)
    places = [f"{parent}/include"]
    if parent == "/usr/lib":  # /usr/lib/x86_64-linux-gnu belongs to /usr/include
        places = ["/usr/include", f"/usr/include/{posixpath.basename(folder)}"]
    for place in places:
        path = f"{place}/{header}"
        values = defines(machine, path, *numbers)
        if numbers == ("CUDART_VERSION",) and values:
            number = values["CUDART_VERSION"]
            return Known(f"{number // 1000}.{number % 1000 // 10}", seen_in=path)
        if len(values) == len(numbers):
            return Known(".".join(str(values[name]) for name in numbers), seen_in=path)
    return Unknown(f"its version is neither in the file name nor in {header}")
