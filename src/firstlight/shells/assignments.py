"""Variables in start-up files: the commands that set one taken out, and a line that sets one put in."""

from __future__ import annotations

import re
import shlex

from firstlight.shells.commands import Command, ends_in_the_open
from firstlight.shells.kinds import Dialect
from firstlight.shells.library_path import SHAPES, Edited, Editor, LineLeft
from firstlight.shells.settings import HowSet, settings_of
from firstlight.shells.words import NotUnderstood


def without_variables(text: str, names: tuple[str, ...], *, dialect: Dialect = Dialect.SH) -> Edited:
    """The text without the commands that set these variables; what is not understood is left to a person."""
    try:
        if dialect is Dialect.ENVIRONMENT:
            return _environment(text, names)
        return _Unsetting(text, names, dialect).edited()
    except (NotUnderstood, RecursionError):  # parentheses a thousand deep
        lines = enumerate(text.split("\n"), 1)
        return Edited(text, (), tuple(LineLeft(n, line) for n, line in lines if _sets(line, names)))


def setting_line(name: str, value: str, *, dialect: Dialect = Dialect.SH) -> str:
    """The line that sets a variable for all that the shell starts, e.g. export CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    if dialect is Dialect.FISH:
        return f"set -gx {name} {shlex.quote(value)}"
    if dialect is Dialect.CSH:
        return f"setenv {name} {shlex.quote(value)}"
    return f"{name}={value}" if dialect is Dialect.ENVIRONMENT else f"export {name}={shlex.quote(value)}"


def unset_line(*names: str) -> str:
    """The line that takes variables away again, whoever set them."""
    return f"unset {' '.join(names)}"


def unset_where_line(name: str, value: str) -> str:
    """The line of sh that takes a variable away where it has this very value: what a scheduler sets later stays."""
    return f'[ "${{{name}-}}" != {shlex.quote(value)} ] || unset {name}'


def without_line(variable: str, entries: tuple[str, ...]) -> str:
    """The line of sh that takes entries out of a path, whoever put them there; nothing where none is in it."""
    quoted = [shlex.quote(each) for each in entries]
    seen = "|".join(f"*:{each}:*" for each in quoted)
    others = f"grep -Fvx {' '.join(f'-e {each}' for each in quoted)}"
    kept = f"$(printf %s \"${variable}\" | tr : '\\n' | {others} | paste -sd: -)"
    return (
        f'case ":${{{variable}-}}:" in {seen}) export {variable}="{kept}"; '
        f'[ -n "${variable}" ] || unset {variable} ;; esac'
    )


def with_line(text: str, line: str, *, dialect: Dialect = Dialect.SH) -> str | None:
    """The text with a line of its own behind it; None where something is still open there."""
    if dialect is Dialect.SH and not ends_in_the_open(text):
        return None
    gap = "" if text.endswith("\n") or not text else "\n"
    return text if line in text.splitlines() else f"{text}{gap}{line}\n"


class _Unsetting(Editor):
    def __init__(self, text: str, names: tuple[str, ...], dialect: Dialect) -> None:
        super().__init__(text, SHAPES[dialect](text), dialect, (), "")
        self.names_out = names

    def look_at(self, command: Command) -> None:
        settings = settings_of(command, self.dialect)
        out = [each for each in settings if each.name in self.names_out and each.way is not HowSet.LOSES]
        for setting in out if len(out) < len(settings) else out[:1]:
            self.take(command, setting, alone=len(out) == len(settings))

    def lines_left(self) -> set[int]:
        return set()


def _sets(line: str, names: tuple[str, ...]) -> bool:
    return re.match(rf"\s*(?:export\s+|setenv\s+|set\s.*)?({'|'.join(map(re.escape, names))})\b", line) is not None


def _environment(text: str, names: tuple[str, ...]) -> Edited:
    kept: list[str] = []
    taken: list[str] = []
    for line in text.split("\n"):
        (taken if line.strip().removeprefix("export ").partition("=")[0].strip() in names else kept).append(line)
    return Edited("\n".join(kept), tuple(line.rstrip("\r") for line in taken))
