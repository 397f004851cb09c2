"""`firstlight run -- CMD`: start a command with the libcuda that works on this machine, decided now."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from firstlight.errors import BadInput, CouldNotAct, NotStarted

if TYPE_CHECKING:
    from firstlight.apply.wiring import CompatWiring, Mode


@click.command(
    short_help="run CMD with the loader wired for this machine, decided now",
    context_settings={"ignore_unknown_options": True},
    epilog="Example: firstlight run -- python train.py",
)
@click.option("--why", is_flag=True, help="Say what was decided and why before the command starts.")
@click.option("--explain", "explains", is_flag=True, help="If CMD fails, say what is known of the end of its output.")
@click.argument("words", metavar="-- CMD [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(why: bool, explains: bool, words: tuple[str, ...]) -> None:  # noqa: FBT001 click's flags
    """Start CMD so that it finds the libcuda that works here; exits with CMD's own code.

    A forward-compat library that breaks the driver (error 803) is taken out of LD_LIBRARY_PATH; one that torch needs
    and that cuInit accepts is put first. FIRSTLIGHT_COMPAT=auto|on|off: on refuses to start without compat, off changes
    nothing. Nothing on the machine is changed.

    CMD is found and started as a shell does it, and takes the place of firstlight: signals reach it; sh reads a script
    without #!. With --explain firstlight stays, passes all output and signals through, and ends as CMD ends.
    Exit code 127: there is no such program, or what its first line asks for is not there; 126: it is there
    and cannot be started; 2: no CMD was given; 1: FIRSTLIGHT_COMPAT=on, and compat cannot be used.
    """
    from firstlight.apply.starting import program_of, start
    from firstlight.apply.wiring import VARIABLE, Action, mode_of

    if not words:
        raise BadInput("no command was given. Write it after two dashes: firstlight run -- python train.py")
    if words[0].startswith("--"):
        raise BadInput(
            f"{words[0]!a} is not an option of run; accepted: --why, --explain. The command comes after two dashes: "
            "firstlight run --explain -- python train.py"
        )
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
    if explains:
        _run_and_explain(program, words, environment)
    start(program, words, environment)


def _run_and_explain(program: str, words: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """The command as a child, its output passed through; where it fails, what is known of it, on stderr."""
    from firstlight.apply.starting import start
    from firstlight.explain.watching import end_as, watched

    def become() -> NoReturn:
        try:
            start(program, words, environment)
        except NotStarted as error:
            click.echo(f"firstlight: {error}", err=True)
            sys.stderr.flush()
            os._exit(error.exit_code)

    ended = watched(become)
    if ended.status != 0:
        from firstlight.explain.saying import why_it_failed

        click.echo(why_it_failed(ended, shutil.get_terminal_size((88, 24)).columns), nl=False, err=True)
        sys.stderr.flush()
    end_as(ended.status)


def _wiring(program: str, *, mode: Mode) -> CompatWiring:
    """What the program is started with; with `off` nothing is looked at, and it starts at once."""
    from firstlight.apply.wiring import VARIABLE, Action, CompatWiring, Mode, cuinit_probe, decide

    if mode is Mode.OFF:
        return CompatWiring(Action.NOTHING, (), "", f"{VARIABLE}=off")
    from firstlight.diagnosis.finding import Question
    from firstlight.facts.collect import collect
    from firstlight.machine.live import LiveMachine
    from firstlight.tables import load

    machine = LiveMachine()
    python = program if os.path.basename(program).startswith("python") else ""
    question = Question(collect(machine, python=python), load())
    return decide(question, mode=mode, probe=cuinit_probe(machine))
