"""Where the journal lives and which machine it belongs to."""

from __future__ import annotations

import hashlib
import os
import re

from firstlight.machine.interface import Machine

# A pod's own disk is wiped when it stops; the volume stays. RunPod and most templates mount it here.
VOLUMES = ("/workspace",)
_CONTAINER_ID = re.compile(r"/containers/([0-9a-f]{64})/")


def state_folder(machine: Machine, *, home: str = "") -> str:
    """FIRSTLIGHT_STATE_DIR, else a pod's persistent volume, else $XDG_STATE_HOME/firstlight."""
    given = machine.env("FIRSTLIGHT_STATE_DIR")
    if given:
        return os.path.abspath(given)
    for volume in VOLUMES:
        if _is_mounted(machine, volume) and (found := machine.stat(volume)) is not None and found.writable:
            return f"{volume}/.firstlight"
    base = machine.env("XDG_STATE_HOME") or f"{(home or machine.host.home).rstrip('/')}/.local/state"
    return f"{base.rstrip('/')}/firstlight"


def machine_folder(machine: Machine) -> str:
    """This machine's part of the state folder: two pods may share a volume, each has its own journal."""
    return f"{state_folder(machine)}/machines/{machine_identity(machine)}"


def machine_identity(machine: Machine) -> str:
    """Sixteen hex digits that stay through reboots and change when a container is made anew, e.g. 9f86d081884c7d65.

    A container made anew has lost what was done to it, so the journal of the one before is not its journal.
    """
    mounts = machine.read("/proc/self/mountinfo") or ""
    container = _CONTAINER_ID.search(mounts)
    pieces = (
        (machine.read("/etc/machine-id") or "").strip(),
        container.group(1) if container else "",
        machine.env("RUNPOD_POD_ID") or "",
        machine.host.hostname,
    )
    return hashlib.sha256("\n".join(pieces).encode()).hexdigest()[:16]


def _is_mounted(machine: Machine, folder: str) -> bool:
    mounts = machine.read("/proc/self/mountinfo") or ""
    return any(line.split()[4:5] == [folder] for line in mounts.splitlines())
