"""A run of `verify` as a JSON document (schema firstlight.verify/1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.records import encode
from firstlight.verify.check import Evidence, Report, Result
from firstlight.verify.verdict import exit_code, summary

if TYPE_CHECKING:
    from firstlight.report.documents.measuring import ResultSeen, VerifyDocument

SCHEMA = "firstlight.verify/1"


def verify_document(report: Report) -> VerifyDocument:
    """The document, schema first."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "started_at": report.started_at,
        "seconds": round(report.seconds, 3),
        "machine": report.machine,
        "place": report.place,
        "interpreter": report.interpreter,
        "has_gpu": report.has_gpu,
        "asked": list(report.asked),
        "exit_code": exit_code(report),
        "summary": list(summary(report)),
        "results": [_result(result) for result in report.results],
        "features": encode(report.features),
        "require_file": report.require_file or None,
        "requirements": encode(report.requirements),
    }


def _result(result: Result) -> ResultSeen:
    return {
        "check": result.check,
        "title": result.title,
        "outcome": result.outcome.value,
        "says": result.says,
        "do": list(result.do),
        "evidence": [{"what": each.what, "value": _value(each)} for each in result.evidence],
        "command": list(result.command),
        "seconds": round(result.seconds, 3),
        "stderr": result.stderr,
    }


def _value(evidence: Evidence) -> str | int | float | bool:
    value = evidence.value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no NaN
