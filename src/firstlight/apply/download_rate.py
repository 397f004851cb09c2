"""How fast this machine downloads: measured at the first step that fetches, kept for the plans that follow."""

from __future__ import annotations

import datetime
import json
import os

from firstlight.apply.account import State, Taken
from firstlight.apply.place import machine_folder
from firstlight.errors import BadInput, NotOurs
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.machine.interface import Machine
from firstlight.owned import open_ours, our_folder, read_ours
from firstlight.tables import Tables
from firstlight.tables.cost_rows import Per, Work
from firstlight.ways.step import StepKind

NAME = "download-rate.json"
_LEAST_BYTES = 5_000_000  # below it the start of a program is most of the time
_SLOWEST, _FASTEST = 1e3, 1e11  # bytes per second; another number was not measured by us
_BESIDES = {  # what takes the rest of a step's time
    StepKind.PIP: (Work.PIP, Work.PIP_LARGE),
    StepKind.UV: (Work.UV, Work.UV_WHEELS),
    StepKind.APT: (Work.APT, Work.APT_PACKAGES),
    StepKind.ARCHIVE: (Work.ARCHIVE,),
}


def measured_rate(taken: tuple[Taken, ...], tables: Tables) -> Fact[float]:
    """Bytes per second of the first step that fetched: what came in, over its seconds less those of other work.

    A step whose files came from a cache tells nothing: less than half of what was expected came in.
    """
    for each in taken:
        size, received = each.step.bytes, each.received_bytes
        if each.state is not State.DONE or isinstance(size, Unknown) or isinstance(received, Unknown):
            continue
        if received.value < max(_LEAST_BYTES, size.value / 2):
            continue
        rows = [tables.duration(work) for work in _BESIDES.get(each.step.kind, ())]
        besides = sum(row.seconds * (received.value / 1e9 if row.per is Per.GIGABYTE else 1) for row in rows)
        seconds = max(each.seconds - besides, each.seconds / 4)
        return Known(received.value / seconds, each.step.title) if seconds > 0 else Unknown("it took no time")
    return Unknown("no step fetched enough to tell")


def keep_rate(machine: Machine, taken: tuple[Taken, ...], tables: Tables) -> None:
    """Write down what was measured; a state folder that takes no file loses a convenience, nothing else."""
    found = measured_rate(taken, tables)
    if isinstance(found, Unknown) or not _SLOWEST <= found.value <= _FASTEST:
        return
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = json.dumps({"schema": "firstlight.download-rate/1", "bytes_per_second": round(found.value), "on": today})
    try:
        with our_folder(machine_folder(machine)) as folder:
            handle = open_ours(folder, NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
    except (NotOurs, BadInput, OSError):
        return


def kept_rate(machine: Machine) -> Fact[float]:
    """What apply measured on this machine; Unknown where it did not, or where the file is not ours."""
    try:
        with our_folder(machine_folder(machine)) as folder:
            document = json.loads(read_ours(folder, NAME))
    except (NotOurs, BadInput, OSError, ValueError) as error:
        return Unknown(f"no rate was kept: {error}")
    rate, day = (document.get(key) if isinstance(document, dict) else None for key in ("bytes_per_second", "on"))
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not _SLOWEST <= rate <= _FASTEST:
        return Unknown(f"{NAME} holds no rate")
    try:
        when = datetime.date.fromisoformat(str(day))
    except ValueError:
        return Unknown(f"{NAME} holds no day")
    return Known(float(rate), f"measured by apply on {when}")
