"""The options that say which machine is looked at; shared by every verb that needs facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from firstlight.facts.look import Look


def look_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --facts, --set and --python to a verb; the verb receives `look: Look`."""

    def with_look(facts_file: str, overrides: tuple[str, ...], python: str, **rest: Any) -> Any:
        return function(look=Look(facts_file, overrides, python), **rest)

    with_look.__doc__ = function.__doc__
    with_look.__name__ = function.__name__
    for option in (
        click.option("--python", metavar="PATH", default="", help="Judge the environment of this interpreter."),
        click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True,
                     help="Pretend one fact, e.g. --set driver=570.133.20. May be repeated."),
        click.option("--facts", "facts_file", metavar="PATH", default="",
                     help="A saved facts document, a recorded machine or example:NAME, instead of this machine."),
    ):  # fmt: skip
        with_look = option(with_look)
    return with_look
