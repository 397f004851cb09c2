"""The answer of `bench check-claim` as plain text and as a JSON document (schema firstlight.claim/1)."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.claim import Claim, ClaimJudgement, Number
from firstlight.bench.results import Bound
from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.measuring import ClaimDocument, Claimed, Counted
from firstlight.report.layout import labelled

SCHEMA = "firstlight.claim/1"
_LABEL = 11
_VERDICTS = {
    True: "can be true",
    False: "cannot be true as stated",
    None: "not refused, but not judged in full",
}


def claim_text(claim: Claim, judgement: ClaimJudgement) -> str:
    """The claim, the verdict, what is wrong, and what the number means when it is counted right."""
    verdict = _VERDICTS[judgement.can_be_true]
    out = labelled("claim", [_claim_line(claim)], label_width=_LABEL)
    out += labelled("verdict", [f"{verdict}."], label_width=_LABEL)
    if claim.peaks.note:
        out += labelled("note", [f"{claim.peaks.note}."], label_width=_LABEL)
    for remark in judgement.remarks:
        out += labelled(remark.kind.value, [remark.text], label_width=_LABEL)
    out += labelled("counted", list(_counted_lines(claim, judgement)), label_width=_LABEL)
    return out


def claim_document(claim: Claim, judgement: ClaimJudgement) -> ClaimDocument:
    """The document, schema first; a number that was not given is null, and so is a verdict that was not reached."""
    told = {name: _value(getattr(claim, name)) for name in ("ms", "tflops", "gbps")}
    peaks = {"gpu": claim.peaks.name or None, "peaks": claim.peaks.source}
    rates = {name: getattr(judgement, name) for name in ("time_s", "tflops", "gbps", "limit")}
    return headed(
        ClaimDocument,
        SCHEMA,
        judgement,
        claim=shown(Claimed, claim, link=claim.link or None, saturates=bool(claim.saturates), **peaks, **told),
        counted=shown(Counted, claim.work, **rates),
    )


def _claim_line(claim: Claim) -> str:
    numbers = ((claim.ms, "ms"), (claim.tflops, "TFLOPS"), (claim.gbps, "GB/s"))
    said = ", ".join(f"{number.text} {unit}" for number, unit in numbers if number is not None)
    where = claim.link if claim.held_against == "link" and claim.link else claim.peaks.name
    dtype = "" if claim.held_against == "link" else f" {claim.dtype}"
    limit = ", at the limit" if claim.saturates else ""
    return f"{claim.case} {claim.shape}{dtype}{f' on {where}' if where else ''}: {said}{limit}"


def _counted_lines(claim: Claim, judgement: ClaimJudgement) -> Iterator[str]:
    work, limit = claim.work, judgement.limit
    if work.flops:
        digits = f"{work.flops / 1e9:,.1f}" if work.flops >= 1e10 else f"{work.flops / 1e9:.4g}"
        yield f"work: {digits} GFLOP ({work.flops_model}), at least {_mb(work.bytes)}"
        if work.dense_flops != work.flops:
            yield f"without the mask it would be {work.dense_flops / 1e9:,.1f} GFLOP"
    else:
        yield f"work: {_mb(work.bytes)}"
    rates = [f"{judgement.tflops:.4g} TFLOPS"] if work.flops else []
    yield f"in {judgement.time_s * 1e3:.4g} ms: {', '.join([*rates, f'{judgement.gbps:,.4g} GB/s'])}"
    if limit.pct_spec is not None and claim.held_against == "link":
        yield f"{limit.pct_spec:.1f} % of the link"
    elif limit.pct_spec is not None:
        compute = limit.bound is Bound.COMPUTE and limit.pct_max_clock is not None
        top = f", {limit.pct_max_clock:.1f} % of it at the highest clock" if compute else ""
        yield f"bound by {limit.bound.value}: {limit.pct_spec:.1f} % of the datasheet's limit{top}"


def _mb(count: int) -> str:
    return f"{count / 1e9:,.3f} GB" if count >= 10**9 else f"{count / 1e6:,.1f} MB"


def _value(number: Number | None) -> float | None:
    return None if number is None else number.value
