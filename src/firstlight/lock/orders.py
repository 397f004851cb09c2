"""What brings a machine back to its lock, as orders with commands that can be pasted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.lock.back import ways_back
from firstlight.lock.drift import Drift
from firstlight.lock.places import Places
from firstlight.tables import Tables
from firstlight.ways.at import At
from firstlight.ways.back import Argv
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import InstallWheels, Package, RemoveDistributions, SetVariables, UnsetVariables
from firstlight.ways.platform import platform_of
from firstlight.ways.steps import steps_of
from firstlight.ways.way import Way
from firstlight.ways.words import title_of


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do, e.g. 'install torch 2.11.0+cu130' with the command of this environment."""

    title: str
    commands: tuple[Argv, ...]


def orders(drifts: Iterable[Drift], facts: Facts, tables: Tables, *, places: Places) -> tuple[Order, ...]:
    """The orders for these drifts; packages of one index go into one command."""
    found = tuple(way for drift in drifts for way in ways_back(drift, facts, places))
    at = At(facts, tables, platform_of(facts), Extras(), "lock")
    return tuple(_order(way, at) for way in _together(found))


def _together(ways: tuple[Way, ...]) -> Iterator[Way]:
    """Installs of one index, removals and variables as one way each, in the place of the first of them."""
    wheels: dict[str, list[Package]] = {}
    for way in ways:
        if isinstance(way, InstallWheels):
            wheels.setdefault(way.index, []).extend(way.packages)
    gone = tuple(name for way in ways if isinstance(way, RemoveDistributions) for name in way.projects)
    unset = tuple(name for way in ways if isinstance(way, UnsetVariables) for name in way.names)
    seen: set[str] = set()
    for way in ways:
        key, whole = "", way
        if isinstance(way, InstallWheels):
            key, whole = f"install {way.index}", InstallWheels(tuple(wheels[way.index]), way.index)
        elif isinstance(way, RemoveDistributions):
            key, whole = "remove", RemoveDistributions(gone)
        elif isinstance(way, UnsetVariables):
            key, whole = "unset", UnsetVariables(unset)
        if not key or key not in seen:
            yield whole
        seen.add(key)


def _order(way: Way, at: At) -> Order:
    """Variables are told for the shell at hand: which file sets them, `firstlight doctor` looks up."""
    title = title_of(way, at.platform)
    if isinstance(way, UnsetVariables):
        return Order(f"{title}; in the shell that is open:", (("unset", *way.names),))
    if isinstance(way, SetVariables):
        names = ", ".join(each.name for each in way.variables)
        exports = tuple(("export", f"{each.name}={each.value}") for each in way.variables)
        return Order(f"set {names} as the lock has it, where it is set; in the shell that is open:", exports)
    return Order(title, tuple(argv for step in steps_of(way, at) for argv in step.commands))
