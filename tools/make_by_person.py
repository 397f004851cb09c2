"""Fill the list in docs/tested.md of what `apply` leaves to a person on the recorded machines, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.document import read_machine_or_facts
from firstlight.plan.options import rank_options
from firstlight.plan.plan import plan_for
from firstlight.plan.request import Request
from firstlight.tables import load
from firstlight.ways.extras import Extras
from firstlight.ways.step import Step, StepKind
from tools.generate import with_part
from tools.make_options import MACHINES, NAMES

PAGE = Path(__file__).parents[1] / "docs" / "tested.md"


@dataclass(frozen=True, slots=True)
class FirstOption:
    """The steps of the first option of one machine, for the goal that its expected.json names."""

    machine: str
    steps: tuple[Step, ...]

    @property
    def by_person(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind is StepKind.MANUAL)

    @property
    def has_nothing_for_apply(self) -> bool:
        return bool(self.steps) and len(self.by_person) == len(self.steps)


def made() -> dict[Path, str]:
    """The page as it should be."""
    return {PAGE: filled(PAGE.read_text())}


def filled(text: str) -> str:
    """The page with its list made anew."""
    return with_part(text, "by-person", lambda: "".join(_lines(tuple(map(first_option, NAMES)))))


def first_option(name: str) -> FirstOption:
    facts = read_machine_or_facts(str(MACHINES / name))
    goal = Goal(json.loads((MACHINES / name / "expected.json").read_text())["goal"])
    question = Question(facts, load(), goal)
    options = rank_options(question, judge(question, RULES), Request(goal=goal)).options
    return FirstOption(name, plan_for(question, options[0], extras=Extras()).steps if options else ())


def _lines(all_of_them: tuple[FirstOption, ...]) -> Iterator[str]:
    with_steps = [each for each in all_of_them if each.steps]
    alone = [each.machine for each in with_steps if each.has_nothing_for_apply]
    steps = sum(len(each.steps) for each in with_steps)
    asked = sum(len(each.by_person) for each in with_steps)
    yield (
        f"The first options of the {len(with_steps)} recorded machines that need anything have {steps} steps; "
        f"{asked} of them are for you.\n"
        f"On {len(alone)} machines there is nothing for `apply` to do: {', '.join(alone)}.\n\n"
    )
    yield "| you do | why | machines |\n|---|---|---|\n"
    found: dict[tuple[str, str], list[str]] = {}
    for each in with_steps:
        for step in each.by_person:
            why = step.note.partition(". ")[0].removesuffix(".").removeprefix("By you: ")
            why = why[:1].lower() + why[1:]
            title = f"{step.title} (optional)" if step.optional else step.title
            found.setdefault((title, why), []).append(each.machine)
    for (title, why), machines in sorted(found.items()):
        yield f"| {title} | {why} | {', '.join(dict.fromkeys(machines))} |\n"
