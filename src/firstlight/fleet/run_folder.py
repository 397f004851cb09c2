"""The folder of a run: run.json, per host what came of it, and the lock of whoever works on it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from firstlight import __version__
from firstlight.errors import AnotherIsActing, BadInput
from firstlight.fleet.run import FleetRun, HostOutcome, Kept, Verb, run_document, run_of
from firstlight.frozen import dataclass
from firstlight.owned import open_ours, our_folder, read_ours

_RUN, _LOCK = "run.json", "lock"
MADE_BY = f"firstlight {__version__}"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A run that cannot be read, or that another user could have written, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where all runs lie: the folder `fleet` of the state folder."""

    path: str

    def folder(self, run_id: str) -> str:
        return f"{self.path}/{run_id}"

    def ids(self) -> tuple[str, ...]:
        """Every run, newest first: an id begins with its time."""
        try:
            with our_folder(self.path), os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return ()
        return tuple(name for name in sorted(names, reverse=True) if os.path.exists(f"{self.path}/{name}/{_RUN}"))

    def runs(self, verb: Verb) -> Iterator[FleetRun]:
        """Those of a verb, newest first; `every` tells of those that cannot be read."""
        return (run for run in self.every() if isinstance(run, FleetRun) and run.verb is verb)

    def every(self) -> Iterator[FleetRun | Damaged]:
        """All runs, newest first, also those of which nothing can be said."""
        for run_id in self.ids():
            try:
                yield self.read(run_id)
            except BadInput as error:
                yield Damaged(run_id, str(error))

    def forget_unbegun(self, run_id: str) -> None:
        """Take the folder away where no run was written to it: only a refused call was there."""
        if not os.path.lexists(f"{self.folder(run_id)}/{_RUN}"):
            shutil.rmtree(self.folder(run_id), ignore_errors=True)

    def read(self, run_id: str) -> FleetRun:
        """A run by its id; only one that this user or root wrote, because what it says is carried out on hosts."""
        path = self.folder(run_id)
        if "/" in run_id or run_id.startswith("."):
            raise BadInput(f"{run_id!a} is not a run; accepted is an id as `firstlight fleet status --list` prints it")
        try:
            with our_folder(path) as folder:
                text = read_ours(folder, _RUN)
        except FileNotFoundError:
            raise BadInput(f"there is no run {run_id!a}; `firstlight fleet status --list` prints all of them") from None
        try:
            return run_of(json.loads(text), path)
        except (ValueError, RecursionError):
            raise BadInput(f"{path}/{_RUN} is not JSON; move the folder away, or give another run") from None

    def made(self, run_id: str) -> str:
        """The folder of a run, made where it is not there; BadInput with what to set where it cannot be."""
        path = self.folder(run_id)
        try:
            with our_folder(path, make=0o700):
                return path
        except OSError as error:
            raise BadInput(
                f"{path}: the run cannot be kept there ({error.strerror}); set FIRSTLIGHT_STATE_DIR to a folder that "
                "you can write to"
            ) from None

    def write(self, run: FleetRun) -> None:
        """Keep it; a kill in the middle leaves the one of before."""
        path = self.made(run.id)
        _write(f"{path}/{_RUN}", json.dumps(run_document(run, made_by=MADE_BY, folder=path), indent=1))

    def keep(self, run: FleetRun, outcome: HostOutcome) -> None:
        """What a host sent, in a folder of its own name; an empty part leaves what is there."""
        path = f"{self.folder(run.id)}/hosts/{file_name(outcome.host.name)}"
        os.makedirs(path, mode=0o700, exist_ok=True)
        parts = ((f"{run.verb.value}.json", outcome.document), ("journal.jsonl", outcome.journal), ("log", outcome.log))
        measured = ((each.name, each.text) for each in outcome.measured)
        for name, text in (*parts, *measured):
            if text:
                _write(f"{path}/{name}", text)

    def keep_beside(self, run: FleetRun, files: Iterable[Kept]) -> None:
        """Files that belong to the run and to no host, e.g. the baseline that its GPUs are held against."""
        for each in files:
            _write(f"{self.folder(run.id)}/{each.name}", each.text)

    @contextmanager
    def held(self, run: FleetRun) -> Iterator[None]:
        """The run for this process alone; AnotherIsActing says who has it and since when."""
        with our_folder(self.made(run.id)) as folder:
            handle = open_ours(folder, _LOCK, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "somebody"
                raise AnotherIsActing(
                    f"run {run.id} is in use by somebody else: {said}. Wait until that has ended; "
                    "`firstlight fleet status` shows how far it is."
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{operator()} since {now()}, process {os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)


def new_id() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def operator() -> str:
    """Who acts, for those who meet it: user@machine."""
    import pwd

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def file_name(host: str) -> str:
    """A host's name as a name of a file: root@pod:22 stays readable, a slash or a leading dot cannot be in it."""
    safe = "".join(letter if letter.isalnum() or letter in "_.-@:" else "_" for letter in host)
    return f"_{safe[1:]}" if safe.startswith(".") else safe


def _write(path: str, text: str) -> None:
    handle = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(f"{path}.part", path)
