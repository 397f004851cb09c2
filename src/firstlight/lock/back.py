"""The way back to the lock for each drift: ways where there are any, and the machine on paper after them. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.lock.drift import Change, Drift
from firstlight.lock.places import Places
from firstlight.lock.stack import Part
from firstlight.tables import Tables
from firstlight.tables.torch_index import index_of_version
from firstlight.ways.kinds import (
    AskPerson,
    InstallPackages,
    InstallWheels,
    Package,
    RemoveDistributions,
    Scope,
    SetVariables,
    UnsetVariables,
    Variable,
    Why,
)
from firstlight.ways.way import Way


def ways_back(drift: Drift, facts: Facts, places: Places) -> tuple[Way, ...]:
    """What brings the fact of the lock back; a person's where no program can know how."""
    if drift.part is Part.PACKAGES:
        return (_package(drift),)
    if drift.part is Part.SETTINGS:
        if drift.change is Change.ADDED:
            return (UnsetVariables((drift.name,)),)
        return (SetVariables((Variable(drift.name, places.real(drift.locked)),), Scope.LOGIN),)
    if drift.part is Part.COMPAT and (package := _compat_package(drift, facts, places)):
        return (InstallPackages((package,), version=f"{drift.locked.partition(' ')[0]}*"),)
    return _by_a_person(drift, places)


def _package(drift: Drift) -> Way:
    if drift.change is Change.ADDED:
        return RemoveDistributions((drift.name,))
    version = drift.locked.partition(" ")[0]
    return InstallWheels((Package(drift.name, version),), index_of_version(version))


def _compat_at(drift: Drift, facts: Facts, places: Places) -> CompatLibrary | None:
    return next((each for each in facts.compat if places.shown(each.folder) == drift.name), None)


def _compat_package(drift: Drift, facts: Facts, places: Places) -> str:
    found = _compat_at(drift, facts, places)
    if drift.change is Change.ADDED or found is None or not isinstance(found.package, Known):
        return ""
    return found.package.value


def _by_a_person(drift: Drift, places: Places) -> tuple[Way, ...]:
    locked, path = drift.locked.partition(" ")[0], places.real(drift.name)
    match drift.part:
        case Part.CHECKOUTS if drift.change is not Change.ADDED:
            return (AskPerson("put-checkout-back", Why.DECISION, (("git", "-C", path, "checkout", locked),)),)
        case Part.STARTUP if drift.change is Change.ADDED:
            aside = f"{drift.seen_in}.off"
            return (AskPerson("move-aside", Why.DECISION, (("mv", drift.seen_in, aside),), of=(drift.name,)),)
        case Part.IMPORTS:
            if drift.change is Change.ADDED:
                above = posixpath.dirname(posixpath.dirname(path.removesuffix("/__init__.py"))) or "/"
                return (AskPerson("start-elsewhere", Why.PROGRAM, (("cd", above),)),)
            return (AskPerson("take-out-of-pythonpath", Why.PROGRAM),)
        case Part.DRIVER:
            return (AskPerson("bring-driver-back", Why.DECISION, of=(locked,)),)
        case Part.TOOLKIT:
            toolkit = drift.locked.partition(" at ")[2] or "the toolkit of the lock"
            return (AskPerson("put-first-on-path", Why.DECISION, of=(toolkit,)),)
        case Part.FILES:
            return (AskPerson("take-from-version-control", Why.DECISION, of=(drift.name,)),)
    return ()


def without(drift: Drift, facts: Facts, tables: Tables, *, places: Places) -> Facts | None:
    """The machine on paper as if this drift were not there; None where paper cannot tell."""
    ways = ways_back(drift, facts, places)
    if drift.part in (Part.PACKAGES, Part.SETTINGS):
        from firstlight.ways.effects import after_all  # slow to import, and a machine as locked has no drift

        try:
            return after_all(ways, facts, tables)
        except BadInput:  # a version that no table or index has
            return None
    if drift.part is Part.DRIVER and drift.change is Change.CHANGED:
        return override(facts, (f"driver={drift.locked}",))
    if drift.part is Part.COMPAT:
        found = _compat_at(drift, facts, places)
        if drift.change is Change.ADDED and found is not None:
            return replace(facts, compat=tuple(each for each in facts.compat if each is not found))
        return None
    if drift.part is Part.IMPORTS and drift.change is Change.ADDED and isinstance(facts.torch, Known):
        kept = tuple(each for each in facts.torch.value.shadowed_by if places.shown(each) != drift.name)
        torch = replace(facts.torch, value=replace(facts.torch.value, shadowed_by=kept))
        return replace(facts, torch=torch)
    return None
