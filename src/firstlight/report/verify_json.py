"""A run of `verify` as a JSON document (schema firstlight.verify/1)."""

from __future__ import annotations

import math

from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.measuring import ResultSeen, VerifyDocument
from firstlight.verify.check import Evidence, Report, Result
from firstlight.verify.verdict import exit_code, summary

SCHEMA = "firstlight.verify/1"


def verify_document(report: Report) -> VerifyDocument:
    """The document, schema first."""
    return headed(
        VerifyDocument,
        SCHEMA,
        report,
        seconds=round(report.seconds, 3),
        exit_code=exit_code(report),
        summary=summary(report),
        results=[_result(result) for result in report.results],
        require_file=report.require_file or None,
    )


def _result(result: Result) -> ResultSeen:
    evidence = [{"what": each.what, "value": _value(each)} for each in result.evidence]
    return shown(ResultSeen, result, evidence=evidence, seconds=round(result.seconds, 3))


def _value(evidence: Evidence) -> str | int | float | bool:
    value = evidence.value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no NaN
