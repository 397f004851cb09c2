"""Carries a build out: its stages, by the journal and lock of `apply`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from firstlight.apply.executor import BUILD_STAGE, StepFailed
from firstlight.apply.lock import is_held_by_starter
from firstlight.apply.surroundings import folder_for
from firstlight.build.compile_time import compiled_before
from firstlight.build.keys import finished_wheel
from firstlight.build.logins import git_variables
from firstlight.build.planning import bringing_step, build_steps
from firstlight.build.requirements_here import keep_what_is_installed
from firstlight.build.spec import BuildSpec, Stage, write_spec
from firstlight.build.standing import ended_of, read_failure
from firstlight.cli.acting import QUIET, Watching, acting_on, agreed, failure_of
from firstlight.errors import AnotherIsActing, CouldNotAct, NotBegun
from firstlight.facts.known import Known
from firstlight.machine.live import LiveMachine
from firstlight.ways.step import CheckKind

if TYPE_CHECKING:
    from firstlight.apply.executor import Acting
    from firstlight.build.fault import Fault
    from firstlight.cli.build import HowToBuild
    from firstlight.ways.step import Step

_INTERRUPTED = 130
BY_PIP = ("build-requirements", "no-cmake", "cmake-too-old", "no-ninja", "ninja-too-old")  # faults of preflight
WATCH = "How far it is, in any shell:\n    firstlight build --status --follow"
RESUME = "The same command continues where it stopped."
BACK = "`firstlight undo` takes an installed wheel away again and leaves the tree."
MINE = "build:"  # how runs of builds are called in the journal


def carry_out_build(spec: BuildSpec, how: HowToBuild) -> tuple[str, int]:
    """Ask, then do every stage that is not done; (how it ended, the exit code)."""
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.apply_text import failure_text

    machine, title = LiveMachine(), f"build {spec.name} {spec.version}".strip()
    if not agreed("build it", yes=how.yes):
        return "declined", 1
    write_spec(spec)
    keep_what_is_installed(spec)
    if not is_held_by_starter():
        click.echo(WATCH, err=True)
    before, begun = compiled_before(spec), time.monotonic()
    try:
        run_steps(machine, build_steps(spec, sys.executable), MINE + spec.id, title)
    except (AnotherIsActing, NotBegun):
        raise
    except CouldNotAct as error:
        failure = failure_of(error)
        told = replace(failure, message=reason_of(spec, error), tail=failure.tail[-12:])
        click.echo(
            failure_text(told, explain_text("\n".join(failure.tail)), resume=RESUME, back=BACK), err=True, nl=False
        )
        if isinstance(error, StepFailed) and error.step.id == Stage.INSTALL.value:
            click.echo(_without_compiling(spec), err=True, nl=False)
        return "failed", error.exit_code
    except KeyboardInterrupt:
        click.echo(f"firstlight: interrupted; everything is kept. {RESUME}", err=True)
        return "interrupted", 130
    click.echo(_ended_text(spec, how, time.monotonic() - begun, before), err=how.form.value == "json", nl=False)
    return "done", 0


def reason_of(spec: BuildSpec, error: CouldNotAct) -> str:
    """Why it stopped: what the stage itself says, where it was one of ours that failed."""
    if not isinstance(error, StepFailed) or BUILD_STAGE not in error.argv:
        return str(error)
    said = read_failure(spec.folder, Stage(error.step.id))
    return f"{error.step.title}: {said}" if said else str(error)


def _ended_text(spec: BuildSpec, how: HowToBuild, seconds: float, before: float) -> str:
    """What was made, how long it took and what that cost, and what was proved by what.

    before: seconds that earlier runs compiled, where this one went on with them.
    """
    from firstlight.report.apply_text import money
    from firstlight.report.build_text import ended_text

    ended = ended_of(spec)
    what = (
        f"compiled {spec.only}"
        if spec.only
        else f"built{' and proved' if ended.proofs else ''} {os.path.basename(ended.wheel)}"
    )
    took = seconds + before
    earlier = f", {before / 60:.1f} of them compiling in earlier runs" if before else ""
    spent = f", cost {money(took, how.rate)}" if isinstance(how.rate, Known) else ""
    return f"{what} in {took / 60:.1f} min{earlier}{spent}\n{ended_text(ended)}"


def _without_compiling(spec: BuildSpec) -> str:
    """After a failed install: ways that compile nothing again."""
    wheel = finished_wheel(spec)
    if not wheel or spec.wheel_only:
        return ""
    name = os.path.basename(wheel)
    return (
        f"The wheel is there and nothing has to be compiled again. Any of these installs it:\n"
        f"    {spec.python} -m pip install --no-deps --ignore-installed --prefix ~/.local {spec.wheels}/{name}\n"
        f"    python3 -m venv ~/firstlight-venv && ~/firstlight-venv/bin/pip install {spec.wheels}/{name}\n"
    )


def run_steps(machine: LiveMachine, steps: tuple[Step, ...], option: str, title: str, *, login: str = "") -> None:
    """Carry steps out under the lock; what was begun for this build goes on, and what has changed since is given up.

    login: the address of a repository as it was given, whose user and password git gets and no file does.
    """
    from firstlight.apply.conditions import ANSWERED_HERE
    from firstlight.apply.session import Asked, act
    from firstlight.build import done
    from firstlight.plan.plan import digest_of

    if is_held_by_starter():
        walk(steps, {**os.environ, **QUIET, **git_variables(login, os.environ)})
        return
    ANSWERED_HERE[done.MODULE] = done.main  # a process for each question is half of what going on costs
    with acting_on(machine, Watching()) as plain:
        acting = replace(plain, env={**plain.env, **git_variables(login, plain.env)})
        if not _taken_up(acting, steps, option):
            act(acting, Asked(steps, digest_of(steps), option, title))


def walk(steps: tuple[Step, ...], env: dict[str, str]) -> None:
    """Carry steps out as a part of a step of `apply`, which has the lock and writes down what becomes of the whole."""
    for step in steps:
        looked = [each.argv for each in step.done_when if each.kind is CheckKind.COMMAND]
        if looked and all(_succeeds(argv, env) for argv in looked):
            click.echo(f"done already: {step.title}")
            continue
        click.echo(step.title)
        for argv in step.commands:
            status = subprocess.run(argv, env=env, cwd=folder_for(argv), check=False).returncode
            if status == _INTERRUPTED:
                raise KeyboardInterrupt
            if status != 0:
                message = f"{step.title}: a command ended with status {status}: {shlex.join(argv)}"
                raise StepFailed(message, step=step, argv=argv, tail=(), log="")


def steps_that_bring(faults: tuple[Fault, ...]) -> tuple[Step, ...]:
    """What installs all that a tree is built with, as preflight says it: pip, with a way back."""
    return tuple(bringing_step(each) for each in faults if each.code in BY_PIP and each.command)


def _succeeds(argv: tuple[str, ...], env: dict[str, str]) -> bool:
    return subprocess.run(argv, env=env, cwd=folder_for(argv), capture_output=True, check=False).returncode == 0


def _taken_up(acting: Acting, steps: tuple[Step, ...], option: str) -> bool:
    """Whether the journal's last run was this one, and is finished now."""
    from firstlight.apply.executor import carry_out, wait_for_what_still_runs
    from firstlight.apply.session import interrupted
    from firstlight.apply.undo import undo

    for run in interrupted(acting):
        if not run.option.startswith(MINE):
            raise CouldNotAct(
                f"run {run.number} ({run.title}) was left unfinished. `firstlight apply` finishes it, `undo` "
                "takes it back; then build."
            )
        if run.option == option and run.steps == steps and not run.undoing:
            carry_out(acting, run)
            return True
        wait_for_what_still_runs(acting, run.number)
        undo(acting, run)
    return False
