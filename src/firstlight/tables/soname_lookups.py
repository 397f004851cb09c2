"""Questions about who provides a shared library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.soname_rows import SonameDebian, SonameWheel


class SonameLookups(StoredRows):
    """The group `libraries`. () and None mean that the tables do not know."""

    __slots__ = ()

    def wheels_with(self, soname: str, *, machine: str) -> tuple[SonameWheel, ...]:
        """The runs of PyPI releases that ship a library: libcudss.so.0 in nvidia-cudss-cu13 up to 0.8.0.10."""
        rows: tuple[SonameWheel, ...] = self._rows("sonames")
        return tuple(row for row in rows if row.soname == soname and row.machine == machine)

    def debian_package_with(self, soname: str) -> SonameDebian | None:
        """The Debian package that has a library: libgomp.so.1 is in libgomp1."""
        rows: tuple[SonameDebian, ...] = self._rows("debian_sonames")
        return next((row for row in rows if row.soname == soname), None)
