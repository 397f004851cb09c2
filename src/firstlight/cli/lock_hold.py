"""`firstlight lock --hold`: show what makes the package managers refuse, ask once, do it as `apply` does."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, NoReturn

import click

from firstlight.apply.executor import is_done, lacks_rights
from firstlight.apply.outcome import Ending
from firstlight.apply.parts import parted
from firstlight.apply.session import Asked, act, interrupted
from firstlight.cli.acting import Watching, acting_on, agreed, failure_of, past_runs
from firstlight.cli.apply import finish_interrupted
from firstlight.cli.apply_shown import ApplyOptions, Form
from firstlight.cli.plan_files import extras_of
from firstlight.errors import AnotherIsActing, BadInput, CouldNotAct, NotBegun
from firstlight.facts.collect import Facts
from firstlight.facts.look import Look
from firstlight.lock.hold import CONSTRAINTS, DOES_NOT_STOP, hold_ways
from firstlight.lock.stack import LockedClass
from firstlight.machine.live import LiveMachine
from firstlight.plan.plan import digest_of
from firstlight.report.lock_hold_text import Held, held_text, hold_json, hold_text
from firstlight.report.lock_json import lock_document
from firstlight.tables import load
from firstlight.ways.at import At
from firstlight.ways.diffs import FileText
from firstlight.ways.hold_steps import held_files
from firstlight.ways.platform import platform_of
from firstlight.ways.step import Step
from firstlight.ways.steps import steps_of

_DOCUMENT = "firstlight.lock.document"  # what --json prints at the end, with what came of the hold
RESUME = "`firstlight lock --hold` again, once that is fixed"
BACK = "`firstlight undo` takes back what was done"


def hold(ctx: click.Context, locked: LockedClass, look: Look, facts: Facts, given: dict[str, Any]) -> None:
    """Plan, show, ask and act; the lock is written by now."""
    form = Form.JSON if given["as_json"] else Form.TEXT
    ctx.meta[_DOCUMENT] = lock_document(locked, file=given["out"])
    machine = LiveMachine()
    how = ApplyOptions(
        yes=given["yes"], dry_run=given["dry_run"], proves=False, optional=(), offline="", form=form, look=look
    )
    finish_interrupted(ctx, machine, how)
    constraints = os.path.join(os.path.dirname(os.path.abspath(given["out"])), CONSTRAINTS)
    if len(constraints.split()) > 1:
        raise BadInput(f"--out {given['out']}: pip takes no path with a space for constraints. Give another folder.")
    steps = _steps(machine, facts, constraints)
    held = Held(locked.name, Ending.NOTHING, steps, tuple(step for step in steps if lacks_rights(step)), (), (), 0)
    parts = parted(tuple(step for step in steps if step not in held.for_root))
    click.echo(hold_text(held, DOES_NOT_STOP), nl=False, err=form is Form.JSON)
    if is_done(parts.ours):
        _end(ctx, held, form, code=0)
    if given["dry_run"]:
        _end(ctx, replace(held, ending=Ending.SHOWN), form, code=0)
    if not agreed("hold it", yes=given["yes"]):
        _end(ctx, replace(held, ending=Ending.DECLINED), form, code=1)
    _act(ctx, machine, replace(held, ours=parts.ours), form)


def _steps(machine: LiveMachine, facts: Facts, constraints: str) -> tuple[Step, ...]:
    """The steps of every way, with the texts of the files that they edit."""
    extras = extras_of(machine, facts)
    prefix = "" if facts.environment is None else facts.environment.prefix
    paths = (constraints, *(held_files(prefix) if prefix else ()))
    texts = tuple(FileText(path, text) for path in paths if (text := machine.read(path)) is not None)
    records = machine.list(f"{prefix}/conda-meta", "*.json") if prefix else ()
    ways = hold_ways(facts, constraints=constraints, conda_records=records, packages=extras.packages)
    at = At(
        facts,
        load(),
        platform_of(facts),
        replace(extras, files=(*extras.files, *texts)),
        "the stack must stay as locked",
    )
    made = tuple(step for way in ways for step in steps_of(way, at) if _changes(step))
    return tuple(replace(step, id=f"{number:02d}-{step.id}") for number, step in enumerate(made, 1))


def _changes(step: Step) -> bool:
    """Whether a step of files still changes one."""
    return not step.files or any(change.before != change.after for change in step.files)


def _act(ctx: click.Context, machine: LiveMachine, held: Held, form: Form) -> NoReturn:
    watcher, digest = Watching(), digest_of(held.ours)
    try:
        with acting_on(machine, watcher) as acting:
            if interrupted(acting):
                raise CouldNotAct("another run was interrupted meanwhile. Run the same command again to finish it.")
            act(acting, Asked(held.ours, digest, "lock:hold", f"hold the stack of class {held.name}"))
    except (AnotherIsActing, NotBegun):
        raise
    except CouldNotAct as error:
        from firstlight.diagnosis.explain import explain_text
        from firstlight.report.apply_text import failure_text

        failure = failure_of(error)
        explained = explain_text("\n".join(failure.tail))
        click.echo(failure_text(failure, explained, resume=RESUME, back=BACK), err=True, nl=False)
        ctx.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo(f"firstlight: interrupted; the journal holds what was done. {BACK}.", err=True)
        ctx.exit(130)
    begun = [run.number for run in past_runs(machine) if run.digest == digest]
    done = replace(held, ending=Ending.DONE, taken=watcher.account.of(held.ours), run=begun[-1] if begun else 0)
    _end(ctx, done, form, code=0)


def _end(ctx: click.Context, held: Held, form: Form, *, code: int) -> NoReturn:
    if form is Form.JSON:
        click.echo(json.dumps({**ctx.meta[_DOCUMENT], "hold": hold_json(held)}, indent=1))
    else:
        click.echo(held_text(held), nl=False)
    ctx.exit(code)
