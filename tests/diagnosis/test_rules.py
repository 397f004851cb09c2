"""Every rule fires on a machine and not on its near-miss; every machine has its right primary cause."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES, rule_named
from firstlight.errors import BadInput
from firstlight.tables import load
from tests.diagnosis.all_cases import CASES
from tests.diagnosis.rule_case import MACHINES, RuleCase, facts_of
from tools.make_rule_pages import PAGES, page_of, pages

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/expected.json"))


def _fires(case: RuleCase, facts: Any) -> bool:
    return any(True for _ in rule_named(case.code).check(Question(facts, TABLES, case.goal, case.wants)))


def test_there_are_at_least_40_rules_with_codes_of_their_own() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) >= 40
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code) for code in codes)


def test_every_rule_has_a_case() -> None:
    assert {rule.code for rule in RULES} - {case.code for case in CASES} == set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}@{case.machine}")
def test_a_rule_fires_on_its_machine_and_not_on_the_near_miss(case: RuleCase) -> None:
    assert _fires(case, case.facts())
    assert not _fires(case, case.near_miss_facts())


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_has_its_expected_findings_and_primary_cause(name: str) -> None:
    expected = json.loads((MACHINES / name / "expected.json").read_text())
    question = Question(facts_of(name), TABLES, Goal(expected.get("goal", "infer")))
    diagnosis = judge(question, RULES)
    assert sorted(finding.code for finding in diagnosis.findings) == expected["findings"]
    assert diagnosis.primary == expected["primary"]


def test_every_machine_says_what_is_expected_of_it() -> None:
    assert {path.parent.name for path in MACHINES.glob("*/machine.json")} == set(NAMES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_words_of_a_rule_are_complete(rule: Any) -> None:
    for words in (rule.title, rule.fires_when, rule.means):
        assert words
        assert words[0].isupper() or words.split()[0].lower() in (
            "torch",
            "nvcc",
            "libcuda",
            "cuinit",
            "vllm",
            "gcc",
        ), words
        assert words.endswith("."), words
        assert "!" not in words
    assert rule.source
    assert rule.looks_at
    known = {each.code for each in RULES}
    assert set(rule.explains) <= known, set(rule.explains) - known
    assert rule.code not in rule.explains


def test_the_facts_a_rule_names_exist() -> None:
    from firstlight.facts.collect import Facts
    from firstlight.records import fact_type, hints, is_fact

    for rule in RULES:
        for place in rule.looks_at:
            kind: Any = Facts
            for part in place.split("."):
                kind = fact_type(kind) if is_fact(kind) else kind
                kind = kind.__args__[0] if getattr(kind, "__origin__", None) is tuple else kind
                kind = fact_type(kind) if is_fact(kind) else kind
                if part.isdigit():
                    continue
                assert part in hints(kind), f"{rule.code}: {place}"
                kind = hints(kind)[part]


def test_an_unknown_code_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(BadInput) as caught:
        rule_named("compat-stail")
    assert "compat-stale" in str(caught.value)


def test_the_pages_of_the_rules_are_current() -> None:
    written = {path.name: path.read_text() for path in Path(PAGES).glob("*.md")}
    assert written == pages(), "run: python -m tools.generate rule-pages"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_shows_the_error_and_a_worked_machine(rule: Any) -> None:
    page = page_of(rule)
    assert "## On a machine" in page
    assert rule.error.splitlines()[0] in page if rule.error else "no error text" in page
