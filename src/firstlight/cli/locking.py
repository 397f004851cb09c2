"""What `lock` and `check` look at: a machine's facts with its files and variables, under the names that a lock has."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.facts.document import pseudonyms_of
from firstlight.facts.look import Look, Names
from firstlight.facts.pseudonyms import Pseudonyms
from firstlight.lock.ahead import NOTHING_TAKEN, Taken, taken_ahead
from firstlight.lock.looking import Looked
from firstlight.lock.places import Places, places_of
from firstlight.lock.settings import variables_of
from firstlight.machine.live import LiveMachine
from firstlight.ways.extras import Extras

if TYPE_CHECKING:
    from firstlight.facts.collect import Facts

DEFAULT = "firstlight.lock"


def real_names(look: Look) -> Look:
    """Real names on this machine: its paths are looked into, and replaced when the lock is written."""
    return look if look.facts_file else replace(look, names=Names.REAL)


def ahead(look: Look) -> Taken:
    """Digests of this machine's files, taken while its driver answers; none of another machine."""
    return NOTHING_TAKEN if look.facts_file else taken_ahead(LiveMachine(), python=look.python)


def looked_at(look: Look, facts: Facts, *, checkouts: tuple[str, ...] = (), taken: Taken = NOTHING_TAKEN) -> Looked:
    """This machine with all that can be asked of it, or the facts of another one alone."""
    places = places_here(look, facts)
    if look.facts_file:
        return Looked(facts, None, places)
    machine = LiveMachine()
    return Looked(facts, machine, places, variables_of(os.environ), checkouts, taken)


def places_here(look: Look, facts: Facts) -> Places:
    """What stands for which folder of the machine that is looked at."""
    if look.facts_file:
        return places_of(facts, home=Extras().home_for(facts), names=Pseudonyms((), ()))
    host = LiveMachine().host
    return places_of(facts, home=host.home, names=pseudonyms_of(facts, host))
