"""The home folder of a plan is one folder: what one step makes there, the next finds at that path."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.plan.options import rank_options
from firstlight.plan.request import Ranked, Request
from firstlight.plan.steps import steps_for
from firstlight.plan.want import parse_want
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import MakeEnvironment
from firstlight.ways.step import CheckKind, Step
from tests.plan.planning import NAMES, question_of, ranked_of

_GOALS = (Goal.INFER, Goal.BUILD_EXTENSIONS)
_HOME = "/data/homes/somebody"  # no home that a machine of the tests has, nor one that could be guessed
_PYTHON = re.compile(r"(/.+)/bin/python[\d.]*")
_NEEDS_OTHER_PYTHON = "torch==2.1.0+cu121"
_WITH_USERS = ("h100-driver-570", "h200-compat-first", "uv-lock-would-undo", "a100-faulty-memory")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_step_uses_an_earlier_step_made_at_that_very_path_or_it_is_there(name: str) -> None:
    for goal in _GOALS:
        _hold(question_of(name, goal), ranked_of(name, goal))


@pytest.mark.parametrize("name", _WITH_USERS)
def test_an_environment_of_another_python_is_filled_where_it_was_made(name: str) -> None:
    question = question_of(name)
    ranked = rank_options(question, judge(question, RULES), Request(wants=(parse_want(_NEEDS_OTHER_PYTHON),)))
    assert any(isinstance(way, MakeEnvironment) for option in ranked.options for way in option.ways)
    _hold(question, ranked)


def _hold(question: Question, ranked: Ranked) -> None:
    """No tilde that no shell reads, no home that was guessed, no interpreter that nobody made."""
    for option in ranked.options:
        steps = steps_for(question, option, Extras(home=_HOME))
        assert not [word for step in steps for word in _words(step) if word.startswith("~")], option.id
        assert not [*_guessed(question, steps)], option.id
        assert not [*_never_made(question.facts, steps)], option.id


def _words(step: Step) -> Iterator[str]:
    """Every argument and path of a step, its conditions and its way back included."""
    yield from (word for argv in (*step.commands, *step.undo) for word in argv)
    yield from (change.path for change in step.files)
    for each in step.done_when:
        yield from (*each.argv, each.target) if each.kind is not CheckKind.PERSON else each.argv


def _guessed(question: Question, steps: tuple[Step, ...]) -> Iterator[str]:
    """Paths in the home that would be guessed, under a folder that the machine does not show."""
    guess, facts = Extras().home_for(question.facts), repr(question.facts)
    for word in {word for step in steps for word in _words(step)}:
        if word.startswith(f"{guess}/") and f"{guess}/{word[len(guess) + 1 :].partition('/')[0]}" not in facts:
            yield word


def _never_made(facts: Facts, steps: tuple[Step, ...]) -> Iterator[str]:
    """Interpreters of environments that neither the machine has nor an earlier step made."""
    there = {each.prefix for each in facts.python.environments}
    there |= {
        found[1]
        for each in facts.python.environments
        if isinstance(each.interpreter, Known) and (found := _PYTHON.fullmatch(each.interpreter.value))
    }
    for step in steps:
        there |= {argv[-1] for argv in step.commands if "venv" in argv}
        for word in (*(word for argv in step.commands for word in argv), *(each.target for each in step.done_when)):
            found = _PYTHON.fullmatch(word)
            if found is not None and found[1] not in there:
                yield f"{step.id}: {word}"
