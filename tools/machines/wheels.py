"""Installed wheels for rebuilt machines: torch with its libraries, companions, and NVIDIA's library wheels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tools.machines.elf_writer import ElfSpec
from tools.machines.reconstruction import Reconstruction


@dataclass(frozen=True, slots=True)
class TorchWheel:
    """A torch wheel as it lies on disk, e.g. TorchWheel("2.9.0+cu130", "13.0", ("sm_75", ...))."""

    version: str
    cuda: str  # "" for a CPU build
    architectures: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()  # further libraries that libtorch_cuda.so asks for
    tag: str = "cp312-cp312-manylinux_2_28_x86_64"
    names: tuple[str, ...] = ()  # C++ names that its libraries have; without any they are as if nobody had read them
    recorded: str = ""  # the version in the record where it differs: PyPI's wheels have no +cu130 there


CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CU130_ARM = ("sm_80", "sm_90", "sm_100", "sm_110", "sm_120")


def python(machine: Reconstruction, prefix: str, *, version: str = "3.12", source: str) -> str:
    """A venv at `prefix` that is active; returns its site-packages."""
    machine.file(f"{prefix}/pyvenv.cfg", f"home = /usr/bin\nversion = {version}.3\n", source=source)
    machine.file(f"{prefix}/bin/python3", "#!", source=source)
    machine.env(VIRTUAL_ENV=prefix)
    return f"{prefix}/lib/python{version}/site-packages"


def system_python(machine: Reconstruction, *, version: str = "3.12", source: str) -> str:
    """Debian's own Python with packages under /usr/local; returns its dist-packages."""
    machine.file("/usr/bin/python3", "#!", source=source)
    machine.file(f"/usr/lib/python{version}/os.py", "", source=source)
    machine.file("/usr/lib/python3/dist-packages/README", "", source=source)
    return f"/usr/local/lib/python{version}/dist-packages"


def torch(machine: Reconstruction, folder: str, wheel: TorchWheel, *, source: str) -> Reconstruction:
    """torch in a site-packages folder: version.py, METADATA, and libraries with the search paths of PyPI's wheels."""
    cuda = f"'{wheel.cuda}'" if wheel.cuda else "None"
    machine.file(
        f"{folder}/torch/version.py",
        f"__version__ = '{wheel.version}'\ndebug = False\ncuda: Optional[str] = {cuda}\n"
        "git_version = '0fabc3ba44823f257e70ce397d989c8de5e362c1'\nhip: Optional[str] = None\n",
        source=source,
    )
    recorded = wheel.recorded or wheel.version
    distribution(machine, folder, "torch", recorded, requires=wheel.requires, tag=wheel.tag, source=source)
    machine.file(f"{folder}/torch/__init__.py", "", source=source)
    if not wheel.cuda:
        search = ElfSpec(runpath="$ORIGIN", needed=("libc.so.6",))
        for name in ("libtorch_python.so", "libtorch_cpu.so"):
            machine.elf(f"{folder}/torch/lib/{name}", search, source=source)
        return machine
    major = wheel.cuda.split(".")[0]
    below = (
        "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nvshmem/lib:$ORIGIN/../../nvidia/nccl/lib:"
        "$ORIGIN/../../nvidia/cusparselt/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
        if major == "13"
        else "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/cublas/lib:"
        "$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN"
    )
    runtime = f"libcudart.so.{major}"
    libraries: Mapping[str, ElfSpec] = {
        "libtorch_python.so": ElfSpec(
            rpath=below,
            needed=("libtorch_cuda.so", "libc.so.6"),
            text=b"\0" + " ".join(wheel.architectures).encode() + b"\0",
        ),
        "libtorch_cuda.so": ElfSpec(rpath=below, needed=(runtime, "libc10_cuda.so", *wheel.needed, "libc.so.6")),
        "libc10_cuda.so": ElfSpec(rpath=below, needed=(runtime, "libc.so.6")),
        "libtorch_cpu.so": ElfSpec(rpath=below, needed=("libc.so.6",)),
    }
    if wheel.names:
        libraries = {"libc10.so": ElfSpec(rpath=below, needed=("libc.so.6",)), **libraries}
    for name, spec in libraries.items():
        machine.elf(f"{folder}/torch/lib/{name}", replace(spec, has=wheel.names), source=source)
    where = "nvidia/cu13/lib" if major == "13" else "nvidia/cuda_runtime/lib"
    return machine.elf(f"{folder}/{where}/{runtime}", ElfSpec(soname=runtime, needed=("libc.so.6",)), source=source)


def distribution(
    machine: Reconstruction, folder: str, name: str, version: str, *, source: str, requires: tuple[str, ...] = (),
    tag: str = "",
) -> Reconstruction:  # fmt: skip
    """The dist-info folder of an installed wheel."""
    record = f"{folder}/{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    machine.file(f"{record}/METADATA", "\n".join(lines) + "\n\nAbout this package.\n", source=source)
    machine.file(f"{record}/INSTALLER", "pip\n", source=source)
    if tag:
        machine.file(f"{record}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n", source=source)
    return machine
