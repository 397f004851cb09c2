"""Edits of start-up files as steps: each file that has it, lines for a person, where to look, open shells."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace

from firstlight.facts.known import value_or
from firstlight.frozen import dataclass
from firstlight.shells.assignments import with_line
from firstlight.shells.kinds import Dialect, dialect_of
from firstlight.shells.library_path import Edited, lines_naming
from firstlight.ways.at import At
from firstlight.ways.back import Argv, shown
from firstlight.ways.building import a_person, blank, home_of, slug, state_of, written
from firstlight.ways.by_hand import Line, edited_by_a_person
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.words import fitted

_MOST_NAMED = 5  # lines that a note shows
_NO_SHELL = (".toml", ".py", ".pth", ".txt", ".lock", ".yml", ".yaml", "ld.so.conf", ".json", ".conf")
_START_FILES = ("~/.bashrc", "~/.profile", "~/.bash_profile", "/etc/profile.d", "/etc/environment")
# Of these bash reads the first that is there; sh reads .profile alone.
_LOGIN_FILES = (".bash_profile", ".bash_login", ".profile")
_NEW_SHELLS = "Takes effect in shells that are opened from then on. Shells read the file first to try the edit."


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's text as it should be, and what a shell that reads it then has less."""

    edited: Edited
    takes_out: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


def edit_steps(edit: Callable[[str, str], Edit], at: At, *, title: str) -> Iterator[Step]:
    """A step for each file that was read and changes; lines that cannot be edited safely are a person's."""
    for file in at.extras.files:
        if file.path.endswith(_NO_SHELL) or file.path.startswith(f"{state_of(at)}/"):
            continue
        made = edit(file.path, file.text)
        name = file.path.strip("/").replace("/", " ")
        step = replace(
            blank(at),
            id=slug(f"edit {name}"),
            kind=StepKind.FILE,
            title=title,
            needs_root=file.path.startswith("/etc/"),
        )
        if made.edited.text != file.text:
            change = FileChange(
                file.path, file.text, made.edited.text, takes_out=made.takes_out, variables=made.variables
            )
            yield replace(step, files=(change,), done_when=_lacks(change, made.edited), note=_NEW_SHELLS)
        if made.edited.left:
            lines = tuple(Line(each.number, each.text) for each in made.edited.left)
            told = replace(step, id=slug(f"edit by hand {name}"))
            yield edited_by_a_person(told, file.path, lines, note="It is not a plain assignment.")


def _lacks(change: FileChange, edited: Edited) -> tuple[Condition, ...]:
    """The lines are gone, whatever else somebody writes into the file; to the byte where they stand elsewhere too."""
    rest = change.after.splitlines()
    if any(line in rest or len(line.splitlines()) != 1 for line in edited.lines_taken_out):
        return (written(change),)
    return tuple(Condition(CheckKind.FILE_LACKS_LINE, change.path, line) for line in edited.lines_taken_out)


def login_files(at: At) -> tuple[str, ...]:
    """What login shells of this user read: bash's or sh's file, and those of zsh and fish where they are used."""
    home = home_of(at)
    there = [f"{home}/{name}" for name in _LOGIN_FILES if at.extras.text_of(f"{home}/{name}") is not None]
    found = [there[0] if there else f"{home}/.profile"]
    if any(at.extras.text_of(f"{home}/{name}") is not None for name in (".zshrc", ".zprofile", ".zshenv")):
        found.append(f"{home}/.zprofile")
    if at.extras.text_of(f"{home}/.config/fish/config.fish") is not None:
        found.append(f"{home}/.config/fish/config.fish")
    return tuple(found)


def line_step(path: str, lines: tuple[str, ...], at: At, *, change: FileChange, title: str) -> Step:
    """Lines put behind a start-up file; `change` says what a shell that reads it has less or otherwise."""
    before = at.extras.text_of(path)
    after: str | None = before or ""
    for line in lines:
        after = None if after is None else with_line(after, line, dialect=dialect_of(path, before or ""))
    step = replace(
        blank(at),
        id=slug(f"edit {posixpath.basename(path)}"),
        kind=StepKind.FILE,
        title=title,
        note="Takes effect in login shells that are opened from then on.",
    )
    if after is None:
        return replace(
            step,
            kind=StepKind.MANUAL,
            commands=(("tail", "-n", "5", path),),
            done_when=(a_person(f"{path} has it"),),
            note=f"By you: {path} ends inside a command. Add: {'; '.join(lines)}",
        )
    unread = before is None and path in at.extras.unread
    return replace(
        step,
        files=(replace(change, path=path, before=before or "", after=after, unread=unread),),
        done_when=tuple(Condition(CheckKind.FILE_HAS_LINE, path, line) for line in lines),
    )


def cleaning_steps(lines: tuple[str, ...], change: FileChange, at: At, *, entry: str, variable: str) -> Iterator[Step]:
    """No file that was read sets it: login shells take it out again, whoever did; and where to look for that one."""
    bashrc = f"{home_of(at)}/.bashrc"
    paths = (*login_files(at), *((bashrc,) if at.extras.text_of(bashrc) is not None else ()))
    for path in (each for each in paths if dialect_of(each, "") is Dialect.SH):
        yield line_step(path, lines, at, change=change, title=fitted(f"let new shells leave {entry} out"))
    yield replace(find_step(entry, variable, at), optional=True)


def find_step(entry: str, variable: str, at: At) -> Step:
    """No file that was read sets it: where to look, for a person, and the lines that name it for whatever reason."""
    if variable == "LD_LIBRARY_PATH" and entry in _trimmed(value_or(at.facts.container.library_path, ())):
        return _start_anew_step(entry, at)
    image = ", an ENV line of the image" if at.platform.in_container else ""
    named = [
        f"{file.path}, line {line.number}: {line.text.strip()}"
        for file in at.extras.files
        for line in lines_naming(file.text, (entry.rstrip("/"),))
    ]
    seen = f"These lines name it: {'; '.join(named[:_MOST_NAMED])}. " if named else ""
    files = tuple(each.replace("~", home_of(at), 1) for each in _START_FILES)
    return replace(
        blank(at),
        id="find-who-sets-it",
        title=f"find where {variable} is set, and delete it there",
        commands=(("grep", "-rn", entry, *files),),
        done_when=(a_person(f"a new shell does not set {variable}{'' if entry == variable else f' to {entry}'}"),),
        note=f"No start-up file that was read sets it plainly. {seen}"
        f"It may stand in a job script, in a parent's environment{image}.",
    )


def _trimmed(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each.rstrip("/") for each in folders)


def _start_anew_step(entry: str, at: At) -> Step:
    """The container was started with it: an ENV line of its image, or an argument of who started it."""
    kept = [each for each in value_or(at.facts.container.library_path, ()) if each.rstrip("/") != entry]
    return replace(
        blank(at),
        id="start-without-it",
        title=fitted(f"start the container without {entry} in LD_LIBRARY_PATH"),
        commands=(("grep", "-az", "^LD_LIBRARY_PATH=", "/proc/1/environ"),),
        done_when=(a_person(f"a program that no login shell starts has no {entry} in LD_LIBRARY_PATH"),),
        note="It comes from an ENV line of the image or from the command that started the container; there it has to "
        f"be LD_LIBRARY_PATH={':'.join(kept)}. Until then what no login shell starts goes on with it.",
    )


def this_shell(variable: str, was: tuple[str, ...], kept: tuple[str, ...], at: At) -> Step:
    """The same for shells that are open: no program changes the environment of the shell that started it."""
    now: Argv = ("export", f"{variable}={':'.join(kept)}") if kept else ("unset", variable)
    return replace(
        blank(at),
        id=slug(f"this shell {variable}") if variable != "LD_LIBRARY_PATH" else "this-shell",
        title="for shells that are open already: type this there",
        commands=(now,),
        done_when=(a_person(f"echo ${variable} shows {':'.join(kept) or 'nothing'}"),),
        back=shown(("export", f"{variable}={':'.join(was)}")) if was else (),
        optional=True,
        note="No program can change the environment of the shell that started it. New shells do not need it.",
    )
