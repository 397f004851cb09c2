"""The wanted packages as a part of an option of another kind: compat and torch cu130 are one way out."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.known import Fact, Unknown
from firstlight.plan.costs import NOTHING, cost
from firstlight.plan.option import Option, Risk
from firstlight.plan.sets import Pick
from firstlight.plan.situation import Situation
from firstlight.plan.sizes import download_bytes

_RISKS = tuple(Risk)


def set_bytes(situation: Situation) -> Fact[int]:
    """What the wanted packages take to download; nothing where none are wanted or all are here."""
    if not missing(situation):
        return NOTHING
    return download_bytes(situation.wanted[0], situation.question.tables)


def missing(situation: Situation) -> tuple[Pick, ...]:
    """The wanted packages that the environment does not hold in that very version and build."""
    picks = situation.wanted[0].picks if situation.wanted else ()
    return tuple(pick for pick in picks if not _is_here(situation, pick))


def _is_here(situation: Situation, pick: Pick) -> bool:
    found = installed_builds(situation, pick.project)
    return bool(pick.version) and found == {(pick.version, pick.local)}


def installed_builds(situation: Situation, project: str) -> set[tuple[str, str]]:
    """Version and build of what is installed, e.g. ('2.11.0', 'cu130'); PyPI's torch is recorded without its build."""
    environment = situation.facts.environment
    found = set()
    for each in () if environment is None else environment.distributions:
        if each.name != project:
            continue
        version, _, local = each.version.partition("+")
        if project == "torch" and not local:
            row = situation.question.tables.torch_release(version, situation.facts.place.arch)
            local = row.wheel_cuda.tag if row is not None and row.wheel_cuda is not None else ""
        found.add((version, local))
    return found


def with_set(situation: Situation, option: Option) -> Option:
    """The option with the wanted packages that are not here; its own cost is counted again where it was nothing."""
    picks = missing(situation)
    if not picks:
        return option
    paid = option.cost
    if paid.download_bytes == NOTHING:
        size = set_bytes(situation)
        paid = cost(situation.request, download=size, disk=Unknown("what it takes once unpacked is not on record"))
    return replace(
        option,
        title=f"{option.title}; and {', '.join(pick.requirement for pick in picks)}",
        cost=paid,
        brings=(*option.brings, *(pick.requirement for pick in picks)),
        index=situation.wanted[0].torch.index,
        risk=max(option.risk, Risk.LOW, key=_RISKS.index),
    )
