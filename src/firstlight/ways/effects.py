"""The machine on paper after a way was carried out: `after(way, facts, tables)`; with extras, in the home they name.

A value that a way brings about has the origin PLANNED; what only running can tell is `ONLY_RUNNING`. An effect changes
as few facts as it can, and carried out twice it changes nothing the second time.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

from firstlight.facts.collect import Facts
from firstlight.tables import Tables
from firstlight.ways import kinds
from firstlight.ways.device_effects import after_devices
from firstlight.ways.driver_effects import after_driver
from firstlight.ways.elsewhere_effects import after_elsewhere
from firstlight.ways.extras import Extras
from firstlight.ways.loader_effects import after_loader
from firstlight.ways.paper import ONLY_RUNNING, open_after
from firstlight.ways.python_effects import after_python
from firstlight.ways.system_effects import after_packages
from firstlight.ways.variable_effects import after_variables
from firstlight.ways.way import Way

__all__ = ["ONLY_RUNNING", "after", "after_all", "at_home", "open_after"]

_EFFECTS = (after_packages, after_driver, after_devices, after_loader, after_variables)
# What they do is no fact that was looked at: room on a disk, where packages come from, what a person does, and
# another place, of which nothing is known that was found here.
_HOLDS = (kinds.HoldPackages, kinds.ConstrainEnvironment, kinds.ConstrainProject, kinds.PinConda)
_NO_FACT = (*_HOLDS, kinds.ClearCache, kinds.SetUpRepository, kinds.AskPerson, kinds.UseImage, kinds.OtherMachine)


_NO_EXTRAS = Extras()


def after(way: Way, facts: Facts, tables: Tables, extras: Extras = _NO_EXTRAS) -> Facts:
    """The facts once a way is carried out; what is made in the home folder is made where the steps make it."""
    home = extras.home_for(facts)
    here: Way = at_home(way, home)
    for effect in (partial(after_python, home=home), *_EFFECTS, partial(after_elsewhere, home=home)):
        changed = effect(here, facts, tables)
        if changed is not None:
            return facts if changed == facts else changed
    assert isinstance(way, _NO_FACT), way
    return facts


def at_home(value: Any, home: str) -> Any:
    """A way with the home folder in the place of ~: its steps and its effect name the same paths."""
    if isinstance(value, str):
        return f"{home}/{value[2:]}" if value.startswith("~/") else value
    if isinstance(value, tuple):
        return tuple(at_home(each, home) for each in value)
    if isinstance(value, (Way, kinds.Variable)):
        made: Any = value
        return replace(made, **{each.name: at_home(getattr(made, each.name), home) for each in fields(made)})
    return value


def after_all(ways: tuple[Way, ...], facts: Facts, tables: Tables, extras: Extras = _NO_EXTRAS) -> Facts:
    """The facts once a chain of ways is carried out, in its order."""
    for way in ways:
        facts = after(way, facts, tables, extras)
    return facts
