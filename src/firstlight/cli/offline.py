"""`apply --offline FOLDER`: the bundle checked against this machine, and what it wants to be installed."""

from __future__ import annotations

import os

from firstlight.apply.bundle import Bundle, check_files, check_place, read_bundle
from firstlight.cli.bundle import target_there
from firstlight.facts.collect import Facts
from firstlight.plan.wheel_target import Target


def checked_bundle(folder: str, facts: Facts) -> Bundle:
    """The bundle of a folder, refused where it is for another machine or a file in it is not what was bundled."""
    bundle = read_bundle(folder)
    found = target_there(facts, Target("", "", ""))
    # What could not be learned cannot speak against the bundle; pip itself looks again at every tag.
    here = Target(found.machine, found.python or bundle.target.python, found.glibc or bundle.target.glibc)
    check_place(bundle, here)
    check_files(bundle, os.path.abspath(folder))
    return bundle


def wants_of(bundle: Bundle) -> tuple[str, ...]:
    """What the bundle was made for, as --want takes it, e.g. ('torch==2.9.0+cu128',)."""
    return bundle.requirements
