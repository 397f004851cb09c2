"""Faults as changes of a kernel's text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.kernels.sm90.emulator.build import SOURCES
from tests.kernels.sm90.emulator.machine import emulated_gpu

NUMBERS = "wrong numbers"
SEEDS = 24


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
    given: str = ""  # which of a test's inputs it shows on


def changed(changes: tuple[Change, ...]) -> dict[str, str]:
    """The texts of the files that a fault changes."""
    texts: dict[str, str] = {}
    for file, old, new in changes:
        text = texts.get(file) or (SOURCES / file).read_text()
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        texts[file] = text.replace(old, new)
    return texts


def assert_noticed(planted: Planted, folder: Path, seen: Callable[[Planted], str]) -> None:
    """That the fault shows as it should under one of some seeds; seen: how a run goes wrong, or empty."""
    texts, found = changed(planted.changes), ""
    for seed in range(SEEDS):
        with emulated_gpu(folder, multiprocessors=2) as gpu:
            gpu.replaced, gpu.seed = texts, 100 * seed
            found = seen(planted)
        if found:
            break
    assert any(sign in found for sign in planted.shows), found or f"not noticed under {SEEDS} seeds"
