"""Which copy of a package a command takes out: pip takes the first that it sees, whichever was meant."""

from __future__ import annotations

import os
from collections.abc import Mapping

from firstlight.apply.conditions import of_condition
from firstlight.apply.environments import first_on_path, look_at
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from firstlight.ways.step import CheckKind, Condition, Step


def has_nothing_to_take(step: Step, argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """Whether the copy that the command is meant for is gone; CouldNotAct where it would take out another one."""
    named = (each for each in step.done_when if each.kind is CheckKind.DISTRIBUTIONS_ABSENT and each.folder)
    return "uninstall" in argv and any(_is_gone(step, each, argv, env) for each in named)


def refuse_other_copies(step: Step, env: Mapping[str, str]) -> None:
    """Stop before a step whose first command would take out another copy than the one it names."""
    has_nothing_to_take(step, step.commands[0] if step.commands else (), env)


def _is_gone(step: Step, condition: Condition, argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
    there = look_at(condition.target, condition.folder)
    # uv knows the packages of the environment itself alone; pip all that its Python would import
    python = argv[: argv.index("-m")] if "-m" in argv else (condition.target, "-I")
    on_path = first_on_path(python, env)
    for seen in (there, on_path):
        if isinstance(seen, Unknown):
            raise CouldNotAct(f"{step.title}: which copy is the first could not be seen: {seen.reason}. {_NOTHING}")
    assert not isinstance(there, Unknown)
    assert not isinstance(on_path, Unknown)
    if not of_condition(condition, there.value):
        return True
    folder = os.path.realpath(condition.folder)
    for wanted in condition.expected.split():
        first = next(iter(on_path.value.named(wanted.partition("==")[0])), None)
        if first is not None and os.path.realpath(os.path.dirname(first.path)) != folder:
            raise CouldNotAct(
                f"{step.title}: this would take out {first.name} {first.version} of {os.path.dirname(first.path)}, "
                f"which comes before {condition.folder} here. {_NOTHING}"
            )
    return False


_NOTHING = (
    "Nothing was taken out. Look again with `firstlight doctor`, in the shell and as the user that the copy is of."
)
