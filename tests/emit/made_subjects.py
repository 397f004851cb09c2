"""Subjects for tests: a machine in words or a recorded one, and what is wanted."""

from __future__ import annotations

import functools
from pathlib import Path

from firstlight.emit.imagined import parse_machine
from firstlight.emit.subject import Asked, Choices, Subject, subject_of
from firstlight.facts.look import Look, look_at
from firstlight.plan.request import Request
from firstlight.plan.want import parse_wants
from firstlight.tables import load

TABLES = load()
MACHINES = Path(__file__).parents[1] / "machines"


def for_words(text: str, *wants: str, option: str = "", choices: Choices | None = None) -> Subject:
    """A subject of machines in words, e.g. for_words("H100, driver >= 550", "torch==2.9.0+cu130")."""
    asked = Asked(Request(parse_wants(wants)), option)
    facts = parse_machine(text, TABLES)
    return subject_of(facts, asked, made_for=text, tables=TABLES, choices=choices or Choices())


@functools.cache  # two tests go through all machines
def for_machine(name: str, *wants: str, choices: Choices | None = None) -> Subject:
    """A subject of a recorded machine, e.g. h100-driver-570."""
    asked = Asked(Request(parse_wants(wants)))
    facts = look_at(Look(facts_file=str(MACHINES / name)))
    made_for = f"the machine of {name}"
    return subject_of(facts, asked, made_for=made_for, tables=TABLES, choices=choices or Choices())
