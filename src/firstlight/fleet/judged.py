"""What is said of a fleet: every host judged as doctor judges one, in rows. `comparing.py` makes the rows."""

from __future__ import annotations

import enum

from firstlight.diagnosis.finding import Diagnosis, Finding, Goal, Question, Rule
from firstlight.diagnosis.judge import judge
from firstlight.facts.collect import Facts
from firstlight.facts.document import pseudonyms_of
from firstlight.facts.gpus import PciKind
from firstlight.facts.known import Known
from firstlight.facts.pseudonyms import Pseudonyms
from firstlight.fleet.look import UNFORESEEN, AskedBy, Looked, NotLooked, not_judged
from firstlight.fleet.sh_probe import rules_for_sh
from firstlight.frozen import dataclass
from firstlight.lock.drift import Drift
from firstlight.lock.looking import Looked as LockLook
from firstlight.lock.looking import stack_of
from firstlight.lock.places import Places, places_of
from firstlight.lock.settings import variables_of
from firstlight.lock.stack import Part, Stack
from firstlight.tables import Tables


class Verdict(enum.Enum):
    """What is said of a host; its order is that of the table."""

    BLOCKED = "blocked"
    NOT_LOOKED = "not looked at"
    DIFFERS = "differs"
    DEGRADES = "degrades"
    PARTLY = "partly judged"  # nothing was found by what its sh could be asked
    HEALTHY = "healthy"
    NO_GPU = "no GPU"


@dataclass(frozen=True, slots=True)
class HostState:
    """A host that answered: what it is, what is wrong with it, and its stack as a lock tells it."""

    name: str
    facts: Facts
    diagnosis: Diagnosis
    stack: Stack
    places: Places
    asked_by: AskedBy
    names: Pseudonyms  # what its people and devices are called where it is handed on

    @property
    def primary(self) -> Finding | None:
        return self.diagnosis.of(self.diagnosis.primary) if self.diagnosis.primary else None

    @property
    def kind(self) -> tuple[str, ...]:
        """What makes hosts comparable: capability, processor and the names of the GPUs; not how many there are.

        GPUs that no driver names are told by their numbers on the bus: otherwise all hosts with them would be one kind.
        """
        names = self.stack.at(Part.GPU, "name")
        return (self.stack.kind.capability, self.stack.kind.processor, names.value if names else self._cards)

    @property
    def has_gpus(self) -> bool:
        """Whether any is seen, by NVML, libcuda, the bus or the chip; a loaded driver is none."""
        gpus = self.facts.gpus
        return bool(gpus.devices or self.facts.libcuda.devices or self._cards or isinstance(gpus.tegra_chip, Known))

    @property
    def _cards(self) -> str:
        cards = (card for card in self.facts.gpus.pci if card.kind in (PciKind.GPU, PciKind.VIRTUAL))
        return " ".join(sorted({card.device_id.value if isinstance(card.device_id, Known) else "?" for card in cards}))


@dataclass(frozen=True, slots=True)
class Against:
    """What a row was compared with: the usual hosts of its kind, or a class of the lock; all empty for the usual ones.

    `unlike` are the hosts of a kind of which no two are equal, so that none of them is the usual one; `with_gpus` are
    the hosts that have GPUs, where this one has none.
    """

    hosts: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    with_gpus: tuple[str, ...] = ()
    lock: str = ""  # the file
    class_name: str = ""  # "": no class of it fits

    @property
    def none_fits(self) -> bool:
        return bool(self.lock) and not self.class_name


@dataclass(frozen=True, slots=True)
class Row:
    """Hosts of which the same is to be said: one odd one, or all that are equal."""

    verdict: Verdict
    hosts: tuple[str, ...]
    state: HostState | None = None  # of the first of them; None where they were not looked at
    reason: str = ""  # why they were not
    do: str = ""  # the one command that helps then; "" where none does
    against: Against = Against()
    differs: tuple[Drift, ...] = ()
    harmless: tuple[Drift, ...] = ()  # of a lock: drifts that no rule says anything about

    @property
    def is_odd(self) -> bool:
        against = self.against
        return bool(self.differs or against.none_fits or against.unlike or against.with_gpus)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All hosts in rows, the odd ones first."""

    rows: tuple[Row, ...]

    @property
    def exit_code(self) -> int:
        """1: something blocks somewhere; 4: a host could not be looked at; 3: one differs; 0: all good."""
        said = {row.verdict for row in self.rows} | {Verdict.DIFFERS for row in self.rows if row.is_odd}
        order = ((Verdict.BLOCKED, 1), (Verdict.NOT_LOOKED, 4), (Verdict.DIFFERS, 3))
        return next((code for verdict, code in order if verdict in said), 0)

    def count(self, verdict: Verdict) -> int:
        return sum(len(row.hosts) for row in self.rows if row.verdict is verdict)


def state_of(looked: Looked, tables: Tables, rules: tuple[Rule, ...], *, goal: Goal) -> HostState:
    """One host, judged."""
    facts, host = looked.facts(), looked.evidence.host
    names = pseudonyms_of(facts, host)
    places = places_of(facts, home=host.home, names=names)
    stack = stack_of(LockLook(facts, looked.machine(), places, variables_of(looked.evidence.env)))
    if looked.asked_by is AskedBy.SH:
        rules = rules_for_sh(rules)
    diagnosis = judge(Question(facts, tables, goal), rules)
    return HostState(looked.name, facts, diagnosis, stack, places, looked.asked_by, names)


def judged_or_why_not(looked: Looked, tables: Tables, rules: tuple[Rule, ...], *, goal: Goal) -> HostState | NotLooked:
    """One host, judged; where that fails, the reason, so that the others still have their rows."""
    try:
        return state_of(looked, tables, rules, goal=goal)
    except UNFORESEEN as error:
        return not_judged(looked.name, error)
