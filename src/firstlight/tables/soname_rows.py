"""Rows about who provides a shared library."""

from firstlight.tables.row import Pin, Row, row_class


@row_class(frozen=True, slots=True, kw_only=True)
class SonameWheel(Row):
    """A run of releases on PyPI that ship a library: libcudss.so.0 in nvidia-cudss-cu13 0.7.0.20 to 0.8.0.10."""

    soname: str
    project: str
    machine: str
    cuda_major: int | None  # None = for any, as nvpl-blas
    first: str
    last: str
    in_newest: bool
    folder: str  # under site-packages

    @property
    def requirement(self) -> str:
        """What to install for it, bounded on both sides: a later release may change the soname."""
        return f"{self.project}>={self.first},<={self.last}"

    @property
    def path(self) -> str:
        """Where it lies in the wheel and under site-packages: nvidia/cu13/lib/libcudss.so.0."""
        return f"{self.folder}/{self.soname}"


@row_class(frozen=True, slots=True, kw_only=True)
class LibraryReleases(Row):
    """Releases with the same requirements: nvidia-cudss-cu13 0.7.0.20 to 1.0.0.35 require nvidia-cublas.

    versions go upwards, and bytes are the sizes of their wheels in the same order.
    """

    project: str
    machine: str
    first: str
    versions: tuple[str, ...]
    bytes: tuple[int, ...]
    requires: tuple[Pin, ...]


@row_class(frozen=True, slots=True, kw_only=True)
class PlaceholderProject(Row):
    """A project without a library where one would be expected: nvidia-cublas-cu13 0.0.1, 1.4 KB; nvidia-cublas has it.

    newest is '' and bytes 0 where it has no finished release, only early ones.
    """

    project: str
    newest: str
    bytes: int
    instead: str


@row_class(frozen=True, slots=True, kw_only=True)
class SonameDebian(Row):
    """The Debian package that has a library: libgomp.so.1 in libgomp1."""

    soname: str
    package: str
    release: str


@row_class(frozen=True, slots=True, kw_only=True)
class SonameNvidia(Row):
    """A package of NVIDIA's own apt repository or index: libcudss.so.0 for CUDA 13 in libcudss0-cuda-13.

    folder: where it puts the library when the loader does not search there by itself, else ''.
    """

    soname: str
    cuda_major: int | None  # None = for any
    channel: str  # apt, or pip where NVIDIA's own index has the wheel and PyPI a stub
    package: str
    folder: str
