"""Words that the tests about building have in common: a check on a machine, the machine with something changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Goal, Question, Seen
from firstlight.facts.build_variables import BuildVariable
from firstlight.facts.collect import Facts
from firstlight.facts.compilers import ChosenCompiler, NumberedGcc, Tool
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.tables import load
from tests.diagnosis.rule_case import facts_of

TABLES = load()
BUILD = Goal.BUILD_EXTENSIONS
Check = Callable[[Question], Iterator[Seen]]


def seen(check: Check, facts: Facts, goal: Goal = BUILD) -> list[Seen]:
    return list(check(Question(facts, TABLES, goal)))


def changed(machine: str, *settings: str) -> Facts:
    return override(facts_of(machine), settings)


def with_variables(facts: Facts, **variables: str) -> Facts:
    return replace(facts, build_variables=tuple(BuildVariable(name, value) for name, value in variables.items()))


def with_compilers(facts: Facts, *found: object) -> Facts:
    """The compilers replaced: Tools on PATH, ChosenCompilers, NumberedGccs."""
    compilers = replace(
        facts.compilers,
        compilers=tuple(each for each in found if isinstance(each, Tool)),
        chosen=tuple(each for each in found if isinstance(each, ChosenCompiler)),
        numbered=tuple(each for each in found if isinstance(each, NumberedGcc)),
    )
    return replace(facts, compilers=compilers)


def tool(name: str, version: str) -> Tool:
    return Tool(name, f"/usr/bin/{name}", Known(version, f"/usr/bin/{name} -dumpversion"))


def chosen(variable: str, path: str, version: str) -> ChosenCompiler:
    return ChosenCompiler(variable, path, Known(path, variable), Known(version, path))
