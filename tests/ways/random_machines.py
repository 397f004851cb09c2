"""One machine with random edits and ways, and what is wrong with what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.plan.options import Request, rank_options
from firstlight.tables import load
from firstlight.ways.effects import after, after_all, open_after
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.plan.retold import faults_of_option
from tests.ways.edits import Edit, edited
from tests.ways.for_real import without_sources
from tests.ways.samples import SAMPLES, VARIANTS

TABLES = load()
NAMES = tuple(sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))
WAYS: tuple[Way, ...] = (*SAMPLES, *VARIANTS)


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded machine, edits of it, and ways that are carried out on paper one after the other."""

    machine: str
    edits: tuple[Edit, ...]
    ways: tuple[Way, ...]


def _of_the_plan(facts: Facts) -> list[str]:
    """What is wrong with the options for a machine: a claim that stays, one first that leaves more, one done twice."""
    question = Question(facts, TABLES)
    diagnosis = judge(question, RULES)
    faults = []
    options = rank_options(question, diagnosis, Request()).options
    for option in options:
        faults += [f"{option.id} {fault}" for fault in faults_of_option(question, option)]
    if options and options[0].stays and any(not option.stays for option in options):
        faults.append(f"{options[0].id} is first and leaves {options[0].stays}, which others do not")
    for option in options[:1]:
        once = after_all(option.ways, facts, TABLES)
        # A library that is moved aside and installed comes from another way of the chain the second time.
        if without_sources(after_all(option.ways, once, TABLES)) != without_sources(once):
            faults.append(f"{option.id} changes something the second time")
    return faults


def faults_of(case: Case) -> tuple[str, ...]:
    """What a way does that it must not; a crash is raised."""
    facts = facts_of(case.machine)
    for edit in case.edits:
        facts = edited(facts, edit)
    faults = _of_the_plan(facts)
    for way in case.ways:
        once = after(way, facts, TABLES)
        if after(way, once, TABLES) != once:
            faults.append(f"{type(way).__name__} changes something the second time")
        judge(Question(once, TABLES), RULES)
        if open_after(once, once):
            faults.append(f"{type(way).__name__}: what did not change became open")
        facts = once
    return tuple(faults)
