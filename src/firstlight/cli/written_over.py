"""What is written never takes the place of what was read, nor of a file that somebody else wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

# The options whose value is written, in every verb; all other values may be files that are read.
WRITTEN = ("--out", "--html", "--junit", "--report", "--write-zipapp", "--record")


@dataclass(frozen=True, slots=True)
class Checked:
    """The function of a command, called after the files that it was given were compared."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_inputs_written_over(click.get_current_context())
        return self.function(*args, **kwargs)


def keep_inputs(command: click.Command) -> None:
    """The command, from now on, refuses to write to a file that it is given to read."""
    has_one = any(set(parameter.opts) & set(WRITTEN) for parameter in command.params)
    if has_one and command.callback is not None and not isinstance(command.callback, Checked):
        command.callback = Checked(command.callback)


def refuse_inputs_written_over(ctx: click.Context) -> None:
    """BadInput where a file to write is one to read, also by another name of it, or two are to be written as one."""
    given = [(_name(parameter), value) for parameter in ctx.command.params for value in _texts(ctx, parameter)]
    for place, (option, path) in enumerate(given):
        if option in WRITTEN:
            refuse_as_output(path, given[:place] + given[place + 1 :], option=option)


def refuse_as_output(path: str, others: Iterable[tuple[str, str]], *, option: str = "--out") -> None:
    """BadInput where `path` is one of the others, each with the option that it was given by ('' for an argument)."""
    for name, other in others:
        if _is_same(path, other):
            what = "would be written twice" if name in WRITTEN else "is read by this command, and would be replaced"
            also = f" ({name} {other})" if name else "" if other == path else f" ({other})"
            raise BadInput(f"{option} {path}: it {what}{also}. Name another file with {option}.")


def _name(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len) if isinstance(parameter, click.Option) else ""


def _texts(ctx: click.Context, parameter: click.Parameter) -> Iterator[str]:
    if isinstance(parameter.type, click.Choice) or parameter.metavar == "NAME":  # `emit kit --out kit` reads no file
        return
    value = ctx.params.get(parameter.name or "")
    values = value if isinstance(value, tuple) else (value,)
    yield from (each for each in values if isinstance(each, str) and each not in ("", "-"))


def _is_same(path: str, other: str) -> bool:
    """Whether both are one file or folder, by whatever name; a terminal is in and out at once, and is none."""
    try:
        there = os.path.isfile(path) or os.path.isdir(path)
        return os.path.samefile(path, other) if there else os.path.realpath(path) == os.path.realpath(other)
    except (OSError, ValueError):  # what is no path
        return False
