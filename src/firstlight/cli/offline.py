"""`--offline FOLDER` and `--find-links FOLDER`: the wheels that may be reached, each with its digest, before a plan."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from firstlight.apply.bundle import MANIFEST, Bundle, check_files, check_place, names_in, read_bundle
from firstlight.apply.bundle_download import LOG
from firstlight.apply.conditions import installed_distributions
from firstlight.apply.place import state_folder
from firstlight.apply.shelf import shelved
from firstlight.cli.bundle import target_there
from firstlight.errors import CouldNotAct, CouldNotLook
from firstlight.facts.collect import Facts
from firstlight.machine.live import LiveMachine
from firstlight.ways.shelf import Shelf
from firstlight.ways.wheel_target import Target

_NEWEST_GLIBC = "2.99"  # where the C library is not known: it cannot speak against a wheel, and pip looks again


def shelf_of(folder: str, facts: Facts) -> Shelf:
    """What may be installed from a folder onto the machine of the facts."""
    return shelf_for(folder, target_there(facts, Target("", "", "")))


def shelf_for(folder: str, here: Target) -> Shelf:
    """What a bundle lists, or the wheels of a folder that somebody put together, hashed now; "" for what is not known.

    A bundle that is for another machine, or in which a file is not what was bundled, is refused.
    """
    folder = os.path.abspath(folder)
    lists = f"{state_folder(LiveMachine())}/wheels"
    if bundle := bundle_in(folder):
        known = Target(here.machine, here.python or bundle.target.python, here.glibc or bundle.target.glibc)
        check_place(bundle, known)
        return Shelf(folder, check_files(bundle, folder), known, lists)
    own = ".".join(str(part) for part in sys.version_info[:2])
    known = Target(here.machine, here.python or own, here.glibc or _NEWEST_GLIBC)
    return Shelf(folder, shelved(folder, known), known, lists)


def bundle_in(folder: str) -> Bundle | None:
    """The bundle that a folder is; None where somebody put wheels together, which have no list to be held against."""
    names = names_in(folder) if os.path.isdir(folder) else ()
    if MANIFEST not in names and LOG not in names and any(name.endswith(".whl") for name in names):
        return None
    return read_bundle(folder)


def with_installed(shelf: Shelf, interpreter: str) -> Shelf:
    """The shelf beside what an environment holds already, which stays where it will do."""
    try:
        return replace(shelf, installed=installed_distributions(interpreter))
    except CouldNotLook as error:
        raise CouldNotAct(f"{error}. Nothing was changed; fix that and run the same command again.") from error


def wants_of(bundle: Bundle) -> tuple[str, ...]:
    """What the bundle was made for, as --want takes it, e.g. ('torch==2.9.0+cu128',)."""
    return bundle.requirements
