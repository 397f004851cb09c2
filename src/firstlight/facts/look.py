"""Which machine is looked at, and under which names: what the command line and the zipapp have in common."""

from __future__ import annotations

import enum
import os
import shutil

from firstlight import __version__
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts, collect
from firstlight.facts.document import pseudonyms_of, read_machine_or_facts, write_recording
from firstlight.facts.override import override
from firstlight.facts.pseudonyms import rename_all
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordingMachine


class Names(enum.Enum):
    """Which names a document carries."""

    PSEUDONYMS = "pseudonyms"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Look:
    """This machine, or the one in `facts_file`; with facts pretended, and evidence kept in the folder `record`."""

    facts_file: str = ""
    overrides: tuple[str, ...] = ()
    python: str = ""
    record: str = ""
    names: Names = Names.PSEUDONYMS


def look_at(look: Look) -> Facts:
    """The facts asked for."""
    if look.facts_file:
        for option, given in (("--record", look.record), ("--python", look.python)):
            if given:
                raise BadInput(f"{option} looks at this machine; it cannot be combined with --facts {look.facts_file}")
        if look.names is Names.REAL:
            raise BadInput(f"--identify looks at this machine; the names in {look.facts_file} are pseudonyms already")
        return override(read_machine_or_facts(look.facts_file), look.overrides)
    if look.python:
        check_python(look.python)
    live = LiveMachine()
    recording = RecordingMachine(live)
    facts = collect(recording if look.record else live, python=look.python)
    pseudonyms = pseudonyms_of(facts, live.host)
    if look.record:
        recording.evidence.recorded_by = f"firstlight {__version__}"
        write_recording(look.record, recording.evidence, None if look.names is Names.REAL else pseudonyms)
    return override(facts if look.names is Names.REAL else rename_all(facts, pseudonyms.apply), look.overrides)


def check_python(given: str) -> None:
    """Refuse a --python that is neither an interpreter nor the folder of an environment."""
    path = given if "/" in given else shutil.which(given) or given
    names = ("bin/python3", "bin/python", "pyvenv.cfg", "conda-meta")
    is_interpreter = os.path.isfile(path) and os.access(path, os.X_OK) and "py" in os.path.basename(path)
    if not is_interpreter and not any(os.path.exists(os.path.join(path, name)) for name in names):
        why = "no such file" if not os.path.exists(path) else "not an interpreter, nor the folder of an environment"
        raise BadInput(f"--python {given}: {why}; accepted: e.g. /opt/venv/bin/python or /opt/venv")
