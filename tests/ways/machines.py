"""A machine of tests/machines to carry ways out on, as the tests of steps need it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.tables import load
from firstlight.ways.at import At
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.platform import Platform, platform_of
from firstlight.ways.step import Step
from firstlight.ways.steps import steps_of
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of

TABLES = load()


def at(machine: str | Facts, *files: FileText, extras: Extras | None = None) -> At:
    """A recorded machine, or facts; with `files` the texts that were read there."""
    facts = facts_of(machine) if isinstance(machine, str) else machine
    read = replace(extras or Extras(), files=files) if files else extras or Extras()
    return At(facts, TABLES, platform_of(facts), read, "some-finding")


def on(where: At, platform: Platform) -> At:
    """The same machine with another platform around it."""
    return replace(where, platform=platform)


def made(where: At, *ways: Way) -> tuple[Step, ...]:
    """The steps of ways, one after the other."""
    return tuple(step for way in ways for step in steps_of(way, where))
