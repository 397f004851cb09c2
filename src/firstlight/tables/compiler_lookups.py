"""Questions about compilers and the toolkit as wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows
from firstlight.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from firstlight.tables.compiler_rows import HostCompiler, NvccWheel, ToolkitTargets, ToolkitWheel


class CompilerLookups(StoredRows):
    """The group `compilers`. None means that the tables do not know."""

    __slots__ = ()

    @property
    def toolkit_targets(self) -> tuple[ToolkitTargets, ...]:
        return self._rows("toolkit_targets")

    @property
    def host_compilers(self) -> tuple[HostCompiler, ...]:
        return self._rows("host_compilers")

    @property
    def toolkit_wheels(self) -> tuple[ToolkitWheel, ...]:
        return self._rows("toolkit_wheels")

    @property
    def nvcc_wheels(self) -> tuple[NvccWheel, ...]:
        return self._rows("nvcc_wheels")

    def targets(self, toolkit: CudaVersion) -> ToolkitTargets | None:
        """What a toolkit's ptxas accepts: 'sm_70' is in targets(12.8).targets and not in those of 13.0."""
        found: ToolkitTargets | None = self._one("toolkit_targets", toolkit=toolkit.release)
        return found

    def toolkits_for(self, capability: ComputeCapability) -> tuple[CudaVersion, ...]:
        """The toolkits that compile for a capability, oldest first: 12.9 to 13.4 for 12.1."""
        return tuple(row.toolkit for row in self.toolkit_targets if capability.sm in row.targets)

    def gcc_limit(self, toolkit: CudaVersion) -> HostCompiler | None:
        """The newest gcc a toolkit takes: gcc_limit(13.0).newest_major is 15."""
        return self._compiler_limit(toolkit, "gcc")

    def clang_limit(self, toolkit: CudaVersion) -> HostCompiler | None:
        """The newest clang a toolkit takes: clang_limit(13.0).newest_major is 20."""
        return self._compiler_limit(toolkit, "clang")

    def _compiler_limit(self, toolkit: CudaVersion, compiler: str) -> HostCompiler | None:
        rows = (row for row in self.host_compilers if row.toolkit == toolkit.release)
        return next((row for row in rows if row.compiler.value == compiler), None)

    def toolkit_wheel(self, toolkit: CudaVersion) -> ToolkitWheel | None:
        """The cuda-toolkit release on PyPI for a toolkit: 13.0.2, or the newest of its minor for 13.0."""
        rows = [row for row in self.toolkit_wheels if row.toolkit.release == toolkit.release]
        if toolkit.patch >= 0:
            return next((row for row in rows if row.toolkit.patch == toolkit.patch), None)
        return max(rows, key=lambda row: row.toolkit, default=None)
