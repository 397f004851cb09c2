"""A rule shown on a machine where it fires and on a near-miss, one fact changed, where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firstlight.diagnosis.finding import Finding, Goal, Seen
from firstlight.diagnosis.wanted import with_wanted
from firstlight.facts.collect import Facts
from firstlight.facts.document import read_machine_or_facts
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.ways.way import Way

MACHINES = Path(__file__).parents[1] / "machines"


@dataclass(frozen=True, slots=True)
class RuleCase:
    """`near_miss` is what changes: settings as for --set, or a function of the facts."""

    code: str
    machine: str
    near_miss: tuple[str, ...] | Callable[[Facts], Facts]
    goal: Goal = Goal.INFER
    wants: tuple[str, ...] = ()  # as for --want

    def facts(self) -> Facts:
        return self._with_wanted(facts_of(self.machine))

    def near_miss_facts(self) -> Facts:
        facts = facts_of(self.machine)
        changed = override(facts, self.near_miss) if isinstance(self.near_miss, tuple) else self.near_miss(facts)
        return self._with_wanted(changed)

    def _with_wanted(self, facts: Facts) -> Facts:
        """As doctor does it: an exact torch takes the place of the installed one."""
        return with_wanted(facts, load(), tuple(want for want in self.wants if want.startswith("torch==")))


def ways_of(found: Seen | Finding) -> list[tuple[Way, ...]]:
    """The ways of each answer that works here, best first."""
    return [each.ways for each in found.answers if not each.why_not]


@cache
def facts_of(machine: str) -> Facts:
    """The facts of a machine under tests/machines."""
    return read_machine_or_facts(str(MACHINES / machine))
