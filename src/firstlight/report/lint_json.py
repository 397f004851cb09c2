"""The findings of `lint` as a JSON document (schema firstlight.lint/3)."""

from __future__ import annotations

from collections.abc import Iterable

from firstlight import __version__
from firstlight.diagnosis.finding import Question
from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.lint.written import lines_of, says
from firstlight.report.documents.files import LineFinding, LintAnswer, LintDocument, LintedFile
from firstlight.report.documents.making import shown
from firstlight.report.lint_text import machine_line
from firstlight.report.ways_json import way_document
from firstlight.secrets import masked
from firstlight.ways.way import Chain

SCHEMA = "firstlight.lint/3"


def lint_document(reports: Iterable[LintReport], question: Question) -> LintDocument:
    """The document, schema first; files as they were given, findings in the order of the lines."""
    reports = tuple(reports)
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "tables_of": str(question.tables.newest_date()),
        "machine": machine_line(question.facts),
        "blocked": any(report.blocked for report in reports),
        "files": [_file(report) for report in reports],
    }


def _file(report: LintReport) -> LintedFile:
    return {
        "file": report.file,
        "kind": "" if report.syntax is None else report.syntax.value,
        "not_judged": list(map(masked, report.not_judged)),
        "findings": [_finding(finding) for finding in report.findings],
        "ignored": [{**_finding(each.finding), "reason": masked(each.reason)} for each in report.ignored],
    }


def _finding(finding: LintFinding) -> LineFinding:
    answers = [_answer(answer, finding.syntax) for answer in finding.answers]
    return shown(LineFinding, finding, saw=masked(finding.saw), answers=answers)


def _answer(answer: Chain, syntax: Syntax) -> LintAnswer:
    return {
        "says": says(answer, syntax),
        "ways": [way_document(way) for way in answer.ways],
        "lines": list(lines_of(answer, syntax)),
    }
