"""Compiled code that runs inside torch, file by file: what it asks of torch, and what of that is not there."""

from __future__ import annotations

import enum
import re

from firstlight.elf.reader import read_elf
from firstlight.elf.symbols import HashTable, asked_names, gnu_hash, hash_table
from firstlight.facts.distributions import find_distribution
from firstlight.facts.extension_files import ExtensionFile, extension_files
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import PythonEnvironment
from firstlight.facts.torch_install import TorchInstall
from firstlight.frozen import dataclass
from firstlight.machine import Machine

# What torch._C brings into the process; libtorch_cuda_linalg.so and the like are opened later.
_TORCH_LIBRARIES = (
    "libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so", "libtorch.so",
    "libtorch_cuda_cpp.so", "libtorch_cuda_cu.so", "libc10_hip.so", "libtorch_hip.so", "libc10_xpu.so",
    "libtorch_xpu.so", "libshm.so",
)  # fmt: skip
_OF_TORCH = ("libtorch", "libc10")
_IN_EVERY_BUILD = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
# c10, at, torch and caffe2 by their C++ names, and the C names of torch's stable interface.
_ASKED_OF_TORCH = r"_Z(?:T[ISV])?N?K?(?:3c10|2at|5torch|6caffe2)|(?:aoti_)?torch_|THP|_Z\d+THP"
# These take a std::string: which of the names a libc10.so has says how its strings were compiled.
_WITH_STRINGS = (
    "_ZN3c106detail14torchCheckFailEPKcS2_jRK",
    "_ZN3c106DeviceC1ERK",
    "_ZN3c105ErrorC2ENS_14SourceLocationE",
    "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RK",
)
_NEW, _OLD = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "Ss"
_NOT_BESIDE = ("libtorch", "libc10", "libc.", "libm.", "libstdc++", "libgcc", "libcu", "libnv", "ld-", "libpthread")
_LINKED = r"lib(?:cudart|cublas|cublasLt)(?:[.-][0-9a-f]{8})?\.so\.(\d+)(?:\.\d+)*"
_OTHER_NODES = ("/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")  # a GPU behind Windows, and in a Jetson's chip
_MOST_NAMES = 6
_LONGEST_NAME = 400
_MOST_MODULES = 400  # vLLM's largest file has 332, one for each source file and group of GPUs
_BITSANDBYTES = r"libbitsandbytes_cuda(\d{3})(?:_nocublaslt)?\.so"


class Strings(enum.Enum):
    """How std::string was compiled into C++ names: GCC's _GLIBCXX_USE_CXX11_ABI."""

    CXX11 = "cxx11"
    OLD = "before cxx11"


@dataclass(frozen=True, slots=True)
class TorchSymbols:
    """How many names a file asks of torch, how many of them no library of torch has, and a few of these."""

    asked: int
    lacking: int
    names: tuple[str, ...]  # the shortest of those that are lacking, as the loader's message has them


@dataclass(frozen=True, slots=True)
class Extension:
    """One compiled file, e.g. flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so of flash-attn 2.8.3."""

    package: str
    version: Fact[str]
    path: str
    needed: tuple[str, ...]  # names of the libraries it asks for: libc10.so, libcudart.so.13
    lacks_libraries: tuple[str, ...]  # those of torch's among them that this torch does not bring: libtorch_cuda.so
    symbols: Fact[TorchSymbols]
    strings: Fact[Strings]  # by the names that it asks of torch
    cuda_major: Fact[int]  # of the CUDA runtime it is linked to
    gpu_code: Fact[tuple[str, ...]]  # sm_80, compute_90


@dataclass(frozen=True, slots=True)
class ExtensionFacts:
    """The compiled files beside torch, and how torch itself was compiled."""

    torch_strings: Fact[Strings]
    files: Fact[tuple[Extension, ...]]


def probe_extensions(
    machine: Machine, environment: PythonEnvironment | None, torch: Fact[TorchInstall]
) -> ExtensionFacts:
    """Every compiled file of the environment that is loaded into torch's process; nothing is loaded here."""
    if environment is None or isinstance(torch, Unknown):
        nothing = Unknown("torch is not installed")
        return ExtensionFacts(nothing, nothing)
    files = extension_files(machine, environment)
    if files is None:
        unread = Unknown(f"{torch.value.folder}: {machine.why_not(torch.value.folder)}")
        return ExtensionFacts(unread, unread)
    where = ", ".join(environment.site_packages)
    if not files:
        return ExtensionFacts(Unknown("nothing beside torch"), Known((), where))
    look = _Look(machine, environment, torch.value)
    found = tuple(look.at(each) for each in files if _is_for(each, torch.value))
    return ExtensionFacts(look.torch_strings(), Known(found, where))


def _is_for(file: ExtensionFile, torch: TorchInstall) -> bool:
    """Whether torch's CUDA decides for this file: bitsandbytes opens the one of torch's release, e.g. cuda128."""
    match = re.fullmatch(_BITSANDBYTES, file.path.rpartition("/")[2])
    if match is None or isinstance(torch.wheel_cuda, Unknown):
        return match is None
    return match.group(1) == torch.wheel_cuda.value.release.tag.removeprefix("cu")


class _Look:
    """One look at all files of an environment: torch's own libraries are read once, and only where they are needed."""

    def __init__(self, machine: Machine, environment: PythonEnvironment, torch: TorchInstall) -> None:
        self._machine = machine
        self._environment = environment
        folders = (f"{torch.folder}/lib", f"{environment.prefix}/lib")
        self._libraries = {
            name: path
            for name in _TORCH_LIBRARIES
            for path in (f"{folder}/{name}" for folder in reversed(folders))
            if machine.stat(path) is not None
        }
        self._tables: tuple[HashTable | None, ...] | None = None
        self._asked_of_torch = re.compile(_ASKED_OF_TORCH)
        self._has_gpu = bool(machine.list("/dev", "nvidia[0-9]*")) or any(
            machine.stat(path) is not None for path in _OTHER_NODES
        )

    def at(self, file: ExtensionFile) -> Extension:
        """One file as it is; what cannot be read is Unknown."""
        elf = read_elf(self._machine, file.path)
        needed = () if elf is None else elf.needed
        recorded = find_distribution(self._environment.distributions, file.package)
        symbols, strings = self._symbols(file.path)
        return Extension(
            package=file.package,
            version=Unknown("no record of it") if recorded is None else Known(recorded.version, recorded.record_path),
            path=file.path,
            needed=needed,
            lacks_libraries=tuple(name for name in needed if self._lacks(name, file.path)),
            symbols=symbols,
            strings=strings,
            cuda_major=_cuda_major(needed, file.path),
            gpu_code=self._gpu_code(file),
        )

    def torch_strings(self) -> Fact[Strings]:
        """How torch's own strings were compiled, by the names that its libc10.so has."""
        path = self._libraries.get("libc10.so", "")
        said = self._machine.digest(path, "C++ strings", self._strings_of_torch) if path else None
        if not said:
            return Unknown(f"{path or 'libc10.so'} was not read, or has neither kind of name")
        return Known(Strings(said[0]), path)

    def _strings_of_torch(self, machine: Machine) -> tuple[str, ...] | None:
        table = hash_table(machine, self._libraries["libc10.so"])
        for kind, ending in ((Strings.CXX11, _NEW), (Strings.OLD, _OLD)):
            if table is not None and any(table.has(gnu_hash(start + ending)) for start in _WITH_STRINGS):
                return (kind.value,)
        return None

    def _lacks(self, name: str, asking: str) -> bool:
        """Whether torch does not bring a library that only some builds have, nor the package beside its own file."""
        if not name.startswith(_OF_TORCH) or name in _IN_EVERY_BUILD or "libc10.so" not in self._libraries:
            return False  # without those torch itself is not whole, and missing-library speaks of it
        return name not in self._libraries and self._machine.stat(f"{asking.rpartition('/')[0]}/{name}") is None

    def _symbols(self, path: str) -> tuple[Fact[TorchSymbols], Fact[Strings]]:
        said = self._machine.digest(path, "names asked of torch", lambda machine: self._compare(machine, path))
        if said is None or len(said) < 3 or not (said[0].isdecimal() and said[1].isdecimal()):
            reason = Unknown(f"the names in {path}, or those in torch's libraries, were not read")
            return reason, reason
        strings: Fact[Strings] = Unknown(f"nothing that {path} asks of torch takes a std::string")
        if said[2] in {each.value for each in Strings}:
            strings = Known(Strings(said[2]), path)
        return Known(TorchSymbols(int(said[0]), int(said[1]), said[3:]), path), strings

    def _compare(self, machine: Machine, path: str) -> tuple[str, ...] | None:
        """Asked, lacking, kind of strings, then a few lacking names."""
        names = asked_names(machine, path)
        if names is None:
            return None
        asked = [name for name in names if self._asked_of_torch.match(name)]
        if not asked:
            return ("0", "0", "")
        tables = self._read_tables(machine)
        lacking = [name for name in asked if not _has(tables, name)]
        if not tables or None in tables:  # what was not read may have them, but not both forms of one name
            lacking = [name for name in lacking if _has(tables, _with_other_strings(name))]
            if not lacking:
                return None
        if lacking:  # another library that the file asks for may have them
            beside = tuple(hash_table(machine, each) for each in _beside(machine, path))
            lacking = [name for name in lacking if not _has(beside, name)]
        shown = sorted((name for name in lacking if len(name) <= _LONGEST_NAME), key=lambda name: (len(name), name))
        return (str(len(asked)), str(len(lacking)), _strings_in(asked), *shown[:_MOST_NAMES])

    def _read_tables(self, machine: Machine) -> tuple[HashTable | None, ...]:
        if self._tables is None:
            self._tables = tuple(hash_table(machine, path) for path in self._libraries.values())
        return self._tables

    def _gpu_code(self, file: ExtensionFile) -> Fact[tuple[str, ...]]:
        if file.package == "onnxruntime-gpu":  # 600 parts, and it takes PTX where it has no machine code
            return Unknown("not read: its code is made for all GPUs of its CUDA")
        if not self._has_gpu:
            return Unknown("not read: there is no GPU here to compare it with")
        said = self._machine.digest(file.path, "GPU code", lambda machine: _codes(machine, file.path))
        if not said:
            return Unknown(f"{file.path} holds no GPU code, or it was not read")
        return Known(said, file.path)


def _beside(machine: Machine, path: str) -> tuple[str, ...]:
    """The libraries that a file loads besides torch's, the system's and NVIDIA's, which have no names of torch."""
    from firstlight.elf.closure import closure

    loaded = closure(machine, path)
    found = () if loaded is None else loaded.objects
    return tuple(each.file.path for each in found if not each.name.startswith(_NOT_BESIDE))


def _has(tables: tuple[HashTable | None, ...], name: str) -> bool:
    wanted = gnu_hash(name)
    return any(table is not None and table.has(wanted) for table in tables)


def _codes(machine: Machine, path: str) -> tuple[str, ...] | None:
    from firstlight.elf.fatbin import read_fatbins

    found = read_fatbins(machine, path, most=_MOST_MODULES)
    return None if found.complaint else tuple(str(code) for code in found.codes)


def _strings_in(names: list[str]) -> str:
    """How the names were compiled that take a std::string: by their types, identifiers left out."""
    if any(_NEW in name for name in names):
        return Strings.CXX11.value
    return Strings.OLD.value if any(_OLD in _types_of(name) for name in names) else ""


def _with_other_strings(name: str) -> str:
    """The same function with std::string compiled the other way: no library of torch has both."""
    return name.replace(_NEW, _OLD) if _NEW in name else f"{name.removesuffix(_OLD)}{_NEW}"


def _types_of(name: str) -> str:
    """A C++ name without its identifiers: ERKSs of _ZN3c106DeviceC1ERKSs is left, and no 'Ss' of a word."""
    left, at = "", 0
    while at < len(name):
        digits = re.compile(r"\d+").match(name, at)
        if digits is None:
            left, at = left + name[at], at + 1
        else:
            left, at = left + ".", digits.end() + int(digits.group()[:4])
    return left


def _cuda_major(needed: tuple[str, ...], path: str) -> Fact[int]:
    for name in needed:
        if match := re.fullmatch(_LINKED, name):
            return Known(int(match.group(1)), path)
    return Unknown(f"{path} is not linked to a CUDA runtime")
