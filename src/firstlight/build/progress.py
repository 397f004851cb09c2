"""Where a build stands, in a file that any shell can read: units, rate, time left with its basis, memory, the log."""

from __future__ import annotations

import os
import time

from firstlight.apply.commands import process_start
from firstlight.build.compile_time import CompileTime
from firstlight.build.memory_watch import MemoryWatch
from firstlight.build.ninja_output import BuiltUnit, kind_of_unit, read_ninja_log
from firstlight.build.ninja_units import kinds_of, ninja_folder
from firstlight.build.spec import BuildSpec, Stage, read_document, write_document
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.records import decode, encode
from firstlight.tables import load
from firstlight.tables.build_rows import UnitKind

NAME = "status.json"
UNITS = "units.json"
STILL_S = 15 * 60
_LIKE_UNITS = 2  # units of a kind that what is expected of it counts for: the first one may be the smallest of all
_Seconds = dict[UnitKind | None, float]
_Kinds = dict[str, UnitKind | None]


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """One look at a build: compile, 120 of 265 units, 31 a minute, 280 s left."""

    id: str
    stage: Stage
    process: int
    process_start: str
    begun_at: float
    changed_at: float  # when a unit last ended
    written_at: float
    done: int
    total: int
    jobs: int
    seconds_left: int  # -1 = not known yet
    basis: str
    memory_bytes: int  # of all compilers now together
    worst_bytes: int
    worst_unit: str
    running: tuple[str, ...]
    log: str

    @property
    def alive(self) -> bool:
        return bool(self.process_start) and process_start(self.process) == self.process_start

    @property
    def still_for_s(self) -> float:
        return max(0.0, time.time() - self.changed_at)


@dataclass(frozen=True, slots=True)
class UnitPeak:
    """The most memory that a unit took, as seen."""

    unit: str
    bytes: int


class Progress:
    """Keeps the status file of a stage up to date while it runs."""

    def __init__(self, spec: BuildSpec, stage: Stage) -> None:
        self._spec, self._stage = spec, stage
        self.compiled = CompileTime(spec)
        self.watch = MemoryWatch()
        self.done = self.total = 0
        self.jobs = spec.jobs
        self._begun = self._changed = time.time()
        self._log = _log_of_this()
        self._before = {each.unit: each.bytes for each in read_peaks(spec.folder)}

    def heard(self, done: int, total: int) -> None:
        if (done, total) != (self.done, self.total):
            self._changed = time.time()
        self.done, self.total = done, total

    def still_for_s(self, now: float) -> float:
        """Seconds since a unit last ended."""
        return now - self._changed

    def write(self) -> None:
        left, basis = time_left(ninja_folder(self._spec), self.done, self.total, self.jobs)
        peaks = self.watch.peaks
        worst = max(peaks, key=lambda unit: peaks[unit], default="")
        status = BuildStatus(
            id=self._spec.id, stage=self._stage, process=os.getpid(), process_start=process_start(os.getpid()),
            begun_at=self._begun, changed_at=self._changed, written_at=time.time(), done=self.done, total=self.total,
            jobs=self.jobs, seconds_left=left, basis=basis, memory_bytes=self.watch.now,
            worst_bytes=peaks.get(worst, 0), worst_unit=worst, running=self.watch.running, log=self._log,
        )  # fmt: skip
        write_document(self._spec.folder, NAME, encode(status))
        if self._stage is Stage.COMPILE:
            self.compiled.keep()
        self.keep_peaks()

    def keep_peaks(self) -> None:
        """Write down what each unit took, while it goes on: a kill leaves what was seen."""
        grown = {unit: held for unit, held in self.watch.peaks.items() if held > self._before.get(unit, 0)}
        if grown:
            self._before |= grown
            kept = [encode(UnitPeak(*each)) for each in sorted(self._before.items())]
            write_document(self._spec.folder, UNITS, kept)


def read_status(folder: str) -> BuildStatus | None:
    """The newest status of a build; None where none was ever written."""
    document = read_document(os.path.join(folder, NAME))
    try:
        return decode(BuildStatus, document, "status") if document else None
    except BadInput:
        return None


def read_peaks(folder: str) -> tuple[UnitPeak, ...]:
    document = read_document(os.path.join(folder, UNITS))
    return tuple(decode(UnitPeak, each, "unit") for each in document) if isinstance(document, list) else ()


def time_left(folder: str, done: int, total: int, jobs: int) -> tuple[int, str]:
    """Seconds that are left, and what that rests on: the mean of each kind of unit so far, over the jobs."""
    built = read_ninja_log(folder)
    if not built or not total or done < min(4, total):
        return -1, "too few units are built to tell"
    kinds = kinds_of(folder)
    means, weighed = _seconds_by_kind(built, kinds)
    left = _left_by_kind(kinds, {each.output for each in built})
    if not left or abs(sum(left.values()) - (total - done)) > max(3, (total - done) // 4):
        mean = sum(each.seconds for each in built) / len(built)
        return int((total - done) * mean / max(1, jobs)), f"{len(built)} units took {mean:.1f} s each on average"
    assumed = {kind: _by_other_kinds(kind, means) for kind in left if kind not in means}
    seconds = sum(number * {**weighed, **assumed}[kind] for kind, number in left.items()) / max(1, jobs)
    told = ", ".join(f"{kind.value if kind else 'other'} {means[kind]:.1f} s" for kind in means)
    unseen = [kind.value for kind in left if kind and kind not in means]
    more = f"; of {', '.join(unseen)} none was built yet: by the table unit_seconds" if unseen else ""
    return int(seconds), f"mean of each kind so far ({told}) over {jobs} at a time{more}"


def _seconds_by_kind(built: tuple[BuiltUnit, ...], kinds: _Kinds) -> tuple[_Seconds, _Seconds]:
    """The mean of each kind so far, and the same where the first few units of a kind do not speak for all of it."""
    of_kind: dict[UnitKind | None, list[float]] = {}
    for unit in built:
        of_kind.setdefault(kinds.get(unit.output, kind_of_unit(unit.output)), []).append(unit.seconds)
    means = {kind: sum(each) / len(each) for kind, each in of_kind.items()}
    weighed = {}
    for kind, each in of_kind.items():
        others: _Seconds = {other: mean for other, mean in means.items() if other not in (kind, None)}
        expected = _by_other_kinds(kind, others) if kind and others else means[kind]
        weighed[kind] = (sum(each) + _LIKE_UNITS * expected) / (len(each) + _LIKE_UNITS)
    return means, weighed


def _by_other_kinds(kind: UnitKind | None, means: _Seconds) -> float:
    """What a unit of a kind takes by those of other kinds: as much longer than they as the table says."""
    tables = load()
    seen = [(each, mean) for each, mean in means.items() if each is not None]
    if kind is None or not seen:
        return max(means.values())
    ratios = [mean / tables.seconds_of(each, "").seconds for each, mean in seen]
    return tables.seconds_of(kind, "").seconds * sum(ratios) / len(ratios)


def _left_by_kind(kinds: _Kinds, built: set[str]) -> dict[UnitKind | None, int]:
    """Units of build.ninja that are not in the log; {} where that file cannot be read."""
    found: dict[UnitKind | None, int] = {}
    for output, kind in kinds.items():
        if output not in built:
            found[kind] = found.get(kind, 0) + 1
    return found


def _log_of_this() -> str:
    try:
        return os.readlink("/proc/self/fd/1")
    except OSError:
        return ""
