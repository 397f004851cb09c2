"""One way out, with what it costs and how well it is known to work."""

from __future__ import annotations

import enum

from firstlight.facts.known import Fact
from firstlight.frozen import dataclass


class Proof(enum.Enum):
    """How well it is known that an option works on this machine, best first."""

    PROVED_HERE = "proved here"  # a probe on this machine said so: cuInit in a child, a library already loaded
    DOCUMENTED = "documented"  # the vendor says so for this combination, or a row measured it
    REPORTED = "reported"  # a public thread or a field report says so
    GUESSED = "guessed"  # follows from rules of thumb only


class Kind(enum.Enum):
    """The unlike kinds of way out."""

    NOTHING = "nothing-to-do"
    REMOVE = "remove-what-is-in-the-way"
    REPAIR = "repair"  # what the finding itself says to do: load a module, start a service, reboot
    COMPAT = "forward-compat"
    WHEEL = "another-wheel"
    TOOLKIT = "toolkit-from-wheels"
    DRIVER = "driver-upgrade"
    MACHINE = "another-machine"
    CONTAINER = "container-image"
    SOURCE = "source-build"


class Risk(enum.Enum):
    """What an option may break, least first."""

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
class Cost:
    """What an option takes; what is not known is Unknown with the reason and prints as unknown."""

    minutes: Fact[float]
    download_bytes: Fact[int]
    disk_bytes: Fact[int]
    money: Fact[float]  # in the currency of --rate; Unknown where no rate was given


@dataclass(frozen=True, slots=True)
class Option:
    """One way to satisfy the wants, e.g. forward-compat:cuda-compat-13-0."""

    id: str  # stable and unique on one machine, e.g. another-wheel:torch-2.9.0+cu128
    kind: Kind
    title: str  # one line: what is done
    because: tuple[str, ...]  # codes of the findings it answers
    proof: Proof
    proof_by: str  # what the proof rests on, with its source
    satisfies: tuple[str, ...]  # wants and goals that hold afterwards
    leaves_out: tuple[str, ...]  # wants that do not hold afterwards, each with why
    cost: Cost
    needs_root: bool
    reversible: Reversible
    risk: Risk
    feasible: bool  # False: `why_not` says why, and it is listed among the rejected
    why_not: str
    brings: tuple[str, ...]  # exact pieces, e.g. torch==2.9.0+cu128, cuda-compat-13-0; of a repair its commands
    index: str  # where wheels come from; "" = the default index
    folder: str  # the folder concerned, e.g. /usr/local/cuda-13.0/compat; "" where there is none
