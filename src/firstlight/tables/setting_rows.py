"""Rows about runtime settings (who reads which environment variable) and source trees at a commit."""

from enum import Enum

from firstlight.tables.row import Row, row_class


class SettingReader(Enum):
    """Who reads a variable when a program runs; BUILD: only a compilation does; NOBODY: nothing at all."""

    TORCH = "torch"
    NCCL = "nccl"
    CUDA = "cuda"
    CUBLAS = "cublas"
    BUILD = "build"
    NOBODY = "nobody"


@row_class(frozen=True, slots=True, kw_only=True)
class RuntimeSetting(Row):
    """One environment variable: CUDA_MODULE_LOADING, read by CUDA since 11.7, takes LAZY or EAGER."""

    name: str
    read_by: SettingReader
    since: str  # as its maker says; "" = not said
    seen_in: tuple[str, ...]  # versions of the reader whose files hold the name
    does: str
    accepts: tuple[str, ...]  # patterns, one of which a value matches as a whole
    accepted: str  # the same in words
    suggested: str  # what `--tuning all` writes; "" = nothing
    instead: str  # of a name that nobody reads: the one that is meant; "" = none
    slows: str = ""  # the value with which programs are slower, where the maker says so; "" = none is known


@row_class(frozen=True, slots=True, kw_only=True)
class SourceTag(Row):
    """The commit of a release: cutlass v4.2.1 is f3fde583..."""

    project: str
    tag: str
    commit: str
    address: str
