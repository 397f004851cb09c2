"""`verify` after `apply`: in the environment that a program gets from now on, not always that of this shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from firstlight.ways.step import CheckKind, Step, StepKind

if TYPE_CHECKING:
    from firstlight.verify.check import Report


def proved(steps: tuple[Step, ...], *, persons: tuple[Step, ...], python: str) -> Report:
    """What verify says after these steps; `persons` holds what an open shell has to be told, e.g. unset a variable."""
    from firstlight.cli.verify import prove
    from firstlight.verify.checks import CHECKS

    python = interpreter_changed(steps) or python
    given = {"python": python, "so_files": (), "skip": "", "only": "", "require_file": "", "identify": False}
    with _environment(variables_after(persons)), _environment(_wired(steps, python)):
        return prove(tuple(check.name for check in CHECKS), (), given)


def interpreter_changed(steps: tuple[Step, ...]) -> str:
    """The interpreter whose packages the steps changed; "" where they changed none."""
    targets = [each.target for step in steps for each in step.done_when if each.kind is CheckKind.DISTRIBUTIONS]
    return targets[-1] if targets else ""


def variables_after(persons: tuple[Step, ...]) -> dict[str, str]:
    """What an open shell has to be told, as variables; "" for one that is unset."""
    found: dict[str, str] = {}
    for step in persons:
        for argv in step.commands:
            if argv[:1] == ("unset",):
                found.update(dict.fromkeys(argv[1:], ""))
            if argv[:1] == ("export",):
                found.update([word.partition("=")[::2] for word in argv[1:] if "=" in word])
    return found


def _wired(steps: tuple[Step, ...], python: str) -> dict[str, str]:
    """The library path that `firstlight run` would give, where the steps brought a compat library."""
    if not any(step.kind is StepKind.COMPAT for step in steps):
        return {}
    from firstlight.apply.wiring import VARIABLE, Action, cuinit_probe, decide, mode_of
    from firstlight.diagnosis.finding import Question
    from firstlight.facts.collect import collect
    from firstlight.machine.live import LiveMachine
    from firstlight.tables import load

    machine = LiveMachine()
    question = Question(collect(machine, python=python), load())
    wiring = decide(question, mode=mode_of(os.environ.get(VARIABLE)), probe=cuinit_probe(machine))
    return {} if wiring.action is not Action.USE else {"LD_LIBRARY_PATH": ":".join(wiring.library_path)}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's variables changed for a while; its child processes get them."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value:
                os.environ[name] = value
        yield
    finally:
        for name, old in before.items():
            os.environ.pop(name, None)
            if old is not None:
                os.environ[name] = old
