"""Whether something is there: yes, no, or nobody looked. A recording that has no word of a path is no "no"."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.machine import Machine

_ABSENT = "no such file"


def is_there(machine: Machine, path: str) -> Fact[bool]:
    """Whether a file, folder, socket or node is at a path, e.g. Known(True, '/run/nvidia-gridd')."""
    if machine.stat(path) is not None:
        return Known(value=True, seen_in=path)
    why = machine.why_not(path)
    return Known(value=False, seen_in=path) if why == _ABSENT else Unknown(f"{path}: {why}")


def runs_as(machine: Machine, pid_file: str, name: str) -> Fact[bool]:
    """Whether the process that a daemon's pid file names is that daemon; the kernel keeps 15 letters of a name."""
    text = machine.read(pid_file, limit=64)
    if text is None:
        return Unknown(f"{pid_file}: {machine.why_not(pid_file)}")
    number = text.strip()
    if not number.isascii() or not number.isdigit():
        return Unknown(f"{pid_file} holds no process number")
    path = f"/proc/{number}/comm"
    running = machine.read(path, limit=64)
    if running is None and machine.why_not(path) != _ABSENT:
        return Unknown(f"{path}: {machine.why_not(path)}")
    return Known((running or "").strip() == name[:15], pid_file)
