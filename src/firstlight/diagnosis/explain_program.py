"""The program that a text shows nearest to its line, and the ways out that it has of what many programs print."""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from dataclasses import replace
from typing import Any

from firstlight.diagnosis.signatures import Commands, Signature, WayOut, way_out
from firstlight.frozen import dataclass

PROGRAMS = "data/error_programs.json"


def in_program(signature: Signature, text: bytes, *, at: int) -> Signature:
    """The row with the ways out of the program that stands nearest to place `at` of the text.

    As it is where the text shows none that is known, or one that has no answer of its own: torch has the row's.
    """
    if signature.code not in _answered():
        return signature
    program = _nearest(text.decode("latin-1").lower(), at)
    answer = None if program is None else program.answers.get(signature.code)
    return signature if answer is None else _told(signature, answer)


def _nearest(text: str, at: int) -> _Program | None:
    """The program whose words stand nearest to the line at that place; of two as near the first of the file."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    found: list[tuple[int, int, _Program]] = []
    for number, program in enumerate(_programs()):
        matches = _finder(program.shown_by).finditer(text)
        if (distance := min((max(at - each.end(), each.start() - end, 0) for each in matches), default=-1)) >= 0:
            found.append((distance, number, program))
    if found:
        return min(found, key=lambda each: each[:2])[2]
    alone = (each for each in _programs() if each.shown_alone_by)
    return next((each for each in alone if _finder(each.shown_alone_by).search(text)), None)


def _told(signature: Signature, answer: _Answer) -> Signature:
    """The row with the program's ways: the text shows whose fault it is, and not yet which of the ways helps."""
    return replace(
        signature,
        cause=answer.cause or signature.cause,
        prove=answer.prove if answer.prove is not None else signature.prove,
        ways_out=answer.ways_out,
        one_of=all(way.when for way in answer.ways_out),
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a program says of some rows; cause and proof are the row's where it has none."""

    cause: str
    prove: Commands | None
    ways_out: tuple[WayOut, ...]


@dataclass(frozen=True, slots=True)
class _Program:
    """A program by its words (in small letters), and its answers by code of a row.

    `shown_alone_by` are words that show it where no other program is shown: file.cu:12, of a compiled program.
    """

    shown_by: str
    shown_alone_by: str
    answers: dict[str, _Answer]


@functools.cache
def _programs() -> tuple[_Program, ...]:
    return tuple(
        _Program(
            row["shown_by"],
            row.get("alone", ""),
            {code: _answer(answer) for answer in row["answers"] for code in answer["of"]},
        )
        for row in rows()
    )


def _answer(row: dict[str, Any]) -> _Answer:
    proof = row.get("prove")
    return _Answer(
        row.get("cause", ""),
        None if proof is None else Commands(proof["expect"], tuple(proof["run"])),
        tuple(way_out(way, row["of"][0]) for way in row["ways_out"]),
    )


@functools.cache
def _answered() -> frozenset[str]:
    """The codes of the rows that some program has an answer of its own for."""
    return frozenset(code for row in rows() for answer in row["answers"] for code in answer["of"])


@functools.cache
def _finder(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@functools.cache
def rows() -> list[dict[str, Any]]:
    """The programs as they stand in the data."""
    text = pkgutil.get_data("firstlight.diagnosis", PROGRAMS)
    assert text is not None, f"{PROGRAMS} is not in the package"
    read: list[dict[str, Any]] = json.loads(text)["rows"]
    return read
