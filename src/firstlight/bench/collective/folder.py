"""The folder through which ranks and the run that started them speak: one small file a rank, one with the results.

A rank says where it is before every step, and last why it stopped. So whoever watches can tell which rank died without
a word and which one the others wait for.
"""

from __future__ import annotations

import json
import os
from typing import TypeVar

from firstlight.bench.results import RESULTS, CaseResult
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular
from firstlight.records import decode, encode

T = TypeVar("T")
READ_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank said last: its process, the case and pass it is at, and why it stopped ('' while it goes on)."""

    rank: int
    pid: int
    case_id: str = ""
    number: int = 0
    cases: int = 0
    pass_number: int = 0
    passes: int = 0
    complaint: str = ""
    waited: bool = False  # it stopped because another rank did not answer
    done: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """What rank 0 has so far; `ranks` is how many took part."""

    ranks: int
    cases: tuple[CaseResult, ...]
    timing_s: float
    throttle_pct: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """How the process of a rank ended, as torchrun saw it: exit code 1, or -9 for SIGKILL."""

    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class Failures:
    """What torchrun says of the ranks it started on this node."""

    failed: tuple[Failure, ...]


def tell(folder: str, told: Told) -> None:
    """Write what a rank says."""
    _write(os.path.join(folder, f"rank-{told.rank}.json"), told)


def told_in(folder: str) -> tuple[Told, ...]:
    """What the ranks of this node have said, by rank."""
    names = sorted(name for name in os.listdir(folder) if name.startswith("rank-") and name.endswith(".json"))
    found = [_read(Told, os.path.join(folder, name)) for name in names]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.rank))


def hand_in(folder: str, measured: Measured) -> None:
    """Write what was measured so far."""
    _write(os.path.join(folder, "measured.json"), measured)


def measured_in(folder: str) -> Measured | None:
    """What rank 0 handed in; None where it is on another node, or never came so far."""
    return _read(Measured, os.path.join(folder, "measured.json"))


def report_failures(folder: str, failures: Failures) -> None:
    """Write what torchrun says."""
    _write(os.path.join(folder, "failures.json"), failures)


def failures_in(folder: str) -> tuple[Failure, ...]:
    """What torchrun said; () where it said nothing."""
    found = _read(Failures, os.path.join(folder, "failures.json"))
    return () if found is None else found.failed


def _write(path: str, record: object) -> None:
    """Whole or not at all, so that no reader sees half of it."""
    beside = f"{path}.new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(encode(record), file)
    os.replace(beside, path)


def _read(kind: type[T], path: str) -> T | None:
    try:
        with open_regular(path) as file:
            return decode(kind, json.loads(file.read(READ_LIMIT)), os.path.basename(path), RESULTS)
    except (OSError, ValueError, BadInput):
        return None
