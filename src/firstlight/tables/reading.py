"""Read one JSON file of rows into frozen rows; a bad row is refused with its file, number and field."""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import os
import re
from dataclasses import fields
from typing import Any

from firstlight.errors import BadInput
from firstlight.records import Reader, decode, reader_of
from firstlight.tables.row import WRITTEN, Confidence, Row, as_written
from firstlight.tables.subjects import SUBJECTS, Subject

SHIPPED = os.path.join(os.path.dirname(__file__), "data")

_DATE = r'"date"\s*:\s*"(\d{4}-\d{2}-\d{2})"'


@functools.cache
def read_rows(folder: str, name: str) -> tuple[Row, ...]:
    """The rows of one subject in a folder of tables, read once per process; those not shipped with us are checked."""
    if folder != SHIPPED:
        return checked_rows(folder, name)
    row_class = _row_class(_subject(name))
    readers = _Fields(row_class)
    return tuple([as_written(row_class, entry, readers) for entry in _entries(_path(folder, name), name)])


@functools.cache
def rows_by(folder: str, name: str, fields_asked: tuple[str, ...]) -> dict[tuple[object, ...], tuple[Row, ...]]:
    """The rows of a subject by the values of some fields, made when somebody first looks them up so."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in read_rows(folder, name):
        found.setdefault(tuple([getattr(row, field) for field in fields_asked]), []).append(row)
    return {key: tuple(rows) for key, rows in found.items()}


def checked_rows(folder: str, name: str) -> tuple[Row, ...]:
    """The same rows with every field of each decoded and looked at; the tests do so for what is shipped."""
    subject, path = _subject(name), _path(folder, name)
    row_class = _row_class(subject)
    rows = []
    seen: dict[tuple[object, ...], int] = {}
    for number, entry in enumerate(_entries(path, name), start=1):
        row = decode(row_class, entry, f"{path}: row {number}", WRITTEN)
        if not row.source.strip():
            raise BadInput(f"{path}: row {number}.source: empty; name the public page or artifact it comes from")
        if row.confidence is Confidence.REPORTED and not row.note.strip():
            raise BadInput(f"{path}: row {number}.note: missing on a reported row; say who reports it")
        key = tuple([getattr(row, field) for field in subject.key])
        if key in seen:
            raise BadInput(
                f"{path}: row {number}: {_shown_key(subject, row)} is already row {seen[key]}; "
                "one fact lives in one row. Remove one of them."
            )
        seen[key] = number
        rows.append(row)
    return tuple(rows)


def _subject(name: str) -> Subject:
    return next(subject for subject in SUBJECTS if subject.name == name)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.json")


def _row_class(subject: Subject) -> type[Row]:
    module = importlib.import_module(f"firstlight.tables.{subject.rows_in}")
    found: type[Row] = getattr(module, subject.row_class)
    return found


def _entries(path: str, name: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise BadInput(f"{path}: the table cannot be read ({error.strerror}). Reinstall firstlight.") from error
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}). Correct the file.") from error
    if not isinstance(document, dict) or set(document) != {"subject", "about", "rows"}:
        raise BadInput(f"{path}: a table is an object with subject, about and rows, nothing else. Correct the file.")
    if document["subject"] != name or not isinstance(document["rows"], list):
        raise BadInput(f"{path}: subject must be {name!r} and rows a list. Correct the file.")
    return document["rows"]


@functools.cache
def read_about(folder: str, name: str) -> str:
    """The sentence a table says of itself, e.g. 'The highest CUDA version each driver branch reports by itself.'"""
    with open(_path(folder, name), encoding="utf-8") as file:
        return str(json.load(file)["about"])


@functools.cache
def read_dates(folder: str, name: str) -> frozenset[datetime.date]:
    """The days on which rows of a table were checked; rows are not decoded, as --version asks for no more."""
    with open(_path(folder, name), encoding="utf-8") as file:
        return frozenset(map(datetime.date.fromisoformat, re.findall(_DATE, file.read())))


def _shown_key(subject: Subject, row: Row) -> str:
    return ", ".join(f"{field} {getattr(row, field)}" for field in subject.key)


class _Fields(dict[str, Reader]):
    """How to read each field of a row class, worked out when somebody asks for it."""

    def __init__(self, row_class: type[Row]) -> None:
        self._types: dict[str, Any] = {field.name: field.type for field in fields(row_class)}

    def __missing__(self, name: str) -> Reader:
        self[name] = reader_of(self._types[name])
        return self[name]
