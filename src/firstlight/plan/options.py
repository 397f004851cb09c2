"""Every option that could satisfy a request on one machine, of unlike kinds, in one order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.diagnosis.finding import Diagnosis, Question
from firstlight.plan.compat_options import compat_options
from firstlight.plan.driver_options import driver_options
from firstlight.plan.machine_options import machine_options
from firstlight.plan.option import Option
from firstlight.plan.other_options import as_told, container_options, nothing_to_do, repairs, source_options
from firstlight.plan.ranking import RULE, ranked, rejected
from firstlight.plan.removals import removals
from firstlight.plan.request import Ranked, Request
from firstlight.plan.situation import Situation
from firstlight.plan.toolkit_options import toolkit_options
from firstlight.plan.wheel_options import wheel_options

if TYPE_CHECKING:
    from firstlight.plan.solve import Clash

__all__ = ["Ranked", "Request", "rank_options"]

_Builder = Callable[[Situation], Iterator[Option]]
_BUILDERS: tuple[_Builder, ...] = (
    removals,
    repairs,
    compat_options,
    wheel_options,
    toolkit_options,
    driver_options,
    machine_options,
    container_options,
    source_options,
)
_FOR_AN_OLD_DRIVER: tuple[_Builder, ...] = (compat_options, driver_options, machine_options, container_options)


def rank_options(question: Question, diagnosis: Diagnosis, request: Request) -> Ranked:
    """The ranked options of one machine; without a finding and without a want there is nothing to do.

    `question` and `diagnosis` are those of doctor: with a wanted torch in the place of the installed one.
    """
    situation = Situation(question, diagnosis, request)
    if not request.wants:
        return _in_order(_built(situation), ())
    from firstlight.plan.want_options import situation_with_wants, want_options, what_cannot_be_had

    answer = situation_with_wants(situation)
    # What cannot be had together is not had by a driver or a library either: only what comes nearest is left.
    built = () if answer.is_impossible else _built(answer.situation)
    return replace(_in_order((*want_options(answer), *built), answer.refused), impossible=what_cannot_be_had(answer))


def _in_order(options: Iterable[Option], refused: tuple[Clash, ...]) -> Ranked:
    everything = _once(tuple(options))
    return Ranked(ranked(everything), rejected(everything), RULE, refused)


def _built(situation: Situation) -> Iterator[Option]:
    """The options that answer what was found; a healthy machine has one, and hears of a compiler that does not fit."""
    wants = situation.request.wants
    if situation.is_blocked or (situation.primary is not None and not wants):
        builders: tuple[_Builder, ...] = _BUILDERS
    elif situation.driver_blocks_want:
        builders = _FOR_AN_OLD_DRIVER
    else:  # what only degrades is a matter of the packages that are there, and those that are wanted replace them
        builders = (toolkit_options,) if wants else (nothing_to_do, toolkit_options)
    found = False
    for build in builders:
        if wants and build is wheel_options:
            continue  # want_options speaks for the wheels
        for option in build(situation):
            found = found or option.feasible
            yield option
    if not found and not wants:
        yield from as_told(situation)


def _once(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """Each id once: what is asked for several times answers several findings."""
    by_id: dict[str, Option] = {}
    for option in options:
        before = by_id.get(option.id)
        codes = option.because if before is None else tuple(dict.fromkeys((*before.because, *option.because)))
        by_id[option.id] = replace(before or option, because=codes)
    return tuple(by_id.values())
