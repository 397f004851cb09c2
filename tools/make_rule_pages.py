"""docs/rules: one page a rule, from the rule's own words and a machine that shows it."""

from __future__ import annotations

import shlex
from pathlib import Path

from firstlight.diagnosis.finding import Question, Rule
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.report.doctor_text import answers_text, finding_text
from firstlight.report.layout import plain
from firstlight.tables import load
from firstlight.ways.platform import platform_of
from tests.diagnosis.all_cases import CASES

PAGES = Path(__file__).parents[1] / "docs" / "rules"


def made() -> dict[Path, str]:
    """Every page with its place; no other file is in that folder."""
    return {PAGES / name: text for name, text in pages().items()}


def pages() -> dict[str, str]:
    """File name -> text of every page, the list of rules included."""
    return {"README.md": _list(), **{f"{rule.code}.md": page_of(rule) for rule in RULES}}


def page_of(rule: Rule) -> str:
    """The page of one rule, with the finding it gives on its machine."""
    case = next(case for case in CASES if case.code == rule.code)
    facts = case.facts()
    diagnosis = judge(Question(facts, load(), case.goal, case.wants), RULES)
    finding = diagnosis.of(rule.code)
    assert finding is not None, rule.code
    shown = plain(finding_text(finding)) + answers_text(finding.answers, platform_of(facts))
    goals = "".join(f"; {severity.value} when the goal is {goal.value}" for goal, severity in rule.for_goals)
    error = f"```text\n{rule.error}\n```" if rule.error else "There is no error text: nothing fails at once."
    words = [word for fact in case.near_miss for word in ("--set", fact)] if isinstance(case.near_miss, tuple) else []
    near = shlex.join(words)
    near_line = f"With `{near}` it does not fire.\n" if near else "The tests hold a near-miss of it.\n"
    every = "" if rule.code == diagnosis.primary else " --all"
    wants = "".join(f' --want "{want}"' for want in case.wants)
    explains = "".join(f"- [{code}]({code}.md)\n" for code in rule.explains)
    return (
        f"# {rule.code}\n\n{rule.title}\n\n"
        f"Severity: {rule.severity.value}{goals}.\n\n## When it fires\n\n{rule.fires_when}\n\n"
        f"## What it means\n\n{rule.means}\n\n## The error\n\n{error}\n\n"
        f"## On a machine\n\n`firstlight doctor{every} --facts tests/machines/{case.machine}"
        f"{'' if case.goal.value == 'infer' else ' --goal ' + case.goal.value}{wants}`\n\n"
        f"```text\n{shown}```\n\n{near_line}\n"
        f"## Behind it\n\nFacts: {', '.join(f'`{place}`' for place in rule.looks_at)}.\n"
        f"Source: {rule.source}\n"
        + (f"\nSymptoms folded under it when both are found:\n\n{explains}" if explains else "")
    )


def _list() -> str:
    rows = "".join(
        f"| [{rule.code}]({rule.code}.md) | {rule.severity.value} | {rule.title} |\n"
        for rule in sorted(RULES, key=lambda each: each.depth)
    )
    return (
        "# Rules\n\nWhat `firstlight doctor` can find, the most basic causes first. "
        "`firstlight doctor --explain-rule CODE` prints the same on the command line.\n\n"
        f"| code | severity | what is wrong |\n|---|---|---|\n{rows}"
    )
