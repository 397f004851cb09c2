"""The tables as plain text: a list of them, or aligned columns with numbered sources."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from firstlight.report.tables_columns import ONLY_IN_JSON, columns_of, worth_a_line

if TYPE_CHECKING:
    import datetime

    from firstlight.tables import Tables
    from firstlight.tables.row import Row
    from firstlight.tables.subjects import Subject

_GAP = "  "
_NARROWEST = 12
_HOW_KNOWN = "how known"


def list_text(tables: Tables, subjects: tuple[Subject, ...], *, today: datetime.date) -> str:
    """The list of tables by group with row counts and dates."""
    counts = {subject.name: len(tables.rows(subject.name)) for subject in subjects}
    newest, oldest = tables.newest_date(), tables.oldest_date()
    checked = f"checked {newest}" if newest == oldest else f"checked between {oldest} and {newest}"
    lines = [f"{sum(counts.values())} facts in {len(counts)} tables, {checked}. Every row names its source."]
    lines += _warning_lines(tables, today)
    group = ""
    for subject in subjects:
        if subject.group != group:
            group = subject.group
            lines += ["", group]
        lines.append(f"  {subject.name:<20}{counts[subject.name]:>5}  {subject.title}")
    lines += [
        "",
        "Print a group:      firstlight tables cuda",
        "Print one table:    firstlight tables cuda_majors",
        "Print everything:   firstlight tables all --json",
        "",
        "measured: read from the artifact itself. documented: its maker's text. reported: second-hand or",
        "inferred, with a note that says so. What is not in a table is not known, which is not a no.",
    ]
    return "\n".join(lines) + "\n"


def rows_text(tables: Tables, subjects: tuple[Subject, ...], *, width: int, today: datetime.date) -> str:
    """Tables in full, at most `width` columns wide; sources and notes are numbered below each."""
    blocks = ["\n".join(_table_lines(tables, subject, width=width)) for subject in subjects]
    blocks += _warning_lines(tables, today)
    return "\n\n\n".join(blocks) + "\n"


def sourced_text(tables: Tables, subjects: tuple[Subject, ...], *, width: int) -> str:
    """Every row in full with its own source, date, confidence and note, for people who want to check."""
    lines = []
    for subject in subjects:
        lines += _title_lines(tables, subject, width=width)
        for row in tables.rows(subject.name):
            cells = ((column.heading, column.cell(row)) for column in columns_of(subject.name, type(row)))
            facts = "; ".join(f"{heading} {cell}".replace("\n", " ") for heading, cell in cells if cell)
            lines += _filled(facts, width=width, first="  ", rest="    ")
            where = f"{row.confidence.value}: {row.source} ({row.date})"
            lines += _filled(where, width=width, first="      ", rest="      ")
            lines += _filled(row.note, width=width, first="      ", rest="      ")
        lines.append("")
    return "\n".join(lines)


def _warning_lines(tables: Tables, today: datetime.date) -> list[str]:
    warning = tables.age_warning(today)
    return [f"warn: {warning}"] if warning else []


def _title_lines(tables: Tables, subject: Subject, *, width: int) -> list[str]:
    title = f"{subject.name}: {subject.title}"
    return [title, "-" * len(title), *_filled(tables.about(subject.name), width=width, first="", rest=""), ""]


def _table_lines(tables: Tables, subject: Subject, *, width: int) -> Iterator[str]:
    rows = tuple(row for row in tables.rows(subject.name) if worth_a_line(row))
    columns = columns_of(subject.name, type(rows[0]))
    sources = _Numbered(row.source for row in rows)
    notes = _Numbered(row.note for row in rows if row.note)
    marks = [_mark(row, sources, notes) for row in rows]
    alike = len(set(marks)) == 1
    grid = [[column.heading for column in columns] + ([] if alike else [_HOW_KNOWN])]
    for row, mark in zip(rows, marks, strict=True):
        grid.append([column.cell(row) for column in columns] + ([] if alike else [mark]))
    yield from _title_lines(tables, subject, width=width)
    yield from _grid_lines(grid, width=width)
    yield ""
    if alike:
        yield f"{'All rows' if len(rows) > 1 else 'This row'}: {marks[0]}"
    for number, source in enumerate(sources.texts, start=1):
        yield from _hanging(f"[{number}] ", source, width=width)
    for note in notes.texts:
        yield from _hanging(f"{notes.letter(note)}) ", note, width=width)
    if left_out := len(tables.rows(subject.name)) - len(rows):
        yield f"With --json: {left_out} more rows"
    if subject.name in ONLY_IN_JSON:
        yield f"With --json also: {ONLY_IN_JSON[subject.name]}"


def _mark(row: Row, sources: _Numbered, notes: _Numbered) -> str:
    """How a row is known, e.g. 'reported [3] a)': source 3, note a."""
    note = f" {notes.letter(row.note)})" if row.note else ""
    return f"{row.confidence.value} [{sources.number(row.source)}]{note}"


class _Numbered:
    """Texts in order of first use, each once: the footnotes of a table."""

    def __init__(self, texts: Iterator[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        self._places = {text: place for place, text in enumerate(self.texts)}

    def number(self, text: str) -> int:
        """1 for the first."""
        return self._places[text] + 1

    def letter(self, text: str) -> str:
        """a for the first, aa after z."""
        turns, place = divmod(self._places[text], 26)
        return chr(ord("a") + place) * (turns + 1)


def _grid_lines(grid: list[list[str]], *, width: int) -> Iterator[str]:
    widths = _fitted(grid, width=width)
    for number, line in enumerate(grid):
        cells = [_cell_lines(cell, size) for cell, size in zip(line, widths, strict=True)]
        for height in range(max(map(len, cells))):
            parts = (cell[height] if height < len(cell) else "" for cell in cells)
            yield _GAP.join(part.ljust(size) for part, size in zip(parts, widths, strict=True)).rstrip()
        if number == 0:
            yield _GAP.join("-" * size for size in widths)


def _fitted(grid: list[list[str]], *, width: int) -> list[int]:
    """Column widths that fit: the widest column gives way first, and words are broken only as a last resort."""
    columns = list(zip(*grid, strict=True))
    widths = [max(len(part) for cell in column for part in cell.split("\n")) for column in columns]
    words = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    if grid[0][-1] == _HOW_KNOWN:
        words[-1] = widths[-1]
    spare = width - len(_GAP) * (len(widths) - 1)
    for floors in (words, [min(word, _NARROWEST) for word in words]):
        while sum(widths) > spare:
            wide = [place for place, size in enumerate(widths) if size > floors[place]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _cell_lines(cell: str, size: int) -> list[str]:
    lines = [line for part in cell.split("\n") for line in textwrap.wrap(part, size, break_on_hyphens=False)]
    return lines or [""]


def _hanging(label: str, text: str, *, width: int) -> list[str]:
    return _filled(text, width=width, first=label, rest=" " * len(label))


def _filled(text: str, *, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
