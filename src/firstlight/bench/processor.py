"""Who else uses the processor: CPU time of all and of each other process from /proc, before and while cases run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from firstlight.frozen import dataclass

LOOK_S = 0.5
LEAST_SHARE = 0.05  # of a core: who uses less is not counted as a process that uses it
QUIET_CORES, QUIET_SHARE = 0.1, 0.02  # up to a tenth of a core, or 2 % of many, is what every system does by itself
_IDLE = (3, 4, 7)  # columns of /proc/stat that are nobody's work here: idle, waiting for a disk, stolen by the host
_STOLEN = 7
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """CPU seconds so far: of the machine, stolen from it by its host, of ours, and of each other process."""

    at_s: float
    cores: int
    busy_s: float
    stolen_s: float
    own_s: float
    others: tuple[tuple[int, float], ...]  # process id, seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What others used between two moments: 3 processes, 1.6 of 2 cores; `stolen` cores went to other guests."""

    processes: int
    used: float
    stolen: float
    cores: int

    @property
    def is_quiet(self) -> bool:
        """Whether this is what a system does by itself."""
        return self.used + self.stolen <= max(QUIET_CORES, QUIET_SHARE * self.cores)


def moment(proc: Path = Path("/proc")) -> Moment | None:
    """What /proc says now; None where it does not say it (a sandbox, another system)."""
    try:
        lines = (proc / "stat").read_text().splitlines()
        columns = [int(word) for word in lines[0].split()[1:]]
    except (OSError, ValueError, IndexError):
        return None
    cores = sum(line.startswith("cpu") for line in lines) - 1
    if cores < 1 or len(columns) <= _STOLEN or not any(columns):
        return None
    busy = sum(ticks for place, ticks in enumerate(columns[:8]) if place not in _IDLE)
    processes = {pid: (parent, seconds) for pid, parent, seconds in _processes(proc)}
    ours = _family(os.getpid(), {pid: parent for pid, (parent, _) in processes.items()})
    return Moment(
        at_s=time.monotonic(),
        cores=cores,
        busy_s=busy * _TICK_S,
        stolen_s=columns[_STOLEN] * _TICK_S,
        own_s=sum(seconds for pid, (_, seconds) in processes.items() if pid in ours),
        others=tuple((pid, seconds) for pid, (_, seconds) in processes.items() if pid not in ours),
    )


def load_between(first: Moment | None, second: Moment | None) -> Load | None:
    """The load by others; None where one of the moments is not known or no time lies between them."""
    if first is None or second is None or second.at_s - first.at_s < 10 * _TICK_S:
        return None
    span_s = second.at_s - first.at_s
    before = dict(first.others)
    shares = [(seconds - before.get(pid, 0.0)) / span_s for pid, seconds in second.others]
    all_but_ours = (second.busy_s - first.busy_s - (second.own_s - first.own_s)) / span_s
    return Load(
        processes=sum(share >= LEAST_SHARE for share in shares),
        used=max(0.0, min(all_but_ours, float(second.cores))),
        stolen=max(0.0, second.stolen_s - first.stolen_s) / span_s,
        cores=second.cores,
    )


def look(sleep: Callable[[float], None] = time.sleep) -> Load | None:
    """The load of the next half second, in which we do nothing."""
    first = moment()
    if first is None:
        return None
    sleep(LOOK_S)
    return load_between(first, moment())


def before_sentence(load: Load | None) -> tuple[str, ...]:
    """('3 other processes use 1.6 of 2 cores',); () for a processor that is ours alone, or that does not say."""
    if load is None or load.is_quiet:
        return ()
    who = {0: "others use", 1: "another process uses"}.get(load.processes, f"{load.processes} other processes use")
    return tuple(_sentences(load, f"{who} {load.used:.1f} of {load.cores} cores", "takes"))


def during_sentence(load: Load | None) -> tuple[str, ...]:
    """('while it was timed, others used 0.9 of 2 cores',)."""
    if load is None or load.is_quiet:
        return ()
    return tuple(_sentences(load, f"while it was timed, others used {load.used:.1f} of {load.cores} cores", "took"))


def _sentences(load: Load, used: str, takes: str) -> Iterator[str]:
    least = max(QUIET_CORES, QUIET_SHARE * load.cores) / 2
    if load.used > least:
        yield used
    if load.stolen > least:
        yield f"the host of this virtual machine {takes} {load.stolen:.1f} of its {load.cores} cores for others"


def _processes(proc: Path) -> Iterator[tuple[int, int, float]]:
    """Id, parent and CPU seconds of every process that can be seen."""
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        try:
            # The name stands in brackets and may hold any character, so what counts begins after the last one.
            fields = (proc / entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(entry), int(fields[1]), (int(fields[11]) + int(fields[12])) * _TICK_S
        except (OSError, ValueError, IndexError):  # ended meanwhile, or not ours to see
            continue


def _family(pid: int, parents: dict[int, int]) -> set[int]:
    """A process and all that it started."""
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family
