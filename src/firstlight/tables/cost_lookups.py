"""Questions about what things take."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.cost_rows import Download, Duration, FetchedBy, Work


class CostLookups(StoredRows):
    """The group `costs`. None means that the tables do not know."""

    __slots__ = ()

    def download(self, fetched_by: FetchedBy, name: str, *, machine: str) -> Download | None:
        """What a name brings, the closest row: download(SYSTEM, 'cuda-toolkit-13-0', machine='x86_64').bytes."""
        rows: tuple[Download, ...] = self._where("downloads", fetched_by=fetched_by)
        near = [row for row in rows if name.startswith(row.name.partition("*")[0])]  # a pattern costs more than that
        fitting = [row for row in near if row.machine in (machine, "any") and fnmatchcase(name, row.name)]
        return max(fitting, key=lambda row: len(row.name), default=None)

    def duration(self, work: Work) -> Duration:
        """How long a kind of work takes; every kind has its row."""
        rows: tuple[Duration, ...] = self._rows("durations")
        return next(row for row in rows if row.work is work)
