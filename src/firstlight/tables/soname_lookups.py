"""Questions about who provides a shared library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.soname_rows import (
        LibraryReleases,
        PlaceholderProject,
        SonameDebian,
        SonameNvidia,
        SonameWheel,
    )


class SonameLookups(StoredRows):
    """The group `libraries`. () and None mean that the tables do not know."""

    __slots__ = ()

    @property
    def soname_wheels(self) -> tuple[SonameWheel, ...]:
        return self._rows("sonames")

    def wheels_with(self, soname: str, *, machine: str) -> tuple[SonameWheel, ...]:
        """The runs of PyPI releases that ship a library: libcudss.so.0 in nvidia-cudss-cu13 up to 0.8.0.10."""
        return self._where("sonames", soname=soname, machine=machine)

    def library_releases(self, project: str, *, machine: str) -> tuple[LibraryReleases, ...]:
        """The releases of a project with libraries, oldest first, with their sizes and requirements."""
        return self._where("library_releases", project=project, machine=machine)

    def placeholder_project(self, project: str) -> PlaceholderProject | None:
        """The row of a project that holds no library: nvidia-cublas-cu13; None where it is not known as one."""
        found: PlaceholderProject | None = self._one("placeholder_projects", project=project)
        return found

    def debian_package_with(self, soname: str) -> SonameDebian | None:
        """The Debian package that has a library: libgomp.so.1 is in libgomp1."""
        found: SonameDebian | None = self._one("debian_sonames", soname=soname)
        return found

    def nvidia_packages_with(self, soname: str, *, cuda_major: int | None) -> tuple[SonameNvidia, ...]:
        """Packages outside PyPI and Debian that have a library: libcudss0-cuda-13 has libcudss.so.0 for CUDA 13."""
        rows: tuple[SonameNvidia, ...] = self._where("nvidia_sonames", soname=soname)
        return tuple(row for row in rows if row.cuda_major in (None, cuda_major))
