"""A way carried out for real, and what its effect predicted held against what is seen afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from firstlight.apply.session import Asked, act
from firstlight.cli.plan_files import extras_of
from firstlight.facts.collect import Facts, collect
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.records import VERSION_TYPES
from firstlight.tables import load
from firstlight.ways.at import At
from firstlight.ways.effects import after
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING
from firstlight.ways.platform import platform_of
from firstlight.ways.step import StepKind
from firstlight.ways.steps import steps_of
from firstlight.ways.way import Way
from tests.apply.acting import acting

TABLES = load()


@dataclass(frozen=True, slots=True)
class Looked:
    """A machine and its facts at one moment."""

    machine: LiveMachine
    facts: Facts


def look(environ: Mapping[str, str], *, python: str = "", root: str = "", cwd: str = "") -> Looked:
    """This machine as a process with that environment sees it; `root` in the place of /."""
    host = replace(LiveMachine().host, home=environ.get("HOME", "/root"), cwd=cwd or "/")
    machine = LiveMachine(root=root, environ=environ, host=host)
    return Looked(machine, collect(machine, python=python))


def carried_out(way: Way, before: Looked, folder: Path, environ: Mapping[str, str]) -> None:
    """The way's steps done by `apply`, those that a shell has to do itself left out; as on a machine of our own."""
    facts = before.facts
    platform = replace(platform_of(facts), container=ContainerKind.NONE)
    at = At(facts, TABLES, platform, extras_of(before.machine, facts), "test")
    steps = tuple(step for step in steps_of(way, at) if not step.optional and step.kind is not StepKind.MANUAL)
    assert steps, way
    doing = acting(folder)
    doing = replace(doing, env=dict(environ))
    try:
        [run] = act(doing, Asked(steps, "d", "o", "t"))
    finally:
        doing.journal.close()
    assert run.done, steps


def differences(way: Way, before: Facts, seen: Facts, *, unlike: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """The facts that the effect changed: those seen as predicted, and those that are not.

    What only running or looking can tell is not compared; `unlike` names facts that a stand-in cannot have.
    """
    found = [one for one in _changes(before, after(way, before, TABLES), seen, "") if not one[0].startswith(unlike)]
    held = [path for path, said in found if not said]
    return held, [f"{path}: {said}" for path, said in found if said]


def _changes(before: Any, paper: Any, seen: Any, path: str) -> Iterator[tuple[str, str]]:
    """Each leaf that differs between before and paper, with "" where it was seen so."""
    if paper is before or paper in (NOT_READ, ONLY_RUNNING) or without_sources(paper) == without_sources(before):
        return
    if isinstance(paper, Known) and isinstance(seen, Known):
        yield from _changes(before.value if isinstance(before, Known) else None, paper.value, seen.value, path)
    elif isinstance(paper, tuple) and isinstance(seen, tuple):
        if len(paper) != len(seen):
            yield (
                path,
                f"predicted {len(paper)} items {without_sources(paper)}, saw {len(seen)}: {without_sources(seen)}",
            )
            return
        if len(paper) < len(before if isinstance(before, tuple) else ()):
            yield path, "" if _names(paper) == _names(seen) else f"predicted {_names(paper)}, saw {_names(seen)}"
        for place, (item, real) in enumerate(zip(paper, seen, strict=True)):
            yield from _changes(_same(before, item), item, real, f"{path}.{place}")
    elif is_dataclass(paper) and not isinstance(paper, (type, Known, Unknown, *VERSION_TYPES)) and is_dataclass(seen):
        for field in fields(paper):
            inside = f"{path}.{field.name}" if path else field.name
            old = getattr(before, field.name, None)
            yield from _changes(old, getattr(paper, field.name), getattr(seen, field.name), inside)
    else:
        yield (
            path,
            ""
            if without_sources(paper) == without_sources(seen)
            else f"predicted {without_sources(paper)}, saw {without_sources(seen)}",
        )


def _same(before: Any, item: Any) -> Any:
    """The item of the list before that an item of the list after stands for."""
    if not isinstance(before, tuple):
        return None
    return next((each for each in before if _names((each,)) == _names((item,))), None)


def _names(items: tuple[Any, ...]) -> tuple[str, ...]:
    """What items are known by: a name, a path, a folder, else all of it."""
    keys = ("name", "path", "folder", "prefix", "variable", "number")
    return tuple(
        str(next((getattr(item, key) for key in keys if hasattr(item, key)), without_sources(item))) for item in items
    )


def without_sources(value: Any) -> Any:
    """A value without where it was seen; what is unknown is unknown, whatever the reason."""
    if isinstance(value, Known):
        return without_sources(value.value)
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, tuple):
        return tuple(without_sources(item) for item in value)
    if is_dataclass(value) and not isinstance(value, (type, *VERSION_TYPES)):
        return (type(value).__name__, *(without_sources(getattr(value, field.name)) for field in fields(value)))
    return value
