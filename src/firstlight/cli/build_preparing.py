"""Looks at a build before it is carried out: the machine, the source, what a change costs; nothing is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.apply.executor import StepFailed
from firstlight.apply.lock import is_held_by_starter, machine_lock
from firstlight.build.asked_name import ask_name, name_not_stated, name_of_a_look
from firstlight.build.backend import BY_NINJA, Backend
from firstlight.build.case import BuildCase, BuildPlace, BuildRoom, case_of, with_toolkit
from firstlight.build.fault import Fault, note, stops
from firstlight.build.fetching import missing_submodules, source_holds
from firstlight.build.keys import units_to_compile, what_changed
from firstlight.build.logins import git_variables
from firstlight.build.patching import patch_state
from firstlight.build.places import folder_for, forget, remember, require_one_folder, require_same_target
from firstlight.build.planning import id_of, source_of, source_spec, source_steps, spec_of
from firstlight.build.project import Project, read_project
from firstlight.build.remote_ref import moved_ref
from firstlight.build.request import BuildRequest
from firstlight.build.seen_peaks import seen_peaks
from firstlight.build.source_reads import read_source
from firstlight.build.spec import BuildSpec, SourceSpec, Stage, digest_of, read_spec, write_spec
from firstlight.build.standing import ended_of, read_failure
from firstlight.build.tools import BuildTools, probe_tools, tools_of_saved
from firstlight.build.tree_state import read_tree_state
from firstlight.cli.acting import Watching, acting_on
from firstlight.cli.build_acting import MINE, run_steps
from firstlight.cli.planning import facts_of
from firstlight.errors import BadInput, CouldNotAct
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.numerals import counted
from firstlight.report.apply_text import money
from firstlight.report.build_text import duration
from firstlight.tables import load
from firstlight.ways.names import normal

if TYPE_CHECKING:
    from firstlight.cli.build import HowToBuild
    from firstlight.facts.collect import Facts


_AGAIN = "every file affected by that is compiled again; ninja decides which after configuring"
_AGAIN_AS_MODULES = "every module affected by that is compiled again"


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
    source = source_of(request.target, request.source, request.patches)
    build_id = id_of(request.target, source, getattr(tools.python, "value", ""))
    where = source_spec(build_id, folder_for(machine, build_id, request.build_dir), source)
    require_same_target(where.folder, where)
    if not how.look.facts_file:
        require_one_folder(machine, where.id, where.folder)
        if not _can_be_made(where.folder):
            raise BadInput(
                f"{where.folder}: the build cannot be kept there: nothing can be written to it. Name a folder of yours "
                "with --build-dir."
            )
    if source.folder and not source.patches:
        read_project(source.folder)  # refused before anything is written down
    moved = tuple(moved_ref(where, login=request.target.url))
    if not how.dry_run:
        _bring_source(machine, where, login=request.target.url)
    if os.path.isdir(where.tree) or source.folder:
        found = _read(request, where, where.tree, _Place(facts, tools, how))
        return replace(found, faults=(*found.faults, *moved))
    with _fetched_for_a_look(where, login=request.target.url) as tree:
        return _read(request, where, tree, _Place(facts, tools, how))


@dataclass(frozen=True, slots=True)
class _Place:
    """The machine that is planned for, and how."""

    facts: Facts
    tools: BuildTools
    how: HowToBuild


def _read(request: BuildRequest, where: SourceSpec, tree: str, place: _Place) -> Prepared:
    """The plan of a build by the tree at hand; that lies elsewhere where it was fetched for a look."""
    project = read_project(tree)
    room = None if place.how.look.facts_file else _room(where, project)
    before = None if place.how.look.facts_file else read_spec(where.folder)
    machine = BuildPlace(place.facts, place.tools, load(), room, seen_peaks(before) if before else ())
    faults: tuple[Fault, ...] = (*_another_project(request, project), *_faults_of_tree(tree, request))
    project, unnamed = _named(project, tree, place)
    faults = (*faults, *unnamed)
    if project.backend is Backend.PYTORCH and request.target.version:
        project = replace(project, version=request.target.version)
    case = case_of(request, replace(project, root=where.tree), read_source(tree), machine)
    spec = spec_of(case, where, read_tree_state(tree))
    return Prepared(case, spec, faults, _costs(spec, place.how.rate))


def _named(project: Project, tree: str, place: _Place) -> tuple[Project, tuple[Fault, ...]]:
    """The project under the name that its setup.py gives it, where the tree does not state one."""
    if project.name_stated:
        return project, ()
    if place.how.dry_run:
        return project, (name_of_a_look(project),)
    found = ask_name(place.tools, tree)
    if isinstance(found, Unknown):
        return project, (name_not_stated(project, found),)
    return replace(project, name=found.value), ()


@contextmanager
def _fetched_for_a_look(where: SourceSpec, *, login: str) -> Iterator[str]:
    """The tree in a folder that is removed again: --dry-run leaves nothing behind, and reads what would be built."""
    with tempfile.TemporaryDirectory(prefix="firstlight-build-") as folder:
        spec = replace(where, folder=folder, tree=f"{folder}/tree")
        write_spec(spec)
        argv = [sys.executable, "-m", "firstlight.build.stage", folder, Stage.FETCH.value, digest_of(spec)]
        env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **git_variables(login, os.environ)}
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=env, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise read_failure(folder, Stage.FETCH) or CouldNotAct(f"the source could not be fetched: {said}")
        yield spec.tree


def _bring_source(machine: LiveMachine, where: SourceSpec, *, login: str) -> None:
    """Fetch the tree, its submodules, its patches; where all is here, the journal of a stopped build stays as it is."""
    new = not os.path.lexists(where.folder)
    write_spec(where)
    remember(machine, where.id, where.folder)
    steps, title = source_steps(where, sys.executable), f"fetch the source of {where.source.target}"
    if not is_held_by_starter() and all(source_holds(where, Stage(each.id)) for each in steps):
        with machine_lock():  # another that is at work is told before the plan, not after it was agreed to
            return
    try:
        run_steps(machine, steps, MINE + where.id, title, login=login)
    except StepFailed as error:
        if not is_held_by_starter():
            _give_up(machine, MINE + where.id)
        failure = read_failure(where.folder, Stage(error.step.id)) or error
        if new and isinstance(failure, BadInput):  # an archive or a ref that cannot be: nothing of it is kept
            forget(machine, where.id, where.folder)
        raise failure from error


def _give_up(machine: LiveMachine, option: str) -> None:
    """A fetch that failed is over: nothing of it is left to be finished by `apply` or taken back."""
    from firstlight.apply.session import interrupted
    from firstlight.apply.undo import undo

    with acting_on(machine, Watching()) as acting:
        for run in interrupted(acting):
            if run.option == option:
                undo(acting, run)


def _another_project(request: BuildRequest, project: Project) -> Iterator[Fault]:
    """NAME==VERSION and a tree of something else: one of the two is not meant."""
    target = request.target
    if not target.name or not project.name:
        return
    same = not project.version or project.version == target.version
    if normal(target.name) == "torch":  # its version.txt is that of the branch: 1.13.0 in the tree of 1.13.1
        same = not project.version or project.version.split(".")[:2] == target.version.split(".")[:2]
    if normal(target.name) != normal(project.name) or not same:
        saw = f"{target.given} was asked for, but the tree is {project.name} {project.version}".rstrip()
        yield stops("another-project", saw, "Name the folder itself to build what is in it, or another --source.")


def _faults_of_tree(tree: str, request: BuildRequest) -> list[Fault]:
    found = []
    if missing := missing_submodules(tree):
        listed = ", ".join(missing[:3])
        saw = f"{counted(len(missing), 'submodule')} not at the commit of the tree ({listed}): brought there first"
        found.append(note("submodules", f"{saw}. What it compiles and which flags it reads is known then"))
    if request.prefix and not _can_be_made(request.prefix):
        saw = f"--prefix {request.prefix} cannot be written to: the install would fail after everything is compiled"
        found.append(
            stops("prefix-not-writable", saw, "Name a folder that you can write to, or become the owner of this one.")
        )
    for path in request.patches:
        state, hunk = patch_state(tree, path)
        if state == "conflicts":
            found.append(
                stops("patch-conflicts", f"{path}: {hunk}", "Make a new patch for this source, or leave it out.")
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


def _costs(spec: BuildSpec, rate: Fact[float]) -> tuple[str, ...]:
    """What a changed flag, compiler or patch costs, in units, and what compiling took before; before it starts."""
    before = read_spec(spec.folder)
    if before is None:
        return ()
    said = list(what_changed(before, spec))
    if said:
        said.append(_AGAIN if spec.backend in BY_NINJA else _AGAIN_AS_MODULES)
    elif (left := units_to_compile(before)) > 0:
        said.append(f"{left} of its commands still have to run")
    if minutes := ended_of(before).minutes:
        spent = f", cost {money(minutes * 60, rate)}" if isinstance(rate, Known) else ""
        said.append(f"compiling took {duration(round(minutes * 60))}{spent} the last time, as measured then")
    return tuple(said)
