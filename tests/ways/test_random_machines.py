"""Machines that nobody has recorded: planning and ways on paper never fail, and no option claims what stays.

2,000 of them by hand: python -m tests.ways.many_machines 2000 SEED, kept in results/ways-on-paper.json.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.known import Unknown
from firstlight.plan.options import Request, rank_options
from firstlight.ways.kinds import ForbidModule, InstallDriver, Restart
from tests.diagnosis.rule_case import facts_of
from tests.ways.edits import KINDS, Edit
from tests.ways.random_machines import NAMES, TABLES, WAYS, Case, faults_of

_NUMBERS = st.integers(0, 100_000)
_CASES = st.builds(
    Case,
    st.sampled_from(NAMES),
    st.lists(st.builds(Edit, st.sampled_from(KINDS), _NUMBERS), max_size=4).map(tuple),
    st.lists(st.sampled_from(WAYS), min_size=1, max_size=3).map(tuple),
)


@settings(max_examples=200, deadline=None, derandomize=True)  # others by hand, see above
@given(_CASES)
def test_no_machine_makes_planning_fail_and_what_is_done_twice_changes_nothing(case: Case) -> None:
    assert faults_of(case) == ()


def test_one_restart_stands_behind_everything_that_waits_for_one() -> None:
    facts = facts_of("nouveau-holds-gpu")
    question = Question(replace(facts, driver=replace(facts.driver, module_file=Unknown("forgotten"))), TABLES)
    [first, *_] = rank_options(question, judge(question, RULES), Request()).options
    assert [type(way) for way in first.ways] == [ForbidModule, InstallDriver, Restart]
