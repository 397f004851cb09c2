"""Questions about forward compatibility."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from firstlight.tables.cuda_lookups import CudaLookups
from firstlight.versions import CudaVersion

if TYPE_CHECKING:
    from firstlight.tables.compat_rows import (
        CompatAccepts,
        CompatBrand,
        CompatBuild,
        CompatChannel,
        CompatDownload,
        CompatPackage,
        ImageRequirement,
    )


class CompatVerdict(Enum):
    """What the lists say of one package and one kernel-driver branch."""

    ACCEPTS = "accepts"
    SAME_RELEASE = "same release, not needed"
    REFUSES = "refuses"
    NOT_LISTED = "not listed"


@dataclass(frozen=True, slots=True)
class CompatAnswer:
    """A verdict and the rows it rests on, strongest first; no rows where no list is known."""

    verdict: CompatVerdict
    rows: tuple[CompatAccepts, ...]


class CompatLookups(CudaLookups):
    """The group `compat`. A list is a hint: the library's own ELF note, then cuInit in a child, decide."""

    __slots__ = ()

    @property
    def compat_packages(self) -> tuple[CompatPackage, ...]:
        return self._rows("compat_packages")

    @property
    def compat_accepts(self) -> tuple[CompatAccepts, ...]:
        return self._rows("compat_accepts")

    @property
    def compat_sources(self) -> tuple[CompatChannel, ...]:
        return self._rows("compat_sources")

    @property
    def images(self) -> tuple[ImageRequirement, ...]:
        return self._rows("images")

    def compat_package(self, cuda: CudaVersion) -> CompatPackage | None:
        """The package of a CUDA release: compat_package(13.0).package is 'cuda-compat-13-0'."""
        found: CompatPackage | None = self._one("compat_packages", cuda=cuda.release)
        return found

    def compat_builds(self, cuda: CudaVersion) -> tuple[CompatBuild, ...]:
        """Driver builds that the package of a CUDA release was seen to carry, oldest first."""
        rows: tuple[CompatBuild, ...] = self._where("compat_builds", cuda=cuda.release)
        return tuple(sorted(rows, key=lambda row: row.driver))

    def compat_downloads(self, channel: str, machine: str) -> tuple[CompatDownload, ...]:
        """The files of a channel for a machine, oldest CUDA first: NVIDIA redist has 13.1, 13.2 and 13.3 for x86_64."""
        found: tuple[CompatDownload, ...] = self._where("compat_downloads", channel=channel, machine=machine)
        return tuple(sorted(found, key=lambda row: row.cuda))

    def accepts_kernel_branch(self, package: CompatPackage | CudaVersion, branch: int) -> CompatAnswer:
        """Whether a package takes a kernel driver of this branch: 13.0 accepts 550, 13.2 does not list it.

        A library's own note outranks NVIDIA's table, which leaves out branches past their end of life. In the
        package's own branch it serves only a driver older than its own build, which the note allows.
        """
        cuda = package.release if isinstance(package, CudaVersion) else package.cuda
        known: tuple[CompatAccepts, ...] = self._where("compat_accepts", cuda=cuda)
        rows = tuple(sorted(known, key=lambda row: row.evidence.value))
        naming = tuple(row for row in rows if branch in row.accepts or branch in row.refuses)
        if branch == self.branch_of(cuda):
            return CompatAnswer(CompatVerdict.SAME_RELEASE, naming or rows)
        if not naming:
            return CompatAnswer(CompatVerdict.NOT_LISTED, rows)
        verdict = CompatVerdict.ACCEPTS if branch in naming[0].accepts else CompatVerdict.REFUSES
        return CompatAnswer(verdict, naming)

    def compat_packages_for(self, branch: int) -> tuple[CompatPackage, ...]:
        """The packages that accept a kernel driver of this branch, newest CUDA first."""
        found = [
            package
            for package in self.compat_packages
            if self.accepts_kernel_branch(package, branch).verdict is CompatVerdict.ACCEPTS
        ]
        return tuple(sorted(found, key=lambda package: package.cuda, reverse=True))

    def compat_brand(self, brand: int) -> CompatBrand | None:
        """Whether compat libraries list an NVML brand: compat_brand(5).listed is False (GeForce)."""
        found: CompatBrand | None = self._one("compat_brands", brand=brand)
        return found

    def image(self, cuda: CudaVersion) -> ImageRequirement | None:
        """The requirement list of the nvidia/cuda image of a CUDA release, e.g. of 13.0."""
        found: ImageRequirement | None = self._one("images", cuda_at_least=cuda.release)
        return found
