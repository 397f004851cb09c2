"""A folder of tables: the rows of each subject, read when first asked for, and their dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator

    from firstlight.tables.row import Row

STALE_AFTER_DAYS = 180


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The tables of one folder; nothing is read before it is asked for."""

    folder: str

    def rows(self, subject: str) -> tuple[Row, ...]:
        """All rows of a subject, e.g. 'cuda_majors', in the order of the file."""
        return self._rows(subject)

    def _rows(self, subject: str) -> tuple[Any, ...]:
        from firstlight.tables.reading import read_rows

        return read_rows(self.folder, subject)

    def _where(self, subject: str, **wanted: object) -> tuple[Any, ...]:
        """The rows whose fields have just these values, in the order of the file; looked up, not searched for."""
        from firstlight.tables.reading import rows_by

        return rows_by(self.folder, subject, tuple(wanted)).get(tuple(wanted.values()), ())

    def _one(self, subject: str, **wanted: object) -> Any:
        """The first of these rows, or None."""
        return next(iter(self._where(subject, **wanted)), None)

    def about(self, subject: str) -> str:
        """What a table says of itself in one or two sentences."""
        from firstlight.tables.reading import read_about

        return read_about(self.folder, subject)

    def newest_date(self) -> datetime.date:
        """The day the newest row was checked, e.g. 2026-11-15."""
        return max(self._dates())

    def oldest_date(self) -> datetime.date:
        """The day the oldest row was checked."""
        return min(self._dates())

    def _dates(self) -> set[datetime.date]:
        return set().union(*self._dates_by_table())

    def _dates_by_table(self) -> Iterator[frozenset[datetime.date]]:
        from firstlight.tables.reading import read_dates
        from firstlight.tables.subjects import SUBJECTS

        # How long something takes says nothing of which releases there are, and that is what age is asked for.
        return (read_dates(self.folder, subject.name) for subject in SUBJECTS if subject.group != "costs")

    def age_days(self, today: datetime.date) -> int:
        """Days since the newest row was checked; 0 for a clock that runs behind."""
        return max(0, (today - self.newest_date()).days)

    def age_warning(self, today: datetime.date) -> str:
        """One sentence for the user where the tables are older than 180 days, else ''."""
        # The first table with a day that is recent enough ends it: fifty files are not read at every start.
        if any((today - day).days <= STALE_AFTER_DAYS for dates in self._dates_by_table() for day in dates):
            return ""
        days = self.age_days(today)
        return (
            f"The tables were last checked {days} days ago, on {self.newest_date()}: newer drivers, CUDA and torch "
            "releases are not in them. Upgrade firstlight."
        )
