"""Folders that installing packages made: pip takes a package's files away, and may leave its folders behind, empty.

Which were empty before a step is written down when it begins (`there`, see footprints.py): those stay.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from firstlight.apply.disk import Disk
from firstlight.apply.set_records import environments_of, folders_of
from firstlight.ways.step import Step


def empty_folders(step: Step) -> tuple[str, ...]:
    """The folders without any file, at any depth, where the packages of a step go; the deepest first."""
    return tuple(folder for site in _sites(step) for folder in _empty_below(site))


def remove_new_folders(disk: Disk, step: Step, *, there: frozenset[str]) -> None:
    """Take away what is empty now and was not there, empty, before the step."""
    for folder in empty_folders(step):
        if folder not in there:
            disk.remove_folder(folder)


def _sites(step: Step) -> Iterator[str]:
    """Where the environments of a step keep packages: site-packages, and Debian's folder of a Python without a venv."""
    yield from (folder for folder in folders_of(step) if folder)
    for interpreter in environments_of(step):
        prefix = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
        patterns = [f"{glob.escape(prefix)}/lib/python3*/site-packages"]
        if not os.path.exists(f"{prefix}/pyvenv.cfg"):
            patterns.append("/usr/local/lib/python3*/dist-packages")
        for pattern in patterns:
            yield from sorted(glob.glob(pattern))


def _empty_below(site: str) -> Iterator[str]:
    kept: set[str] = set()  # folders with something in them
    for folder, names, files in os.walk(site, topdown=False):
        inner = [f"{folder}/{name}" for name in names]
        if files or any(each in kept or os.path.islink(each) for each in inner):
            kept.add(folder)
        elif folder != site:
            yield folder
