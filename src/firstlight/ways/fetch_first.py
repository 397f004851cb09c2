"""Wheels fetched before a package is taken out: where an index cannot be reached, nothing is gone yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.ways.back import Argv
from firstlight.ways.step import Step, StepKind

_INSTALLERS = (StepKind.PIP, StepKind.UV)
_OF_INSTALLS = ("--no-deps", "--upgrade", "--force-reinstall", "--reinstall")  # what a fetch has no use for
_COMPILES = "--no-build-isolation"  # built against the torch that is there by then: nothing can be fetched for it
_NOTE = "What is installed is fetched first: where the index does not answer, nothing is removed."


def fetched_first(steps: tuple[Step, ...], folder: str) -> tuple[Step, ...]:
    """The steps; the first that removes packages fetches what is installed after it, into a folder that goes again."""
    places = [(number, at) for number, step in enumerate(steps) for at in _removals(step)]
    if not places:
        return steps
    number, at = places[0]
    python = _python(steps[number].commands[at])
    later = tuple(_later(steps, number=number, at=at, python=python))
    if not later:
        return steps
    fetches = tuple(dict.fromkeys(_fetch(argv, folder) for _, argv in later))
    last = later[-1][0]
    found = []
    for each, step in enumerate(steps):
        commands = tuple(_from(argv, folder) if (each, argv) in later else argv for argv in step.commands)
        if each == number:
            commands = (*commands[:at], *fetches, *commands[at:])
            step = replace(step, note=f"{_NOTE} {step.note}".rstrip())
        if each == last:
            commands = (*commands, ("rm", "-rf", folder))
        found.append(replace(step, commands=commands))
    return tuple(found)


def _removals(step: Step) -> Iterator[int]:
    """Where in a step's commands packages are taken out of an environment."""
    if step.kind in _INSTALLERS:
        yield from (at for at, argv in enumerate(step.commands) if "uninstall" in argv)


def _later(steps: tuple[Step, ...], *, number: int, at: int, python: str) -> Iterator[tuple[int, Argv]]:
    """The installs into the same environment that come after a removal, each with the number of its step."""
    for each, step in enumerate(steps[number:], number):
        if step.kind not in _INSTALLERS or step.optional:
            continue
        for argv in step.commands[at if each == number else 0 :]:
            if "install" in argv and "-r" not in argv and _COMPILES not in argv and _python(argv) == python:
                yield each, argv


def _python(argv: Argv) -> str:
    """The interpreter whose environment a command of pip or uv changes."""
    if "--python" in argv:
        return argv[argv.index("--python") + 1]
    return argv[argv.index("-m") - 1] if "-m" in argv else argv[0]  # behind env and what it sets


def _fetch(argv: Argv, folder: str) -> Argv:
    """pip downloads the file; uv, which has no such command, unpacks it elsewhere and keeps it in its cache."""
    at = argv.index("install")
    rest = tuple(word for word in argv[at + 1 :] if word not in _OF_INSTALLS)
    if _is_uv(argv):
        return (*argv[: at + 1], "--target", folder, "--no-deps", *rest)
    return (*argv[:at], "download", "--no-deps", "--dest", folder, *rest)


def _from(argv: Argv, folder: str) -> Argv:
    return argv if _is_uv(argv) else (*argv, "--find-links", folder)


def _is_uv(argv: Argv) -> bool:
    return "--python" in argv
