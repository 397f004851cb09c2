"""What `check` found, as one object from which text, JSON and JUnit XML are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.diagnosis.finding import Finding
from firstlight.frozen import dataclass
from firstlight.lock.classes import kind_words
from firstlight.lock.consequences import Consequence, Told, Verdict
from firstlight.lock.drift import Drift
from firstlight.lock.stack import LockedClass, MachineKind

if TYPE_CHECKING:
    from firstlight.lock.orders import Order  # it imports every maker of steps, which a machine as locked needs none of

SCHEMA = "firstlight.check/1"


@dataclass(frozen=True, slots=True)
class Shown:
    """A drift as it is told, e.g. packages torch, 2.11.0+cu130, 2.9.0+cu128, changed."""

    part: str
    name: str
    change: str
    locked: str
    here: str
    seen_in: str


@dataclass(frozen=True, slots=True)
class Because:
    """A finding that says what a drift leads to."""

    code: str
    severity: str
    title: str
    means: str


@dataclass(frozen=True, slots=True)
class ToDo:
    """What brings the fact of the lock back, with its commands as argument lists."""

    title: str
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class DriftShown:
    """A drift with what follows from it, its consequence, why, and what to do."""

    drift: Shown
    follows: tuple[Shown, ...]
    consequence: str  # blocks, abi, performance, harmless
    because: tuple[Because, ...]
    do: tuple[ToDo, ...]


@dataclass(frozen=True, slots=True)
class Deep:
    """What verify's check `libraries` said, of --deep."""

    outcome: str
    says: str


@dataclass(frozen=True, slots=True)
class Check:
    """One run of check; `class_name` is "" where no class of the lock fits."""

    lock: str
    class_name: str
    machine: str
    verified: bool
    strict: bool  # --locked: harmless drifts count too
    exit_code: int
    drifts: tuple[DriftShown, ...]
    besides: tuple[Because, ...]  # new findings that no drift brought about
    not_compared: tuple[str, ...]
    to_do: tuple[ToDo, ...]  # for all drifts that count, in one list
    deep: tuple[Deep, ...]  # one, with --deep


def exit_code_of(verdict: Verdict, *, strict: bool, deep: tuple[Deep, ...]) -> int:
    """0: no drift, or harmless ones alone; 3: drift."""
    counting = [each for each in verdict.told if counts(each, strict=strict)]
    return 3 if counting or any(each.outcome == "failed" for each in deep) else 0


def counts(told: Told, *, strict: bool) -> bool:
    return strict or told.consequence is not Consequence.HARMLESS


def shown(drift: Drift) -> Shown:
    return Shown(drift.part.value, drift.name, drift.change.value, drift.locked, drift.here, drift.seen_in)


def because(finding: Finding) -> Because:
    return Because(finding.code, finding.severity.value, finding.title, finding.means)


def to_do(order: Order) -> ToDo:
    return ToDo(order.title, order.commands)


def of_kind(kind: MachineKind) -> str:
    return kind_words(kind)


def nothing_fits(lock: str, kind: MachineKind, *, strict: bool) -> Check:
    """The check of a machine that no class of the lock is for."""
    return Check(lock, "", kind_words(kind), False, strict, 3, (), (), (), (), ())  # noqa: FBT003 fields in order


def of_class(lock: str, locked: LockedClass, kind: MachineKind, *, strict: bool) -> Check:
    """An empty check of one class, to be filled."""
    return Check(lock, locked.name, kind_words(kind), locked.verified, strict, 0, (), (), (), (), ())
