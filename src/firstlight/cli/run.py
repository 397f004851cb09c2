"""`firstlight run -- CMD`: start a command with the libcuda that works on this machine, decided now."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from firstlight.errors import BadInput, CouldNotAct

if TYPE_CHECKING:
    from firstlight.apply.wiring import Mode, Wiring


@click.command(
    short_help="run CMD with the loader wired for this machine, decided now",
    context_settings={"ignore_unknown_options": True},
    epilog="Example: firstlight run -- python train.py",
)
@click.option("--why", is_flag=True, help="Say what was decided and why before the command starts.")
@click.argument("words", metavar="-- CMD [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(why: bool, words: tuple[str, ...]) -> None:  # noqa: FBT001 click's flag
    """Start CMD so that it finds the libcuda that works here; exits with CMD's own code.

    A forward-compat library that breaks the driver (error 803) is taken out of LD_LIBRARY_PATH; one that torch needs
    and that cuInit accepts is put first. FIRSTLIGHT_COMPAT=auto|on|off: on refuses to start without compat, off changes
    nothing. Nothing on the machine is changed.

    CMD is found and started as a shell does it, and takes the place of firstlight: signals reach it; sh reads a script
    without #!. Exit code 127: there is no such program, or what its first line asks for is not there; 126: it is there
    and cannot be started; 2: no CMD was given; 1: FIRSTLIGHT_COMPAT=on, and compat cannot be used.
    """
    from firstlight.apply.starting import program_of, start
    from firstlight.apply.wiring import VARIABLE, Action, mode_of

    if not words:
        raise BadInput("no command was given. Write it after two dashes: firstlight run -- python train.py")
    program = program_of(words[0], os.environ.get("PATH"))
    wiring = _wiring(program, mode=mode_of(os.environ.get(VARIABLE)))
    if wiring.action is Action.REFUSE:
        raise CouldNotAct(f"{words[0]} was not started: {wiring.why}. {VARIABLE}=off starts it as it is.")
    if why or wiring.action is not Action.NOTHING:
        click.echo(
            f"firstlight: {wiring.action.value}{' ' if wiring.folder else ''}{wiring.folder}: {wiring.why}", err=True
        )
    environment = dict(os.environ)
    if wiring.action is not Action.NOTHING:
        environment["LD_LIBRARY_PATH"] = ":".join(wiring.library_path)
        if not wiring.library_path:
            del environment["LD_LIBRARY_PATH"]
    sys.stdout.flush()
    sys.stderr.flush()
    start(program, words, environment)


def _wiring(program: str, *, mode: Mode) -> Wiring:
    """What the program is started with; with `off` nothing is looked at, and it starts at once."""
    from firstlight.apply.wiring import VARIABLE, Action, Mode, Wiring, cuinit_probe, decide

    if mode is Mode.OFF:
        return Wiring(Action.NOTHING, (), "", f"{VARIABLE}=off")
    from firstlight.diagnosis.finding import Question
    from firstlight.facts.collect import collect
    from firstlight.machine.live import LiveMachine
    from firstlight.tables import load

    machine = LiveMachine()
    python = program if os.path.basename(program).startswith("python") else ""
    question = Question(collect(machine, python=python), load())
    return decide(question, mode=mode, probe=cuinit_probe(machine))
