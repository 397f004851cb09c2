"""`firstlight undo`: take back the newest run of `apply` that is in place, after it was shown and agreed to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firstlight.apply.outcome import Ending, Undone
from firstlight.apply.place import state_place
from firstlight.apply.session import newest_to_undo, to_undo_in
from firstlight.cli.acting import (
    Answers,
    Watching,
    acting_on,
    agreed,
    agreed_to_stored,
    failure_of,
    journal_path,
    past_runs,
)
from firstlight.errors import AnotherIsActing, CouldNotAct, NotBegun
from firstlight.machine.live import LiveMachine

if TYPE_CHECKING:
    from firstlight.apply.runs import Run

RESUME = "`firstlight undo` again continues with the rest"
BACK = "what was taken back stays so; `firstlight apply` does it again"


@click.command(
    short_help="take back what `apply` did, newest first, one run a call",
    epilog="Example: firstlight undo --list",
)
@click.option("--list", "lists", is_flag=True, help="Print every run and whether it is in place; change nothing.")
@click.option("--yes", is_flag=True, help="Do it without asking, for automation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.undo/1).")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Show what the newest run of `apply` changed, ask, and take it back.

    Files come back to the byte, packages to their versions. A file that somebody edited since is not overwritten: it
    is named, and nothing after it is touched. Packages that somebody added since stay, and so do managers' caches and
    logs. Exit code 0: taken back, or nothing to undo; 1: it could not be taken back; 2: usage, or no terminal to ask;
    4: another firstlight is at work; 130: interrupted.
    """
    from firstlight.report.undo_text import list_text, run_text

    machine = LiveMachine()
    if note := state_place(machine).note:
        click.echo(f"firstlight: {note}", err=True)
    runs = past_runs(machine)
    in_place = to_undo_in(runs)
    undone = Undone(Ending.SHOWN, in_place[-1:], len(in_place), journal=journal_path(machine))
    if given["lists"]:
        _print(undone, runs if given["as_json"] else (), text="" if given["as_json"] else list_text(runs))
        return
    if not in_place:
        _end(ctx, replace(undone, ending=Ending.NOTHING), code=0, **given)
    click.echo(run_text(in_place[-1]), nl=False, err=given["as_json"])
    if not agreed("take it back", yes=given["yes"]):
        _end(ctx, replace(undone, ending=Ending.DECLINED), code=1, **given)
    if not agreed_to_stored(in_place[-1], in_place[-1].stored_commands, verb="undo"):
        _end(ctx, replace(undone, ending=Ending.DECLINED), code=1, **given)
    _take_back(ctx, machine, undone, given)


def _take_back(ctx: click.Context, machine: LiveMachine, undone: Undone, given: dict[str, Any]) -> None:
    from firstlight.apply.undo import undo

    watcher = Watching(Answers.here(yes=given["yes"]))
    try:
        with acting_on(machine, watcher) as acting:
            for run in newest_to_undo(acting):
                undo(acting, run, agreed=undone.run[0].stored_commands)
    except (AnotherIsActing, NotBegun):
        raise
    except CouldNotAct as error:
        _stopped(ctx, replace(undone, ending=Ending.FAILED, failure=(failure_of(error),)), error.exit_code, given)
    except KeyboardInterrupt:
        _stopped(ctx, replace(undone, ending=Ending.INTERRUPTED), 130, given)
    left = len(to_undo_in(past_runs(machine)))
    _end(ctx, replace(undone, ending=Ending.DONE, left=left), code=0, **given)


def _stopped(ctx: click.Context, undone: Undone, code: int, given: dict[str, Any]) -> NoReturn:
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.apply_text import failure_text

    for failure in undone.failure:
        explained = explain_text("\n".join(failure.tail))
        click.echo(failure_text(failure, explained, resume=RESUME, back=BACK), err=True, nl=False)
    if undone.ending is Ending.INTERRUPTED:
        click.echo(f"firstlight: interrupted; the journal holds what was taken back. {RESUME}.", err=True)
    if given["as_json"]:
        _print(undone, (), text="")
    ctx.exit(code)


def _end(ctx: click.Context, undone: Undone, *, code: int, as_json: bool, **given: Any) -> NoReturn:
    from firstlight.report.undo_text import undone_text

    _print(undone, (), text="" if as_json else undone_text(undone))
    ctx.exit(code)


def _print(undone: Undone, runs: tuple[Run, ...], *, text: str) -> None:
    if text:
        click.echo(text, nl=False)
        return
    from firstlight.report.apply_json import undo_document

    click.echo(json.dumps(undo_document(undone, runs), indent=1))
