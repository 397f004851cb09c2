"""Machines of every platform, rebuilt from public threads, with what a person who knows such machines expects.

They were written before the code that they test, by somebody who had not seen the rules.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firstlight.diagnosis.finding import Diagnosis, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.document import replay
from firstlight.plan.options import rank_options
from firstlight.plan.request import Ranked, Request
from firstlight.tables import load
from tools.machines.reconstruction import Reconstruction

EXPECTED = Path(__file__).parent / "expected"
TABLES = load()
Make = Callable[[], Reconstruction]


@dataclass(frozen=True)
class Case:
    """One machine, its near-miss, and what is expected of both."""

    name: str
    make: Make
    near_miss: Make
    expected: dict[str, Any]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Judged:
    """A machine with its findings and options."""

    facts: Facts
    diagnosis: Diagnosis
    ranked: Ranked
    document: dict[str, Any]


def all_cases() -> tuple[Case, ...]:
    """Every machine of every file of expectations, in the order of names."""
    found = []
    for path in sorted(EXPECTED.glob("*.json")):
        module = importlib.import_module(f"tools.machines.{path.stem}")
        near = {make.__name__.removesuffix("_near_miss"): make for make in module.NEAR_MISSES}
        named = {make().name: make for make in module.MACHINES}
        for name, expected in json.loads(path.read_text()).items():
            make = named[name]
            found.append(Case(name, make, near[make.__name__], expected))
    return tuple(found)


@cache
def judged(make: Make) -> Judged:
    """What is found on a machine and planned for it, once for all tests."""
    document = make().document()
    facts = replay(document, "")
    question = Question(facts, TABLES, Goal.INFER)
    diagnosis = judge(question, RULES)
    return Judged(facts, diagnosis, rank_options(question, diagnosis, Request()), document)
