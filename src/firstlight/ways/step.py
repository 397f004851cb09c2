"""A step is data: what runs, why, how we know it worked, how to take it back."""

from __future__ import annotations

import enum

from firstlight.facts.known import Fact
from firstlight.frozen import dataclass
from firstlight.ways.back import Back, argv_of


class StepKind(enum.Enum):
    """What carries a step out; `apply` has one backend for each."""

    PIP = "pip"
    UV = "uv"
    BUILD = "build"  # from source, by `firstlight build`, which pip-installs the wheel at its end
    VENV = "venv"
    APT = "apt"
    ARCHIVE = "archive"  # a download with a checksum, unpacked into a folder
    GIT = "git"  # a checkout at a commit
    FILE = "file"  # a file written, changed or removed, with a backup
    PROJECT = "project"  # an edit of pyproject.toml or pixi.toml
    COMPAT = "compat"  # the loader wired at start
    COMMAND = "command"  # the running machine: modules, services, the settings of a GPU, a container engine
    LIBRARIES = "libraries"  # what `firstlight libs --fix` does; its own steps once the machine was read
    TUNING = "tuning"  # optional settings of the runtime
    MANUAL = "manual"  # a person does it elsewhere: another machine, a reboot, a provider's page


class CheckKind(enum.Enum):
    """What a condition looks at."""

    FILE_EXISTS = "file-exists"
    FILE_HOLDS = "file-holds"  # the file's text is exactly `expected`
    FILE_ABSENT = "file-absent"
    FILE_HAS_LINE = "file-has-line"
    FILE_LACKS_LINE = "file-lacks-line"
    LINK = "link"  # `target` is a symbolic link to `expected`, which is there
    DISTRIBUTIONS = "distributions"  # name==version, with * for any part, or name, in the environment of `target`
    DISTRIBUTIONS_ABSENT = (
        "distributions-absent"  # none of these names is in the environment of `target`, or its `folder`
    )
    APT_PACKAGE = "apt-package"  # in the version `expected`, with * for any part
    APT_ABSENT = "apt-absent"
    GIT_COMMIT = "git-commit"
    COMMAND = "command"  # `argv` exits 0
    ONCE = "once"  # never holds beforehand, always after the commands ended well
    PERSON = "person"  # only a person can tell


@dataclass(frozen=True, slots=True)
class Condition:
    """When a step is done: looked at before (skip) and after (prove)."""

    kind: CheckKind
    target: str  # a path, a package, an interpreter
    expected: str = ""  # a line, a version, a commit, requirements separated by newlines
    argv: tuple[str, ...] = ()
    folder: str = ""  # of distributions-absent: there alone, e.g. among a user's own packages; others may lie elsewhere


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after; "" before = it does not exist, `removes` = it does not exist afterwards.

    With `links_to` a symbolic link is made where nothing is yet; both texts are empty then.
    """

    path: str
    before: str
    after: str
    removes: bool = False
    mode: int = 0o644
    takes_out: tuple[str, ...] = ()  # folders that LD_LIBRARY_PATH loses by it; all else that the file sets stays
    variables: tuple[str, ...] = ()  # that a shell file sets or unsets by it; all others stay
    unread: bool = False  # a file that may be there and was not read: the lines are put behind what it has
    links_to: str = ""  # what the link holds, e.g. /opt/venv/lib/python3.12/site-packages/nvpl/lib/libnvpl_blas.so.0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done, e.g. install cuda-compat-13-0."""

    id: str  # stable within a plan, e.g. 02-install-cuda-compat-13-0
    kind: StepKind
    title: str
    because: str  # the code of the finding, or the want
    commands: tuple[tuple[str, ...], ...]  # exact argv, in order
    files: tuple[FileChange, ...]
    needs_root: bool
    done_when: tuple[Condition, ...]
    back: tuple[Back, ...]  # how it is taken back; files are put back from their backups without any of these
    seconds: Fact[float]
    bytes: Fact[int]
    optional: bool = False
    note: str = ""  # what a reader must know, e.g. that a shell must be opened anew
    lines: tuple[str, ...] = ()  # of a person's step: what is written into a file elsewhere, e.g. into a Dockerfile
    awaited: bool = False  # of a person's step: what comes behind it waits until it is done

    @property
    def undo(self) -> tuple[tuple[str, ...], ...]:
        """What takes it back as commands for a reader; `apply` carries out `back`."""
        return tuple(argv_of(each) for each in self.back)
