"""A build as a document: schema firstlight.build/1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight.build.case import BuildCase
from firstlight.build.estimate import NO_RATE, compile_seconds
from firstlight.build.fault import Fault
from firstlight.build.keys import engines_shown
from firstlight.build.places import KeptBuild
from firstlight.build.progress import BuildStatus
from firstlight.build.spec import SCHEMA, BuildSpec
from firstlight.build.standing import ended_of, standing_of
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.records import encode

if TYPE_CHECKING:
    from firstlight.report.documents.building import BuildStanding, Estimate


def build_document(
    case: BuildCase, spec: BuildSpec, faults: tuple[Fault, ...], ending: str, rate: Fact[float] = NO_RATE
) -> dict[str, Any]:
    """The plan, its faults and how it ended: planned, refused, done, failed or interrupted."""
    return {
        "schema": SCHEMA,
        "ending": ending,
        "id": spec.id,
        "folder": spec.folder,
        "project": {"name": case.project.name, "version": case.project.version, "backend": case.project.backend.value},
        "commit": spec.commit,
        "edits": list(spec.edits),
        "archs": list(spec.archs),
        "toolkit": spec.toolkit_version,
        "compiler": spec.compiler,
        "flags": [
            {
                "name": each.flag.name,
                "value": each.flag.value,
                "verdict": each.verdict.value,
                "through": each.through.value,
                "read_at": [read.where for read in each.reads],
                "nearest": list(each.near),
            }
            for each in case.judged
        ],
        "needs": encode(case.needs),
        "estimate": _estimate(compile_seconds(case), rate),
        "environment": {each.name: each.value for each in spec.settings},
        "commands": [list(argv) for argv in engines_shown(spec)],
        "faults": [encode(each) for each in faults],
        "local_version": spec.local,
    }


def _estimate(seconds: Fact[float], rate: Fact[float]) -> Estimate:
    """Minutes and money before anything is measured; null where they cannot be told, with the reason as basis."""
    if isinstance(seconds, Unknown):
        return {"minutes": None, "money": None, "basis": seconds.reason}
    spent = round(seconds.value / 3600 * rate.value, 2) if isinstance(rate, Known) else None
    return {"minutes": round(seconds.value / 60, 1), "money": spent, "basis": seconds.seen_in}


def ended_document(spec: BuildSpec, rate: Fact[float]) -> dict[str, Any]:
    """What a build that was carried out has to show: the wheel, its proofs, what compiling took and cost."""
    ended = ended_of(spec)
    spent = round(ended.minutes / 60 * rate.value, 2) if isinstance(rate, Known) else None
    return {"wheel": ended.wheel, "proofs": list(ended.proofs), "minutes": ended.minutes, "money": spent}


def status_document(build: KeptBuild | None, status: BuildStatus | None) -> BuildStanding:
    return {
        "schema": SCHEMA,
        "status": None if status is None else {**encode(status), "alive": status.alive},
        "standing": None if build is None else standing_of(build).value,
    }
