"""Questions about the packages around torch and the sizes of wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.pin_rows import BesideWheel, FrameworkBuild, FrameworkExtra, PackagePins, WheelSize


class PinLookups(StoredRows):
    """`package_pins`, `beside_wheels`, `framework_*`, `wheel_sizes`. None and (): the tables do not know."""

    __slots__ = ()

    @property
    def package_pins(self) -> tuple[PackagePins, ...]:
        return self._rows("package_pins")

    @property
    def beside_wheels(self) -> tuple[BesideWheel, ...]:
        return self._rows("beside_wheels")

    @property
    def framework_builds(self) -> tuple[FrameworkBuild, ...]:
        return self._rows("framework_builds")

    @property
    def framework_extras(self) -> tuple[FrameworkExtra, ...]:
        return self._rows("framework_extras")

    @property
    def wheel_sizes(self) -> tuple[WheelSize, ...]:
        return self._rows("wheel_sizes")

    def wheel_sizes_of(self, project: str) -> tuple[WheelSize, ...]:
        """The rows of a project, in the order of the table."""
        return self._where("wheel_sizes", project=project)

    def package_releases(self, project: str) -> tuple[PackagePins, ...]:
        """The releases of a project, oldest first: those of vllm from 0.6.0 on."""
        return self._where("package_pins", project=project)

    def package_release(self, project: str, version: str) -> PackagePins | None:
        """One release: package_release('vllm', '0.11.0').pins('x86_64') names torch==2.8.0."""
        return next((row for row in self.package_releases(project) if row.version == version), None)

    def wheel_size(self, project: str, version: str, *, machine: str) -> WheelSize | None:
        """The wheel of a release for a machine on PyPI: 899738273 bytes for torch 2.9.0 on x86_64."""
        rows: tuple[WheelSize, ...] = self._where("wheel_sizes", project=project, version=version)
        return next((row for row in rows if row.machine in (machine, "any")), None)
