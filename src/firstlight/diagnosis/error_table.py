"""The error texts that are known as one more table: code, product, family, title, each with its source and date."""

from __future__ import annotations

import datetime
from typing import Any

from firstlight.diagnosis.signatures import signatures
from firstlight.tables import Tables, load
from firstlight.tables.error_rows import ErrorText
from firstlight.tables.row import Confidence
from firstlight.tables.subjects import ERROR_TEXTS, SUBJECTS, Subject

_AFTER = "xids"
_ABOUT = (
    "Error texts that `firstlight explain` recognises, by product and kind; CUDA's, torch's and the system's own are "
    "`general`. Patterns, causes and ways out: firstlight explain --list PRODUCT --json."
)


class TablesWithErrors(Tables):
    """The stored tables, and the error texts beside them."""

    __slots__ = ()

    def about(self, subject: str) -> str:
        return _ABOUT if subject == ERROR_TEXTS.name else super().about(subject)

    def _rows(self, subject: str) -> tuple[Any, ...]:
        return error_texts() if subject == ERROR_TEXTS.name else super()._rows(subject)


def tables_with_errors() -> TablesWithErrors:
    """What `firstlight tables` prints."""
    return TablesWithErrors(load().folder)


def printed_subjects() -> tuple[Subject, ...]:
    """All tables in printing order, the error texts last of their group."""
    place = next(number for number, subject in enumerate(SUBJECTS, start=1) if subject.name == _AFTER)
    return (*SUBJECTS[:place], ERROR_TEXTS, *SUBJECTS[place:])


def error_texts() -> tuple[ErrorText, ...]:
    """One row for each known error, by product and code."""
    rows = (
        ErrorText(
            code=each.code,
            product=each.product or "general",
            family=each.family,
            title=each.title,
            source="; ".join(each.source),
            date=datetime.date.fromisoformat(each.date),
            confidence=Confidence(each.confidence.value),
        )
        for each in signatures()
    )
    return tuple(sorted(rows, key=lambda row: (row.product, row.code)))
