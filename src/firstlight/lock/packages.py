"""The distributions of the judged environment, each with the digest of its RECORD, and the files that run at start."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping

from firstlight.facts.collect import Facts
from firstlight.facts.distributions import name_and_version
from firstlight.facts.known import Known
from firstlight.facts.python_environments import PythonEnvironment
from firstlight.frozen import dataclass
from firstlight.lock.places import Places
from firstlight.lock.stack import Held, Part
from firstlight.machine.interface import Machine

_RECORD_LIMIT = 64 << 20
# Rows that installers add, or that name the place of this environment: two machines with the same wheel differ in them.
_OF_THE_INSTALLER = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
_STARTS = ("sitecustomize.py", "usercustomize.py")


@dataclass(frozen=True, slots=True)
class _Listed:
    version: str
    record: str  # the folder NAME-VERSION.dist-info


def held_packages(facts: Facts, machine: Machine | None, places: Places, *, taken: Mapping[str, str]) -> Iterator[Held]:
    """Every distribution, then the files in site-packages that Python runs when it starts.

    `taken` has digests that were taken ahead, by the folder NAME-VERSION.dist-info; the others are taken now.
    """
    environment = facts.environment
    if environment is None:
        return
    listed = _listed(environment, machine)
    told = _told_by_facts(facts, environment)
    for name in sorted({*listed, *told}):
        found = listed.get(name)
        version = told.get(name) or (found.version if found is not None else "")
        same = found is not None and found.version.partition("+")[0] == version.partition("+")[0]
        digest = ""
        if found is not None and same:
            digest = taken[found.record] if found.record in taken else record_digest(machine, found.record)
        where = found.record if found is not None else f"the facts of {environment.prefix}"
        yield Held(Part.PACKAGES, name, version, digest, seen_in=where)
    yield from _startup(environment, machine, places)


def _listed(environment: PythonEnvironment, machine: Machine | None) -> dict[str, _Listed]:
    """Name to what lies in site-packages, in the order of the search path; {} where there are facts alone."""
    found: dict[str, _Listed] = {}
    if machine is None:
        return found
    for site in environment.site_packages:
        for record in machine.list(site, "*-info"):
            name, version = name_and_version(record)
            if version:
                found.setdefault(name, _Listed(version, f"{site}/{record}"))
    return found


def _told_by_facts(facts: Facts, environment: PythonEnvironment) -> dict[str, str]:
    """What the facts say of packages of interest: the first copy of each counts, and torch says its own build."""
    found: dict[str, str] = {}
    for each in environment.distributions:
        found.setdefault(each.name, each.version)
    recorded = dict(found)
    for kind in (facts.nvidia_wheels, facts.companions):
        for other in kind:
            if other.version != recorded.get(other.name):
                found[other.name] = other.version
    if isinstance(facts.torch, Known) and isinstance(facts.torch.value.version, Known) and "torch" in found:
        found["torch"] = str(facts.torch.value.version.value)
    return found


def records_of(site_packages: tuple[str, ...], machine: Machine) -> tuple[str, ...]:
    """The folders NAME-VERSION.dist-info of an environment."""
    return tuple(f"{site}/{name}" for site in site_packages for name in machine.list(site, "*.dist-info"))


def record_digest(machine: Machine | None, record: str) -> str:
    """The SHA-256 over the rows of RECORD that are the wheel's own, sorted; "" where there is none to read."""
    text = None if machine is None else machine.read(f"{record}/RECORD", limit=_RECORD_LIMIT)
    if text is None:
        return ""
    rows = "\n".join(sorted(_own_rows(text)))
    return f"sha256:{hashlib.sha256(rows.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _own_rows(text: str) -> list[str]:
    """The rows that are the wheel's own; an environment has 100,000, so what nearly no row has is asked first."""
    own = []
    for row in text.splitlines():
        if ".pyc" in row or ".dist-info" in row or row[:1] in './"':  # "" too
            path = row.partition(",")[0]
            if not row or path.endswith(".pyc") or _is_of_the_place(path.strip('"')):
                continue
        own.append(row)
    return own


def _is_of_the_place(path: str) -> bool:
    if path.startswith(("../", "/")) or path.endswith(".pyc"):
        return True
    return posixpath.dirname(path).endswith(".dist-info") and posixpath.basename(path) in _OF_THE_INSTALLER


def _startup(environment: PythonEnvironment, machine: Machine | None, places: Places) -> Iterator[Held]:
    """Files that run code or add folders at every start of this Python."""
    if machine is None:
        for hook in environment.hooks:
            yield Held(Part.STARTUP, posixpath.basename(hook.path), "runs at start", seen_in=hook.path)
        return
    for site in environment.site_packages:
        there = [name for name in _STARTS if machine.stat(f"{site}/{name}") is not None]
        for name in (*machine.list(site, "*.pth"), *there):
            path = f"{site}/{name}"
            text = machine.read(path)
            digest = "" if text is None else hashlib.sha256(places.shown(text).encode()).hexdigest()
            yield Held(Part.STARTUP, name, "runs at start", f"sha256:{digest}" if digest else "", seen_in=path)
