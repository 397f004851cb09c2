"""On every machine: what the answers install, hold and start is called as the table of its own family has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import value_or
from firstlight.tables import load
from firstlight.ways import kinds
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import roles_of
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.platforms.cases import Case, all_cases, judged

TABLES = load()
NAMES = sorted(path.name for path in MACHINES.iterdir() if (path / "machine.json").exists())


def _names(way: Way) -> tuple[str, ...]:
    match way:
        case kinds.InstallPackages() | kinds.InstallDriver() | kinds.RemovePackages() | kinds.HoldPackages():
            return way.packages
        case kinds.BuildModules():
            return (way.headers,) if way.headers else ()
        case kinds.StartService():
            return (way.unit,)
        case kinds.EnrolKey():
            return (way.key,)
    return ()


def _lie_here(facts: Facts) -> set[str]:
    """Names that were read on the machine itself: what is removed or held is called as it lies there."""
    compat = {value_or(each.package, "") for each in facts.compat}
    owners = {each.package for each in value_or(facts.library_owners, ())}
    return {*value_or(facts.driver.packages, ()), *compat, *owners, value_or(facts.fleet.boot.key_file, "")}


def _unknown(facts: Facts, goal: Goal) -> Iterator[str]:
    platform = platform_of(facts)
    patterns = {name for row in TABLES.system_name_rows if row.family is platform.family for name in row.names}
    here = _lie_here(facts) | {each for each in patterns if "*" in each}  # e.g. of what is removed, of any branch
    findings = judge(Question(facts, TABLES, goal=goal), RULES).findings
    for finding in findings:
        for answer in finding.answers:
            for name in (name for way in answer.ways for name in _names(way)):
                if name not in here and not roles_of(name, platform, TABLES):
                    yield f"{finding.code}: {name} on {platform.family.value} {platform.release}"


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_missing_from_the_table_of_its_own_family(name: str) -> None:
    facts = facts_of(name)
    assert not [each for goal in (Goal.INFER, Goal.BUILD_EXTENSIONS) for each in _unknown(facts, goal)]


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_no_name_of_a_platform_is_missing_from_the_table_of_its_own_family(case: Case) -> None:
    for make in (case.make, case.near_miss):
        assert not [*_unknown(judged(make).facts, Goal.INFER)]
