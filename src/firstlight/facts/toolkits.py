"""CUDA toolkits on this machine: where each one is, how it was found, its version and what of it is missing."""

from __future__ import annotations

import enum
import posixpath
import re
from collections.abc import Iterator

from firstlight.errors import BadVersion
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which
from firstlight.versions import CudaVersion

_RELEASE = r"release \d+\.\d+, V(\d+\.\d+\.\d+)"
_WRAPPED = r"(/[\w./+@~-]+)/bin/nvcc\b"
# The `#if` for gcc, the message for clang: 13.4 first tests __clang_major__ for another system, with another limit.
_HOST_LIMITS = rb"__GNUC__ > \d{1,3}\b|! clang version must be less than \d{1,3}\b"
_GCC_LIMIT, _CLANG_LIMIT = rb"__GNUC__ > (\d{1,3})", rb"! clang version must be less than (\d{1,3})"
_DATE_LIKE = 1000  # version.json of 12.1 says 12.1.20230222: a date, not a patch number
_DEBIAN_ROOTS = ("/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda", "/usr")


class Part(enum.Enum):
    """A part of a toolkit that a build needs."""

    NVCC = "nvcc"
    PTXAS = "ptxas"
    CICC = "cicc"
    LIBDEVICE = "libdevice"
    CRT_HEADERS = "crt/host_config.h"
    RUNTIME_HEADER = "cuda_runtime.h"
    CUDART = "cudart"  # libcudart in any form
    CUDART_LINK = "libcudart.so"  # what -lcudart asks the linker for; the wheels have only libcudart.so.13
    CUDART_STATIC = "libcudart_static.a"  # what nvcc links by default
    CUDADEVRT = "libcudadevrt.a"
    NVRTC = "nvrtc"
    LIB64 = "lib64"  # where nvcc.profile looks; the wheels have lib alone


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One toolkit, e.g. 13.0.88 at /usr/local/cuda-13.0, found by CUDA_HOME and PATH."""

    path: str
    found_by: tuple[str, ...]
    version: Fact[CudaVersion]  # of the toolkit: 13.0.2 from version.json, else nvcc's, else the headers'
    nvcc_version: Fact[CudaVersion]  # of the compiler: 13.0.88
    has: tuple[Part, ...]
    missing: tuple[Part, ...]
    include_folders: tuple[str, ...]
    library_folders: tuple[str, ...]
    gcc_max: Fact[int]  # the newest gcc its headers accept: 15
    clang_below: Fact[int]  # the first clang its headers refuse: 21


@dataclass(frozen=True, slots=True)
class NvccOnPath:
    """The nvcc a shell would start; a wrapper is a script (or ccache) that lies outside any toolkit."""

    path: str
    real: str
    is_wrapper: bool
    toolkit: Fact[str]  # the toolkit it belongs to or starts, e.g. /usr/local/cuda-13.0


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """All toolkits, the variables that name one, and the nvcc on PATH."""

    toolkits: tuple[Toolkit, ...]
    cuda_home: Fact[str]
    cuda_path: Fact[str]
    nvcc_on_path: Fact[NvccOnPath]
    cpp_extension_home: Fact[str]  # the folder torch.utils.cpp_extension takes as CUDA_HOME


def probe_toolkits(machine: Machine, *, site_packages: tuple[str, ...] = ()) -> ToolkitFacts:
    """Every CUDA toolkit here, e.g. one at /usr/local/cuda-13.0; partial ones too, with what they lack."""
    on_path = _nvcc_on_path(machine)
    found: dict[str, list[str]] = {}
    real_nvcc: dict[str, str] = {}
    for path, found_by in _candidates(machine, site_packages, on_path):
        root = machine.real_path(path)
        nvcc = machine.real_path(f"{root}/bin/nvcc")
        root = real_nvcc.get(nvcc, root)  # two folders with one nvcc are one toolkit: Debian's /usr/lib/cuda
        if root not in found and not _is_toolkit(machine, root):
            continue
        if machine.stat(nvcc) is not None:
            real_nvcc.setdefault(nvcc, root)
        reasons = found.setdefault(root, [])
        if found_by not in reasons:
            reasons.append(found_by)
    return ToolkitFacts(
        toolkits=tuple(_toolkit(machine, root, tuple(reasons)) for root, reasons in found.items()),
        cuda_home=_variable(machine, "CUDA_HOME"),
        cuda_path=_variable(machine, "CUDA_PATH"),
        nvcc_on_path=on_path,
        cpp_extension_home=_cpp_extension_home(machine, on_path),
    )


def toolkit_at(machine: Machine, path: str) -> Toolkit | None:
    """The toolkit in a folder that somebody names, links followed; None where there is none."""
    root = machine.real_path(path)
    return _toolkit(machine, root, (path,)) if _is_toolkit(machine, root) else None


def defines(machine: Machine, path: str, *names: str) -> dict[str, int]:
    """Values of `#define NAME number` lines of a header, e.g. {'CUDA_VERSION': 13000}; {} without the file."""
    wanted = "|".join(re.escape(name) for name in names)
    pattern = rf"#[ \t]*define[ \t]+(?:{wanted})[ \t]+\(?\d{{1,9}}\b".encode()
    parts = re.compile(rf"#[ \t]*define[ \t]+({wanted})[ \t]+\(?(\d{{1,9}})".encode())
    values: dict[str, int] = {}
    for line in machine.search(path, pattern, limit=4 * len(names)) or ():
        if match := parts.fullmatch(line):  # what a host recorded need not be what the pattern finds
            values.setdefault(match.group(1).decode("ascii"), int(match.group(2)))
    return values


def plain_path(text: str) -> str:
    """An absolute path without '..', as read from a variable or a file; '' when the text is not one."""
    if not text.startswith("/") or len(text) > 4096 or not text.isprintable():
        return ""
    return posixpath.normpath(text).replace("//", "/")


def _variable(machine: Machine, name: str) -> Fact[str]:
    value = machine.env(name)
    return Known(value, seen_in=name) if value else Unknown(f"{name} is not set")


def _cpp_extension_home(machine: Machine, on_path: Fact[NvccOnPath]) -> Fact[str]:
    """torch's own order: CUDA_HOME, CUDA_PATH, two up from `which nvcc` (links not followed), /usr/local/cuda."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := machine.env(name):
            return Known(value, seen_in=name)
    if isinstance(on_path, Known):
        return Known(posixpath.dirname(posixpath.dirname(on_path.value.path)) or "/", seen_in="nvcc on PATH")
    if machine.stat("/usr/local/cuda") is not None:
        return Known("/usr/local/cuda", seen_in="/usr/local/cuda")
    return Unknown("no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda")


def _nvcc_on_path(machine: Machine) -> Fact[NvccOnPath]:
    path = which(machine, "nvcc")
    if path is None:
        return Unknown("no nvcc on PATH")
    real = machine.real_path(path)
    root = posixpath.dirname(posixpath.dirname(real))
    is_script = machine.read_bytes(real, size=2) == b"#!"
    # A ptxas beside it proves nothing: who wraps nvcc wraps ptxas too (seen on a real machine). nvvm/ is not wrapped.
    beside_nvvm = machine.stat(f"{root}/nvvm") is not None
    if beside_nvvm or (not is_script and posixpath.basename(real) == "nvcc"):
        return Known(NvccOnPath(path, real, is_wrapper=False, toolkit=Known(root, seen_in=real)), seen_in="PATH")
    toolkit: Fact[str] = Unknown(f"{real} is not a script that names an nvcc")
    if is_script and (match := re.search(_WRAPPED, machine.read(real, limit=8192) or "")):
        toolkit = Known(plain_path(match.group(1)), seen_in=real)
    return Known(NvccOnPath(path, real, is_wrapper=True, toolkit=toolkit), seen_in="PATH")


def _candidates(
    machine: Machine, site_packages: tuple[str, ...], on_path: Fact[NvccOnPath]
) -> Iterator[tuple[str, str]]:
    """(folder, how it was found), the ones a build would take first."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if path := plain_path(machine.env(name) or ""):
            yield path, name
    if isinstance(on_path, Known) and isinstance(on_path.value.toolkit, Known):
        yield on_path.value.toolkit.value, "PATH"
    for parent in ("/usr/local", "/opt"):
        for name in machine.list(parent, "cuda*"):
            yield f"{parent}/{name}", f"{parent}/{name}"
    for path in _DEBIAN_ROOTS[:2]:
        yield path, path
    for site in site_packages:
        for name in (*machine.list(f"{site}/nvidia", "cu[0-9]*"), *machine.list(f"{site}/nvidia", "cuda_nvcc")):
            yield f"{site}/nvidia/{name}", "site-packages"
    if prefix := plain_path(machine.env("CONDA_PREFIX") or ""):
        yield prefix, "CONDA_PREFIX"
    yield from _hpc_sdk(machine)


def _hpc_sdk(machine: Machine) -> Iterator[tuple[str, str]]:
    """/opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/13.0 and the like."""
    tops = [f"/opt/nvidia/hpc_sdk/{name}" for name in machine.list("/opt/nvidia/hpc_sdk", "Linux_*")]
    releases = [f"{top}/{name}" for top in tops for name in machine.list(top, "[0-9]*.[0-9]*")]
    if root := plain_path(machine.env("NVHPC_ROOT") or ""):
        releases.append(root)
    for release in releases:
        for name in machine.list(f"{release}/cuda", "[0-9]*.[0-9]*"):
            yield f"{release}/cuda/{name}", "HPC SDK"


def _is_toolkit(machine: Machine, root: str) -> bool:
    """Some part is there: a folder that holds only compat/ (the forward-compat package) is none."""
    if machine.stat(root) is None:
        return False
    if machine.stat(f"{root}/version.json") is not None:
        return True
    includes, libraries = _folders(machine, root)
    return any(part is not Part.LIB64 for part in _parts(machine, root, includes=includes, libraries=libraries))


def _toolkit(machine: Machine, root: str, found_by: tuple[str, ...]) -> Toolkit:
    includes, libraries = _folders(machine, root)
    has = _parts(machine, root, includes=includes, libraries=libraries)
    version, nvcc_version = _versions(machine, root, includes=includes, libraries=libraries)
    gcc_max, clang_below = _host_limits(machine, includes)
    return Toolkit(
        path=root,
        found_by=found_by,
        version=version,
        nvcc_version=nvcc_version,
        has=has,
        missing=tuple(part for part in Part if part not in has),
        include_folders=includes,
        library_folders=libraries,
        gcc_max=gcc_max,
        clang_below=clang_below,
    )


def _folders(machine: Machine, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The include and library folders that exist, each once however many links lead to it."""
    arch = machine.host.arch
    # CUDA's own names: x86_64-linux; sbsa-linux for Arm servers and Thor (JetPack 7); aarch64-linux for older Jetsons.
    targets = ("sbsa-linux", "aarch64-linux") if arch == "aarch64" else (f"{arch}-linux",)
    includes = [f"{root}/include", *(f"{root}/targets/{target}/include" for target in targets)]
    libraries = [f"{root}/lib64", f"{root}/lib", *(f"{root}/targets/{target}/lib" for target in targets)]
    if root in _DEBIAN_ROOTS:
        includes.append("/usr/include")
        libraries.append(f"/usr/lib/{arch}-linux-gnu")
    return _existing(machine, includes), _existing(machine, libraries)


def _existing(machine: Machine, folders: list[str]) -> tuple[str, ...]:
    kept: dict[str, str] = {}
    for folder in folders:
        found = machine.stat(folder)
        if found is not None and found.kind == "folder":
            kept.setdefault(machine.real_path(folder), folder)
    return tuple(kept.values())


def _parts(machine: Machine, root: str, *, includes: tuple[str, ...], libraries: tuple[str, ...]) -> tuple[Part, ...]:
    def there(*paths: str) -> bool:
        return any(machine.stat(path) is not None for path in paths)

    # One listing per folder: matches libcudart*, libcudadevrt.a and libnvrtc* and next to nothing else.
    names = {name for folder in libraries for name in machine.list(folder, "lib[cn][uv][dr][at]*")}
    shared = any(re.fullmatch(r"libcudart\.so(\.[\d.]+)?", name) for name in names)
    present = {
        Part.NVCC: there(f"{root}/bin/nvcc"),
        Part.PTXAS: there(f"{root}/bin/ptxas"),
        Part.CICC: there(f"{root}/nvvm/bin/cicc", f"{root}/bin/cicc"),
        Part.LIBDEVICE: any(machine.list(f"{root}/{folder}", "*.bc") for folder in ("nvvm/libdevice", "libdevice")),
        Part.CRT_HEADERS: there(*(f"{folder}/crt/host_config.h" for folder in includes)),
        Part.RUNTIME_HEADER: there(*(f"{folder}/cuda_runtime.h" for folder in includes)),
        Part.CUDART: shared or "libcudart_static.a" in names,
        Part.CUDART_LINK: "libcudart.so" in names,
        Part.CUDART_STATIC: "libcudart_static.a" in names,
        Part.CUDADEVRT: "libcudadevrt.a" in names,
        Part.NVRTC: any(name.startswith("libnvrtc.so") for name in names),
        Part.LIB64: there(f"{root}/lib64"),
    }
    return tuple(part for part in Part if present[part])


def _versions(
    machine: Machine, root: str, *, includes: tuple[str, ...], libraries: tuple[str, ...]
) -> tuple[Fact[CudaVersion], Fact[CudaVersion]]:
    """(the toolkit's version, nvcc's): version.json, nvcc itself, cuda.h, libcudart's file name, ptxas: the first."""
    listed = _version_json(machine, f"{root}/version.json")
    nvcc: Fact[CudaVersion] = Unknown(f"no nvcc in {root}/bin")
    if "cuda_nvcc" in listed:
        nvcc = Known(listed["cuda_nvcc"], seen_in=f"{root}/version.json")
    elif machine.stat(f"{root}/bin/nvcc") is not None:
        nvcc = _asked(machine, f"{root}/bin/nvcc")
    if "cuda" in listed:
        return Known(listed["cuda"], seen_in=f"{root}/version.json"), nvcc
    if isinstance(nvcc, Known):
        return nvcc, nvcc
    version = _version_from_files(machine, includes, libraries)
    if isinstance(version, Unknown) and machine.stat(f"{root}/bin/ptxas") is not None:
        version = _asked(machine, f"{root}/bin/ptxas")  # the cu12 wheel has ptxas alone
    return version, nvcc


def _version_json(machine: Machine, path: str) -> dict[str, CudaVersion]:
    """{'cuda': 13.0.2, 'cuda_nvcc': 13.0.88} from version.json; what is not a version is left out."""
    text = machine.read(path, limit=64 << 10)
    if text is None:
        return {}
    import json

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, CudaVersion] = {}
    for name in ("cuda", "cuda_nvcc"):
        entry = document.get(name) if isinstance(document, dict) else None
        value = entry.get("version") if isinstance(entry, dict) else None
        if isinstance(value, str) and len(value) < 40:
            try:
                version = CudaVersion.parse(value)
            except BadVersion:
                continue
            found[name] = version.release if version.patch >= _DATE_LIKE else version
    return found


def _asked(machine: Machine, tool: str) -> Fact[CudaVersion]:
    """What nvcc or ptxas says of itself: 13.0.88 for 'release 13.0, V13.0.88'."""
    done = machine.run((tool, "--version"))
    if not done.ok:
        return Unknown(done.complaint)
    match = re.search(_RELEASE, done.stdout)
    if match is None:
        return Unknown(f"{tool} --version names no release")
    try:
        return Known(CudaVersion.parse(match.group(1)), seen_in=f"{tool} --version")
    except BadVersion:
        return Unknown(f"{tool} --version says V{match.group(1)[:40]}")


def _version_from_files(machine: Machine, includes: tuple[str, ...], libraries: tuple[str, ...]) -> Fact[CudaVersion]:
    for folder in includes:
        for header, name in (("cuda.h", "CUDA_VERSION"), ("cuda_runtime_api.h", "CUDART_VERSION")):
            number = defines(machine, f"{folder}/{header}", name).get(name, 0)
            if 1000 <= number < 100_000:
                return Known(CudaVersion.from_driver_number(number), seen_in=f"{folder}/{header}")
    for folder in libraries:
        for name in machine.list(folder, "libcudart.so.*"):
            real = machine.real_path(f"{folder}/{name}")
            if match := re.fullmatch(r"libcudart\.so\.(\d{1,2}\.\d{1,2}\.\d{1,6})", posixpath.basename(real)):
                return Known(CudaVersion.parse(match.group(1)), seen_in=real)
    return Unknown("no version.json, no working nvcc, no cuda.h, no libcudart with its version in the name")


def _host_limits(machine: Machine, includes: tuple[str, ...]) -> tuple[Fact[int], Fact[int]]:
    """(newest gcc accepted, first clang refused), e.g. (15, 21), as crt/host_config.h has them."""
    for folder in includes:
        path = f"{folder}/crt/host_config.h"
        found = machine.search(path, _HOST_LIMITS)
        if found is None:
            continue
        gcc = [int(match.group(1)) for item in found if (match := re.fullmatch(_GCC_LIMIT, item))]
        clang = [int(match.group(1)) for item in found if (match := re.fullmatch(_CLANG_LIMIT, item))]
        nothing = Unknown(f"{path} states no limit")
        return Known(gcc[0], path) if gcc else nothing, Known(clang[0], path) if clang else nothing
    missing = Unknown("no crt/host_config.h")
    return missing, missing
