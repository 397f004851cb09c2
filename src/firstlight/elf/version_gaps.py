"""Symbol versions that a file asks for and the library it gets does not have."""

from __future__ import annotations

from typing import NamedTuple

from firstlight.elf.closure import Closure
from firstlight.elf.reader import all_defined_of, image_at, needed_versions
from firstlight.machine.interface import Machine


class VersionGap(NamedTuple):
    """What the loader says as "version `GLIBC_2.38' not found (required by ./libnew.so)"."""

    requester: str  # path of the file that asks
    library: str  # the name it asks of, e.g. libc.so.6
    version: str
    library_path: str  # the file it gets
    weak: bool  # the loader warns at most, and goes on


def version_gaps(machine: Machine, closure: Closure) -> tuple[VersionGap, ...]:
    """Every version that is asked for and not there, e.g. GLIBC_2.38 of libc.so.6 on a machine with glibc 2.36.

    A library without any versions passes, as with the loader; a library that is missing is not a version's matter.
    """
    interpreter = closure.interpreter
    paths = {closure.root.soname or closure.root.path: closure.root.path}
    paths |= {interpreter: interpreter, interpreter.rpartition("/")[2]: interpreter}
    for item in closure.objects:
        for name in (item.name, item.file.soname, item.found.path, *item.other_names):
            paths.setdefault(name, item.found.path)
    offered: dict[str, frozenset[str]] = {}
    gaps: list[VersionGap] = []
    for requester in (closure.root.path, *(item.file.path for item in closure.objects)):
        for wanted in needed_versions(machine, requester):
            path = paths.get(wanted.library, "")
            if not path:
                continue
            if path not in offered:
                image = image_at(machine, path)
                offered[path] = frozenset(() if image is None else (name for name, _ in all_defined_of(image)))
            for version in wanted.names if offered[path] else ():
                if version not in offered[path]:
                    gaps.append(VersionGap(requester, wanted.library, version, path, version in wanted.weak))
    return tuple(gaps)
