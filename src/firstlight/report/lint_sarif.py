"""The findings of `lint` as SARIF 2.1.0, which GitHub's code scanning and editors read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from firstlight import __version__
from firstlight.diagnosis.finding import Question, Severity
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.lint.written import lines_of, says
from firstlight.report.lint_text import machine_line
from firstlight.secrets import masked

_LEVELS = {Severity.BLOCKS: "error", Severity.DEGRADES: "warning", Severity.NOTE: "note"}
_ADDRESS = re.compile(r"(?:https?://)?[\w-]+(?:\.[\w-]+)+/[^\s,;]*")


def sarif_document(reports: Iterable[LintReport], question: Question) -> dict[str, Any]:
    """One run with every finding of every file; what a comment silences is there as suppressed."""
    reports = tuple(reports)
    given = [(finding, "") for report in reports for finding in report.findings]
    given += [(each.finding, each.reason) for report in reports for each in report.ignored]
    rules = {finding.code: finding for finding, _ in given}
    order = sorted(rules)
    notices = [_notice(sentence, report) for report in reports for sentence in report.not_judged]
    whole = not any(report.unread for report in reports)
    return {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "firstlight",
                        "semanticVersion": __version__,
                        "rules": [_rule(rules[code]) for code in order],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "invocations": [{"executionSuccessful": whole, "toolExecutionNotifications": notices}],
                "properties": {"machine": machine_line(question.facts), "tablesOf": str(question.tables.newest_date())},
                "results": [_result(finding, reason, order) for finding, reason in given],
            }
        ],
    }


def _notice(sentence: str, report: LintReport) -> dict[str, Any]:
    level, what = ("error", "not read") if report.unread else ("note", "not judged")
    return {"level": level, "message": {"text": f"{what}: {masked(sentence)}"}}


def _rule(finding: LintFinding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.code,
        "shortDescription": {"text": _sentence(finding.title)},
        "fullDescription": {"text": _sentence(finding.because)},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
    }
    if (match := _ADDRESS.match(finding.source)) is not None:
        rule["helpUri"] = "https://" + match.group().removeprefix("https://").removeprefix("http://")
    return rule


def _result(finding: LintFinding, reason: str, order: list[str]) -> dict[str, Any]:
    location = {"artifactLocation": {"uri": _uri(finding.file)}, "region": {"startLine": max(finding.line, 1)}}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": order.index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": message_of(finding)},
        "locations": [{"physicalLocation": location}],
    }
    if reason:
        result["suppressions"] = [{"kind": "inSource", "justification": masked(reason)}]
    return result


def message_of(finding: LintFinding) -> str:
    """Title, what was seen and the best answer with its lines, for a reader that shows one text."""
    out = f"{_sentence(finding.title)} Saw: {finding.saw}"
    if finding.answers:
        best = finding.answers[0]
        lines = "".join(f"\n{line}" for line in lines_of(best, finding.syntax))
        out += f"\nDo: {says(best, finding.syntax)}{lines}"
    return masked(out)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _uri(file: str) -> str:
    """A path as a URI: from the folder lint was started in, or file:// where the path is absolute."""
    path = quote(posixpath.normpath(file), safe="/~!$&'()*+,;=@")
    return f"file://{path}" if path.startswith("/") else path
