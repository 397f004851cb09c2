"""The findings of `lint` as GitHub's workflow commands, which put them at their lines in a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstlight.diagnosis.finding import Severity
from firstlight.lint.rule import LintReport
from firstlight.report.lint_sarif import message_of
from firstlight.secrets import masked
from firstlight.visible import visible

_LEVELS = {Severity.BLOCKS: "error", Severity.DEGRADES: "warning", Severity.NOTE: "notice"}
# What actions/toolkit escapes in a message, and besides in a property: src/command.ts, escapeData and escapeProperty.
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github_text(reports: Iterable[LintReport]) -> str:
    """One line for each finding: ::error file=Dockerfile,line=3,title=torch-needs-newer-driver::..."""
    return "".join(f"{line}\n" for report in reports for line in _lines(report))


def _lines(report: LintReport) -> Iterator[str]:
    for finding in report.findings:
        properties = {"file": finding.file, "line": str(finding.line), "title": finding.code}
        named = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
        yield f"::{_LEVELS[finding.severity]} {named}::{_escaped(message_of(finding), _DATA)}"
    for sentence in report.not_judged:
        title = "error title=not read" if report.unread else "notice title=not judged"
        yield f"::{title}::{_escaped(masked(sentence), _DATA)}"


def _escaped(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(char, char) for char in visible(text))
