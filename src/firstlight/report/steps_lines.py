"""What a step does, line by line: commands that can be pasted, files in one line each, and what is left to you."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.numerals import counted
from firstlight.report.layout import width, wrapped
from firstlight.secrets import masked
from firstlight.visible import one_line
from firstlight.ways.step import FileChange, Step, StepKind

Argv = tuple[str, ...]
_MORE = " \\"  # a line that goes on
_DEEPER = 2
_MEANT_IN_DOUBLE_QUOTES = '"$`\\!\n'
APPLY_WRITES = "the files are written by `firstlight apply`"


def command_lines(argv: Argv, indent: int = 0) -> str:
    """A command as a shell takes it, alone on its line; where that is too long it goes on after a backslash.

    Lines break between words alone, so that every shell's parser finds the same words.
    """
    room = width() - len(_MORE) - indent - _DEEPER
    lines: list[str] = []
    line = ""
    for piece in _pieces(argv, room):
        longer = f"{line} {piece}" if line else piece
        if line and len(longer) > room + (0 if lines else _DEEPER):
            lines.append(line)
            longer = piece
        line = longer
    between = f"{_MORE}\n{' ' * (indent + _DEEPER)}"
    return masked(f"{' ' * indent}{between.join((*lines, line))}\n")


def _pieces(argv: Argv, room: int) -> Iterator[str]:
    """The words, quoted; an option stays with its value, `--index-url https://...`, where both fit on a line."""
    words = [_quoted(word) for word in argv]
    place = 0
    while place < len(words):
        pair = " ".join(words[place : place + 2])
        is_pair = words[place].startswith("-") and place + 1 < len(words) and not words[place + 1].startswith("-")
        both = is_pair and len(pair) <= room
        yield pair if both else words[place]
        place += 2 if both else 1


def _quoted(word: str) -> str:
    """As shlex does it, but "it's" where that does: 'it'"'"'s' is the same to a shell and a riddle to a reader."""
    plain = "'" in word and not any(letter in _MEANT_IN_DOUBLE_QUOTES for letter in word)
    return f'"{word}"' if plain else shlex.quote(word)


def commands_of(step: Step, indent: int) -> str:
    """The commands of a step; what you type into your own shell is not wrapped in `sh -c`: `export` would be lost."""
    typed = (
        f"{' ' * indent}{masked(argv[2])}\n" if _by_your_shell(step, argv) else command_lines(argv, indent)
        for argv in step.commands
    )
    return "".join((*typed, *(f"{' ' * indent}{masked(one_line(line))}\n" for line in step.lines)))


def _by_your_shell(step: Step, argv: Argv) -> bool:
    return step.kind is StepKind.MANUAL and len(argv) == 3 and argv[:2] == ("sh", "-c")


def folded(change: FileChange) -> str:
    """A change of a file in one line: '/root/.bashrc, 1 line removed', '/root/wire.sh, 84 lines, new'."""
    path = one_line(change.path)
    if change.links_to:
        return f"{path}, link to {one_line(change.links_to)}"
    before, after = (text.splitlines() for text in (change.before, change.after))
    if change.removes:
        return f"{path}, the whole file removed ({counted(len(before), 'line')})"
    if change.unread:
        return f"{path}, {counted(len(after), 'line')} added; its present content was not read"
    if not change.before:
        return f"{path}, {counted(len(after), 'line')}, new"
    more, fewer = _counts(before, after)
    said = [f"{counted(count, 'line')} {word}" for count, word in ((more, "added"), (fewer, "removed")) if count]
    return f"{path}, {', '.join(said) or 'written already'}"


def _folded_by_folder(changes: tuple[FileChange, ...]) -> list[str]:
    """The changes in a line for each folder: a screen is short, and files of one step mostly lie side by side."""
    lines: dict[str, str] = {}
    for change in changes:
        folder, name = posixpath.split(change.path)
        beside = f"{lines[folder]}; beside it {folded(replace(change, path=name))}" if folder in lines else ""
        lines[folder] = beside or folded(change)
    return list(lines.values())


def _counts(before: list[str], after: list[str]) -> tuple[int, int]:
    import difflib

    more = fewer = 0
    for what, first, last, new_first, new_last in difflib.SequenceMatcher(
        a=before, b=after, autojunk=False
    ).get_opcodes():
        if what != "equal":
            more, fewer = more + new_last - new_first, fewer + last - first
    return more, fewer


def steps_in_short(steps: tuple[Step, ...], *, indent: int) -> str:
    """The commands of steps in order; what you do yourself and what is optional is marked, a file is one line."""
    files = any(_is_written(change) for step in steps for change in step.files)
    hint = sentence(f"{APPLY_WRITES}; `firstlight plan --diff` shows them", indent) if files else ""
    return "".join(_in_short(step, indent) for step in steps) + hint


def _is_written(change: FileChange) -> bool:
    return bool(change.links_to) or change.removes or change.before != change.after


def _in_short(step: Step, indent: int) -> str:
    """A title only where it says more than the commands: what you do, and what can be left out."""
    marks = ["optional"] if step.optional else []
    marks += ["you"] if step.kind is StepKind.MANUAL else []
    out = sentence(f"{', '.join(marks)}: {one_line(step.title)}", indent) if marks else ""
    out += "".join(sentence(f"file: {line}", indent) for line in _folded_by_folder(step.files))
    if step.kind is StepKind.MANUAL and not (step.commands or step.lines) and step.note:
        out += sentence(one_line(step.note), indent + _DEEPER)
    return out + commands_of(step, indent)


def sentence(text: str, indent: int) -> str:
    """A sentence that is wrapped, unlike a command."""
    first, *rest = wrapped(masked(text), width() - indent)
    return "".join(
        f"{' ' * deep}{line}\n" for deep, line in ((indent, first), *((indent + _DEEPER, each) for each in rest))
    )
