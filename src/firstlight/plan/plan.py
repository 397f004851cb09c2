"""A plan: one option, its steps, and a digest that two runs on the same machine share."""

from __future__ import annotations

from typing import Any

from firstlight.diagnosis.finding import Question
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.plan.option import Option
from firstlight.plan.request import Ranked
from firstlight.plan.steps import steps_for
from firstlight.records import encode
from firstlight.ways.extras import Extras
from firstlight.ways.step import Step

__all__ = ["Extras", "Plan", "choose", "digest_of", "plan_for", "step_document"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in order; the digest is the SHA-256 of the steps as JSON."""

    option: Option
    steps: tuple[Step, ...]
    digest: str


def plan_for(question: Question, option: Option, *, extras: Extras) -> Plan:
    """The plan of one option; the same machine, option and extras give the same digest."""
    steps = steps_for(question, option, extras)
    return Plan(option, steps, digest_of(steps))


def digest_of(steps: tuple[Step, ...]) -> str:
    """The SHA-256 over the steps, e.g. 9f2c...: what `apply` compares with what it was shown."""
    import hashlib
    import json

    text = json.dumps([step_document(step) for step in steps], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def step_document(step: Step) -> dict[str, Any]:
    """A step as a reader of JSON gets it: `undo` as commands, without what `apply` keeps for itself."""
    document: dict[str, Any] = encode(step)
    del document["back"], document["awaited"]
    return {**document, "undo": [list(argv) for argv in step.undo]}


def choose(ranked: Ranked, wanted: str) -> Option:
    """The option of an id, of a number in the ranking (1 is the best), or the best; a rejected one is refused."""
    if not wanted:
        if ranked.impossible:
            near = ranked.options[0] if ranked.options else None
            nearest = f" The nearest that works: {near.title} (--option {near.id})." if near is not None else ""
            raise BadInput(f"{ranked.impossible}{nearest}")
        if not ranked.options:
            raise BadInput("there is no option that can work here; `firstlight plan --options` says why not.")
        return ranked.options[0]
    if wanted.isdecimal():
        number = int(wanted)
        if 1 <= number <= len(ranked.options):
            return ranked.options[number - 1]
        places = f"1 to {len(ranked.options)}" if len(ranked.options) > 1 else "1"
        raise BadInput(f"--option {wanted}: accepted: {places}, or an id; `firstlight plan --options` lists them.")
    for option in ranked.options:
        if option.id == wanted:
            return option
    for option in ranked.rejected:
        if option.id == wanted:
            raise BadInput(f"--option {wanted}: it cannot work here: {option.why_not}.")
    known = ", ".join(option.id for option in ranked.options) or "none"
    raise BadInput(f"--option {wanted[:80]!a}: no option is called that; accepted: a number, or one of {known}.")
