"""What the commands of a step change besides the files it names, so that undo can tell what is ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise

from firstlight.apply.conditions import run
from firstlight.apply.disk import missing_folders
from firstlight.apply.new_folders import empty_folders
from firstlight.errors import CouldNotAct, NotOurs
from firstlight.owned import our_folder
from firstlight.ways.back import Argv, BackKind, copy_of, removes, state_of
from firstlight.ways.step import Step, StepKind

# How apt, dpkg and their front ends say that another process is at work.
_LOCKED = re.compile(r"Could not get lock|lock was locked by another process|Unable to (?:acquire|lock) the .*lock")

# What a tool writes by itself, by the option that names it: kept before it runs, put back by undo.
_WRITES = {"nvidia-ctk": ("--config=", "--output=")}
_MAKES_FOLDERS = (BackKind.REMOVE_FILE, BackKind.REMOVE_FOLDER, BackKind.REMOVE_CONDA)


def project_files(step: Step) -> tuple[str, ...]:
    """What a tool writes itself: a project's manifest and lock file, e.g. /home/user/app/uv.lock, docker's settings."""
    if step.kind is not StepKind.PROJECT:
        return tuple(path for argv in step.commands for path in _edited(argv))
    found: list[str] = []
    for argv in step.commands:
        for option, value in pairwise(argv):
            if option == "--project":
                found += [f"{value}/pyproject.toml", f"{value}/uv.lock"]
            if option == "--manifest-path":
                found += [value, f"{os.path.dirname(value)}/pixi.lock"]
    named = {change.path for change in step.files}
    return tuple(path for path in dict.fromkeys(found) if path not in named)


def _edited(argv: Argv) -> Iterator[str]:
    """The file that a command names as the one that it writes, sed in place too."""
    marks = [mark for name in argv[:2] for mark in _WRITES.get(name, ())]
    yield from (word.removeprefix(mark) for mark in marks for word in argv if word.startswith(f"{mark}/"))
    if "sed" in argv[:2] and "--in-place" in argv:
        yield argv[-1]


def there_before(step: Step) -> list[str]:
    """The paths that the step's undo would remove or move and that exist before it ran: they are not ours."""
    named = {path for back in step.back for path in (*removes(back), *copy_of(back)) if os.path.lexists(path)}
    states = {
        f"{back.kind.value} {word}"
        for back in step.back
        for word in back.words
        if (asks := state_of(back.kind, word)) and run(asks).returncode == 0
    }
    return sorted(named | states | set(empty_folders(step)))


def require_free_names(step: Step) -> None:
    """Refuse to move a file to a name that something has already: undo could not tell which of the two is ours."""
    for path in [path for back in step.back for path in copy_of(back)] if step.kind is not StepKind.PROJECT else ():
        if os.path.lexists(path):
            raise CouldNotAct(
                f"{path} is there already, and {step.title!r} would keep a file under that name. Nothing was changed. "
                "Run the same command again: it takes another name."
            )


def folders_above(step: Step) -> list[str]:
    """The folders above what the step's undo removes that are not there yet, outermost first: git init makes them."""
    made = [path for back in step.back if back.kind in _MAKES_FOLDERS and not back.sudo for path in back.words]
    return list(dict.fromkeys(folder for path in made for folder in missing_folders(os.path.dirname(path))))


def require_own_start_files(step: Step) -> None:
    """Refuse to put what every start reads into a folder that another user owns or can write to."""
    for change in step.files if step.kind is StepKind.COMPAT else ():
        folder = os.path.dirname(change.path)
        missing = missing_folders(folder)
        try:
            with our_folder(os.path.dirname(missing[0]) if missing else folder):
                pass
        except NotOurs as error:
            raise NotOurs(
                f"{error}. {change.path} would be read at every start, so its folder and all above must belong to you "
                "or root and be closed to others; nothing was written. Set FIRSTLIGHT_STATE_DIR to one of your own"
                f"{f', or {error.do}' if error.do else ''}."
            ) from None


def lock_is_held(tail: tuple[str, ...]) -> str:
    """The line that says another package manager is at work; '' where none does."""
    return next((line.strip() for line in reversed(tail) if _LOCKED.search(line)), "")
