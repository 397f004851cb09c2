"""One run over a fleet: which hosts, what is done there, and what became of each. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.records import encode

SCHEMA = "firstlight.fleet-run/1"
VAULT = "--vault-password-file"


class Verb(enum.Enum):
    """What is done on every host."""

    APPLY = "apply"
    UNDO = "undo"
    VERIFY = "verify"
    BENCH = "bench"


class HostEnd(enum.Enum):
    """What became of a host; its order is that of the table."""

    FAILED = "failed"
    BUSY = "another at work"
    UNREACHABLE = "not reached over ssh"
    AT_WORK = "at work"
    NOT_ASKED = "not asked yet"
    DONE = "done"
    NOTHING = "nothing to do"


GOOD = (HostEnd.DONE, HostEnd.NOTHING)


@dataclass(frozen=True, slots=True)
class Made:
    """A run in the journal of a host, which undo takes back; `digest` is "" where an earlier attempt began it."""

    number: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class HostRun:
    """A host in a run; `attempt` names its work there, so that a call that comes later finds it again."""

    name: str
    attempt: int = 1
    end: HostEnd = HostEnd.NOT_ASKED
    reason: str = ""
    digest: str = ""  # of the plan that was done there
    made: tuple[Made, ...] = ()  # oldest first; of an undo: what is to be taken back
    steps: tuple[str, ...] = ()  # titles of what was done; of verify and bench: what was found, a line each


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that is kept of a host, under a name of ours, e.g. gpu-0-run-1.json."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """A host with its end, and what is kept of it: document, journal and log, each "" where there is none."""

    host: HostRun
    document: str = ""
    journal: str = ""
    log: str = ""
    measured: tuple[Kept, ...] = ()  # of bench: one document for each GPU and run


@dataclass(frozen=True, slots=True)
class Engine:
    """How Ansible is called: its inventory, the config of ssh, and what is passed on to it word for word."""

    inventory: str
    ssh_config: str = ""
    passed_on: tuple[str, ...] = ()  # --become, --become-password-file FILE, ...; a secret comes in a file alone

    @property
    def vault(self) -> str:
        """The file with the password of the inventory's vault; "" where none was given."""
        return next((file for word, file in zip(self.passed_on, self.passed_on[1:], strict=False) if word == VAULT), "")


@dataclass(frozen=True, slots=True)
class FleetRun:
    """A run as its folder keeps it."""

    id: str  # 20261118T060000Z-3f2a9c
    verb: Verb
    at: str
    who: str
    words: tuple[str, ...]  # for the verb on every host
    hosts: tuple[HostRun, ...]
    engine: Engine
    of: str = ""  # of an undo: the run that is taken back

    @property
    def exit_code(self) -> int:
        """1: a host failed; 4: one could not be reached, is at work or was not asked; 0: all done."""
        ends = {host.end for host in self.hosts}
        if HostEnd.FAILED in ends:
            return 1
        return 0 if ends <= set(GOOD) else 4

    @property
    def left(self) -> tuple[HostRun, ...]:
        """Those that --retry does."""
        return tuple(host for host in self.hosts if host.end not in GOOD)

    def count(self, end: HostEnd) -> int:
        return sum(host.end is end for host in self.hosts)

    def with_host(self, host: HostRun) -> FleetRun:
        return replace(self, hosts=tuple(host if each.name == host.name else each for each in self.hosts))


def again(host: HostRun) -> HostRun:
    """The host as it is asked again: work that failed begins anew, work that may go on there is picked up."""
    attempt = host.attempt + 1 if host.end in (HostEnd.FAILED, HostEnd.BUSY) else host.attempt
    return HostRun(host.name, attempt, made=host.made)


def batches(names: tuple[str, ...], serial: str) -> tuple[tuple[str, ...], ...]:
    """The hosts in batches: "1,10%,100%" of 30 is 1, 3 and the rest; the last size is repeated. "" is all at once."""
    if not serial:
        return (names,) if names else ()
    sizes = [_size(text.strip(), len(names), serial) for text in serial.split(",")]
    found: list[tuple[str, ...]] = []
    left = names
    while left:
        size = sizes[min(len(found), len(sizes) - 1)]
        found.append(left[:size])
        left = left[size:]
    return tuple(found)


def _size(text: str, total: int, given: str) -> int:
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdecimal() and int(number[:6]) > 0 and len(number) < 7):
        raise BadInput(f"--serial {given!a}: accepted are numbers of hosts and percentages, e.g. 1,10%,100%")
    if not text.endswith("%"):
        return int(number)
    if int(number) > 100:
        raise BadInput(f"--serial {given!a}: {text} is more than all; accepted: 1% to 100%")
    return max(1, total * int(number) // 100)


def run_document(run: FleetRun, *, made_by: str, folder: str) -> dict[str, Any]:
    """The run as it is kept and printed (schema firstlight.fleet-run/1)."""
    return {
        "schema": SCHEMA,
        "made_by": made_by,
        "run": run.id,
        "verb": run.verb.value,
        "of": run.of,
        "at": run.at,
        "who": run.who,
        "words": list(run.words),
        "folder": folder,
        "inventory": run.engine.inventory,
        "ssh_config": run.engine.ssh_config,
        "passed_on": list(run.engine.passed_on),
        "exit_code": run.exit_code,
        "hosts": encode(run.hosts),
    }


def run_of(document: Any, where: str) -> FleetRun:
    """What a folder keeps, read back; BadInput where it is no run."""
    try:
        if document["schema"] != SCHEMA:
            raise BadInput(f"{where}: its schema is {document['schema']!a}; accepted: {SCHEMA}")
        return FleetRun(
            id=str(document["run"]),
            verb=Verb(document["verb"]),
            at=str(document["at"]),
            who=str(document["who"]),
            words=_texts(document["words"]),
            hosts=tuple(_hosts(document["hosts"])),
            engine=Engine(str(document["inventory"]), str(document["ssh_config"]), _texts(document["passed_on"])),
            of=str(document["of"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{where} is not a run of a fleet: {error!a}. Move the folder away, or give another run"
        ) from None


def _hosts(documents: Any) -> Iterable[HostRun]:
    for each in documents:
        yield HostRun(
            name=str(each["name"]),
            attempt=int(each["attempt"]),
            end=HostEnd(each["end"]),
            reason=str(each["reason"]),
            digest=str(each["digest"]),
            made=tuple(Made(int(made["number"]), str(made["digest"])) for made in each["made"]),
            steps=_texts(each["steps"]),
        )


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in found)
