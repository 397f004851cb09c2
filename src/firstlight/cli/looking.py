"""The options that say which machine is looked at; shared by every verb that needs facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from firstlight.facts.collect import Facts, collect
from firstlight.facts.document import read_machine_or_facts, renamed
from firstlight.facts.override import override
from firstlight.machine.live import LiveMachine


@dataclass(frozen=True, slots=True)
class Look:
    """Which machine, seen how."""

    facts_file: str
    overrides: tuple[str, ...]
    python: str


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
                     help="A saved facts document or a recorded machine, instead of this machine."),
    ):  # fmt: skip
        with_look = option(with_look)
    return with_look


def look_at(look: Look) -> Facts:
    """The facts asked for: live, or read back from a file; names of people and devices are pseudonyms."""
    if look.facts_file:
        facts = read_machine_or_facts(look.facts_file)
    else:
        machine = LiveMachine()
        facts = renamed(collect(machine, python=look.python), machine.host)
    return override(facts, look.overrides)
