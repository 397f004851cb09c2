"""Questions about builds from source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.build_rows import BuildFloor, BuildOption, UnitKind, UnitMemory, UnitSeconds
    from firstlight.versions import CudaVersion, TorchVersion


class BuildLookups(StoredRows):
    """The group `builds`. A name that is not there may be read by a release that nobody read."""

    __slots__ = ()

    @property
    def build_options(self) -> tuple[BuildOption, ...]:
        return self._rows("build_options")

    @property
    def unit_memory(self) -> tuple[UnitMemory, ...]:
        return self._rows("unit_memory")

    def memory_of(self, kind: UnitKind, project: str) -> UnitMemory:
        """What a unit takes: the project's own row, else the one for any project."""
        rows = [row for row in self.unit_memory if row.kind == kind]
        own = [row for row in rows if row.project == project]
        return (own or [row for row in rows if not row.project])[0]

    @property
    def unit_seconds(self) -> tuple[UnitSeconds, ...]:
        return self._rows("unit_seconds")

    def seconds_of(self, kind: UnitKind, project: str) -> UnitSeconds:
        """How long a unit takes: the project's own row, else the one for any project."""
        rows = [row for row in self.unit_seconds if row.kind == kind]
        own = [row for row in rows if row.project == project]
        return (own or [row for row in rows if not row.project])[0]

    def oldest_toolkit(self, project: str, release: TorchVersion) -> CudaVersion | None:
        """The oldest CUDA that the build of a release takes: 12.0 for torch 2.9.0; None where nobody looked."""
        rows: tuple[BuildFloor, ...] = self._rows("build_floors")
        known = [row for row in rows if row.project == project and row.first <= release]
        return max(known, key=lambda row: row.first).toolkit if known else None
