"""What linting works with: a target, a question about one machine, rules, and the findings they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.frozen import dataclass
from firstlight.lint.model import Place, Target


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing a rule saw, on a line, and what to do about it; `because` and `severity` where this case differs."""

    place: Place
    saw: str
    do: tuple[str, ...] = ()
    because: str = ""
    error: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class LintRule:
    """A pure function and the words around it."""

    code: str  # stable, names the fault: torch-needs-newer-driver
    check: Callable[[Target, Question], Iterator[Seen]]
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
    do: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings of a file in the order of its lines."""

    file: str
    findings: tuple[LintFinding, ...]
    not_judged: tuple[str, ...] = ()  # what could not be read, e.g. a requirements file that is not there

    @property
    def blocked(self) -> bool:
        return any(finding.severity is Severity.BLOCKS for finding in self.findings)
