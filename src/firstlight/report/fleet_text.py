"""A fleet as text: one table, equal hosts in one row, the odd ones first with what they differ in."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.fleet.folding import folded
from firstlight.fleet.judged import Fleet, Row, Verdict
from firstlight.fleet.look import AskedBy
from firstlight.numerals import counted
from firstlight.report.fleet_rows import (
    HEADINGS,
    MOST_DIFFERENCES,
    against_words,
    cells_of,
    difference_words,
    verdicts_counted,
)
from firstlight.report.layout import Painted, Part, Style, width, wrapped

_STYLES = {
    Verdict.BLOCKED: Style.BAD,
    Verdict.NOT_LOOKED: Style.BAD,
    Verdict.DIFFERS: Style.WARN,
    Verdict.DEGRADES: Style.WARN,
    Verdict.HEALTHY: Style.GOOD,
}
_WIDEST_HOST = 28
_GAP = "  "


def fleet_text(fleet: Fleet, calls: tuple[str, ...] = ()) -> Iterator[Part]:
    """The table, then what to type next."""
    yield f"{_summary(fleet)}\n\n"
    table = [(HEADINGS[0], *_cells(None)), *((folded(row.hosts), *_cells(row)) for row in fleet.rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(HEADINGS) - 1)]
    widths[0] = min(widths[0], _WIDEST_HOST)
    yield Painted(_line(table[0], widths).rstrip(), Style.HEAD)
    yield "\n"
    for row, cells in zip(fleet.rows, table[1:], strict=True):
        yield from _row(row, cells, widths)
    if calls:
        yield Painted("\nnext", Style.HEAD)
        yield "\n" + "".join(f"  {call}\n" for call in calls)


def _summary(fleet: Fleet) -> str:
    total = sum(len(row.hosts) for row in fleet.rows)
    said = verdicts_counted(fleet)
    return f"{counted(total, 'host')}: {said}"


def _cells(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return HEADINGS[1:]
    cells = cells_of(row)
    return (cells.gpus, cells.driver, cells.cuda, cells.torch, cells.verdict)


def _row(row: Row, cells: tuple[str, ...], widths: list[int]) -> Iterator[Part]:
    if len(cells[0]) > widths[0]:  # a long list of hosts has a line of its own
        yield "".join(f"{line}\n" for line in wrapped(cells[0], width()))
        cells = ("", *cells[1:])
    yield _line((*cells[:-1], ""), widths)
    word, _, rest = (
        cells[-1].partition(" ") if row.verdict not in (Verdict.NOT_LOOKED, Verdict.PARTLY) else (cells[-1], "", "")
    )
    yield Painted(word, _STYLES[row.verdict]) if row.verdict in _STYLES else word
    yield f" {rest}\n" if rest else "\n"
    for line in _below(row):
        yield "".join(f"    {each}\n" for each in wrapped(line, width() - 4))
    if row.do:
        yield f"      {row.do}\n"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "".join(cell.ljust(place) + _GAP for cell, place in zip(cells[:-1], widths, strict=True)) + cells[-1]


def _below(row: Row) -> Iterator[str]:
    """Why it was not looked at, what it differs in, and where the answer is thinner than usual."""
    if row.reason:
        yield f"{row.reason}:" if row.do else row.reason
    if len(row.hosts) > 1:
        yield counted(len(row.hosts), "host")
    if said := against_words(row, folded):
        yield said
    yield from (f"  {difference_words(drift)}" for drift in row.differs[:MOST_DIFFERENCES])
    if (more := len(row.differs) - MOST_DIFFERENCES) > 0:
        yield f"  and {more} more (--json has them all)"
    if row.harmless:
        yield f"{counted(len(row.harmless), 'harmless difference')} from {row.against.lock} (--json has them)"
    if row.state is not None and row.state.asked_by is AskedBy.SH:
        yield "no Python 3.10 or newer there: asked by sh alone, so packages and torch are not known"
