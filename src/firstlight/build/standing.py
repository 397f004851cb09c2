"""Where a build stands when nobody is at work on it, by what its stages wrote down."""

from __future__ import annotations

import enum
import os
from contextlib import suppress

from firstlight.build.fetching import source_holds
from firstlight.build.keys import done_record, finished_wheel, holds
from firstlight.build.places import KeptBuild
from firstlight.build.spec import BuildSpec, Stage, read_document, write_document
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook, FirstlightError
from firstlight.frozen import dataclass

_FAILED = "failed.json"


class Standing(enum.Enum):
    """How far a build came."""

    NOT_FETCHED = "not fetched"
    FETCHED = "fetched"
    BEGUN = "begun"
    TARGET = "its one target is compiled"
    WHEEL = "built, not installed"
    PROVED = "built, installed and proved"


ENDED = (Standing.TARGET, Standing.WHEEL, Standing.PROVED)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a build that ended well has to show."""

    wheel: str
    proofs: tuple[str, ...]
    minutes: float  # of compiling, as measured
    units: int


def standing_of(build: KeptBuild) -> Standing:
    """How far a build came; that it ended well is looked at again, not remembered."""
    if not source_holds(build.source, Stage.FETCH):
        return Standing.NOT_FETCHED
    spec = build.spec
    if spec is None or not done_record(spec, Stage.CONFIGURE):
        return Standing.FETCHED
    if spec.only:
        return Standing.TARGET if holds(spec, Stage.COMPILE) else Standing.BEGUN
    if not holds(spec, Stage.PROVE):
        return Standing.BEGUN
    return Standing.WHEEL if spec.wheel_only else Standing.PROVED


def ended_of(spec: BuildSpec) -> Ended:
    """The wheel, its proofs and what compiling took; empty where a stage is not done."""
    compiled, proved = done_record(spec, Stage.COMPILE), done_record(spec, Stage.PROVE)
    proofs, minutes, units = proved.get("proofs"), compiled.get("minutes"), compiled.get("units")
    return Ended(
        finished_wheel(spec),
        tuple(str(each) for each in proofs) if isinstance(proofs, list) else (),
        float(minutes) if isinstance(minutes, (int, float)) else 0.0,
        units if isinstance(units, int) else 0,
    )


def write_failure(folder: str, stage: Stage, error: FirstlightError) -> None:
    """Keep why a stage failed, for whoever started it: a process hands back nothing but a number."""
    write_document(folder, _FAILED, {"stage": stage.value, "exit_code": error.exit_code, "reason": str(error)})


def forget_failure(folder: str) -> None:
    """A stage begins anew: why it failed before is no longer so."""
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{_FAILED}")


def read_failure(folder: str, stage: Stage) -> FirstlightError | None:
    """Why a stage failed the last time, as the error it was."""
    document = read_document(f"{folder}/{_FAILED}")
    if not isinstance(document, dict) or document.get("stage") != stage.value:
        return None
    kinds = {BadInput.exit_code: BadInput, CouldNotLook.exit_code: CouldNotLook}
    return kinds.get(document.get("exit_code", 0), CouldNotAct)(str(document.get("reason", "")))
