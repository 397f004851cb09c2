"""What `libs` found and did, as a JSON document (schema firstlight.libs/1)."""

from __future__ import annotations

from firstlight.apply.account import Taken
from firstlight.apply.outcome import Ending, Failure
from firstlight.facts.known import Fact, Known, value_or
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis, Shadow
from firstlight.libraries.closing import Closing, Need
from firstlight.libraries.proof import Proof
from firstlight.libraries.providers import Provided
from firstlight.report.documents.libraries import (
    Amount,
    BroughtAlong,
    ElsewherePackage,
    FixDone,
    FixFailure,
    FixStep,
    IgnoredPreload,
    LibsDocument,
    LibsTarget,
    LoadProof,
    MissingName,
    ProvidedBy,
    ShadowedName,
)
from firstlight.report.documents.making import headed, shown
from firstlight.report.explain_text import printable

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
    return headed(
        LibsDocument,
        LIBS,
        analysis,
        target=shown(LibsTarget, analysis.target, opened=analysis.target.openings),
        cuda_major=_amount(closing.cuda_major),
        missing=[_need(need) for need in closing.needs],
        brought=[shown(BroughtAlong, each, bytes=value_or(each.bytes, None)) for each in closing.brought],
        elsewhere=[shown(ElsewherePackage, each, name=each.soname) for each in closing.elsewhere],
        download_bytes=_amount(closing.download_bytes),
        version_gaps=[gap._asdict() for gap in analysis.gaps],
        cuda_majors=analysis.majors,
        shadowed=[_shadow(each) for each in analysis.shadows],
        preload_ignored=[shown(IgnoredPreload, each) for each in analysis.ignored],
        fix=next((_fixed(each) for each in fixed), None),
    )


def _amount(fact: Fact[int]) -> Amount:
    if isinstance(fact, Known):
        return {"value": fact.value, "from": fact.seen_in}
    return {"value": None, "from": fact.reason}


def _shadow(each: Shadow) -> ShadowedName:
    return shown(ShadowedName, each, wins={"path": each.path, "rule": each.rule.value, "entry": each.entry})


def _need(need: Need) -> MissingName:
    missing = {name: getattr(need.missing, name) for name in ("name", "requested_by", "damaged", "fault")}
    return shown(MissingName, need, provided=next(map(_provided, need.provided), None), **missing)


def _provided(each: Provided) -> ProvidedBy:
    return shown(ProvidedBy, each, bytes=value_or(each.bytes, None))


def _fixed(fixed: Fixed) -> FixDone:
    return shown(
        FixDone,
        fixed,
        download_bytes=_amount(fixed.download_bytes),
        steps=[
            shown(FixStep, each.step, state=each.state, saw=each.saw, seconds=round(each.seconds, 3))
            for each in fixed.taken
        ],
        proofs=[
            shown(
                LoadProof,
                each,
                error=printable(each.error),
                loaded=[{"name": name, "path": path} for name, path in each.loaded],
            )
            for each in fixed.proofs
        ],
        failure=next(map(_failure, fixed.failure), None),
    )


def _failure(failure: Failure) -> FixFailure:
    tail = [printable(line) for line in failure.tail]
    return {"message": printable(failure.message), "tail": tail, "log": failure.log}
