"""On every platform: the right cause, words and commands of that platform, and nothing that is wrong there."""

from __future__ import annotations

from collections import Counter

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.explain_here import shown_here
from firstlight.diagnosis.finding import Goal, Question
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.plan.steps import steps_for
from firstlight.report.doctor_text import Length, WaysOut, doctor_text
from firstlight.report.layout import plain
from firstlight.report.options_text import TOP, options_list
from firstlight.ways.extras import Extras
from firstlight.ways.platform import platform_of
from tests.diagnosis.test_explain_answers import ELIDED
from tests.platforms.cases import TABLES, Case, Judged, all_cases, judged

CASES = all_cases()
_FEWEST_OF_A_KIND = 3
_ELSEWHERE = ("other", "wsl1")  # what is none of the families, and what has no GPU at all


def _screen(seen: Judged) -> str:
    """What doctor prints, on one line."""
    options = seen.ranked.options
    question = Question(seen.facts, TABLES, Goal.INFER)
    steps = steps_for(question, options[0], Extras()) if options else ()
    out = WaysOut()
    if seen.diagnosis.primary:
        out = WaysOut(tuple(options_list(seen.ranked, tuple(steps), most=TOP)), options[0].because if options else ())
    return " ".join(plain(doctor_text(seen.facts, seen.diagnosis, Length.SCREEN, out)).split())


def _first_option(seen: Judged) -> str:
    question = Question(seen.facts, TABLES, Goal.INFER)
    options = seen.ranked.options
    shown = options_list(seen.ranked, tuple(steps_for(question, options[0], Extras())), most=1) if options else ()
    return " ".join(plain(shown).replace(" \\\n", " ").split())  # a long command goes on below


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cause_is_found_and_the_first_option_is_the_one_of_that_platform(case: Case) -> None:
    seen, expected = judged(case.make), case.expected
    assert seen.diagnosis.blocked == expected["blocked"]
    assert (seen.diagnosis.primary or "") == expected["code"], expected["primary"]
    assert (seen.ranked.options[0].id if seen.ranked.options else "") == expected["option"], expected["first_option"]
    first = _first_option(seen).lower()
    assert [word for word in expected["first_option_contains"] if word.lower() not in first] == []


def test_every_expectation_says_what_the_first_option_has() -> None:
    assert [case.name for case in CASES if not case.expected["first_option_contains"]] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_said_that_is_wrong_there(case: Case) -> None:
    for make, words in (
        (case.make, case.expected["must_not_say"]),
        (case.near_miss, case.expected["near_miss_must_not_say"]),
    ):
        screen = _screen(judged(make)).lower()
        assert [word for word in words if word.lower() in screen] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_near_miss_is_judged_otherwise(case: Case) -> None:
    near = judged(case.near_miss)
    assert near.diagnosis.blocked == case.expected["near_miss_blocked"], case.expected["near_miss"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_option_leaves_no_blocker_or_it_is_said_why_none_can(case: Case) -> None:
    seen = judged(case.make)
    if seen.diagnosis.blocked and not case.expected["why_no_option"]:
        assert seen.ranked.options, "no option at all"
        assert seen.ranked.options[0].stays == ()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_explain_is_led_back_to_doctors_finding_by_every_text_that_doctor_quotes(case: Case) -> None:
    diagnosis = judged(case.make).diagnosis
    primary = diagnosis.primary
    for finding in [each for each in diagnosis.findings if primary and primary in (each.code, each.caused_by)]:
        text = finding.error
        for elided, real in ELIDED:
            text = text.replace(elided, real)
        if text:
            found = shown_here(explain_text(text), diagnosis)
            assert [each.code for each in found[:1]] == [primary], text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_platform_is_named(case: Case) -> None:
    assert _kinds(judged(case.make).facts) == case.expected["platform"]


def _kinds(facts: Facts) -> dict[str, str]:
    platform = platform_of(facts)
    rootless = platform.container is ContainerKind.PODMAN and platform.rootless
    container = f"{platform.container.value}{'-rootless' if rootless else ''}"
    return {"family": platform.family.value, "container": container, "guest": platform.guest.value}


@pytest.mark.parametrize("kind", ["family", "container", "guest"])
def test_there_are_machines_of_every_kind(kind: str) -> None:
    counts = Counter(case.expected["platform"][kind] for case in CASES)
    rare = {name: count for name, count in counts.items() if count < _FEWEST_OF_A_KIND and name not in _ELSEWHERE}
    assert rare == {}, "at least three of each, so that one machine is not the rule"
