"""The document of `libs`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.apply.account import State
from firstlight.apply.outcome import Ending
from firstlight.elf.version_gaps import VersionGap
from firstlight.libraries.analysis import CudaMajor, Loaded, OtherCopy
from firstlight.libraries.closing import ComesFrom, Loading
from firstlight.libraries.target import TargetKind

# A number with where it is from, or null with why it is not known.
Amount = TypedDict("Amount", {"value": int | None, "from": str})


class LibsTarget(TypedDict):
    kind: Annotated[str, TargetKind]
    title: str
    place: str
    arch: Annotated[str, {"enum": ["x86_64", "aarch64"]}]
    site: str
    opened: list[list[str]]  # Each: files opened one after another in one process.
    skipped: list[str]


class ProvidedBy(TypedDict):
    """The package that has a missing library."""

    project: str
    requirement: str
    version: str
    folder: str  # Under site-packages.
    path: str
    bytes: int | None
    from_pin: bool
    installed: str  # The version that is installed; empty for none.


class MissingName(TypedDict):
    """A library that the loader does not find or accept, and how it comes here."""

    name: str
    requested_by: list[str]
    damaged: str  # The file at which the loader stops; empty where nothing is found at all.
    fault: str  # What the loader says of that file, e.g. file too short; empty where nothing is found at all.
    way: Annotated[str, ComesFrom]
    provided: ProvidedBy | None
    loading: Annotated[str, Loading]
    link: str
    package: str
    reason: str


class BroughtAlong(TypedDict):
    project: str
    requirement: str
    version: str
    bytes: int | None
    required_by: str
    installed: str


class ElsewherePackage(TypedDict):
    name: str
    package: str
    origin: str
    folder: str


class ShadowedName(TypedDict):
    """A library of which there are several, and the one that wins."""

    name: str
    wins: Annotated[dict[str, str], OtherCopy]
    others: list[OtherCopy]
    requested_by: str
    exchanged: bool  # A variable put the winner before the package's own.


class IgnoredPreload(TypedDict):
    name: str
    fault: str  # What the loader says of the file; empty where there is none.


class FixStep(TypedDict):
    id: str
    title: str
    kind: str
    state: Annotated[str, State]
    saw: str
    seconds: float


class LoadedFile(TypedDict):
    name: str
    path: str


class LoadProof(TypedDict):
    what: str
    ok: bool
    error: str
    loaded: list[LoadedFile]


class FixFailure(TypedDict):
    message: str
    tail: list[str]
    log: str


class FixDone(TypedDict):
    """What came of --fix."""

    ending: Annotated[str, Ending]
    runs: list[int]  # Numbers in the journal, oldest first; `firstlight undo` takes them back, newest first.
    taken_back: list[int]  # Runs that failed and were undone at once.
    download_bytes: Amount
    steps: list[FixStep]
    proofs: list[LoadProof]  # What loading for real in a child process gave.
    left: list[str]  # Names that are missing still.
    failure: FixFailure | None


class LibsDocument(TypedDict):
    schema: str
    made_by: str
    target: LibsTarget
    sound: bool  # The loader finds and accepts everything.
    cuda_major: Amount
    missing: list[MissingName]
    brought: list[BroughtAlong]  # Packages that the chosen ones require.
    elsewhere: list[ElsewherePackage]  # Packages of NVIDIA's own channels with the same libraries.
    download_bytes: Amount
    version_gaps: list[Annotated[dict[str, Any], VersionGap]]
    stubs: list[Loaded]
    cuda_majors: list[CudaMajor]  # Empty unless there are two or more.
    shadowed: list[ShadowedName]
    not_judged: list[str]  # Of the system, for another arch than this machine's.
    preloaded: list[str]  # Files that torch opens by path from Python.
    preload_ignored: list[IgnoredPreload]  # Of LD_PRELOAD and /etc/ld.so.preload: the loader goes on without them.
    loaded: list[Loaded]
    fix: FixDone | None  # null without --fix
