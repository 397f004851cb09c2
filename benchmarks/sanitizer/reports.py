"""What compute-sanitizer printed, as records: every report whole, with its kind, its places and the case it came in.

    ========= Error: Race reported between Write access at publish_item(Shared *, ...)+0x430 in roles.cuh:76
    =========     and Read access at next_item(Shared *, const Place &)+0x770 in roles.cuh:95 [8 hazards]
    =========
    ========= Invalid __global__ read of size 16 bytes
    =========     at turn+0x160 in turn.cu:31
    =========     by thread (0,0,0) in block (0,0,0)
    =========     Access at 0x7f6510c00000 is out of bounds
    =========
    ========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)

Formats: https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer and reports quoted in public issues, 2022 to 2026.
Older versions write a place as `at 0x160 in turn.cu:31:turn`; both are read. The function is the inlined one where the
tool knows it, and the line is of the text that was compiled, so orders.py goes by the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from firstlight.frozen import dataclass

BEGIN, END = "case begin:", "case end:"  # what the child prints around a case
ABOUT = "about:"
_PREFIX = re.compile(r"^=========\s?(.*)$")
_RACE = re.compile(
    r"^(Error|Warning|Info|WARN|WARNING|ERROR|INFO)\s*:\s*Race reported between\s+(Read|Write) access at\s+(.*)$"
)
_OTHER = re.compile(r"^and\s+(Read|Write) access at\s+(.*?)(?:\s*\[(\d+) hazards?\])?$")
_PLACE = re.compile(
    r"^(?P<function>.*?)\+(?P<offset>0x[0-9a-f]+)(?:\s+in\s+(?P<file>[^:]+):(?P<line>\d+))?$", re.IGNORECASE
)
_OLD_PLACE = re.compile(
    r"^(?P<offset>0x[0-9a-f]+)\s+in\s+(?:(?P<file>[^:()]+):(?P<line>\d+):)?(?P<function>.*)$", re.IGNORECASE
)
# racecheck-report hazard: a report for every byte, with its address in shared memory
_HAZARD = re.compile(
    r"^(\w+)\s*:\s*(?:\(.*?\)\s*)?Potential (\w+) hazard detected at __shared__ (0x[0-9a-f]+) in block (.*?)\s*:?$",
    re.IGNORECASE,
)
_SIDE = re.compile(r"^(Read|Write) Thread \(.*?\) at (.*)$")
_ADDRESS = re.compile(r"^(?:Address|Access (?:at|to))\s+(0x[0-9a-f]+)", re.IGNORECASE)
_SUMMARY = re.compile(r"^(ERROR|RACECHECK|LEAK) SUMMARY:\s*(.*)$")
_ERRORS = re.compile(r"(\d+) errors?")
_HAZARDS = re.compile(r"(\d+) hazards? displayed")
_NOT_SHOWN = re.compile(r"(\d+) (?:errors?|hazards?) (?:was|were) not printed", re.IGNORECASE)
_DETAIL = (
    "at ",
    "by thread",
    "Address ",
    "Access ",
    "and ",
    "Device Frame",
    "Host Frame",
    "Saved host",
    "in block",
    "Current Value",
    "Read Thread",
    "Write Thread",
)
# the tool about itself: results are then not to be trusted, or not complete
_TROUBLE = (
    "Internal Sanitizer Error", "Detected overflow of tracked", "Maximum number of hazards", "Unable to", "Failed to",
    "Error: No attachable process", "Target application returned an error", "Target application terminated",
    "Process didn't terminate successfully", "Device not supported", "Insufficient driver",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One access: Write at roles.cuh:76, offset 0x430 in publish_item; file '' where there was no line."""

    access: str  # Read, Write, or "" where the tool does not say
    function: str
    offset: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """E.g. 'roles.cuh:76', else 'multiply+0x430'."""
        return f"{self.file}:{self.line}" if self.file else f"{self.function}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of one report, and how many hazards it counts."""

    severity: str  # error, warning, info
    first: Place
    second: Place
    hazards: int


@dataclass(frozen=True, slots=True)
class Report:
    """One report as printed, e.g. kind 'Invalid __global__ read of size 16 bytes'; races only in racecheck's."""

    case: str  # the case that ran when it was printed
    kind: str
    places: tuple[Place, ...]
    races: tuple[Race, ...]
    thread: str  # by thread (0,0,0) in block (0,0,0)
    address: str
    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """All of one run of the tool: reports, its own troubles, its summary lines, and what the child printed."""

    reports: tuple[Report, ...]
    trouble: tuple[str, ...]
    notices: tuple[str, ...]
    summaries: tuple[str, ...]
    said: tuple[str, ...]  # the child's lines

    @property
    def is_whole(self) -> bool:
        """Whether the tool came to its summary."""
        return bool(self.summaries)

    @property
    def counted(self) -> int:
        """Errors and hazards by the tool's own count; reports that were cut off by a limit are in it."""
        counts = [_HAZARDS.search(line) or _ERRORS.search(line) for line in self.summaries]
        return sum(int(found.group(1)) for found in counts if found)


def read_output(text: str) -> Output:
    """Records of a whole output, the child's lines mixed with the tool's."""
    blocks: list[tuple[str, list[str]]] = []
    said: list[str] = []
    summaries: list[str] = []
    case, is_open = "", False
    for raw in text.splitlines():
        found = _PREFIX.match(raw)
        if found is None:
            said.append(raw)
            case = _case_after(raw, case)
            continue
        line = found.group(1)
        words = line.strip()
        if summary := _SUMMARY.match(words):
            summaries.append(summary.group(0))
            is_open = False
        elif not words:
            is_open = False
        elif is_open and (line.startswith(" ") or words.startswith(_DETAIL)):
            blocks[-1][1].append(words)
        elif words != "COMPUTE-SANITIZER":
            blocks.append((case, [words]))
            is_open = True
    return _sorted(blocks, summaries, said)


def _case_after(line: str, case: str) -> str:
    if line.startswith(BEGIN):
        return line[len(BEGIN) :].strip()
    return case  # a report may be printed a little after its case has ended


def _sorted(blocks: Iterable[tuple[str, list[str]]], summaries: list[str], said: list[str]) -> Output:
    reports, trouble, notices = [], [], []
    for case, lines in blocks:
        if lines[0].removeprefix("Warning: ").removeprefix("Error: ").startswith(_TROUBLE) or lines[0].startswith(
            _TROUBLE
        ):
            trouble.append(" | ".join(lines))
        elif _NOT_SHOWN.search(lines[0]):
            trouble.append(lines[0])
        elif (
            len(lines) == 1 and not _RACE.match(lines[0]) and not lines[0].startswith(("Error:", "Invalid", "Barrier"))
        ):
            notices.append(lines[0])
        else:
            reports.append(_report(case, lines))
    return Output(tuple(reports), tuple(trouble), tuple(notices), tuple(summaries), tuple(said))


def _report(case: str, lines: list[str]) -> Report:
    text = "\n".join(lines)
    if found := _RACE.match(lines[0]):
        severity = {"W": "warning", "E": "error", "I": "info"}[found.group(1)[0]]
        first = read_place(found.group(3), found.group(2))
        others = [other for line in lines[1:] if (other := _OTHER.match(line))]
        races = tuple(
            Race(severity, first, read_place(each.group(2), each.group(1)), int(each.group(3) or 1)) for each in others
        )
        places = (first, *(race.second for race in races))
        return Report(case, f"race, {severity}", places, races, "", "", text)
    if found := _HAZARD.match(lines[0]):
        return _hazard(case, found, lines)
    at = next((read_place(line[3:], _access(lines[0])) for line in lines[1:] if line.startswith("at ")), None)
    thread = next((line for line in lines if line.startswith("by thread")), "")
    address = next((found.group(1) for line in lines if (found := _ADDRESS.match(line))), "")
    return Report(case, lines[0], () if at is None else (at,), (), thread, address, text)


def _hazard(case: str, head: re.Match[str], lines: list[str]) -> Report:
    severity = {"w": "warning", "e": "error"}.get(head.group(1)[0].lower(), "info")
    places = tuple(read_place(side.group(2), side.group(1)) for line in lines[1:] if (side := _SIDE.match(line)))
    races = (Race(severity, places[0], places[1], 1),) if len(places) == 2 else ()
    return Report(
        case, f"{head.group(2)} hazard, {severity}", places, races, head.group(4), head.group(3), "\n".join(lines)
    )


def _access(head: str) -> str:
    words = head.lower()
    return "Read" if " read " in words else "Write" if " write " in words else ""


def read_place(text: str, access: str) -> Place:
    """A place as the tool writes it; what cannot be read stands in `function` as it is."""
    found = _PLACE.match(text.strip()) or _OLD_PLACE.match(text.strip())
    if found is None:
        return Place(access, text.strip(), "", "", 0)
    file = (found.group("file") or "").strip().rpartition("/")[2]
    return Place(access, found.group("function").strip(), found.group("offset"), file, int(found.group("line") or 0))
