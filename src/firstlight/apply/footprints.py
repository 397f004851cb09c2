"""What the commands of a step change besides the files it names, so that undo can tell what is ours."""

from __future__ import annotations

import os
import re
from itertools import pairwise

from firstlight.apply.new_folders import empty_folders
from firstlight.plan.step import Step, StepKind

# How apt, dpkg and their front ends say that another process is at work.
_LOCKED = re.compile(r"Could not get lock|lock was locked by another process|Unable to (?:acquire|lock) the .*lock")


def project_files(step: Step) -> tuple[str, ...]:
    """The manifest and the lock file that uv or pixi write themselves, e.g. /home/user/app/uv.lock."""
    if step.kind is not StepKind.PROJECT:
        return ()
    found: list[str] = []
    for argv in step.commands:
        for option, value in pairwise(argv):
            if option == "--project":
                found += [f"{value}/pyproject.toml", f"{value}/uv.lock"]
            if option == "--manifest-path":
                found += [value, f"{os.path.dirname(value)}/pixi.lock"]
    named = {change.path for change in step.files}
    return tuple(path for path in dict.fromkeys(found) if path not in named)


def there_before(step: Step) -> list[str]:
    """The paths that the step's undo would remove and that exist before it ran: they are not ours to remove."""
    named = {path for argv in step.undo for path in removed_by(argv) if os.path.lexists(path)}
    return sorted(named | set(empty_folders(step)))


def removed_by(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that an rm command takes away; () for any other command."""
    words = argv[1:] if argv[:1] == ("sudo",) else argv
    return tuple(word for word in words[1:] if not word.startswith("-")) if words[:1] == ("rm",) else ()


def lock_is_held(tail: tuple[str, ...]) -> str:
    """The line that says another package manager is at work; '' where none does."""
    return next((line.strip() for line in reversed(tail) if _LOCKED.search(line)), "")
