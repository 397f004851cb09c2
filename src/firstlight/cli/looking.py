"""The options that say which machine is looked at; shared by every verb that needs facts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import click

from firstlight.facts.collect import Facts
from firstlight.facts.look import Look, look_at

PATIENCE_S = 2.0


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


def look_patiently(look: Look) -> Facts:
    """The facts asked for; after two seconds a terminal is told what is being waited for."""
    timer = threading.Timer(PATIENCE_S, _say_what_is_waited_for)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        return look_at(look)
    finally:
        timer.cancel()


def _say_what_is_waited_for() -> None:
    click.echo("still looking: the driver has not answered yet; each question ends after 10 seconds at most", err=True)
