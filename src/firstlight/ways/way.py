"""A way is one thing that can be done to a machine; a chain of ways answers a finding. Types alone."""

from __future__ import annotations

import enum
import re

from firstlight.frozen import dataclass


class Way:
    """The base of all ways (`ways/kinds.py`): frozen types with typed arguments, never command text."""

    __slots__ = ()


def type_name(kind: type[Way]) -> str:
    """install-wheels of InstallWheels: what `--json`, ids and the rules call it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


class Proof(enum.Enum):
    """How well it is known that something works on this machine, best first."""

    PROVED_HERE = "proved here"  # a probe on this machine said so: cuInit in a child, a library already loaded
    DOCUMENTED = "documented"  # the vendor says so for this combination, or a row measured it
    REPORTED = "reported"  # a public thread or a field report says so
    GUESSED = "guessed"  # follows from rules of thumb only


class Risk(enum.Enum):
    """What a way may break, least first."""

    NONE = "none"  # touches one process or one folder of ours
    LOW = "low"  # changes an environment that pip can change back
    MEDIUM = "medium"  # changes system packages or shells
    HIGH = "high"  # needs a reboot, or leaves this machine


class Reversible(enum.Enum):
    """Whether and how it can be taken back."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Chain:
    """Ways that answer a finding together, in order, e.g. install a compat library, then wire it.

    A rule's own source says how well it is known to help where `proof` is None. With `why_not` it is listed among what
    cannot work here, and never done; `title` names it then, and wherever its ways alone would say too little.
    """

    ways: tuple[Way, ...]
    proof: Proof | None = None
    proof_by: str = ""
    title: str = ""
    why_not: str = ""


def chain(*ways: Way, proof: Proof | None = None, by: str = "", title: str = "") -> Chain:
    """One answer made of these ways, e.g. chain(LoadModules(("nvidia_uvm",)), MakeDeviceNodes())."""
    return Chain(ways, proof, by, title)


def cannot(title: str, why_not: str) -> Chain:
    """An answer that somebody may think of and that does not work here, with the reason."""
    return Chain((), title=title, why_not=why_not)


def first_ways(answers: tuple[Chain, ...]) -> tuple[Way, ...]:
    """The ways of the best answer that can work here; () where there is none."""
    return next((answer.ways for answer in answers if not answer.why_not), ())
