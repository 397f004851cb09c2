"""What `libs` found and did, as a JSON document (schema firstlight.libs/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.apply.account import Taken
from firstlight.apply.outcome import Ending, Failure
from firstlight.facts.known import Fact, Known, value_or
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis, Shadow
from firstlight.libraries.closing import Closing, Need
from firstlight.libraries.proof import Proof
from firstlight.libraries.providers import Provided
from firstlight.records import encode
from firstlight.report.explain_text import printable

if TYPE_CHECKING:
    from firstlight.report.documents.libraries import (
        Amount,
        FixDone,
        FixFailure,
        LibsDocument,
        MissingName,
        ProvidedBy,
        ShadowedName,
    )

LIBS = "firstlight.libs/1"


@dataclass(frozen=True, slots=True)
class Fixed:
    """What came of --fix."""

    ending: Ending
    runs: tuple[int, ...]  # numbers in the journal, oldest first
    taken: tuple[Taken, ...]
    download_bytes: Fact[int]  # as told before it was asked
    proofs: tuple[Proof, ...]
    left: tuple[str, ...]  # names that are missing still
    failure: tuple[Failure, ...] = ()
    taken_back: tuple[int, ...] = ()  # runs that failed and were undone at once


def libs_document(analysis: Analysis, closing: Closing, fixed: tuple[Fixed, ...]) -> LibsDocument:
    """The document, schema first; `fix` is null without --fix."""
    target = analysis.target
    return {
        "schema": LIBS,
        "made_by": f"firstlight {__version__}",
        "target": {
            "kind": target.kind.value,
            "title": target.title,
            "place": target.place,
            "arch": target.arch,
            "site": target.site,
            "opened": [list(opening) for opening in target.openings],
            "skipped": list(target.skipped),
        },
        "sound": analysis.sound,
        "cuda_major": _amount(closing.cuda_major),
        "missing": [_need(need) for need in closing.needs],
        "brought": [
            {
                "project": each.project,
                "requirement": each.requirement,
                "version": each.version,
                "bytes": value_or(each.bytes, None),
                "required_by": each.required_by,
                "installed": each.installed,
            }
            for each in closing.brought
        ],
        "elsewhere": [
            {"name": each.soname, "package": each.package, "origin": each.origin, "folder": each.folder}
            for each in closing.elsewhere
        ],
        "download_bytes": _amount(closing.download_bytes),
        "version_gaps": [gap._asdict() for gap in analysis.gaps],
        "stubs": encode(analysis.stubs),
        "cuda_majors": encode(analysis.majors),
        "shadowed": [_shadow(each) for each in analysis.shadows],
        "not_judged": list(analysis.not_judged),
        "preloaded": list(analysis.preloaded),
        "preload_ignored": [{"name": each.name, "fault": each.fault} for each in analysis.ignored],
        "loaded": encode(analysis.loaded),
        "fix": next((_fixed(each) for each in fixed), None),
    }


def _amount(fact: Fact[int]) -> Amount:
    if isinstance(fact, Known):
        return {"value": fact.value, "from": fact.seen_in}
    return {"value": None, "from": fact.reason}


def _shadow(each: Shadow) -> ShadowedName:
    return {
        "name": each.name,
        "wins": {"path": each.path, "rule": each.rule.value, "entry": each.entry},
        "others": encode(each.others),
        "requested_by": each.requested_by,
        "exchanged": each.exchanged,
    }


def _need(need: Need) -> MissingName:
    return {
        "name": need.missing.name,
        "requested_by": list(need.missing.requested_by),
        "damaged": need.missing.damaged,
        "fault": need.missing.fault,
        "way": need.way.value,
        "provided": next(map(_provided, need.provided), None),
        "loading": need.loading.value,
        "link": need.link,
        "package": need.package,
        "reason": need.reason,
    }


def _provided(each: Provided) -> ProvidedBy:
    return {
        "project": each.project,
        "requirement": each.requirement,
        "version": each.version,
        "folder": each.folder,
        "path": each.path,
        "bytes": value_or(each.bytes, None),
        "from_pin": each.from_pin,
        "installed": each.installed,
    }


def _fixed(fixed: Fixed) -> FixDone:
    return {
        "ending": fixed.ending.value,
        "runs": list(fixed.runs),
        "taken_back": list(fixed.taken_back),
        "download_bytes": _amount(fixed.download_bytes),
        "steps": [
            {
                "id": each.step.id,
                "title": each.step.title,
                "kind": each.step.kind.value,
                "state": each.state.value,
                "saw": each.saw,
                "seconds": round(each.seconds, 3),
            }
            for each in fixed.taken
        ],
        "proofs": [
            {
                "what": each.what,
                "ok": each.ok,
                "error": printable(each.error),
                "loaded": [{"name": name, "path": path} for name, path in each.loaded],
            }
            for each in fixed.proofs
        ],
        "left": list(fixed.left),
        "failure": next(map(_failure, fixed.failure), None),
    }


def _failure(failure: Failure) -> FixFailure:
    tail = [printable(line) for line in failure.tail]
    return {"message": printable(failure.message), "tail": tail, "log": failure.log}
