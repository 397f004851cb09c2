"""The torch that an environment would import, read from its files: version, CUDA, architectures, pins, libraries."""

from __future__ import annotations

import enum
import posixpath
import re

from firstlight.elf.reader import read_elf
from firstlight.errors import BadVersion
from firstlight.facts.distributions import (
    Distribution,
    InstalledFrom,
    Requirement,
    checkout_of,
    find_distribution,
    installed_from,
    list_distributions,
    read_headers,
    requirements,
)
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.python_environments import PythonEnvironment, python_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import CudaVersion, TorchVersion

LIBRARIES = (
    "libtorch_global_deps.so",  # what `import torch` loads first
    "libtorch_python.so",
    "libtorch_cpu.so",
    "libtorch_cuda.so",
    "libc10_cuda.so",
)
# What torch._C._cuda_getArchFlags() returns, as it lies in libtorch_python.so; PTX entries come last. It starts with
# a literal, so that 30 MB are searched in about 20 ms; the one match of the 2.11.0 wheel is met after 6 ms.
_ARCH_FLAGS = rb"sm_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)*(?=\x00)"
_LARGEST_LIBRARY = 1 << 30
_ASSIGNED = r"(?m)^(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(None)\b)"
_PINNED = ("nvidia-", "cuda-", "triton", "pytorch-triton", "nvpl")
_CONTAINER_RELEASE = r"(?:^|\.)nv\d\d\.\d\d"
_SMALL = 64 << 10


class TorchBuild(enum.Enum):
    """What a torch build computes on."""

    CUDA = "cuda"
    CPU = "cpu"
    ROCM = "rocm"
    XPU = "xpu"


class TorchChannel(enum.Enum):
    """Who made a torch build, as far as its version tells."""

    RELEASE = "release"
    CANDIDATE = "release candidate"
    NIGHTLY = "nightly"
    SOURCE = "source build"
    NVIDIA = "nvidia container or jetson build"


@dataclass(frozen=True, slots=True)
class LibraryLink:
    """What one shared library asks of the loader, e.g. libc10_cuda.so needing libcudart.so.13."""

    file: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchInstall:
    """An installed torch, e.g. 2.11.0+cu130 compiled for sm_75 to sm_120."""

    folder: str  # /opt/venv/lib/python3.12/site-packages/torch
    found_via: str  # "site-packages", "PYTHONPATH", "editable install", "egg-link"
    version: Fact[TorchVersion]  # of torch/version.py: the wheel 2.11.0 says 2.11.0+cu130 there
    recorded_version: Fact[str]  # of the installer's record: 2.11.0
    channel: Fact[TorchChannel]
    build: Fact[TorchBuild]
    wheel_cuda: Fact[CudaVersion]
    rocm: Fact[str]
    xpu: Fact[str]
    commit: Fact[str]
    compiled_for: Fact[tuple[str, ...]]  # sm_90, compute_120
    requires: Fact[tuple[Requirement, ...]]  # its pins on nvidia, cuda and triton packages that apply here
    wheel_tags: Fact[tuple[str, ...]]  # cp312-cp312-manylinux_2_28_x86_64
    installer: Fact[str]
    installed_from: Fact[InstalledFrom]
    libraries: tuple[LibraryLink, ...]
    unreadable_libraries: tuple[str, ...]  # there, but cut short or not ELF
    shadowed_by: tuple[str, ...]  # a torch in the current folder, taken first by `python -c` and `python -m`


def probe_torch(machine: Machine, environment: PythonEnvironment) -> Fact[TorchInstall]:
    """The torch that this environment imports, e.g. 2.9.0+cu130; Unknown says what is missing."""
    recorded = find_distribution(environment.distributions, "torch")
    folder, found_via = _find_folder(machine, environment, recorded=recorded)
    if not folder:
        if recorded is not None:
            return Unknown(f"{recorded.record_path} is there, but no torch package that belongs to it")
        return Unknown(f"torch is not installed in {environment.prefix}")
    if found_via == "PYTHONPATH":  # pip install --target leaves its record beside the package
        recorded = find_distribution(list_distributions(machine, posixpath.dirname(folder)), "torch")
    said, where = _read_version_file(machine, folder)
    version = _version(said, recorded, where=where)
    build = _build(said, where=where)
    libraries, unreadable = _libraries(machine, folder, environment=environment)
    no_record = Unknown(f"no record of torch beside {folder}")
    return Known(
        TorchInstall(
            folder=folder,
            found_via=found_via,
            version=version,
            recorded_version=no_record if recorded is None else Known(recorded.version, recorded.record_path),
            channel=version if isinstance(version, Unknown) else Known(_channel(version.value), version.seen_in),
            build=build,
            wheel_cuda=_wheel_cuda(said, build, where=where),
            rocm=_text(said, "hip", where=where),
            xpu=_text(said, "xpu", where=where),
            commit=_text(said, "git_version", where=where),
            compiled_for=_compiled_for(machine, folder, build=build, environment=environment),
            requires=no_record if recorded is None else _pins(machine, recorded, environment=environment),
            wheel_tags=no_record if recorded is None else _wheel_tags(machine, recorded),
            installer=no_record if recorded is None else _installer(machine, recorded),
            installed_from=no_record if recorded is None else installed_from(machine, recorded),
            libraries=libraries,
            unreadable_libraries=unreadable,
            shadowed_by=_shadows(machine, folder),
        ),
        folder,
    )


def _find_folder(machine: Machine, environment: PythonEnvironment, *, recorded: Distribution | None) -> tuple[str, str]:
    """The package folder and how Python gets there; ('', '') when there is none. Order: that of sys.path."""
    here = machine.host.cwd.rstrip("/")
    for entry in python_path(machine):
        parent = here if entry == "." else entry.rstrip("/")
        if parent.startswith("/") and _is_torch(machine, f"{parent}/torch"):
            return f"{parent}/torch", "PYTHONPATH"
    for site in environment.site_packages:
        if _is_torch(machine, f"{site}/torch"):
            return f"{site}/torch", "site-packages"
    for site in environment.site_packages:
        link = machine.read(f"{site}/torch.egg-link", limit=_SMALL)
        checkout = (link or "").partition("\n")[0].strip()
        if checkout.startswith("/") and _is_torch(machine, f"{checkout}/torch"):
            return f"{checkout}/torch", "egg-link"
    checkout = (checkout_of(machine, recorded) if recorded is not None else "") or ""
    if checkout and _is_torch(machine, f"{checkout}/torch"):
        return f"{checkout}/torch", "editable install"
    return "", ""


def _is_torch(machine: Machine, folder: str) -> bool:
    """Whether a folder is importable as torch: one left behind by an uninstall has no __init__.py."""
    return machine.stat(f"{folder}/__init__.py") is not None


def _read_version_file(machine: Machine, folder: str) -> tuple[dict[str, str], str]:
    """The names that torch/version.py sets to a text or None (kept as that word), and how to speak of the file."""
    path = f"{folder}/version.py"
    text = machine.read(path, limit=_SMALL)
    if text is None:
        return {}, f"{path} ({machine.why_not(path)})"
    return {name: single or double or none for name, single, double, none in re.findall(_ASSIGNED, text)}, path


def _version(said: dict[str, str], recorded: Distribution | None, *, where: str) -> Fact[TorchVersion]:
    text, source = said.get("__version__", ""), where
    if not text and recorded is not None:
        text, source = recorded.version, recorded.record_path
    if not text:
        return Unknown(f"{where} names no version")
    try:
        return Known(TorchVersion.parse(text), source)
    except BadVersion as error:
        return Unknown(f"{source}: {error}")


def _channel(version: TorchVersion) -> TorchChannel:
    """NVIDIA's containers say 2.9.0a0+50eac811a6.nv25.09, a checkout 2.10.0a0+gitab12cd3."""
    if re.search(_CONTAINER_RELEASE, version.local):
        return TorchChannel.NVIDIA
    if version.is_nightly:
        return TorchChannel.NIGHTLY
    if version.local.startswith("git") or re.search(r"\da\d", version.public):
        return TorchChannel.SOURCE
    return TorchChannel.CANDIDATE if version.stage == 1 else TorchChannel.RELEASE


def _build(said: dict[str, str], *, where: str) -> Fact[TorchBuild]:
    if "cuda" not in said:
        return Unknown(f"{where} does not say what it was built for")
    for name, build in (("cuda", TorchBuild.CUDA), ("hip", TorchBuild.ROCM), ("xpu", TorchBuild.XPU)):
        if said.get(name, "None") != "None":
            return Known(build, where)
    return Known(TorchBuild.CPU, where)


def _wheel_cuda(said: dict[str, str], build: Fact[TorchBuild], *, where: str) -> Fact[CudaVersion]:
    if isinstance(build, Unknown):
        return build
    if build.value is TorchBuild.CPU:
        return Unknown(f"CPU-only build: {where} says cuda = None")
    if build.value is not TorchBuild.CUDA:
        return Unknown(f"{build.value.value} build: {where} says cuda = None")
    try:
        return Known(CudaVersion.parse(said["cuda"]), where)
    except BadVersion as error:
        return Unknown(f"{where}: {error}")


def _text(said: dict[str, str], name: str, *, where: str) -> Fact[str]:
    value = said.get(name, "None")
    return Unknown(f"{where} names no {name}") if value in ("None", "", "Unknown") else Known(value, where)


def _library_path(machine: Machine, folder: str, *, name: str, environment: PythonEnvironment) -> str:
    """Where a torch library lies: torch/lib, or lib of the prefix in conda packages that split libtorch off."""
    paths = (f"{folder}/lib/{name}", f"{environment.prefix}/lib/{name}")
    return next((path for path in paths if machine.stat(path) is not None), paths[0])


def _compiled_for(
    machine: Machine, folder: str, *, build: Fact[TorchBuild], environment: PythonEnvironment
) -> Fact[tuple[str, ...]]:
    if isinstance(build, Unknown):
        return build
    if build.value is not TorchBuild.CUDA:
        return Unknown(f"not searched: a {build.value.value} build has no CUDA architectures")
    path = _library_path(machine, folder, name="libtorch_python.so", environment=environment)
    seen = machine.stat(path)
    if seen is not None and (seen.kind != "file" or seen.size > _LARGEST_LIBRARY):
        return Unknown(f"{path} was not searched: {seen.kind} of {seen.size} bytes")
    found = None if seen is None else machine.search(path, _ARCH_FLAGS, limit=1)
    if found is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    if not found:
        return Unknown(f"{path} holds no list of architectures")
    return Known(tuple(found[0].decode("ascii", "replace").split(" ")), path)


def _pins(machine: Machine, recorded: Distribution, *, environment: PythonEnvironment) -> Fact[tuple[Requirement, ...]]:
    """Its own pins, and those of cuda-toolkit's extras, where torch 2.11 and later have most of them."""
    headers = read_headers(machine, recorded)
    if isinstance(headers, Unknown):
        return headers
    arch, python = machine.host.arch, value_or(environment.python_version, "")
    found = requirements(headers.value, asked_by="torch", arch=arch, python=python)
    pins = [each for each in found if each.name.startswith(_PINNED)]
    for extras, name in [(each.extras, each.name) for each in pins if each.extras]:
        holder = find_distribution(environment.distributions, name)
        lines = value_or(read_headers(machine, holder), ()) if holder is not None else ()
        pins += requirements(lines, asked_by=name, arch=arch, python=python, extras=extras)
    return Known(tuple(pins), headers.seen_in)


def _wheel_tags(machine: Machine, recorded: Distribution) -> Fact[tuple[str, ...]]:
    path = f"{recorded.record_path}/WHEEL"
    text = machine.read(path, limit=_SMALL)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    return Known(tuple(line[4:].strip() for line in text.splitlines() if line.startswith("Tag:")), path)


def _installer(machine: Machine, recorded: Distribution) -> Fact[str]:
    path = f"{recorded.record_path}/INSTALLER"
    text = machine.read(path, limit=200)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    name = text.strip().partition("\n")[0]
    return Known(name, path) if name else Unknown(f"{path} is empty")


def _libraries(
    machine: Machine, folder: str, *, environment: PythonEnvironment
) -> tuple[tuple[LibraryLink, ...], tuple[str, ...]]:
    """What the loader meets on the way into torch, and the files among it that are no readable ELF."""
    paths = [f"{folder}/{name}" for name in machine.list(folder, "_C.*.so")]
    paths += [_library_path(machine, folder, name=name, environment=environment) for name in LIBRARIES]
    links, unreadable = [], []
    for path in paths:
        if machine.stat(path) is None:
            continue
        elf = read_elf(machine, path)
        if elf is None:
            unreadable.append(path)
        else:
            links.append(LibraryLink(path, elf.needed, elf.rpath, elf.runpath))
    return tuple(links), tuple(unreadable)


def _shadows(machine: Machine, folder: str) -> tuple[str, ...]:
    here = machine.host.cwd.rstrip("/")
    if folder == f"{here}/torch":
        return ()
    return tuple(path for path in (f"{here}/torch/__init__.py", f"{here}/torch.py") if machine.stat(path) is not None)
