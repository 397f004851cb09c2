"""What the tests of lint share: machines in words or recorded ones, and the findings of a text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from firstlight.diagnosis.finding import Question
from firstlight.emit.imagined import parse_machine
from firstlight.lint.judge import Given, lint
from firstlight.lint.rule import LintFinding
from firstlight.lint.written import lines_of
from firstlight.tables import Tables, load
from tests.diagnosis.rule_case import MACHINES, facts_of

H100_550, H100_580 = "H100, driver 550", "H100, driver 580.95.05"
FILES = Path(__file__).parent / "files"


@cache
def tables() -> Tables:
    return load()


@cache
def machine(name: str) -> Question:
    """A recorded machine by its folder's name, else one in words."""
    recorded = (MACHINES / name / "machine.json").exists()
    return Question(facts_of(name) if recorded else parse_machine(name, tables()), tables())


def found(
    text: str, on: str = H100_580, *, file: str = "Dockerfile", beside: dict[str, str] | None = None
) -> tuple[LintFinding, ...]:
    """The findings of a Dockerfile, or of a compose file where the name ends in .yml."""
    others = beside or {}
    return lint(Given(file, text), machine(on), read=others.get).findings


def written(finding: LintFinding) -> tuple[str, ...]:
    """The lines to paste, of all answers."""
    return tuple(line for answer in finding.answers for line in lines_of(answer, finding.syntax))


def codes(text: str, on: str = H100_580, *, file: str = "Dockerfile") -> set[str]:
    return {finding.code for finding in found(text, on, file=file)}
