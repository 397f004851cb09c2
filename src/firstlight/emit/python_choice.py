"""Which Python files are written for where nothing says it: the newest that all which is installed has wheels for."""

from __future__ import annotations

import re

from firstlight.emit.packages import Part
from firstlight.plan.pins import Place, misfit, python_takes
from firstlight.specifiers import satisfies
from firstlight.tables import Tables
from firstlight.versions import TorchVersion
from firstlight.ways.building import split_requirement

USUAL = "3.12"  # where the tables do not know what of a package there is: most have wheels for it
_OF_FIRSTLIGHT = ("markupsafe", "pyyaml")  # what it needs that is compiled


def numpy_beside(torch: TorchVersion) -> str:
    """What pip is asked for beside the pins: torch warns without numpy, and does not bring it.

    One number would not do for every Python that a script takes. A torch before 2.3 is built for numpy 1
    (pytorch/pytorch#107302).
    """
    return "numpy<3" if torch.release >= (2, 3) else "numpy<2"


def default_python(torch: TorchVersion, parts: tuple[Part, ...], *, machine: str, tables: Tables) -> str:
    """The newest of `working_pythons`."""
    return working_pythons(torch, parts, machine=machine, tables=tables)[0]


def working_pythons(torch: TorchVersion, parts: tuple[Part, ...], *, machine: str, tables: Tables) -> tuple[str, ...]:
    """The Pythons that torch, what goes with it, numpy and firstlight have wheels for and torch.compile works in,
    the newest first.

    Where none suits all, those that torch has: a script says what is missing, and goes on without numpy.
    """
    release = tables.torch_release(torch.public, machine)
    known = [each for each in (() if release is None else release.cpython) if each[-1].isdigit()]
    if not known:
        return (USUAL,)
    newest_first = sorted(known, key=_minor, reverse=True)
    with_torch = [each for each in newest_first if _suits_parts(parts, each, machine=machine, tables=tables)]
    beside = [each for each in with_torch if _suits_beside(torch, each, machine=machine, tables=tables)]
    compiles = [each for each in beside if tables.compiles_in(torch, each)]
    return tuple(compiles or beside or with_torch or newest_first)


def _suits_parts(parts: tuple[Part, ...], python: str, *, machine: str, tables: Tables) -> bool:
    """Whether every package beside torch has a wheel for it; of one that is not in the tables, up to the usual one."""
    place = Place(machine, f"{python}.0")
    for requirement in (each for part in parts for each in part.requirements):
        project, version = split_requirement(requirement)
        if project == "torch":
            continue
        row = tables.package_release(project, version.partition("+")[0])
        if row is None and _minor(python) > _minor(USUAL):
            return False
        if row is not None and misfit(row, place):
            return False
    return True


def _suits_beside(torch: TorchVersion, python: str, *, machine: str, tables: Tables) -> bool:
    bound = numpy_beside(torch).removeprefix("numpy")
    for project in ("numpy", *_OF_FIRSTLIGHT):
        rows = [row for row in tables.beside_wheels if row.project == project]
        if project == "numpy":
            rows = [row for row in rows if satisfies(row.version, bound)]
        if not any(python_takes(tag, python) for row in rows for tag in row.pythons(machine)):
            return False
    return True


def best_first(pythons: tuple[str, ...], wanted: str) -> tuple[str, ...]:
    """The Pythons that a script takes: the wanted one, then older ones from the newest on, then newer ones.

    Free-threaded ones are another ABI.
    """
    plain = sorted((each for each in pythons if re.fullmatch(r"3\.\d+", each)), key=_minor)
    older = [each for each in plain if _minor(each) < _minor(wanted)]
    newer = [each for each in plain if _minor(each) > _minor(wanted)]
    return (wanted, *reversed(older), *newer)


def _minor(version: str) -> int:
    return int(version.split(".")[1])
