"""The findings of `lint` as a JSON document (schema firstlight.lint/1)."""

from __future__ import annotations

from typing import Any

from firstlight import __version__
from firstlight.diagnosis.finding import Question
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.report.lint_text import machine_line

SCHEMA = "firstlight.lint/1"


def lint_document(report: LintReport, question: Question) -> dict[str, Any]:
    """The document, schema first; findings in the order of the lines."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "tables_of": str(question.tables.newest_date()),
        "file": report.file,
        "machine": machine_line(question.facts),
        "blocked": report.blocked,
        "not_judged": list(report.not_judged),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: LintFinding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "file": finding.file,
        "line": finding.line,
        "target": finding.target,
        "title": finding.title,
        "saw": finding.saw,
        "because": finding.because,
        "error": finding.error,
        "do": list(finding.do),
        "source": finding.source,
    }
