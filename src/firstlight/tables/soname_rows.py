"""Rows about who provides a shared library."""

from __future__ import annotations

from firstlight.tables.row import Row, row_class


@row_class(frozen=True, slots=True, kw_only=True)
class SonameWheel(Row):
    """A run of releases on PyPI that ship a library: libcudss.so.0 in nvidia-cudss-cu13 0.7.0.20 to 0.8.0.10."""

    soname: str
    project: str
    machine: str
    first: str
    last: str
    in_newest: bool
    folder: str  # under site-packages

    @property
    def requirement(self) -> str:
        """What to install for it, bounded on both sides: a later release may change the soname."""
        return f"{self.project}>={self.first},<={self.last}"


@row_class(frozen=True, slots=True, kw_only=True)
class SonameDebian(Row):
    """The Debian package that has a library: libgomp.so.1 in libgomp1."""

    soname: str
    package: str
    release: str
