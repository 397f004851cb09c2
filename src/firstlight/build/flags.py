"""Whether the flags that somebody set are read by the tree at hand, and by what; one that nothing reads is refused."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable

from firstlight.build.backend import Backend
from firstlight.build.reads import BY_ENVIRONMENT, DECLARED, Read, ReadKind
from firstlight.build.source_reads import SourceReads, read_when_it_runs
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.near import nearest

OF_JOBS = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")  # else it would be written over without a word
_NOISE = {"USE", "WITH", "ENABLE", "BUILD", "NO", "DISABLE"}
_FEW = 2  # names with a word: one that more have is the project's own, and tells nothing
_FLAG = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([^\x00-\x1f\x7f]*)")
_BY_COMPILERS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")  # CMake's and setuptools' own
# What CMake takes from the environment: cmake-env-variables(7), and find_package() <name>_ROOT and <name>_DIR.
_ENVIRONMENT_OF_CMAKE = re.compile(
    r"CUDACXX|CUDAHOSTCXX|CUDAARCHS|CUDAFLAGS|CMAKE_(?:BUILD_TYPE|CONFIGURATION_TYPES|TOOLCHAIN_FILE|PREFIX_PATH|"
    r"INCLUDE_PATH|LIBRARY_PATH|PROGRAM_PATH|GENERATOR|EXPORT_COMPILE_COMMANDS|[A-Z]+_COMPILER_LAUNCHER)|"
    r"[A-Za-z0-9_]+_(?:ROOT|DIR)"
)
# torch.utils.cpp_extension reads these while setup.py runs, scikit-build-core those.
_OF_TORCH_EXTENSIONS = re.compile(
    r"TORCH_CUDA_ARCH_LIST|CUDA_HOME|CUDA_PATH|TORCH_DONT_CHECK_COMPILER_ABI|TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES|"
    r"TORCH_NVCC_FLAGS|PYTORCH_NVCC"
)
_OF_SKBUILD = re.compile(r"CMAKE_ARGS|SKBUILD_[A-Z0-9_]+")
# CMake itself reads these, whatever the tree says.
_OF_CMAKE = re.compile(r"CMAKE_[A-Z0-9_]+|BUILD_SHARED_LIBS|BUILD_TESTING")


class FlagVerdict(enum.Enum):
    """What becomes of a flag."""

    READ = "read"
    RUN_TIME = "read when it runs"  # by the program, not by its build
    UNREAD = "read by nothing"
    NO_DOOR = "read, and handed on by nothing"  # CMake reads it, and whoever starts CMake does not pass it


class Through(enum.Enum):
    """How a flag reaches what reads it."""

    DEFINE = "-D"
    ENVIRONMENT = "environment"
    BOTH = "-D and environment"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Flag:
    """USE_NCCL=0 as given."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class JudgedFlag:
    """A flag, who reads it, and the names that may be meant where nothing does."""

    flag: Flag
    verdict: FlagVerdict
    reads: tuple[Read, ...]
    near: tuple[str, ...]
    through: Through


def parse_flag(text: str) -> Flag:
    """NAME=VALUE of --flag."""
    match = _FLAG.fullmatch(text)
    if match is None:
        raise BadInput(f"--flag {text!a}: accepted is NAME=VALUE, e.g. --flag USE_NCCL=0.")
    if match[1] in OF_JOBS:
        raise BadInput(f"--flag {text!a}: {match[1]} is set by the jobs of the build. Give --jobs {match[2] or 'N'}.")
    return Flag(match[1], match[2])


def judge_flag(flag: Flag, source: SourceReads, backend: Backend) -> JudgedFlag:
    """A flag against one tree: what reads it there, and through which door it gets in."""
    found = source.of(flag.name) or _read_by_tools(flag.name, source, backend)
    if found:
        door = _door(flag.name, found, source, backend)
        if door is Through.NONE:
            return JudgedFlag(flag, FlagVerdict.NO_DOOR, found, _with_a_door(flag.name, source, backend), door)
        return JudgedFlag(flag, FlagVerdict.READ, found, (), door)
    if later := read_when_it_runs(source.root, flag.name):
        return JudgedFlag(flag, FlagVerdict.RUN_TIME, later, (), Through.NONE)
    return JudgedFlag(flag, FlagVerdict.UNREAD, (), near_names(flag.name, source), Through.NONE)


def _read_by_tools(name: str, source: SourceReads, backend: Backend) -> tuple[Read, ...]:
    """What CMake or setuptools read whatever the tree says."""
    if name in _BY_COMPILERS:
        who = "setuptools itself" if backend in (Backend.SETUPTOOLS, Backend.TORCH_EXTENSION) else "CMake itself"
        return (Read(name, ReadKind.ENVIRONMENT, who),)
    if backend is Backend.TORCH_EXTENSION and _OF_TORCH_EXTENSIONS.fullmatch(name):
        return (Read(name, ReadKind.ENVIRONMENT, "torch.utils.cpp_extension"),)
    if backend is Backend.SKBUILD and _OF_SKBUILD.fullmatch(name):
        return (Read(name, ReadKind.ENVIRONMENT, "scikit-build-core itself"),)
    if source.cmake_files and _ENVIRONMENT_OF_CMAKE.fullmatch(name):
        return (Read(name, ReadKind.CMAKE_ENVIRONMENT, "CMake itself"),)
    if source.cmake_files and _OF_CMAKE.fullmatch(name):
        return (Read(name, ReadKind.CACHE, "CMake itself"),)
    return ()


def _with_a_door(name: str, source: SourceReads, backend: Backend) -> tuple[str, ...]:
    """The nearest names of the tree that do get in."""
    names = [each for each in source.names if _door(each, source.of(each), source, backend) is not Through.NONE]
    return nearest(name, names, most=3)


def near_names(name: str, source: SourceReads) -> tuple[str, ...]:
    """Names of the tree that a misspelt one may stand for: what is declared first, plain variables last."""
    declared = dict.fromkeys(each.name for each in source.reads if each.kind is not ReadKind.VARIABLE)
    others = (each for each in source.names if each not in declared and each.isupper())
    return nearest(name, declared, most=3) or nearest(name, others, most=3) or _by_words(name, declared)


def _by_words(name: str, declared: Iterable[str]) -> tuple[str, ...]:
    """Names that share a telling word: GW_CUDA for USE_CUDA, ROLLMAX_NVCC_FLAGS for ROLLMAX_NVCC_ARGS."""
    words = {each: {*each.upper().split("_")} - _NOISE for each in declared}
    often = Counter(word for each in words.values() for word in each)
    wanted = {*name.upper().split("_")} - _NOISE
    telling = {word for word in wanted if len(word) > 2 and often[word] <= _FEW}
    found = [each for each in words if words[each] & telling and 2 * len(words[each] & wanted) >= len(wanted)]
    return tuple(sorted(found, key=lambda each: (-len(words[each] & wanted), len(words[each])))[:3])


def _door(name: str, found: tuple[Read, ...], source: SourceReads, backend: Backend) -> Through:
    """-D where we start CMake ourselves; else the environment, where somebody reads it there or hands it on."""
    by_environment = any(read.kind in BY_ENVIRONMENT for read in found)
    if backend is Backend.SKBUILD:
        by_define = any(read.kind not in BY_ENVIRONMENT for read in found)
        return Through.BOTH if by_define and by_environment else Through.DEFINE if by_define else Through.ENVIRONMENT
    handed_on = name.startswith(source.passed.prefixes) if source.passed.prefixes else False
    if by_environment or handed_on or name in source.passed.names or _read_there_by_cmake(name, source):
        return Through.ENVIRONMENT
    return Through.NONE


def _read_there_by_cmake(name: str, source: SourceReads) -> bool:
    return source.cmake_files > 0 and _ENVIRONMENT_OF_CMAKE.fullmatch(name) is not None


def what_reads(judged: JudgedFlag) -> str:
    """In words: 'option of CMakeLists.txt:276' or what else there is to say."""
    if judged.verdict is FlagVerdict.UNREAD:
        near = f"; the nearest that is: {', '.join(judged.near)}" if judged.near else "; and nothing near it either"
        return f"no file of this source reads it{near}"
    first = judged.reads[0]
    if judged.verdict is FlagVerdict.RUN_TIME:
        return f"the build does not read it; the program does when it runs ({first.where})"
    if judged.verdict is FlagVerdict.NO_DOOR:
        return f"CMake reads it ({first.where}), and what starts CMake here does not hand it on: it would be lost"
    kind = first.kind.value if first.kind in DECLARED else f"read from {first.kind.value}"
    default = f", default {first.default}" if first.default else ""
    return f"{kind}, {first.where}{default}"
