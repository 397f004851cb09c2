"""Whether the flags that somebody set are read by the tree at hand, and by what; one that nothing reads is refused."""

from __future__ import annotations

import enum
import re

from firstlight.build.reads import BY_ENVIRONMENT, DECLARED, Read, ReadKind
from firstlight.build.source_reads import SourceReads, read_when_it_runs
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.near import nearest

_FLAG = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([^\x00-\x1f\x7f]*)")
# CMake itself reads these, whatever the tree says.
_OF_CMAKE = re.compile(r"CMAKE_[A-Z0-9_]+|[A-Za-z0-9_]+_(?:ROOT|DIR)|BUILD_SHARED_LIBS|BUILD_TESTING")


class FlagVerdict(enum.Enum):
    """What becomes of a flag."""

    READ = "read"
    RUN_TIME = "read when it runs"  # by the program, not by its build
    UNREAD = "read by nothing"


class Through(enum.Enum):
    """How a flag reaches what reads it."""

    DEFINE = "-D"
    ENVIRONMENT = "environment"


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
    return Flag(match[1], match[2])


def judge_flag(flag: Flag, source: SourceReads) -> JudgedFlag:
    """A flag against one tree: what reads it there, and through which door it gets in."""
    found = source.of(flag.name)
    if found:
        return JudgedFlag(flag, FlagVerdict.READ, found, (), _door(flag.name, found, source))
    if _OF_CMAKE.fullmatch(flag.name) and source.cmake_files:
        return JudgedFlag(
            flag, FlagVerdict.READ, (Read(flag.name, ReadKind.CACHE, "CMake itself"),), (), Through.DEFINE
        )
    if later := read_when_it_runs(source.root, flag.name):
        return JudgedFlag(flag, FlagVerdict.RUN_TIME, later, (), Through.ENVIRONMENT)
    return JudgedFlag(flag, FlagVerdict.UNREAD, (), near_names(flag.name, source), Through.ENVIRONMENT)


def near_names(name: str, source: SourceReads) -> tuple[str, ...]:
    """Names of the tree that a misspelt one may stand for: what is declared first, plain variables last."""
    declared = dict.fromkeys(each.name for each in source.reads if each.kind is not ReadKind.VARIABLE)
    others = (each for each in source.names if each not in declared and each.isupper())
    return nearest(name, declared, most=3) or nearest(name, others, most=3)


def _door(name: str, found: tuple[Read, ...], source: SourceReads) -> Through:
    """The environment where Python or CMake reads it there, or hands it on to CMake; else -D."""
    if any(read.kind in BY_ENVIRONMENT for read in found):
        return Through.ENVIRONMENT
    handed_on = name.startswith(source.passed.prefixes) if source.passed.prefixes else False
    return Through.ENVIRONMENT if handed_on or name in source.passed.names else Through.DEFINE


def what_reads(judged: JudgedFlag) -> str:
    """In words: 'option of CMakeLists.txt:276' or what else there is to say."""
    if judged.verdict is FlagVerdict.UNREAD:
        near = f"; the nearest that is: {', '.join(judged.near)}" if judged.near else "; and nothing near it either"
        return f"no file of this source reads it{near}"
    first = judged.reads[0]
    if judged.verdict is FlagVerdict.RUN_TIME:
        return f"the build does not read it; the program does when it runs ({first.where})"
    kind = first.kind.value if first.kind in DECLARED else f"read from {first.kind.value}"
    default = f", default {first.default}" if first.default else ""
    return f"{kind}, {first.where}{default}"
