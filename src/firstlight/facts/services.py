"""What systemd says of a service, and the end of its log; asked only of services that something here needs."""

from __future__ import annotations

import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine

MOST_LINES = 8
_LINE_LIMIT = 200
_PROPERTIES = ("ActiveState", "SubState", "Result", "ExecMainStatus")
_EMPTY = "-- No entries --"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A unit as `systemctl show` has it, e.g. failed, failed, exit-code, 1."""

    active: str  # active, inactive, failed, activating
    sub: str
    result: str
    status: int  # the exit status of its program

    @property
    def runs(self) -> bool:
        return self.active == "active"


def service_state(machine: Machine, unit: str) -> Fact[ServiceState]:
    """The state of a unit; one that systemd does not know is inactive and dead."""
    done = machine.run(("systemctl", "show", unit, f"--property={','.join(_PROPERTIES)}"))
    told = dict(re.findall(r"(?m)^(\w+)=([^\n]*)$", done.stdout))
    if not done.ok or not told.get("ActiveState"):
        return Unknown(done.complaint if not done.ok else f"systemctl show {unit} names no state")
    status = told.get("ExecMainStatus", "")
    state = ServiceState(
        told["ActiveState"][:20],
        told.get("SubState", "")[:20],
        told.get("Result", "")[:20],
        int(status) if re.fullmatch(r"\d{1,3}", status) else 0,
    )
    return Known(state, f"systemctl show {unit}")


def service_log(machine: Machine, unit: str, *, keep: str) -> Fact[tuple[str, ...]]:
    """The newest lines of a unit that match, each once."""
    done = machine.run(("journalctl", f"--unit={unit}", "--lines=40", "--no-pager", "--output=cat"), keep=keep)
    if not done.ok:
        return Unknown(done.complaint)
    kept = (line.strip()[:_LINE_LIMIT] for line in done.stdout.splitlines() if re.search(keep, line))
    lines = dict.fromkeys(line for line in kept if line and line != _EMPTY)
    return Known(tuple(lines)[-MOST_LINES:], f"journalctl --unit={unit}")
