"""Carries a build out: the source first, then the plan, then the stages, by the journal and lock of `apply`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from firstlight.apply.executor import StepFailed
from firstlight.build.case import BuildCase, BuildPlace, BuildRoom, case_of, with_toolkit
from firstlight.build.fault import Fault, note, stops
from firstlight.build.fetching import missing_submodules
from firstlight.build.keys import finished_wheel, units_to_compile, what_changed
from firstlight.build.logins import git_variables
from firstlight.build.patching import patch_state
from firstlight.build.places import folder_for, remember, require_one_folder, require_same_target
from firstlight.build.planning import build_steps, id_of, source_of, source_spec, source_steps, spec_of
from firstlight.build.project import Backend, Project, read_project
from firstlight.build.request import BuildRequest
from firstlight.build.source_reads import read_source
from firstlight.build.spec import BuildSpec, SourceSpec, Stage, read_spec, write_spec
from firstlight.build.standing import read_failure
from firstlight.build.tools import probe_tools, tools_of_saved
from firstlight.build.tree_state import read_tree_state
from firstlight.cli.acting import Watching, acting_on, agreed, failure_of
from firstlight.cli.planning import facts_of
from firstlight.errors import AnotherIsActing, BadInput, CouldNotAct, NotBegun
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.tables import load

if TYPE_CHECKING:
    from firstlight.apply.executor import Acting
    from firstlight.cli.build import HowToBuild
    from firstlight.facts.collect import Facts
    from firstlight.ways.step import Step

RESUME = "The same command goes on where it stopped; `firstlight build --status` tells where it stands"
BACK = "`firstlight undo` takes an installed wheel away again and leaves the tree"
MINE = "build:"  # how runs of builds are called in the journal


@dataclass(frozen=True, slots=True)
class Prepared:
    """A build that was looked at: the case, the spec, what is wrong with its tree, what a change costs."""

    case: BuildCase
    spec: BuildSpec
    faults: tuple[Fault, ...]
    costs: tuple[str, ...]


def prepared(request: BuildRequest, how: HowToBuild) -> Prepared:
    """Look at the machine, bring the source here, read it; nothing is compiled."""
    facts = facts_of(how.look)
    machine = LiveMachine()
    if request.toolkit and not how.look.facts_file:
        facts = with_toolkit(facts, machine, request.toolkit)
    tools = tools_of_saved(facts) if how.look.facts_file else probe_tools(machine, facts)
    python = getattr(tools.python, "value", "")
    source = source_of(request.target, request.source, request.patches)
    build_id = id_of(request.target, source, python)
    where = source_spec(build_id, folder_for(machine, build_id, request.build_dir), source)
    require_same_target(where.folder, where)
    _bring_source(machine, where, how, login=request.target.url)
    if not os.path.isdir(where.tree):
        raise BadInput(f"{source.target}: its source is not here, and --dry-run fetches nothing. Give --source a tree.")
    project = read_project(where.tree)
    room = None if how.look.facts_file else _room(where, project)
    case = case_of(request, project, read_source(where.tree), BuildPlace(facts, tools, load(), room))
    spec = spec_of(case, where, read_tree_state(where.tree))
    return Prepared(case, spec, tuple(_faults_of_tree(where, request, facts)), _costs(spec))


def _bring_source(machine: LiveMachine, where: SourceSpec, how: HowToBuild, *, login: str) -> None:
    """Fetch the tree, its submodules, its patches; --dry-run and another machine leave all as it is."""
    if how.dry_run or how.look.facts_file:
        return
    require_one_folder(machine, where.id, where.folder)
    write_spec(where)
    remember(machine, where.id, where.folder)
    steps, title = source_steps(where, sys.executable), f"fetch the source of {where.source.target}"
    try:
        _run(machine, steps, MINE + where.id, title, login=login)
    except StepFailed as error:
        _give_up(machine, MINE + where.id)
        raise read_failure(where.folder, Stage(error.step.id)) or error from error


def _give_up(machine: LiveMachine, option: str) -> None:
    """A fetch that failed is over: nothing of it is left to be finished by `apply` or taken back."""
    from firstlight.apply.session import interrupted
    from firstlight.apply.undo import undo

    with acting_on(machine, Watching()) as acting:
        for run in interrupted(acting):
            if run.option == option:
                undo(acting, run)


def _faults_of_tree(where: SourceSpec, request: BuildRequest, facts: Facts) -> list[Fault]:
    found = []
    if missing := missing_submodules(where.tree):
        listed = ", ".join(missing[:3])
        found.append(
            note("submodules", f"{len(missing)} submodules are not at their commits ({listed}): they are brought there")
        )
    if request.prefix and not _can_be_made(request.prefix):
        saw = f"--prefix {request.prefix} cannot be written to: the install would fail after everything is compiled"
        found.append(stops("prefix-not-writable", saw, "Name a folder of yours, or become its owner."))
    for path in request.patches:
        state, hunk = patch_state(where.tree, path)
        if state == "conflicts":
            found.append(
                stops("patch-conflicts", f"{path}: {hunk}", "Make the patch anew for this source, or leave it out.")
            )
    return found


def _room(where: SourceSpec, project: Project) -> BuildRoom:
    """What is free where the objects go: into the build's folder, or with setup.py into the tree."""
    folder = where.folder if project.backend is Backend.SKBUILD else where.tree
    there = _nearest(folder)
    held = os.statvfs(there)
    return BuildRoom(there, Known(held.f_bavail * held.f_frsize, seen_in="statvfs"))


def _can_be_made(path: str) -> bool:
    """Whether a folder can be made or written to; root may write everywhere but on a file system that takes nothing."""
    there = _nearest(path)
    if not os.path.isdir(there) or not os.access(there, os.W_OK):
        return False
    held = os.statvfs(there)
    return not held.f_flag & os.ST_RDONLY and held.f_blocks > 0  # /proc and /sys have no blocks


def _nearest(path: str) -> str:
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(os.path.abspath(path))
    return path


def _costs(spec: BuildSpec) -> tuple[str, ...]:
    """What a changed flag, compiler or patch costs, in units, before anything is started."""
    before = read_spec(spec.folder)
    if before is None:
        return ()
    changed = what_changed(before, spec)
    left = units_to_compile(before)
    if not changed:
        return (f"{left} of its commands are left to run",) if left > 0 else ()
    return (
        *changed,
        "each unit whose command changes by that is compiled again; ninja decides unit by unit after configuring",
    )


def carry_out_build(ready: Prepared, how: HowToBuild) -> tuple[str, int]:
    """Ask, then do every stage that is not done; (how it ended, the exit code)."""
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.apply_text import failure_text

    machine, spec = LiveMachine(), ready.spec
    if not agreed("build it", yes=how.yes):
        return "declined", 1
    write_spec(spec)
    begun = time.monotonic()
    try:
        _run(machine, build_steps(spec, sys.executable), MINE + spec.id, f"build {spec.name} {spec.version}".strip())
    except (AnotherIsActing, NotBegun):
        raise
    except CouldNotAct as error:
        failure = failure_of(error)
        told = replace(failure, tail=failure.tail[-12:])
        click.echo(
            failure_text(told, explain_text("\n".join(failure.tail)), resume=RESUME, back=BACK), err=True, nl=False
        )
        click.echo(_without_compiling(spec), err=True, nl=False)
        return "failed", error.exit_code
    except KeyboardInterrupt:
        click.echo(f"firstlight: interrupted; everything is kept. {RESUME}.", err=True)
        return "interrupted", 130
    wheel = finished_wheel(spec)
    what = f"compiled {spec.only}" if spec.only else f"built and proved {os.path.basename(wheel)}"
    click.echo(f"{what} in {(time.monotonic() - begun) / 60:.1f} min", err=how.form.value == "json")
    return "done", 0


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


def _run(machine: LiveMachine, steps: tuple[Step, ...], option: str, title: str, *, login: str = "") -> None:
    """Carry steps out under the lock; what was begun for this build goes on, and what has changed since is given up.

    login: the address of a repository as it was given, whose user and password git gets and no file does.
    """
    from firstlight.apply.session import Asked, act
    from firstlight.plan.plan import digest_of

    with acting_on(machine, Watching()) as plain:
        acting = replace(plain, env={**plain.env, **git_variables(login, plain.env)})
        if not _taken_up(acting, steps, option):
            act(acting, Asked(steps, digest_of(steps), option, title))


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
