"""A run of `verify` as a JSON document (schema firstlight.verify/1)."""

from __future__ import annotations

import math
from typing import Any

from firstlight import __version__
from firstlight.verify.check import Evidence, FeatureResult, Report, RequirementResult, Result
from firstlight.verify.verdict import exit_code, summary

SCHEMA = "firstlight.verify/1"


def verify_document(report: Report) -> dict[str, Any]:
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
        "features": [_feature(row) for row in report.features],
        "require_file": report.require_file or None,
        "requirements": [_requirement(row) for row in report.requirements],
    }


def _result(result: Result) -> dict[str, Any]:
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


def _feature(row: FeatureResult) -> dict[str, Any]:
    return {
        "feature": row.feature,
        "title": row.title,
        "state": row.state.value,
        "saw": row.saw,
        "is_so": row.is_so,
        "source": row.source,
    }


def _requirement(row: RequirementResult) -> dict[str, Any]:
    return {
        "requirement": row.requirement,
        "needed": row.needed,
        "given": row.given,
        "met": row.met.value,
        "line": row.line,
    }
