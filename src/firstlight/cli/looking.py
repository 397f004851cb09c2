"""The options that say which machine is looked at; shared by every verb that needs facts."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from firstlight.facts.collect import Facts
from firstlight.facts.look import Look, look_at

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PATIENCE_S = 2.0


def saved_machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell offers behind --facts: the machines that come along, else files."""
    from click.shell_completion import CompletionItem

    from firstlight.facts.document import EXAMPLE, examples

    names = [f"{EXAMPLE}{name}" for name in examples()]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found if found and incomplete else [*found, CompletionItem(incomplete, type="file")]


def look_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --facts, --set and --python to a verb; the verb receives `look: Look`."""

    def with_look(facts_file: str, overrides: tuple[str, ...], python: str, **rest: Any) -> Any:
        return function(look=Look(facts_file, overrides, python), **rest)

    functools.update_wrapper(with_look, function)  # with the options that stand below this one
    for option in (
        click.option("--python", metavar="PATH", default="", help="Judge the environment of this interpreter."),
        click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True,
                     help="Pretend one fact, e.g. --set driver=570.133.20. May be repeated."),
        click.option("--facts", "facts_file", metavar="PATH", default="", shell_complete=saved_machines,
                     help="A saved facts document, a recorded machine or example:NAME, instead of this machine."),
    ):  # fmt: skip
        with_look = option(with_look)
    return with_look


class Looking:
    """A look that has begun in a thread of its own, so that a verb can import what it judges with meanwhile."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._facts: list[Facts] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads allowed here, as under a container's pid limit: look at once
            self._run()

    def _run(self) -> None:
        try:
            self._facts.append(look_at(self._look))
        except BaseException as error:  # noqa: BLE001 raised again where the facts are asked for
            self._error.append(error)

    def facts(self) -> Facts:
        """The facts asked for; after two seconds a terminal is told what is being waited for."""
        timer = threading.Timer(PATIENCE_S, _say_what_is_waited_for, (self._look.host,))
        timer.daemon = True
        if sys.stderr.isatty():
            with suppress(RuntimeError):  # no more threads allowed here: nothing is said then
                timer.start()
        try:
            if self._thread.ident is not None:
                self._thread.join()
        finally:
            timer.cancel()
        if self._error:
            raise self._error[0]
        return self._facts[0]


def look_patiently(look: Look) -> Facts:
    """The facts asked for; after two seconds a terminal is told what is being waited for."""
    return Looking(look).facts()


def _say_what_is_waited_for(host: str) -> None:
    if host:
        click.echo(f"still looking: {host} has not answered yet; it is given 60 seconds at most", err=True)
        return
    click.echo("still looking: the driver has not answered yet; each question ends after 10 seconds at most", err=True)
