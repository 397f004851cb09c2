"""Read one JSON file of rows into frozen rows; a bad row is refused with its file, number and field."""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from firstlight.errors import BadInput
from firstlight.tables.row import Confidence, Pin, Row, as_written
from firstlight.tables.subjects import SUBJECTS, Subject
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

Decoder = Callable[[Any], Any]

SHIPPED = os.path.join(os.path.dirname(__file__), "data")

_DATE = r'"date"\s*:\s*"(\d{4}-\d{2}-\d{2})"'

_TEXTUAL: dict[str, Callable[[str], Any]] = {
    "CudaVersion": CudaVersion.parse,
    "DriverVersion": DriverVersion.parse,
    "TorchVersion": TorchVersion.parse,
    "ComputeCapability": ComputeCapability.parse,
    "Pin": Pin.parse,
    "datetime.date": datetime.date.fromisoformat,
}


@functools.cache
def read_rows(folder: str, name: str) -> tuple[Row, ...]:
    """The rows of one subject in a folder of tables, read once per process; those not shipped with us are checked."""
    if folder != SHIPPED:
        return checked_rows(folder, name)
    row_class = _row_class(_subject(name))
    decoders = _decoders(row_class)
    return tuple([as_written(row_class, entry, decoders) for entry in _entries(_path(folder, name), name)])


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
    decoders = _decoders(row_class)
    needed = tuple(field.name for field in fields(row_class) if field.default is MISSING)
    rows = []
    seen: dict[tuple[object, ...], int] = {}
    for number, entry in enumerate(_entries(path, name), start=1):
        try:
            row = _decode(row_class, decoders, needed=needed, entry=entry)
        except BadInput as error:
            raise BadInput(f"{path}: row {number}: {error}") from error.__cause__
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


def _decode(row_class: type[Row], decoders: dict[str, Decoder], *, needed: tuple[str, ...], entry: object) -> Row:
    if not isinstance(entry, dict):
        raise BadInput(f"a row is an object, not {type(entry).__name__}. Correct the row.")
    values = {}
    for name, value in entry.items():
        if name not in decoders:
            raise BadInput(f"field {name!r} is not known; accepted: {', '.join(decoders)}. Remove it.")
        try:
            values[name] = decoders[name](value)
        except (ValueError, TypeError, BadInput) as error:
            raise BadInput(f"field {name!r} is {ascii(value)[:60]}: {error}") from error
    for name in needed:
        if name not in values:
            raise BadInput(f"field {name!r} is missing. Add it, or leave out a row not known.")
    row = row_class(**values)
    if not row.source.strip():
        raise BadInput("field 'source' is empty. Name the public page or artifact it comes from.")
    if row.confidence is Confidence.REPORTED and not row.note.strip():
        raise BadInput("field 'note' is missing on a reported row. Say who reports it or how it is inferred.")
    return row


def _shown_key(subject: Subject, row: Row) -> str:
    return ", ".join(f"{field} {getattr(row, field)}" for field in subject.key)


def _decoders(row_class: type[Row]) -> dict[str, Decoder]:
    """How to read each field, from its annotation as written in the row class."""
    return {field.name: _decoder(str(field.type), row_class) for field in fields(row_class)}


def _decoder(annotation: str, row_class: type[Row]) -> Decoder:
    if annotation.endswith(" | None"):
        inner = _decoder(annotation[: -len(" | None")], row_class)
        return lambda value: None if value is None else inner(value)
    if annotation.startswith("tuple["):
        return _tuple_of(_decoder(annotation[len("tuple[") : -len(", ...]")], row_class))
    if annotation in _TEXTUAL:
        return _text_into(_TEXTUAL[annotation])
    if annotation in ("str", "int", "bool", "float"):
        return {"str": _text, "int": _whole_number, "bool": _yes_or_no, "float": _number}[annotation]
    return _member_of(_enum_called(annotation, row_class))


def _enum_called(annotation: str, row_class: type[Row]) -> type[Enum]:
    for owner in row_class.__mro__:
        found = getattr(importlib.import_module(owner.__module__), annotation, None)
        if isinstance(found, type) and issubclass(found, Enum):
            return found
    raise AssertionError(f"{row_class.__name__} has a field of type {annotation}, which no decoder reads")


def _text_into(parse: Callable[[str], Any]) -> Decoder:
    parse_once = functools.cache(parse)  # a table says the same date and version hundreds of times
    return lambda value: parse_once(_text(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("accepted: text")
    return value


def _tuple_of(inner: Decoder) -> Decoder:
    def decode(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError("accepted: a list")
        return tuple(inner(item) for item in value)

    return decode


def _member_of(kind: type[Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def decode(value: object) -> Enum:
        try:
            return members[value]
        except (KeyError, TypeError):  # a list or an object is no key
            raise ValueError(f"accepted: {', '.join(map(str, members))}") from None

    return decode


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("accepted: a whole number")
    return value


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("accepted: true or false")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("accepted: a number")
    return float(value)
