"""What can be asked of a machine. Every answer can be written down and replayed; no question changes anything."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from firstlight.frozen import dataclass

TEXT_LIMIT = 1 << 20
COMMAND_TIMEOUT_S = 5.0
CHILD_TIMEOUT_S = 10.0
_SPECIAL = {"*", "?", "["}
TOO_MANY_LINKS = "too many symbolic links"  # what why_not says of a link that leads in a circle


class Outcome(enum.Enum):
    """How a command ended."""

    EXITED = "exited"
    NOT_FOUND = "not found"
    NOT_ALLOWED = "not allowed"
    TIMED_OUT = "timed out"
    TOO_MUCH_OUTPUT = "too much output"
    KILLED = "killed by a signal"
    NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that was run: how it ended, its exit status and its (capped) output."""

    argv: tuple[str, ...]
    outcome: Outcome
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.EXITED and self.status == 0

    @property
    def first_line(self) -> str:
        return self.stdout.strip().partition("\n")[0].strip()

    @property
    def complaint(self) -> str:
        """Why it is not ok, in a few words: 'nvidia-smi: timed out after 5 s'."""
        name = self.argv[0]
        if self.outcome is not Outcome.EXITED:
            return f"{name}: {self.outcome.value}"
        said = (self.stderr.strip() or self.stdout.strip()).partition("\n")[0].strip()
        return f"{name}: exit status {self.status}" + (f", {said[:200]}" if said else "")


@dataclass(frozen=True, slots=True)
class Stat:
    """What stat(2) tells of a path (links followed), plus whether we may write there."""

    kind: str  # "file", "folder", "device", "socket", "other"
    size: int
    mode: int
    uid: int
    gid: int
    inode: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Disk:
    """Space on the file system that holds a path."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Host:
    """Who and where we are: names are pseudonyms in every document unless --identify is given."""

    hostname: str
    user: str
    home: str
    cwd: str
    uid: int
    kernel_release: str
    arch: str  # x86_64, aarch64
    python_version: str  # of the Python that runs firstlight
    python_executable: str
    python_prefix: str
    python_base_prefix: str
    now: str  # 2026-11-15T02:38:25Z


@dataclass(frozen=True, slots=True)
class ChildScript:
    """A Python script run in a child process; prints one JSON object. `name` is its key in a recording."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """What a child script printed, or why there is nothing: `complaint` is empty when it answered."""

    answer: Mapping[str, object]
    complaint: str

    @property
    def ok(self) -> bool:
        return not self.complaint


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that a shell's pattern stands for; one with a single * costs no regular expression."""
    head, star, tail = pattern.partition("*")
    if star and not _SPECIAL & {*head, *tail}:
        least = len(head) + len(tail)
        return [name for name in names if len(name) >= least and name.startswith(head) and name.endswith(tail)]
    import fnmatch

    return fnmatch.filter(names, pattern)


def every_name(name: str) -> bool:
    """Keeps every name: what `list` does unless it is told otherwise."""
    return True


Digest = Callable[["Machine"], "tuple[str, ...] | None"]


class Machine(Protocol):
    """A machine that can be looked at. Paths are absolute. Nothing here raises for what the machine lacks."""

    @property
    def host(self) -> Host: ...

    def env(self, name: str) -> str | None:
        """The value of an environment variable of this process, None when unset."""

    def read(self, path: str, *, limit: int = TEXT_LIMIT, until: str = "") -> str | None:
        """Text of a regular file, at most `limit` bytes, cut before `until` where that occurs; None: see why_not."""

    def read_bytes(self, path: str, *, offset: int = 0, size: int = TEXT_LIMIT) -> bytes | None:
        """`size` bytes from `offset` (fewer at the end of the file); None: see why_not."""

    def search(self, path: str, pattern: bytes, *, limit: int = 8) -> tuple[bytes, ...] | None:
        """The first `limit` matches of a bytes regex in a (large) file; None: see why_not."""

    def digest(self, path: str, name: str, work: Digest) -> tuple[str, ...] | None:
        """What `work` makes of a (large) file, under a name, e.g. 'GPU code'; None where it cannot tell.

        A recording keeps these few texts and none of the bytes that they were made from.
        """

    def why_not(self, path: str) -> str:
        """Why read gave None: 'no such file', 'permission denied', 'not in this recording'."""

    def list(self, path: str, pattern: str = "*", *, keep: Callable[[str], bool] = every_name) -> tuple[str, ...]:
        """Sorted names in a folder that match a shell pattern and `keep`; () when there is no such folder.

        A recording holds only the names that were kept, so `keep` is also how private names stay out of it.
        """

    def stat(self, path: str) -> Stat | None:
        """What is at a path, links followed; None when nothing is."""

    def real_path(self, path: str) -> str:
        """The path with every symbolic link resolved; the path itself when it does not exist."""

    def disk(self, path: str) -> Disk | None:
        """Space on the file system that holds the path."""

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command (never a shell string), bounded in time and output; `keep`: a regex for stdout lines."""

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        """Run a Python script in a bare child interpreter (-I -S) and parse the one JSON object it prints.

        sys.stdout of the script is a pipe of its own: what libraries print on fd 1 is no part of the answer.
        `env` adds to the environment. The recording keeps one answer per script name.
        """


def which(machine: Machine, name: str) -> str | None:
    """The first executable of that name on PATH, as the shell would find it; links not resolved."""
    for folder in (machine.env("PATH") or "").split(":"):
        if folder.startswith("/"):
            path = f"{folder.rstrip('/')}/{name}"
            found = machine.stat(path)
            if found is not None and found.kind == "file" and found.mode & 0o111:
                return path
    return None
