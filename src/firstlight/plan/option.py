"""One way out: a chain of ways, tried on paper, with what it costs and how well it is known to work."""

from __future__ import annotations

import enum

from firstlight.facts.known import Fact, Unknown
from firstlight.frozen import dataclass
from firstlight.ways.way import Proof, Reversible, Risk, Way


class Kind(enum.Enum):
    """The unlike kinds of way out; the first way of the chain that counts decides."""

    NOTHING = "nothing-to-do"
    REMOVE = "remove-what-is-in-the-way"
    REPAIR = "repair"  # load a module, start a service, reboot, set a variable
    COMPAT = "forward-compat"
    WHEEL = "another-wheel"
    TOOLKIT = "toolkit"
    DRIVER = "driver-upgrade"
    MACHINE = "another-machine"
    CONTAINER = "container-image"
    SOURCE = "source-build"


class Keeps(enum.Enum):
    """How much of what the user has stays, most first."""

    ALL = "everything"
    RELEASE = "the torch release, in another CUDA build"
    DRIVER = "everything but the driver"
    MINOR = "the minor release of torch"
    NEWER = "nothing: a newer torch"
    OLDER = "nothing: an older torch"
    FEWER = "torch, without a package that you installed"
    NOTHING = "nothing: everything is set up from scratch"


@dataclass(frozen=True, slots=True)
class Cost:
    """What an option takes; what is not known is Unknown with the reason and prints as unknown."""

    minutes: Fact[float]
    download_bytes: Fact[int]
    disk_bytes: Fact[int]
    money: Fact[float]  # in the currency of --rate; Unknown where no rate was given
    download_rate: Fact[float] = Unknown("nothing is fetched")  # that the minutes rest on, in bytes per second


@dataclass(frozen=True, slots=True)
class Option:
    """One way to satisfy the wants, e.g. forward-compat:cuda-compat-13-0."""

    id: str  # stable and unique on one machine, e.g. another-wheel:torch-2.9.0+cu128
    kind: Kind
    title: str  # what is done, at most 70 characters
    ways: tuple[Way, ...]  # in the order they are carried out
    because: tuple[str, ...]  # codes of the findings that vanish when it is tried on paper
    stays: tuple[str, ...]  # codes of the findings that still block afterwards
    after: tuple[str, ...]  # codes of everything that is found afterwards, on paper
    unsure: tuple[str, ...]  # paths of the facts that only running it can tell, e.g. libcuda.init_code
    proof: Proof
    proof_by: str  # what the proof rests on, with its source
    keeps: Keeps
    satisfies: tuple[str, ...]  # wants and goals that hold afterwards
    leaves_out: tuple[str, ...]  # wants that do not hold afterwards, each with why
    cost: Cost
    needs_root: bool
    reversible: Reversible
    risk: Risk
    why_not: str = ""  # why it cannot work here; it is listed among the rejected then
    by_hand: bool = False  # what helps is done by a person
    wanted: bool = False  # it was asked for by name
    brings: tuple[str, ...] = ()  # codes of what does not block, and was not found before it
    only_for: str = ""  # whom it reaches, where that is not every program, e.g. login shells
    reasons: tuple[str, ...] = ()  # beside each way the code of the finding that it answers; "" for a want
    newest: tuple[int, ...] = ()  # the torch release that it brings, e.g. (2, 9, 1)

    @property
    def feasible(self) -> bool:
        return not self.why_not
