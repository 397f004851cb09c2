"""Questions about names of packages, repositories, folders and services of a system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.system_rows import Family, Role, SystemName


class SystemLookups(StoredRows):
    """The group `systems`. () means that the tables have no name; then no other family's is taken for it."""

    __slots__ = ()

    @property
    def system_name_rows(self) -> tuple[SystemName, ...]:
        return self._rows("system_names")

    def system_names(self, role: Role, family: Family, *, release: str = "", arch: str = "") -> tuple[SystemName, ...]:
        """Rows of a role on a system, best first: DRIVER on Ubuntu 24.04 gives the server branch's package."""
        known: tuple[SystemName, ...] = self._where("system_names", role=role, family=family)
        return tuple(
            row for row in known if row.arch in ("", arch) and _within(release, row.release_from, row.release_to)
        )


def _within(release: str, first: str, last: str) -> bool:
    """Whether a release lies in a range; one that is not known lies in open ranges alone."""
    if not first and not last:
        return True
    if not release:
        return False
    here = _numbers(release)
    above = not first or here >= _numbers(first)
    # 9.4 lies in a range that ends with 9: only as many numbers as the end has are compared.
    return above and (not last or here[: len(_numbers(last))] <= _numbers(last))


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.replace("-", ".").split(".") if part.isdigit())
