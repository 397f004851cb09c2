"""What a fleet's row says of its hosts in a few words: the cells of the table, the same in text, pages and JSON."""

from __future__ import annotations

from collections.abc import Callable

from firstlight.facts.gpus import PciKind
from firstlight.facts.known import Known
from firstlight.fleet.judged import Fleet, HostState, Row, Verdict
from firstlight.fleet.look import AskedBy
from firstlight.frozen import dataclass
from firstlight.lock.classes import kind_words
from firstlight.lock.drift import Change, Drift
from firstlight.numerals import counted
from firstlight.report.facts_lines import text
from firstlight.report.summary import gpu_words

HEADINGS = ("host", "GPUs", "driver", "CUDA", "torch", "verdict")
MOST_DIFFERENCES = 4
_LEFT_OUT = "gpu-left-out"  # a card on the bus that programs cannot use
_MOST_NAMED = 8  # hosts in one line


@dataclass(frozen=True, slots=True)
class Cells:
    """One row of the table behind its hosts."""

    gpus: str
    driver: str
    cuda: str
    torch: str
    verdict: str


def cells_of(row: Row) -> Cells:
    """The cells of a row that was looked at; of the others the verdict alone."""
    if row.state is None:
        return Cells("", "", "", "", row.verdict.value)
    facts = row.state.facts
    return Cells(
        _gpus(row.state),
        text(facts.driver.kernel_version),
        text(facts.libcuda.driver_cuda),
        _torch(row.state),
        _verdict(row),
    )


def verdicts_counted(fleet: Fleet) -> str:
    """'72 blocked, 41 differ, 1 degrades, 8 healthy'."""
    counts = ((verdict, fleet.count(verdict)) for verdict in Verdict)
    return ", ".join(f"{count} {_of_several(verdict, count)}" for verdict, count in counts if count)


def _of_several(verdict: Verdict, count: int) -> str:
    acts = verdict in (Verdict.DIFFERS, Verdict.DEGRADES)
    return verdict.value.removesuffix("s") if acts and count > 1 else verdict.value


def difference_words(drift: Drift) -> str:
    """'driver: 570.133.20 (there 580.95.05)', 'packages triton: 3.4.0 (not there)'."""
    what = f"{drift.part.value} {drift.name}" if drift.name != "version" else drift.part.value
    match drift.change:
        case Change.ADDED:
            return f"{what}: {drift.here} (not there)"
        case Change.GONE:
            return f"{what}: not here (there {drift.locked})"
        case Change.CONTENT:
            return f"{what}: the same version, other files"
        case Change.CHANGED:
            return f"{what}: {drift.here} (there {drift.locked})"


def against_words(row: Row, folded_hosts: Callable[[tuple[str, ...]], str]) -> str:
    """What a row was compared with: 'differs from node[01-14]:'; "" where there is nothing to say."""
    against = row.against
    if against.unlike:
        count = len(against.unlike)
        return f"no two of the {count} hosts of its kind are equal: there is no usual one to compare with"
    if against.with_gpus:
        others = counted(len(against.with_gpus), "other host")
        have = "has" if len(against.with_gpus) == 1 else "have"
        named = folded_hosts(against.with_gpus[:_MOST_NAMED])
        more = f" and {len(against.with_gpus) - _MOST_NAMED} more" if len(against.with_gpus) > _MOST_NAMED else ""
        return f"no NVIDIA GPU was seen here, and {others} {have} GPUs ({named}{more})"
    if against.none_fits:
        kind = "" if row.state is None else kind_words(row.state.stack.kind)
        return f"no class of {against.lock} is for this kind of machine ({kind})"
    if not row.differs:
        return ""
    if against.lock:
        return f"differs from {against.lock} (class {against.class_name}):"
    return f"differs from {folded_hosts(against.hosts)}:"


def _gpus(state: HostState) -> str:
    """8x NVIDIA H200, without capability and memory: the table is narrow; 7 of 8 NVIDIA H200 where one is left out."""
    facts = state.facts
    shown = gpu_words(facts).partition(" (")[0]
    if any(finding.code == _LEFT_OUT for finding in state.diagnosis.findings):
        cards = [card.device_id for card in facts.gpus.pci if card.kind is PciKind.GPU]
        used = len(facts.gpus.devices)
        alike = len({text(card) for card in cards}) == 1
        return f"{used} of {len(cards)}" + (f" {shown.removeprefix(f'{used}x ')}" if alike else f": {shown}")
    return shown


def _torch(state: HostState) -> str:
    if state.asked_by is AskedBy.SH:
        return "not asked"
    torch = state.facts.torch
    return text(torch.value.version) if isinstance(torch, Known) else "none"


def _verdict(row: Row) -> str:
    primary = None if row.state is None else row.state.primary
    code = (
        ""
        if primary is None or row.verdict in (Verdict.PARTLY, Verdict.HEALTHY, Verdict.NO_GPU)
        else f" {primary.code}"
    )
    word: str = row.verdict.value
    return (word.upper() if row.verdict is Verdict.BLOCKED else word) + code
