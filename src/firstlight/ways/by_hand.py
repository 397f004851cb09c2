"""An edit that a person makes: the file, the number of the line, and the line."""

from __future__ import annotations

import difflib
from dataclasses import replace

from firstlight.frozen import dataclass
from firstlight.ways.building import a_person, slug
from firstlight.ways.step import FileChange, Step, StepKind


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, e.g. 12, 'export LD_LIBRARY_PATH=/usr/local/cuda/compat'."""

    number: int
    text: str


def by_hand(step: Step, change: FileChange, *, why: str) -> Step:
    """The step as one for a person, who is told why it is not done, and which lines it is about."""
    lines = lines_changed(change)
    if not lines:
        added = "".join(each[2:] for each in _differences(change) if each.startswith("+ ")).strip()
        return replace(
            edited_by_a_person(step, change.path, (), note=f"Not written: {why}. Add this line yourself: {added}"),
            title=f"{step.title}: add a line to {change.path} by hand",
        )
    return edited_by_a_person(step, change.path, lines, note=f"Not written: {why}.")


def edited_by_a_person(step: Step, path: str, lines: tuple[Line, ...], *, note: str) -> Step:
    """The step that names lines for a person to edit; its commands show them as they are."""
    numbers = ", ".join(str(line.number) for line in lines)
    which = f"line{'s' if len(lines) > 1 else ''} {numbers}"
    shown = "; ".join(f"line {line.number}: {line.text.strip()}" for line in lines)
    return replace(
        step,
        id=step.id or slug(f"edit by hand {path.strip('/').replace('/', ' ')}"),
        kind=StepKind.MANUAL,
        title=f"{step.title}: edit {which} by hand" if lines else step.title,
        commands=tuple(("sed", "-n", f"{line.number}p", path) for line in lines),
        files=(),
        done_when=(a_person(f"{path} no longer has {which}" if lines else f"{path} has it"),),
        back=(),
        note=" ".join(filter(None, (note, f"{shown[:1].upper()}{shown[1:]}." if shown else ""))),
    )


def lines_changed(change: FileChange) -> tuple[Line, ...]:
    """The lines of the file as it is that an edit takes out or changes."""
    found, number = [], 0
    for each in _differences(change):
        if each[:2] in ("- ", "  "):
            number += 1
        if each.startswith("- "):
            found.append(Line(number, each[2:].rstrip("\r\n")))
    return tuple(found)


def _differences(change: FileChange) -> list[str]:
    # Not splitlines(): a form feed in a line ends it for Python and for nobody else.
    before, after = (text.split("\n") for text in (change.before, change.after))
    return [each for each in difflib.ndiff(before, after) if not each.startswith("? ")]
