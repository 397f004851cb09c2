"""How much memory each unit takes while it compiles: the processes under ninja, added up by the unit they belong to."""

from __future__ import annotations

import os
import re

from firstlight.frozen import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_OUTPUT = re.compile(r"(?:^|\s)-o\s+(\S+)")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process: its parent, what it holds in memory now, and its command line."""

    number: int
    parent: int
    bytes: int
    command: str


def processes() -> dict[int, Process]:
    """Every process that can be looked at; one that ends meanwhile is left out."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read(1 << 16).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        found[int(name)] = Process(int(name), int(fields[1]), int(fields[21]) * _PAGE, command)
    return found


def under(leader: int, there: dict[int, Process]) -> tuple[Process, ...]:
    """Every process below one, children of children too."""
    below: dict[int, list[Process]] = {}
    for process in there.values():
        below.setdefault(process.parent, []).append(process)
    found, waiting = [], [leader]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.extend(children)
        waiting.extend(each.number for each in children)
    return tuple(found)


class MemoryWatch:
    """Looks again and again; keeps the most that each unit held, and the most that all held together."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self.together = self.now = 0
        self.running: tuple[str, ...] = ()

    def look(self, leader: int) -> None:
        """One look at all that runs below a process: ninja's commands, else compilers, by the -o they are given."""
        there = processes()
        below = under(leader, there)
        ninjas = {each.number for each in below if _is_ninja(each)}
        units: dict[str, int] = {}
        total = 0
        for each in below:
            match = _OUTPUT.search(each.command)
            is_unit = each.parent in ninjas if ninjas else match is not None and match[1].endswith(".o")
            if not is_unit:
                continue
            held = each.bytes + sum(child.bytes for child in under(each.number, there))
            total += held
            if match:
                units[match[1]] = units.get(match[1], 0) + held
        self.now = total
        self.together = max(self.together, total)
        self.running = tuple(units)
        for unit, held in units.items():
            self.peaks[unit] = max(self.peaks.get(unit, 0), held)


def _is_ninja(process: Process) -> bool:
    return os.path.basename(process.command.split(" ")[0]) == "ninja"
