"""The tables as one JSON document, schema firstlight.tables/1 (schemas/tables-1.json)."""

from __future__ import annotations

import datetime
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING

from firstlight.tables.row import Row

if TYPE_CHECKING:
    from firstlight.tables import Tables
    from firstlight.tables.subjects import Subject

SCHEMA = "firstlight.tables/1"


def list_document(tables: Tables, subjects: tuple[Subject, ...], *, today: datetime.date) -> dict[str, object]:
    """The subjects with their row counts and dates, without rows."""
    return _document(tables, [_heading(tables, subject) for subject in subjects], today=today)


def rows_document(tables: Tables, subjects: tuple[Subject, ...], *, today: datetime.date) -> dict[str, object]:
    """The subjects with every row in the form of the JSON files; `schema` is the first key."""
    entries = [
        {**_heading(tables, subject), "rows": [encode_row(row) for row in tables.rows(subject.name)]}
        for subject in subjects
    ]
    return _document(tables, entries, today=today)


def _document(tables: Tables, entries: list[dict[str, object]], *, today: datetime.date) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "newest_date": tables.newest_date().isoformat(),
        "oldest_date": tables.oldest_date().isoformat(),
        "age_days": tables.age_days(today),
        "warning": tables.age_warning(today),
        "tables": entries,
    }


def _heading(tables: Tables, subject: Subject) -> dict[str, object]:
    rows = tables.rows(subject.name)
    return {
        "name": subject.name,
        "group": subject.group,
        "title": subject.title,
        "about": tables.about(subject.name),
        "row_count": len(rows),
        "newest_date": max(row.date for row in rows).isoformat(),
        "oldest_date": min(row.date for row in rows).isoformat(),
    }


def encode_row(row: Row) -> dict[str, object]:
    """A row as JSON values, its facts first, then source, date, confidence and note."""
    common = [field.name for field in fields(Row)]
    names = [field.name for field in fields(row) if field.name not in common] + common
    return {name: encode_value(getattr(row, name)) for name in names}


def encode_value(value: object) -> object:
    """A field as JSON: versions and pins as text, 13.0; enumerations by value; tuples as lists."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [encode_value(item) for item in value]
    if isinstance(value, Enum):
        return encode_value(value.value)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
