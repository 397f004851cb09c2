"""tests/machines/<name>/options.json: what is found, every option with its ways, and what is found after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.document import read_machine_or_facts
from firstlight.plan.options import Request, rank_options
from firstlight.report.options_json import options_document
from firstlight.tables import load
from tools.generate import as_json

MACHINES = Path(__file__).parents[1] / "tests" / "machines"
NAMES = tuple(sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))


def made() -> dict[Path, str]:
    """The file of every recorded machine."""
    return {stored_in(name): as_json(derived(name)) for name in NAMES}


def stored_in(name: str) -> Path:
    return MACHINES / name / "options.json"


def derived(name: str) -> dict[str, Any]:
    """The options of a machine for the goal that its expected.json names, nothing wanted by name."""
    facts = read_machine_or_facts(str(MACHINES / name))
    goal = Goal(json.loads((MACHINES / name / "expected.json").read_text())["goal"])
    question = Question(facts, load(), goal)
    diagnosis = judge(question, RULES)
    document = {**options_document(rank_options(question, diagnosis, Request(goal=goal)))}
    del document["made_by"]  # a new version alone changes nothing
    return {"goal": goal.value, "before": [_found(each) for each in diagnosis.findings], **document}


def _found(finding: Finding) -> dict[str, str]:
    return {"code": finding.code, "severity": finding.severity.value, "caused_by": finding.caused_by}
