"""An option that was given as nothing is refused: `--facts "$FILE"` with FILE unset is not `--facts` left out."""

from __future__ import annotations

import click
from click.core import ParameterSource

from firstlight.cli.written_over import keep_inputs
from firstlight.errors import BadInput

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def refuse_nothing(command: click.Command) -> click.Command:
    """The same command; options whose default is an empty text no longer take one, and what it reads is kept."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.default == "" and parameter.callback is None:
            parameter.callback = _refuse
    keep_inputs(command)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            refuse_nothing(each)
    return command


def refuse_json(option: str, *, as_json: bool) -> None:
    """`--json` is one document or a refusal: what `option` prints is lines of text."""
    if as_json:
        raise BadInput(f"{option} and --json were both given; {option} prints lines of text. Leave one out.")


def _refuse(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if value == "" and not ctx.resilient_parsing and ctx.get_parameter_source(parameter.name or "") in GIVEN:
        name = max(parameter.opts, key=len)
        raise BadInput(f"{name} is empty: give {parameter.metavar or 'a value'}, or leave {name} out.")
    return value
