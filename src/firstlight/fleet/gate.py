"""May a job start on this node: one answer from the diagnosis, the lock and what could not be looked at. Pure."""

from __future__ import annotations

import enum

from firstlight.diagnosis.finding import Diagnosis, Question, Rule
from firstlight.facts.collect import Facts
from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.lock.classes import class_for, kind_words
from firstlight.lock.consequences import Consequence, judged
from firstlight.lock.drift import drifts, not_compared
from firstlight.lock.places import Places
from firstlight.lock.stack import Lock, Stack


class Standing(enum.Enum):
    """What a gate says of a node."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer and why, e.g. bad, "driver: 570.133.20, the lock has 580.95.05"."""

    standing: Standing
    why: str

    def exit_code(self, unknown: Standing) -> int:
        """0 or 1; `unknown` says as what unknown counts."""
        standing = unknown if self.standing is Standing.UNKNOWN else self.standing
        return 0 if standing is Standing.GOOD else 1


def gate_of(facts: Facts, diagnosis: Diagnosis) -> Gate:
    """What doctor says of the node: something blocks, nothing does, or nobody could look."""
    primary = diagnosis.of(diagnosis.primary) if diagnosis.primary else None
    if diagnosis.blocked and primary is not None:
        return Gate(Standing.BAD, f"{primary.title} [{primary.code}]")
    if not facts.gpus.devices:
        count = facts.gpus.count
        why = f" ({count.reason})" if isinstance(count, Unknown) else ""
        return Gate(Standing.UNKNOWN, f"no NVIDIA GPU was seen{why}")
    degrades = "" if primary is None else f"; what degrades it: {primary.title} [{primary.code}]"
    return Gate(Standing.GOOD, f"nothing blocks{degrades}")


class Digests(enum.Enum):
    """Whether files of the node could be read to compare their digests."""

    LIVE = "live"
    NONE = "these are facts alone"  # a recording: `check` and `fleet doctor` compare versions there, and so does a gate


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it is held against a lock."""

    stack: Stack
    places: Places
    question: Question
    digests: Digests


def held_against(lock: Lock, node: Node, rules: tuple[Rule, ...]) -> Gate:
    """The node against its class of the lock; harmless drifts count as little as for `check`."""
    locked = class_for(lock, node.stack.kind)
    if locked is None:
        return Gate(Standing.BAD, f"no class of {lock.path} is for this machine ({kind_words(node.stack.kind)})")
    found = drifts(locked, node.stack)
    told = judged(found, node.question, rules, locked=locked, places=node.places).told
    loud = [each.group.drift for each in told if each.consequence is not Consequence.HARMLESS]
    if loud:
        first = loud[0]
        more = f", and {len(loud) - 1} more" if len(loud) > 1 else ""
        name = first.part.value if first.name == "version" else f"{first.part.value} {first.name}"
        return Gate(Standing.BAD, f"{name}: {first.here}, the lock has {first.locked}{more} (firstlight check)")
    as_locked = f"as in {lock.path} (class {locked.name})"
    if node.digests is Digests.NONE:
        return Gate(Standing.GOOD, f"{as_locked}, digests of files not compared: {node.digests.value}")
    if missing := not_compared(locked, node.stack):
        return Gate(Standing.UNKNOWN, f"not compared with the lock: {missing[0]}")
    return Gate(Standing.GOOD, as_locked)
