"""Subjects for the tests of the kinds: a machine in words, or a recorded one, and what is wanted there."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from firstlight.emit.document import Emitted
from firstlight.emit.imagined import parse_machine
from firstlight.emit.subject import Asked, Choices, Part, Subject, subject_of
from firstlight.facts.look import Look, look_at
from firstlight.own_wheel import own_wheel
from firstlight.plan.request import Request
from firstlight.plan.want import parse_wants
from firstlight.tables import load

TABLES = load()
MACHINES = Path(__file__).parents[1] / "machines"
OLD_H100, NEW_H100 = "H100, driver >= 550", "H100, driver >= 580"
# spaces, quotes, substitutions, line ends, what ends a comment, a template or a here-document
HOSTILE = (
    "x' y",
    'x" y',
    "$(touch /tmp/pwned)",
    "`touch /tmp/pwned`",
    "a\nRUN touch /tmp/pwned",
    "a\r\n#SBATCH --uid=0",
    "{{ lookup('pipe', 'touch /tmp/pwned') }}",
    "${localEnv:HOME}",
    "a\nEND-OF-FIRSTLIGHT-FILE\ntouch /tmp/pwned",
    "a\\",
    "é\u2028\x1b[31m",
)


def subject(text: str = OLD_H100, *wants: str, choices: Choices | None = None, made_for: str = "") -> Subject:
    """What is shipped to a machine in words, e.g. subject("H100, driver >= 550", "torch==2.9.0+cu130")."""
    solved = _solved(text, wants or ("torch==2.9.0+cu130",))
    return replace(solved, choices=choices or Choices(), made_for=made_for or text)


@functools.cache
def _solved(text: str, wants: tuple[str, ...]) -> Subject:
    asked = Asked(Request(parse_wants(wants)))
    return subject_of(parse_machine(text, TABLES), asked, made_for=text, tables=TABLES, choices=Choices())


@functools.cache
def recorded(name: str, *wants: str) -> Subject:
    """What is shipped for a recorded machine."""
    facts = look_at(Look(facts_file=str(MACHINES / name)))
    asked = Asked(Request(parse_wants(wants)))
    return subject_of(facts, asked, made_for=f"the machine of {name}", tables=TABLES, choices=Choices())


def with_package(requirement: str) -> Subject:
    """A subject whose facts brought a package of this name and version: facts files come from anywhere."""
    made = subject()
    return replace(made, parts=(*made.parts, Part("", (requirement,))))


def with_own_wheel(made: Subject) -> Subject:
    """A subject whose files bring the wheel of the firstlight that is tested, as the command emits them."""
    return replace(made, wheel=own_wheel())


def text_of(emitted: Emitted, name: str) -> str:
    """The text of one file."""
    return next(file.text for file in emitted.files if file.name == name)


def write(emitted: Emitted, folder: Path) -> Path:
    """All files into a folder, as the command writes them."""
    for file in (*emitted.files, *emitted.sources):
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        path.chmod(file.mode)
    if emitted.wheel is not None:
        path = folder / emitted.wheel.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(emitted.wheel.data)
    return folder
