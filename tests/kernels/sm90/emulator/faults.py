"""Faults as changes of a kernel's text."""

from __future__ import annotations

from typing import NamedTuple

from tests.kernels.sm90.emulator.build import SOURCES

NUMBERS = "wrong numbers"


class Change(NamedTuple):
    """A piece of text of a file that stands there once, and what takes its place."""

    file: str
    old: str
    new: str


class Planted(NamedTuple):
    """A fault and how it shows: a piece of the report, or wrong numbers."""

    name: str
    changes: tuple[Change, ...]
    shows: tuple[str, ...]
    block: int = 128
    runs: int = 1


def changed(changes: tuple[Change, ...]) -> dict[str, str]:
    """The texts of the files that a fault changes."""
    texts: dict[str, str] = {}
    for file, old, new in changes:
        text = texts.get(file) or (SOURCES / file).read_text()
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        texts[file] = text.replace(old, new)
    return texts
