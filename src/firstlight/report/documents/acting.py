"""The documents of `apply`, `undo`, `emit` and `ship`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.apply.account import State
from firstlight.apply.outcome import Ending
from firstlight.diagnosis.finding import Goal
from firstlight.emit.kinds import NAMES
from firstlight.report.documents.words import Command, Count, Digest, Sha256
from firstlight.ship.deciding import Engine, Gpus


class Seconds(TypedDict):
    expected: float | None
    actual: float


class ExpectedSeconds(TypedDict):
    expected: float | None


class ExpectedBytes(TypedDict):
    expected: int | None


class ActualBytes(TypedDict):
    actual: int | None


class Money(TypedDict):
    expected: float | None
    actual: float | None


class StepDone(TypedDict):
    """A step as it was carried out."""

    id: str
    title: str
    kind: str
    state: Annotated[str, State]
    saw: str
    seconds: Seconds
    download_bytes: ExpectedBytes
    disk_bytes: ActualBytes  # How much less room is free than before, whoever used it.
    money: Money


class StepToDo(TypedDict):
    """A step that was not begun."""

    id: str
    title: str
    kind: str
    holds_already: bool | None  # null: of another machine, whose state is not known here
    needs_root: bool
    commands: list[Command]
    files: list[str]  # Paths that are written, changed or removed; undo puts them back from their backups.
    undo: list[Command]
    seconds: ExpectedSeconds
    download_bytes: ExpectedBytes


class PersonsStep(TypedDict):
    """A step that only a person can do."""

    id: str
    title: str
    commands: list[Command]
    lines: list[str]  # What is written into a file elsewhere, e.g. into a Dockerfile.
    note: str


class CauseSeen(TypedDict):
    """A cause by its code in `firstlight explain`."""

    code: str
    title: str
    cause: str


class FailureSeen(TypedDict):
    """What failed, and how it ended."""

    message: str
    argv: Command
    tail: list[str]  # The last lines that the command printed.
    log: str
    explained: list[CauseSeen]  # What `firstlight explain` says of these lines.


class ApplyDocument(TypedDict):
    schema: str
    made_by: str
    ending: Annotated[str, Ending]
    option: str
    title: str
    digest: str  # SHA-256 over the steps that firstlight does itself.
    run: int | None  # The number in the journal; null where nothing was written.
    resumed: list[int]  # Interrupted runs that were finished first.
    journal: str
    steps: list[StepDone]  # What was done; empty where nothing was, e.g. with --dry-run.
    to_do: list[
        StepToDo
    ]  # What firstlight would do itself, e.g. with --dry-run; empty once `steps` says what was done.
    left_out: list[str]  # Optional steps that were not asked for.
    by_a_person: list[PersonsStep]
    waiting: list[str]  # Steps that build on what a person has to do.
    failure: FailureSeen | None
    verify: dict[str, Any] | None  # A document of schema firstlight.verify/1; null where verify was not run.


class StepOfRun(TypedDict):
    id: str
    title: str
    changed: bool


class RunSeen(TypedDict):
    """A run in the journal."""

    number: int
    at: str
    state: Annotated[str, {"enum": ["done", "interrupted", "taken back", "being taken back, interrupted"]}]
    option: str
    title: str
    digest: str
    steps: list[StepOfRun]


class UndoDocument(TypedDict):
    schema: str
    made_by: str
    ending: Annotated[str, Ending]
    run: RunSeen | None
    left: int  # Runs that can still be taken back.
    journal: str
    runs: list[RunSeen]  # With --list: every run, newest first.
    failure: FailureSeen | None


class EmittedTarget(TypedDict):
    machine: Annotated[str, {"enum": ["x86_64", "aarch64"]}]
    python: str
    glibc: str


class EmittedPackages(TypedDict):
    index: str  # "" = the index that pip is set to.
    requirements: Annotated[list[str], {"minItems": 1}]


class EmittedCompat(TypedDict):
    package: str
    cuda: str
    branches: list[int]


class EmittedGates(TypedDict):
    """What a machine must have; null where a torch without CUDA asks nothing."""

    torch: str
    wheel_cuda: str | None
    min_driver: str | None
    min_driver_alone: str | None
    compat_branches: list[int]
    min_cuda: str | None
    allowed_cuda: list[str]
    require_cuda: str
    architectures: list[str]
    capabilities: list[str]
    # The oldest Jetson Linux; null where no Jetson has the processor. There the driver's number says nothing.
    min_jetson_linux: str | None
    reasons: list[str]


class EmittedText(TypedDict):
    name: str
    mode: Annotated[str, {"pattern": "^0[0-7]{3}$"}]
    sha256: Sha256
    text: str


class EmittedName(TypedDict):
    name: str
    sha256: Sha256
    bytes: int


class EmitDocument(TypedDict):
    schema: str
    made_by: str
    kind: Annotated[str, {"enum": list(NAMES)}]
    made_for: str
    wants: list[str]
    goal: Annotated[str, Goal]
    option: str
    digest: Sha256  # SHA-256 of the plan's steps as JSON.
    target: EmittedTarget
    packages: Annotated[list[EmittedPackages], {"minItems": 1}]
    compat: Annotated[list[EmittedCompat], {"maxItems": 1}]
    gates: EmittedGates
    files: Annotated[list[EmittedText], {"minItems": 1}]
    # Files of firstlight itself that are written as they are (kit); their text is in every installation.
    sources: list[EmittedName]
    # firstlight's own wheel, which the files install; null: an index is to have it, or nothing here installs it.
    wheel: EmittedName | None
    notes: list[str]


class EmitBuildDocument(TypedDict):
    schema: str
    made_by: str
    kind: Annotated[str, {"enum": ["bash", "dockerfile"]}]
    target: str
    options: list[str]  # Of `firstlight build`, as they stand in the files.
    files: Annotated[list[EmittedText], {"minItems": 1}]
    wheel: EmittedName  # firstlight's own, which the files install.
    sdist: EmittedName | None  # The source, where it was brought along.
    notes: list[str]


class ShippedBlob(TypedDict):
    digest: Digest
    kind: Annotated[str, {"enum": ["manifest", "config", "layer"]}]
    bytes: Count
    bytes_there: Count
    sent_again: bool


class ShippedRoom(TypedDict):
    mount: str
    bytes_free: Count
    bytes_needed: Count


class ShippedProof(TypedDict):
    ran: bool
    why_not: str
    gpus: Annotated[str, Gpus]
    brought_bytes: int  # Of a firstlight that was not in the image and was brought; 0 where none was.
    exit_code: int | None
    said: Annotated[list[str], {"maxItems": 200}]


class ShipDocument(TypedDict):
    schema: str
    image: str
    host: str
    name: str
    folder: str
    engine: Annotated[str, Engine]
    dry_run: bool
    there_already: bool
    manifest_digest: Digest
    config_digest: Digest
    bytes_total: Count
    bytes_unpacked: Count
    bytes_to_send: Count
    bytes_skipped: Count
    bytes_sent: Count
    bytes_on_wire: Count
    blobs: list[ShippedBlob]
    room: list[ShippedRoom]
    verify: ShippedProof | None
    exit_code: Annotated[int, {"enum": [0, 1]}]
