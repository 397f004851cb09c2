"""Questions about CUDA majors, toolkits and drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows
from firstlight.versions import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from firstlight.tables.cuda_rows import (
        ArchitectureLimit,
        BranchLife,
        CudaMajor,
        CudaRelease,
        CudaRunfile,
        DriverBranch,
    )


class CudaLookups(StoredRows):
    """The group `cuda`. None means that the tables do not know, never that a thing does not work."""

    __slots__ = ()

    @property
    def cuda_majors(self) -> tuple[CudaMajor, ...]:
        return self._rows("cuda_majors")

    @property
    def cuda_releases(self) -> tuple[CudaRelease, ...]:
        return self._rows("cuda_releases")

    @property
    def cuda_runfiles(self) -> tuple[CudaRunfile, ...]:
        return self._rows("cuda_runfiles")

    @property
    def driver_branches(self) -> tuple[DriverBranch, ...]:
        return self._rows("driver_branches")

    def cuda_major(self, major: int) -> CudaMajor | None:
        """The row of a CUDA major: cuda_major(13).min_driver_same_major is 580.65.06."""
        found: CudaMajor | None = self._one("cuda_majors", major=major)
        return found

    def has_minor_compat(self, cuda: CudaVersion) -> bool:
        """Whether a driver runs all releases of this CUDA's major: from CUDA 11 on; before, none after its own."""
        return cuda.major >= min(row.major for row in self.cuda_majors)

    def oldest_driver(self, cuda: CudaVersion) -> DriverVersion | None:
        """The oldest driver that runs a CUDA by itself: 580.65.06 for 13.1, by its major; 440.33 for 10.2 alone."""
        if self.has_minor_compat(cuda):
            row = self.cuda_major(cuda.major)
            return None if row is None else row.min_driver_same_major
        release = self.cuda_release(cuda)
        return None if release is None else release.driver_in_release_notes

    def branch(self, branch: int) -> DriverBranch | None:
        """The row of a driver branch: branch(580).native_cuda is 13.0."""
        found: DriverBranch | None = self._one("driver_branches", branch=branch)
        return found

    def branch_of(self, cuda: CudaVersion) -> int | None:
        """The driver branch that came with a CUDA release: 580 for 13.0 and 13.0.2."""
        found: DriverBranch | None = self._one("driver_branches", native_cuda=cuda.release)
        return None if found is None else found.branch

    def native_cuda(self, driver: DriverVersion) -> CudaVersion | None:
        """The highest CUDA a driver reports by itself: 12.8 for 570.133.20."""
        row = self.branch(driver.branch)
        return None if row is None else row.native_cuda

    def branch_life(self, branch: int) -> BranchLife | None:
        """Kind and end of support of a branch: branch_life(580).supported_until is '2028-06'."""
        found: BranchLife | None = self._one("branch_life", branch=branch)
        return found

    def architecture_limit(self, architecture: str) -> ArchitectureLimit | None:
        """The end of a dropped architecture: 'Volta' ends with branch 580 and CUDA 12. None: not dropped."""
        found: ArchitectureLimit | None = self._one("architecture_limits", architecture=architecture)
        return found

    def cuda_release(self, toolkit: CudaVersion) -> CudaRelease | None:
        """The release-notes row of a toolkit; 12.8 without a third number stands for its GA, 12.8.0."""
        rows = [row for row in self.cuda_releases if _same_toolkit(row.toolkit, toolkit)]
        return min(rows, key=lambda row: (not row.label.endswith("GA"), row.toolkit), default=None)

    def cuda_runfile(self, toolkit: CudaVersion) -> CudaRunfile | None:
        """The runfile row of a toolkit: cuda_runfile(13.0.2).driver_shipped_with is 580.95.05; 13.0 is 13.0.0."""
        rows = [row for row in self.cuda_runfiles if _same_toolkit(row.toolkit, toolkit)]
        return min(rows, key=lambda row: row.toolkit, default=None)


def _same_toolkit(known: CudaVersion, asked: CudaVersion) -> bool:
    """A third number counts only where both have one: the row 11.5 speaks for 11.5.1 too."""
    return known.release == asked.release and (known.patch < 0 or asked.patch < 0 or known.patch == asked.patch)
