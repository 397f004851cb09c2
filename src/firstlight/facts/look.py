"""Which machine is looked at, and under which names: what the command line and the zipapp have in common."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable

from firstlight import __version__
from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.collect import Facts, collect
from firstlight.facts.override import override
from firstlight.frozen import dataclass
from firstlight.machine import Host
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine


class Names(enum.Enum):
    """Which names a document carries."""

    PSEUDONYMS = "pseudonyms"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Look:
    """This machine, the one in `facts_file`, or `host`; with facts pretended, and evidence kept in the folder `record`.

    `reached` asks the host when it is first called, and remembers the answer.
    """

    facts_file: str = ""
    overrides: tuple[str, ...] = ()
    python: str = ""
    record: str = ""
    names: Names = Names.PSEUDONYMS
    host: str = ""
    ssh_config: str = ""
    reached: Callable[[], RecordedMachine] | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine than this one is looked at."""
        return bool(self.facts_file) or self.reached is not None


def look_at(look: Look) -> Facts:
    """The facts asked for."""
    if look.facts_file:
        for option, given in (("--record", look.record), ("--python", look.python)):
            if given:
                raise BadInput(f"{option} looks at this machine; it cannot be combined with --facts {look.facts_file}")
        if look.names is Names.REAL:
            raise BadInput(f"--identify looks at this machine; the names in {look.facts_file} are pseudonyms already")
        from firstlight.facts.document import read_machine_or_facts

        return override(read_machine_or_facts(look.facts_file), look.overrides)
    if look.reached is not None:
        return override(_of_host(look, look.reached()), look.overrides)
    if look.python:
        check_python(look.python)
    facts = _recorded(look) if look.record else collect(LiveMachine(), python=look.python)
    return override(facts if look.names is Names.REAL else under_pseudonyms(facts), look.overrides)


def _of_host(look: Look, machine: RecordedMachine) -> Facts:
    from firstlight.facts.by_sh import collected, is_by_sh
    from firstlight.facts.document import pseudonyms_of, renamed, write_recording

    facts = collected(machine, python=look.python)
    if look.record and is_by_sh(machine):
        raise CouldNotLook(f"{look.host} has no Python 3.10 or newer: what its sh says is too little to be recorded")
    if look.record:
        names = None if look.names is Names.REAL else pseudonyms_of(facts, machine.host)
        write_recording(look.record, machine.evidence, names)
    return facts if look.names is Names.REAL else renamed(facts, machine.host)


def _recorded(look: Look) -> Facts:
    """The facts of this machine under real names, after what they were made from is written down."""
    from firstlight.facts.document import pseudonyms_of, write_recording
    from firstlight.machine.recorded import RecordingMachine

    live = LiveMachine()
    recording = RecordingMachine(live)
    facts = collect(recording, python=look.python)
    recording.evidence.recorded_by = f"firstlight {__version__}"
    names = None if look.names is Names.REAL else pseudonyms_of(facts, live.host)
    write_recording(look.record, recording.evidence, names)
    return facts


def under_pseudonyms(facts: Facts, host: Host | None = None) -> Facts:
    """The facts of this machine or of `host`, under real names, as a document that is handed on carries them."""
    from firstlight.facts.document import renamed  # doctor's screen has real names, and does without

    return renamed(facts, LiveMachine().host if host is None else host)


def check_python(given: str) -> None:
    """Refuse a --python that is neither an interpreter nor the folder of an environment."""
    import shutil

    is_folder = os.path.exists(os.path.join(given, "pyvenv.cfg"))  # called env, as a program is too
    path = given if "/" in given or is_folder else shutil.which(given) or given
    names = ("bin/python3", "bin/python", "pyvenv.cfg", "conda-meta")
    is_interpreter = os.path.isfile(path) and os.access(path, os.X_OK) and "py" in os.path.basename(path)
    if not is_interpreter and not any(os.path.exists(os.path.join(path, name)) for name in names):
        why = "no such file" if not os.path.exists(path) else "not an interpreter, nor the folder of an environment"
        raise BadInput(f"--python {given}: {why}; accepted: e.g. /opt/venv/bin/python or /opt/venv")
