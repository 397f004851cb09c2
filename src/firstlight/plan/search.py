"""From the answers of findings to chains that leave as little as can be: a bounded search on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from firstlight.diagnosis.answers import merged
from firstlight.diagnosis.finding import Finding
from firstlight.diagnosis.rules import RULES
from firstlight.frozen import dataclass
from firstlight.plan.paper import ELSEWHERE, Paper, Trial
from firstlight.ways.kinds import (
    AskPerson,
    BuildFromSource,
    InstallWheels,
    RemoveDistributions,
    Restart,
    StartContainer,
    Why,
)
from firstlight.ways.way import Chain, Proof, Way

_DEEPEST = 4  # findings that one option answers one after the other
_BRANCHES = 2  # with this many first answers or fewer, all answers of what is left become options of their own
_PROOFS = tuple(Proof)
_OF_PYTHON = (InstallWheels, RemoveDistributions)  # what follows a torch
_BELOW = (Why.BOARD, Why.WINDOWS)  # a system image or a driver that everything else stands on


@dataclass(frozen=True, slots=True)
class Found:
    """A chain that was tried: what it leaves, and the answers that it is made of."""

    trial: Trial
    parts: tuple[Chain, ...]
    codes: tuple[str, ...] = ()  # of the finding that each part answers

    @property
    def proof(self) -> Proof:
        return max((part.proof or Proof.GUESSED for part in self.parts), key=_PROOFS.index, default=Proof.DOCUMENTED)

    def reason(self, way: Way) -> str:
        """The code of the finding that a way answers; of one that ways were put together into, the first's."""
        told = tuple(zip(self.parts, self.codes, strict=True))
        exact = (code for part, code in told if way in part.ways)
        alike = (code for part, code in told if any(type(each) is type(way) for each in part.ways))
        return next(exact, "") or next(alike, "")


Order = Callable[[Found], tuple[object, ...]]


def search(paper: Paper, roots: tuple[Chain, ...], *, code: str, order: Order, asked_for: int = 0) -> tuple[Found, ...]:
    """What each first answer leads to, completed by answers of what still blocks; each chain once, best first.

    asked_for: so many first parts of a chain were asked for by name, and stay whether they cure anything or not.
    """
    begun = [found for root in roots if (found := _with(paper, Found(paper.start, ()), root, code=code)) is not None]
    seen: dict[frozenset[Way], Found] = {}
    for first in begun:
        complete = tuple(_completed(paper, first, order=order, depth=_DEEPEST))
        chosen = complete if len(begun) <= _BRANCHES else tuple(sorted(complete, key=order))[:1]
        for found in chosen:
            small = _needed_alone(paper, found, code=code, asked_for=asked_for)
            seen.setdefault(frozenset(small.trial.ways), small)
    steady = [found for found in seen.values() if not found.trial.undoes_itself]
    return tuple(sorted(steady or seen.values(), key=order))


def working(finding: Finding | None) -> tuple[Chain, ...]:
    """The answers of a finding that can work here."""
    return () if finding is None else tuple(each for each in finding.answers if not each.why_not)


def _with(paper: Paper, found: Found, part: Chain, *, code: str) -> Found | None:
    part = paper.made_ready(found.trial, part)
    ways = tuple(way for way in part.ways if way not in found.trial.ways)
    trial = paper.tried(found.trial, ways, answers=code)
    return None if trial is None else Found(trial, (*found.parts, part), (*found.codes, code))


def _completed(paper: Paper, found: Found, *, order: Order, depth: int) -> Iterator[Found]:
    """The chain with every answer of what blocks next that makes it better; the chain itself where none does."""
    blocker = found.trial.primary
    if not found.trial.blocking_here or blocker is None or depth == 0:
        yield _mended(paper, found) if depth else found
        return
    better = []
    for part in working(blocker):
        if _undoes(found.trial.ways, part.ways):
            continue
        further = _with(paper, found, part, code=blocker.code)
        if further is not None and _is_better(further.trial, found.trial, code=blocker.code):
            better.append(further)
    if not better:
        yield found
        return
    if depth < _DEEPEST:  # further down only the best is followed
        better = sorted(better, key=order)[:1]
    for further in better:
        yield from _completed(paper, further, order=order, depth=depth - 1)


def _mended(paper: Paper, found: Found) -> Found:
    """The chain with the first answer to what it degrades itself: the xformers of the torch that it brings."""
    for broken in found.trial.brought(paper.start.diagnosis):
        for part in working(broken):
            if _undoes(found.trial.ways, part.ways) or not all(isinstance(way, _OF_PYTHON) for way in part.ways):
                continue
            further = _with(paper, found, part, code=broken.code)
            left = {each.code for each in further.trial.standing} if further is not None else {broken.code}
            if further is not None and left < {each.code for each in found.trial.standing}:
                return further
    return found


def _is_better(further: Trial, before: Trial, *, code: str) -> bool:
    """Whether the finding is gone and not more blocks than before."""
    return code not in further.blocking and len(further.blocking) <= len(before.blocking)


def _undoes(before: tuple[Way, ...], ways: tuple[Way, ...]) -> bool:
    """Whether ways would put other packages in the place of those that the chain itself installs."""
    return bool(_brought(before) & _brought(ways))


def _brought(ways: tuple[Way, ...]) -> set[str]:
    built = {way.project for way in ways if isinstance(way, BuildFromSource)}
    return built | {each.project for way in ways if isinstance(way, InstallWheels) for each in way.packages}


def _needed_alone(paper: Paper, found: Found, *, code: str, asked_for: int) -> Found:
    """The chain without the answers that turn out not to be needed: a compat library for a torch that goes."""
    parts, codes = list(found.parts), list(found.codes)
    for part in found.parts[asked_for:-1]:
        rest = tuple(each for each in parts if each is not part)
        again = _again(paper, rest, code=code)
        if again is not None and _as_good(again.trial, found.trial) and not _only_hidden(again.trial, part, paper):
            kept = [each for each, one in zip(codes, parts, strict=True) if one is not part]
            parts, codes, found = list(rest), kept, replace(again, codes=tuple(kept))
    return _in_order(paper, found)


def _only_hidden(shorter: Trial, part: Chain, paper: Paper) -> bool:
    """Whether what a part answers is gone without it only because nobody can tell any more: a shim is still loaded."""
    answered = {each.code for each in paper.start.diagnosis.findings if part in each.answers}
    looked_at = {path for rule in RULES if rule.code in answered for path in rule.looks_at}
    return any(path in looked_at for path in shorter.unsure)


def _in_order(paper: Paper, found: Found) -> Found:
    """The chain with what everything else stands on first and a restart last, tried once more just as it is shown."""
    places = sorted(range(len(found.parts)), key=lambda place: _phase(found.parts[place]))
    parts = tuple(found.parts[place] for place in places)
    codes = tuple(found.codes[place] for place in places)
    listed = [way for part in parts for way in part.ways if way in found.trial.ways]
    last = max((place for place, way in enumerate(listed) if isinstance(way, Restart)), default=-1)
    # One restart does, behind everything that waits for one.
    ways = tuple(
        dict.fromkeys(way for place, way in enumerate(listed) if not isinstance(way, Restart) or place == last)
    )
    start = replace(paper.start, settled=found.trial.settled)
    for chain in dict.fromkeys((merged(ways), ways)):
        trial = paper.tried(start, chain)
        if trial is not None and _as_good(trial, found.trial):
            return Found(trial, parts, codes)
    return found


def _phase(part: Chain) -> int:
    below = (*ELSEWHERE, StartContainer)  # in a new container nothing is left of what was done in the old one
    first = any(isinstance(way, below) or (isinstance(way, AskPerson) and way.why in _BELOW) for way in part.ways)
    return 0 if first else 2 if _ends_in_restart(part) else 1


def _ends_in_restart(part: Chain) -> bool:
    return bool(part.ways) and isinstance(part.ways[-1], Restart)


def _again(paper: Paper, parts: tuple[Chain, ...], *, code: str) -> Found | None:
    """The parts tried from the start; a part for a person settles what it settled before."""
    if any(isinstance(way, AskPerson) for part in parts for way in part.ways):
        return None
    found: Found | None = Found(paper.start, ())
    for part in parts:
        found = None if found is None else _with(paper, found, part, code=code)
    return found


def _as_good(shorter: Trial, longer: Trial) -> bool:
    return set(shorter.blocking) <= set(longer.blocking) and {each.code for each in shorter.standing} <= {
        each.code for each in longer.standing
    }
