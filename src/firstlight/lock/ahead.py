"""Digests that need no driver, taken while it is still asked: of every RECORD, and of the compat libraries."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from firstlight.facts.compat import probe_compat
from firstlight.facts.known import Known
from firstlight.facts.python_environments import probe_environments
from firstlight.frozen import dataclass
from firstlight.lock.packages import record_digest, records_of
from firstlight.machine.interface import Machine

_PIECE = 8 << 20
_LARGEST_LIBRARY = 1 << 30


@dataclass(frozen=True, slots=True)
class Taken:
    """Digests by path: of the folder NAME-VERSION.dist-info, and of a library."""

    records: Mapping[str, str]
    libraries: Mapping[str, str]


NOTHING_TAKEN = Taken({}, {})


def taken_ahead(machine: Machine, *, python: str = "") -> Taken:
    """The digests of the environment that facts will choose; what is missing in the end is taken then."""
    environments = probe_environments(machine, python=python)
    chosen = environments.selected
    if not isinstance(chosen, Known):
        return NOTHING_TAKEN
    environment = environments.environments[chosen.value]
    compat = probe_compat(machine, env_prefixes=(environment.prefix,))
    libraries = {each.library: file_digest(machine, each.library) for each in compat}
    records = records_of(environment.site_packages, machine)
    return Taken({each: record_digest(machine, each) for each in records}, libraries)


def file_digest(machine: Machine, path: str) -> str:
    """The SHA-256 of a file, read in pieces; "" where it cannot be read whole, as of a recording."""
    seen = machine.stat(path)
    if seen is None or seen.kind != "file" or seen.size > _LARGEST_LIBRARY:
        return ""
    sum_of, offset = hashlib.sha256(), 0
    while offset < seen.size:
        piece = machine.read_bytes(path, offset=offset, size=_PIECE)
        if not piece:
            return ""
        sum_of.update(piece)
        offset += len(piece)
    return f"sha256:{sum_of.hexdigest()}"
