"""Hosts against each other, or against a lock: equal ones become one row, the others say what they differ in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstlight.diagnosis.finding import Goal, Question, Rule, Severity
from firstlight.facts.distributions import of_interest
from firstlight.fleet.judged import Against, Fleet, HostState, Row, Verdict
from firstlight.fleet.look import AskedBy, NotLooked
from firstlight.fleet.sh_probe import rules_for_sh
from firstlight.frozen import dataclass
from firstlight.lock.classes import class_for
from firstlight.lock.consequences import Consequence, judged
from firstlight.lock.drift import Change, Drift, Group, drifts
from firstlight.lock.stack import Lock, LockedClass, Part
from firstlight.tables import Tables

_BY_SH = (Part.GPU, Part.DRIVER)  # what sh is asked too; the rest of a stack it cannot tell

_ON_THE_SPOT = (Part.CHECKOUTS, Part.FILES)  # named by somebody who sits there, or read whole: not over ssh


@dataclass(frozen=True, slots=True)
class LockToHold:
    """A lock that hosts are held against, and what says which of their drifts matter."""

    lock: Lock
    tables: Tables
    rules: tuple[Rule, ...]


def compared(states: Iterable[HostState], missing: Iterable[NotLooked], *, lock: LockToHold | None = None) -> Fleet:
    """The table: hosts of a kind in groups that are equal; the largest is the usual one, unless there is a lock."""
    kinds: dict[tuple[bool, tuple[str, ...]], list[HostState]] = {}
    with_gpus: list[str] = []
    for state in states:
        kinds.setdefault((state.has_gpus, state.kind), []).append(state)
        with_gpus += [state.name] if state.has_gpus else []
    rows: list[Row] = []
    for (has_gpus, _), of_kind in kinds.items():
        groups = _groups(of_kind)
        if lock is not None:
            rows += (_held(group, lock) for group in groups)
        elif with_gpus and not has_gpus:  # no kind of their own: what they were to be is not known
            rows += (_row(group, Against(with_gpus=tuple(with_gpus)), ()) for group in groups)
        else:
            rows += _among_themselves(groups)
    rows += [Row(Verdict.NOT_LOOKED, (each.name,), reason=each.reason, do=each.do) for each in missing]
    order = tuple(Verdict)
    return Fleet(tuple(sorted(rows, key=lambda row: (order.index(row.verdict), len(row.hosts), row.hosts))))


def _groups(of_kind: list[HostState]) -> list[list[HostState]]:
    groups: list[list[HostState]] = []
    for state in of_kind:
        same = next((group for group in groups if _equal(group[0], state)), None)
        if same is None:
            groups.append([state])
        else:
            same.append(state)
    return groups


def _among_themselves(groups: list[list[HostState]]) -> Iterator[Row]:
    whole = [group for group in groups if group[0].asked_by is not AskedBy.SH] or groups
    usual = max(whole, key=lambda group: (len(group), not group[0].diagnosis.blocked))
    everyone = tuple(state.name for group in groups for state in group)
    if len(usual) == 1 and len(whole) > 2:  # no two are equal: any of them would be an arbitrary measure
        for group in groups:
            hosts = tuple(state.name for state in group)
            yield Row(_verdict(group[0], differs=True), hosts, group[0], against=Against(unlike=everyone))
        return
    names = tuple(state.name for state in usual)
    for group in groups:
        found = () if group is usual else _roots(_differences(usual[0], group[0]))
        yield _row(group, Against(names) if found else Against(), found)


def _held(group: list[HostState], holding: LockToHold) -> Row:
    """A group of equal hosts against the class of the lock that is for them."""
    first, lock = group[0], holding.lock
    locked = class_for(lock, first.stack.kind)
    if locked is None:
        return _row(group, Against(lock=lock.path), ())
    groups = tuple(each for each in drifts(locked, first.stack) if _can_be_told(each.drift, first))
    question = Question(first.facts, holding.tables, locked.goal)
    rules = rules_for_sh(holding.rules) if first.asked_by is AskedBy.SH else holding.rules
    told = judged(groups, question, rules, locked=locked, places=first.places).told
    loud = tuple(each.group.drift for each in told if each.consequence is not Consequence.HARMLESS)
    quiet = tuple(each.group.drift for each in told if each.consequence is Consequence.HARMLESS)
    return _row(group, Against(lock=lock.path, class_name=locked.name), loud, quiet)


def _row(group: list[HostState], against: Against, found: tuple[Drift, ...], harmless: tuple[Drift, ...] = ()) -> Row:
    hosts = tuple(state.name for state in group)
    verdict = _verdict(group[0], differs=bool(found or against.none_fits or against.with_gpus))
    return Row(verdict, hosts, group[0], against=against, differs=found, harmless=harmless)


def _equal(one: HostState, other: HostState) -> bool:
    """Whether the same is said of both; what sh said is less, and stands by itself."""
    same = one.diagnosis.primary == other.diagnosis.primary and one.asked_by is other.asked_by
    return same and not _differences(one, other)


def _differences(usual: HostState, odd: HostState) -> tuple[Group, ...]:
    held = LockedClass(usual.name, usual.stack.kind, Goal.INFER, False, "", "", usual.stack.held, ())  # noqa: FBT003
    return tuple(
        group
        for group in drifts(held, odd.stack)
        if _can_be_told(group.drift, odd) and _can_be_told(group.drift, usual)
    )


def _roots(groups: tuple[Group, ...]) -> tuple[Drift, ...]:
    """What differs, without what only follows from another difference."""
    return tuple(group.drift for group in groups)


def _can_be_told(drift: Drift, state: HostState) -> bool:
    """Whether a fact that one side lacks was looked for there at all."""
    if state.asked_by is AskedBy.SH:
        return drift.part in _BY_SH
    if drift.part in _ON_THE_SPOT and drift.change is Change.GONE:
        return False
    if drift.change not in (Change.ADDED, Change.GONE) or state.asked_by is AskedBy.PYTHON:
        return True
    return drift.part is not Part.STARTUP and (drift.part is not Part.PACKAGES or of_interest(drift.name))


def _verdict(state: HostState, *, differs: bool) -> Verdict:
    primary = state.primary
    if primary is not None and primary.severity is Severity.BLOCKS:
        return Verdict.BLOCKED
    if differs:
        return Verdict.DIFFERS
    if primary is not None and primary.severity is Severity.DEGRADES:
        return Verdict.DEGRADES
    if state.asked_by is AskedBy.SH:
        return Verdict.PARTLY
    return Verdict.HEALTHY if state.has_gpus else Verdict.NO_GPU
