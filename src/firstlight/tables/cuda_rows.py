"""Rows about CUDA majors, toolkit releases, drivers and their branches."""

from enum import Enum

from firstlight.tables.row import Row, row_class
from firstlight.versions import CudaVersion, DriverVersion


class BranchKind(Enum):
    """NVIDIA's kinds of driver branch."""

    LONG_TERM = "long-term support"
    PRODUCTION = "production"
    NEW_FEATURE = "new feature"


@row_class(frozen=True, slots=True, kw_only=True)
class CudaMajor(Row):
    """The oldest driver that runs a CUDA major without forward compatibility: 13 needs 580.65.06."""

    major: int
    min_driver_same_major: DriverVersion
    # From this branch on a driver belongs to a later major and runs this one by backward compatibility;
    # None = the newest major has no upper bound.
    later_major_from_branch: int | None


@row_class(frozen=True, slots=True, kw_only=True)
class CudaRelease(Row):
    """The driver that the release notes pair with a toolkit (all features work): 12.8.0 with 570.26. Not a floor."""

    toolkit: CudaVersion
    label: str
    driver_in_release_notes: DriverVersion


@row_class(frozen=True, slots=True, kw_only=True)
class CudaRunfile(Row):
    """The driver inside a toolkit's Linux runfile: 12.8.0 ships 570.86.10; None = no driver inside (13.4 on)."""

    toolkit: CudaVersion
    driver_shipped_with: DriverVersion | None


@row_class(frozen=True, slots=True, kw_only=True)
class DriverBranch(Row):
    """The highest CUDA version a driver branch reports by itself: 580 reports 13.0."""

    branch: int
    native_cuda: CudaVersion


@row_class(frozen=True, slots=True, kw_only=True)
class BranchLife(Row):
    """How long NVIDIA supports a branch: 580 is long-term, until 2028-06."""

    branch: int
    kind: BranchKind
    supported_until: str  # year and month, e.g. 2028-06


@row_class(frozen=True, slots=True, kw_only=True)
class ArchitectureLimit(Row):
    """The last driver branch and CUDA major for an old architecture: Volta ends with 580 and CUDA 12."""

    architecture: str
    last_driver_branch: int
    last_cuda_major: int
