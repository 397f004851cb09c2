"""One option as ordered steps, each with its commands, diffs, condition and way back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.plan.compiling import compiles
from firstlight.plan.naming import shortened
from firstlight.plan.option import Option
from firstlight.plan.paper import ELSEWHERE
from firstlight.ways.at import At
from firstlight.ways.building import a_person
from firstlight.ways.checkouts import checkout_steps
from firstlight.ways.effects import after, at_home
from firstlight.ways.extras import Extras
from firstlight.ways.fetch_first import fetched_first
from firstlight.ways.kinds import InstallPackages, SetUpRepository
from firstlight.ways.loader_steps import taken_from_all
from firstlight.ways.offline import offline
from firstlight.ways.platform import platform_of
from firstlight.ways.step import Step, StepKind
from firstlight.ways.steps import steps_of
from firstlight.ways.tuning import tuning_steps
from firstlight.ways.variable_steps import set_for_builds
from firstlight.ways.way import Way


def steps_for(question: Question, option: Option, extras: Extras) -> tuple[Step, ...]:
    """The steps of an option in order, then the checkouts and settings that were asked for; ids are numbered.

    What is optional comes last: the option holds without it.
    """
    because = option.because or option.satisfies
    facts = question.facts
    at = At(facts, question.tables, platform_of(facts), extras, because[0] if because else option.kind.value)
    made = [*_of_ways(option, at), *checkout_steps(at), *tuning_steps(at)]
    made.sort(key=lambda step: step.optional)
    if extras.shelf is None:  # wheels in a folder are at hand already
        made = [*fetched_first(tuple(made), f"{extras.state_for(facts)}/fetched")]
    numbered = (replace(step, id=f"{number:02d}-{step.id}") for number, step in enumerate(made, 1))
    return tuple(offline(step, extras.shelf) for step in numbered)


def _of_ways(option: Option, at: At) -> Iterator[Step]:
    """Each way on the machine as the ways before it leave it: what one takes out, the next does not take out again."""
    elsewhere, ways, first = False, option.ways, at.because
    home = at.extras.home_for(at.facts)
    for place, told in enumerate(ways):
        way: Way = at_home(told, home)
        because = option.reasons[place] if option.reasons and not option.wanted else ""
        at = replace(at, because=because or first, compiles=any(compiles(each) for each in ways[place + 1 :]))
        for step in tuple(steps_of(way, at)):
            yield _there(step) if elsewhere else step
            if not step.optional:
                at = replace(at, extras=at.extras.after(step))
        elsewhere = elsewhere or isinstance(way, ELSEWHERE)
        at = replace(at, unwired=(*at.unwired, *taken_from_all(way, at.facts)))
        at = replace(at, lists_fetched=at.lists_fetched or isinstance(way, (SetUpRepository, InstallPackages)))
        at = replace(at, for_builds=set_for_builds(way, at), facts=after(way, at.facts, at.tables, at.extras))


def _there(step: Step) -> Step:
    """A step that belongs to the other machine, or into the image: told, and never carried out here."""
    return replace(
        step,
        kind=StepKind.MANUAL,
        title=shortened(f"there: {step.title}"),
        done_when=(a_person("it is done there"),),
        back=(),
        needs_root=False,
        note="On the other machine, with the paths that it has; nothing of it is done here.",
    )
