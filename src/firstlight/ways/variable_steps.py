"""Variables as steps: set for login shells or for builds, taken out where they are set, handed on from a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import value_or
from firstlight.shells.assignments import setting_line, unset_line, unset_where_line, without_variables
from firstlight.shells.kinds import Dialect, dialect_of
from firstlight.ways.at import At
from firstlight.ways.building import a_person, blank, expanded, state_of, succeeds, written
from firstlight.ways.kinds import ReadEnvironment, Scope, SetVariables, UnsetVariables, Variable, Why
from firstlight.ways.shell_edits import Edit, cleaning_steps, edit_steps, find_step, line_step, login_files, this_shell
from firstlight.ways.step import FileChange, Step, StepKind
from firstlight.ways.way import Way
from firstlight.ways.words import title_of

BUILD_FILE = "cuda-build.sh"


def set_steps(way: SetVariables, at: At) -> Iterator[Step]:
    """In a file of ours for the shell that builds; else a line in what login shells read."""
    way = replace(way, variables=tuple(Variable(each.name, expanded(each.value, at)) for each in way.variables))
    if way.scope is Scope.BUILD:
        yield _build_file(way, at)
        if not at.compiles:  # a command of ours that builds is started with the same values
            yield _read_for_builds(at)
        return
    change = FileChange("", "", "", variables=tuple(each.name for each in way.variables))
    for path in login_files(at):
        dialect = dialect_of(path, "")
        lines = tuple(setting_line(each.name, each.value, dialect=dialect) for each in way.variables)
        yield line_step(path, lines, at, change=change, title=title_of(way, at.platform))
    yield from _now(way.variables, at)


def _now(variables: tuple[Variable, ...], at: At) -> Iterator[Step]:
    yield replace(
        blank(at),
        id="this-shell-too",
        title="for shells that are open already: type this there",
        commands=tuple(("export", f"{each.name}={each.value}") for each in variables),
        done_when=(a_person("echo shows the new values"),),
        optional=True,
        note="No program can change the environment of the shell that started it. New login shells do not need it.",
    )


def set_for_builds(way: Way, at: At) -> tuple[Variable, ...]:
    """What the ways up to this one set for builds, the last value of each; a command that builds is started with it."""
    own = way.variables if isinstance(way, SetVariables) and way.scope is Scope.BUILD else ()
    found = {each.name: each for each in at.for_builds}
    found.update((each.name, Variable(each.name, expanded(each.value, at))) for each in own)
    return tuple(found.values())


def _build_file(way: SetVariables, at: At) -> Step:
    """For torch.utils.cpp_extension, which does not look into site-packages."""
    path = f"{state_of(at)}/{BUILD_FILE}"
    lines = [setting_line(each.name, each.value) for each in way.variables]
    home = next((each.value for each in way.variables if each.name == "CUDA_HOME"), "")
    if home:
        lines.append('export PATH="$CUDA_HOME/bin:$PATH"')
    text = (
        "# Written by firstlight; `firstlight undo` takes it back. For the shell that builds an extension:\n"
        f"#   . {shlex.quote(path)}\n" + "".join(f"{line}\n" for line in lines)
    )
    change = FileChange(path, at.extras.text_of(path) or "", text)
    compiles = (succeeds(f"{home}/bin/nvcc", "--version"),) if home else ()
    return replace(
        blank(at),
        id="set-cuda-home" if home else "set-for-builds",
        kind=StepKind.FILE,
        title=title_of(way, at.platform),
        files=(change,),
        done_when=(written(change), *compiles),
        note="It sets nothing that a running program reads.",
    )


def _read_for_builds(at: At) -> Step:
    """No program can change the shell that started it, so the shell that builds has to read the file itself."""
    return replace(
        blank(at),
        id="read-for-builds",
        title="let the shell that builds read that file: type this in it",
        commands=((".", f"{state_of(at)}/{BUILD_FILE}"),),
        done_when=(a_person(f"`firstlight doctor` in that shell no longer finds {at.because}"),),
        note=f"By you: {Why.PROGRAM.value}. It holds for that shell alone, and `firstlight doctor` sees it only there.",
    )


def unset_steps(way: UnsetVariables, at: At) -> Iterator[Step]:
    """The lines that set them out of the files that were read; where none does, where to look."""

    def edited(path: str, text: str) -> Edit:
        return Edit(without_variables(text, way.names, dialect=dialect_of(path, text)), (), way.names)

    steps = list(edit_steps(edited, at, title=title_of(way, at.platform)))
    if steps:
        yield from steps
        yield from (this_shell(name, (), (), at) for name in way.names)
        return
    masks = {name: value for name in way.names if (value := _mask_of(name, at.facts))}
    if masks and value_or(at.facts.libcuda.device_count, 0) > 0:
        yield from _by_whoever_set_it(way, at)
        return
    yield from _left_out_by_shells(way, masks, at)
    yield from (this_shell(name, (), (), at) for name in way.names)


def _mask_of(name: str, facts: Facts) -> str:
    """The value of a variable that schedulers set for each job anew; "" for all others, and where it is not set."""
    gpus = facts.gpus
    masks = {"CUDA_VISIBLE_DEVICES": gpus.cuda_visible_devices, "NVIDIA_VISIBLE_DEVICES": gpus.nvidia_visible_devices}
    return value_or(masks[name], "") if name in masks else ""


def _by_whoever_set_it(way: UnsetVariables, at: At) -> Iterator[Step]:
    """A mask that leaves some GPUs may be meant, and by another job too: no file is changed for it."""
    for name in way.names:
        yield replace(this_shell(name, (), (), at), title=f"unset {name} in the shell that has it", optional=False)
        yield replace(find_step(name, name, at), optional=True)


def _left_out_by_shells(way: UnsetVariables, masks: dict[str, str], at: At) -> Iterator[Step]:
    """Lines for new shells; a mask goes only where it is the one that was seen."""
    others = tuple(name for name in way.names if name not in masks)
    lines = (*(unset_where_line(*each) for each in masks.items()), *((unset_line(*others),) if others else ()))
    change, first = FileChange("", "", "", variables=way.names), way.names[0]
    for step in cleaning_steps(lines, change, at, entry=first, variable=first):
        said = " and ".join(f"{name}={value}" for name, value in masks.items())
        only = f" {said} is the only value removed: another one, which a scheduler sets later, stays." if masks else ""
        yield step if step.kind is StepKind.MANUAL else replace(step, note=f"{step.note}{only}")


def environment_steps(way: ReadEnvironment, at: At) -> Iterator[Step]:
    """A line that has login shells read the file that the container's start wrote."""
    name, title = shlex.quote(way.file), title_of(way, at.platform)
    change = FileChange("", "", "", variables=way.names)
    for path in login_files(at):
        if dialect_of(path, "") is Dialect.SH:
            yield line_step(path, (f"[ ! -r {name} ] || . {name}",), at, change=change, title=title)
