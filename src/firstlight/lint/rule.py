"""What linting works with: a target, a question about one machine, rules, and the findings they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from firstlight.diagnosis.finding import Question, Severity
from firstlight.frozen import dataclass
from firstlight.lint.model import Place, Syntax, Target
from firstlight.ways.way import Chain


@dataclass(frozen=True, slots=True)
class SeenAt:
    """One thing a rule saw, on a line, and the answers, best first; `because`, `severity` where this case differs."""

    place: Place
    saw: str
    answers: tuple[Chain, ...] = ()
    because: str = ""
    error: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class LintRule:
    """A pure function and the words around it."""

    code: str  # stable, names the fault: torch-needs-newer-driver
    check: Callable[[Target, Question], Iterator[SeenAt]]
    severity: Severity
    title: str
    because: str
    error: str  # what the user meets later; "" where nothing is printed
    source: str


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A rule that fired on a line."""

    code: str
    severity: Severity
    file: str
    line: int
    target: str  # stage or service; "" where there is one only
    title: str
    saw: str
    because: str
    error: str
    answers: tuple[Chain, ...]
    source: str
    syntax: Syntax = Syntax.DOCKERFILE  # of the file, which decides how answers are written


@dataclass(frozen=True, slots=True)
class Ignored:
    """A finding that a comment in the file silences, and why."""

    finding: LintFinding
    reason: str


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings of a file in the order of its lines."""

    file: str
    findings: tuple[LintFinding, ...]
    not_judged: tuple[str, ...] = ()  # what could not be read, e.g. a requirements file that is not there
    ignored: tuple[Ignored, ...] = ()
    syntax: Syntax | None = None  # what it was read as; None where it could not be read
    idle: tuple[LintFinding, ...] = ()  # what is not said, since something worse comes before it

    @property
    def unread(self) -> bool:
        """Whether the file could not be read at all: `not_judged` says why."""
        return self.syntax is None

    @property
    def blocked(self) -> bool:
        return self.has(Severity.BLOCKS)

    def has(self, *severities: Severity) -> bool:
        """Whether a finding is of one of these."""
        return any(finding.severity in severities for finding in self.findings)


def without_repeated(reports: Sequence[LintReport]) -> list[LintReport]:
    """The reports with each finding once: a Dockerfile that a compose file builds is judged for both."""
    own = {
        (each.code, each.file, each.line) for report in reports for each in report.findings if each.file == report.file
    }

    def is_kept(finding: LintFinding, report: LintReport) -> bool:
        return finding.file == report.file or (finding.code, finding.file, finding.line) not in own

    return [
        replace(report, findings=tuple(each for each in report.findings if is_kept(each, report))) for report in reports
    ]
