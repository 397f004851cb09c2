"""The facts document (schema firstlight.facts/1) and recorded machines, written and read back."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

from firstlight import __version__
from firstlight.errors import BadFactsFile, BadInput
from firstlight.facts.collect import Facts, collect
from firstlight.facts.known import Known
from firstlight.facts.later_fields import FACTS
from firstlight.facts.pseudonyms import Pseudonyms, rename_all
from firstlight.machine import Host
from firstlight.machine.evidence import SCHEMA as MACHINE_SCHEMA
from firstlight.machine.evidence import Evidence, from_document, to_document
from firstlight.machine.recorded import RecordedMachine
from firstlight.opening import is_handed_over, open_given
from firstlight.records import decode, encode
from firstlight.secrets import without_credentials

SCHEMA = "firstlight.facts/1"
FILE_LIMIT = 64 << 20
RECORDING_NAME = "machine.json"
EXAMPLE = "example:"
# What holds answers and no machine -> the command that gives them.
_ANSWERS = {
    "firstlight.plan": "firstlight plan --json",
    "firstlight.options": "firstlight plan --options --json",
    "firstlight.diagnosis": "firstlight doctor --json",
}
_ACCEPTED = "a facts document, a recorded machine, or example:NAME"


def renamed(facts: Facts, host: Host) -> Facts:
    """The facts with pseudonyms in place of names of people, hosts and devices."""
    return rename_all(facts, pseudonyms_of(facts, host).apply)


def pseudonyms_of(facts: Facts, host: Host) -> Pseudonyms:
    """Who is called what on this machine: GPUs in the order of their index."""
    uuids = [gpu.uuid.value if isinstance(gpu.uuid, Known) else "" for gpu in facts.gpus.devices]
    parts = [part.uuid for gpu in facts.gpus.devices for part in gpu.mig_devices]
    return Pseudonyms.of(host, uuids, [part.value if isinstance(part, Known) else "" for part in parts])


def to_text(facts: Facts) -> str:
    """The document, schema first, as indented JSON with a final newline."""
    document = {"schema": SCHEMA, "made_by": f"firstlight {__version__}", **encode(facts)}
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def read_machine_or_facts(path: str) -> Facts:
    """Facts from a facts document, a recorded machine (its folder or file) or `example:NAME`."""
    if path.startswith(EXAMPLE):
        return replay(_read_example(path[len(EXAMPLE) :]), path)
    file = os.path.join(path, RECORDING_NAME) if os.path.isdir(path) else path
    document = parse_json(read_file(file), file)
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema.startswith("firstlight.machine/"):
        return replay(document, file)
    return from_document_text(document, file)


def _told_again(schema: Any) -> str:
    """What to do with a document that says what was found out, of this version or of 0.1; "" for all others."""
    name = schema.partition("/")[0] if isinstance(schema, str) else ""
    if name not in _ANSWERS:
        return ""
    return f". What `{_ANSWERS[name]}` printed is not read back: take the facts of that machine, and make it again"


def from_document_text(document: Any, where: str) -> Facts:
    """Facts from a parsed facts document; a wrong or future schema is named."""
    if not isinstance(document, dict):
        raise BadFactsFile(f"{where}: expected a JSON object, found {type(document).__name__}")
    schema = document.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str) and re.fullmatch(r"firstlight\.facts/\d{1,6}", schema):
            raise BadFactsFile(f"{where}: schema is {schema}; this firstlight reads {SCHEMA}. Upgrade firstlight.")
        shown = ascii(schema)[:60] if isinstance(schema, str) else "missing"
        raise BadFactsFile(
            f"{where}: schema is {shown}; accepted: {SCHEMA} (from `firstlight facts --json`) or "
            f"{MACHINE_SCHEMA} (from `firstlight facts --record DIR`){_told_again(schema)}"
        )
    if not isinstance(document.get("made_by"), str):
        raise BadFactsFile(f"{where}: made_by: expected text")
    return decode(
        Facts, {key: value for key, value in document.items() if key not in ("schema", "made_by")}, where, FACTS
    )


def replay(document: Any, where: str) -> Facts:
    """The facts of a recorded machine, by the same probes that look at a live one."""
    machine = RecordedMachine(from_document(document, where))
    return renamed(collect(machine), machine.host)


def write_recording(folder: str, evidence: Evidence, pseudonyms: Pseudonyms | None) -> str:
    """Write DIR/machine.json, with pseudonyms unless None is given; never overwrites a recording."""
    path = os.path.join(folder, RECORDING_NAME)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise BadInput(f"--record {folder}: this is a file; accepted is a folder, which is made where it is not there")
    if pseudonyms is None:
        document = to_document(evidence, without_credentials, lambda data: data)
    else:
        document = to_document(evidence, pseudonyms.apply, pseudonyms.apply_bytes)
        document["host"]["hostname"] = "host-a"  # also where the name is too short to be looked for in texts
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=1, ensure_ascii=True) + "\n")
    except FileExistsError:
        raise BadInput(f"--record {folder}: holds {RECORDING_NAME} already; give a new folder") from None
    except OSError as error:
        raise BadInput(f"--record {folder}: {error.strerror}; give a folder you can write to") from None
    return path


def read_file(path: str) -> str:
    """The text of a file the user named; a file that is too large or not text is refused in one line."""
    try:
        data = _read_once(path) if is_handed_over(path) else _read(path)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(f"{_printable(path)}: {why}; accepted: {_ACCEPTED}") from None
    if len(data) > FILE_LIMIT:
        raise BadFactsFile(f"{_printable(path)}: larger than {FILE_LIMIT >> 20} MiB; not a facts document")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFactsFile(
            f"{_printable(path)}: not text (byte {error.start} is not UTF-8); accepted: {_ACCEPTED}"
        ) from None


def _read(path: str) -> bytes:
    with open_given(path) as file:
        return file.read(FILE_LIMIT + 1)


@functools.cache
def _read_once(path: str) -> bytes:
    """What a pipe said: `plan` asks for the facts and for the recording, and a pipe says it once."""
    return _read(path)


def parse_json(text: str, where: str) -> Any:
    """Parsed JSON; truncated or absurdly nested text is refused in one line."""
    try:
        return json.loads(text)
    except RecursionError:
        raise BadFactsFile(f"{_printable(where)}: nested too deeply to be a facts document") from None
    except ValueError as error:
        raise BadFactsFile(f"{_printable(where)}: not JSON ({error}); accepted: {_ACCEPTED}") from None


def examples() -> tuple[str, ...]:
    """Names of the machines that come with firstlight, e.g. h100-driver-570."""
    from importlib import resources

    folder = resources.files("firstlight.examples")
    return tuple(sorted(item.name.removesuffix(".json") for item in folder.iterdir() if item.name.endswith(".json")))


def _read_example(name: str) -> Any:
    from importlib import resources

    if name not in examples():
        raise BadInput(f"{EXAMPLE}{name[:60]}: no such example; accepted: {', '.join(examples())}")
    return json.loads(resources.files("firstlight.examples").joinpath(f"{name}.json").read_text("utf-8"))


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
