"""The documents of `build`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.build.backend import Backend
from firstlight.build.fault import Fault
from firstlight.build.flags import FlagVerdict, Through
from firstlight.build.needs import Needs
from firstlight.build.spec import Stage
from firstlight.build.standing import Standing
from firstlight.report.documents.words import Command, Count


class ProjectBuilt(TypedDict):
    name: str
    version: str
    backend: Annotated[str, Backend]


class FlagJudged(TypedDict):
    name: str
    value: str
    verdict: Annotated[str, FlagVerdict]
    through: Annotated[str, Through]
    read_at: list[str]
    nearest: list[str]


class Estimate(TypedDict):
    """Before anything is measured; null where it cannot be told."""

    minutes: float | None
    money: float | None
    basis: str


class BuildPlan(TypedDict):
    """A plan, its faults, and where nothing was begun."""

    schema: str
    id: str
    folder: str
    project: ProjectBuilt
    commit: str
    edits: list[str]
    archs: list[str]
    toolkit: str
    compiler: str
    flags: list[FlagJudged]
    needs: Needs
    estimate: Estimate
    environment: dict[str, str]
    commands: list[Command]
    faults: list[Fault]
    local_version: str


class BuildPlanned(BuildPlan):
    """A plan."""

    ending: Annotated[str, {"enum": ["planned", "refused"]}]


class BuildEnded(BuildPlan):
    """A plan, and how it ended."""

    ending: Annotated[str, {"enum": ["declined", "done", "failed", "interrupted"]}]
    wheel: str  # "" where none was made
    proofs: list[str]
    minutes: Annotated[float, {"minimum": 0}]  # of compiling, as measured, in all runs that this build took
    money: Annotated[float | None, {"minimum": 0}]  # minutes at --rate; null without it


class StatusShown(TypedDict):
    """One look at a build."""

    id: str
    stage: Annotated[str, Stage]
    process: Count
    process_start: str
    begun_at: Annotated[float, {"minimum": 0}]
    changed_at: Annotated[float, {"minimum": 0}]  # when a unit last ended
    written_at: Annotated[float, {"minimum": 0}]
    done: Count
    total: Count
    jobs: Count
    seconds_left: Annotated[int, {"minimum": -1}]  # -1 = not known yet
    basis: str
    memory_bytes: Count  # of all compilers now together
    worst_bytes: Count
    worst_unit: str
    running: list[str]
    log: str
    alive: bool


class BuildStanding(TypedDict):
    """build --status"""

    schema: str
    status: Annotated[dict[str, Any], StatusShown] | None
    standing: Annotated[str, Standing] | None


class BuildKept(BuildStanding):
    """A build that is kept here."""

    id: str
    target: str
    folder: str
    bytes: Count


class BuildList(TypedDict):
    """build --list"""

    schema: str
    builds: list[BuildKept]
