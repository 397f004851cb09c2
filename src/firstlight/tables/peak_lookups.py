"""Questions about the speed of GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows
from firstlight.versions import ComputeCapability

if TYPE_CHECKING:
    from firstlight.tables.peak_rows import GpuPeak, GpuRate, NvlinkRate


class PeakLookups(StoredRows):
    """The tables `gpu_peaks`, `gpu_rates` and `nvlink_rates`. None means that the tables do not know."""

    __slots__ = ()

    @property
    def gpu_peaks(self) -> tuple[GpuPeak, ...]:
        return self._rows("gpu_peaks")

    @property
    def gpu_rates(self) -> tuple[GpuRate, ...]:
        return self._rows("gpu_rates")

    def gpu_peak(self, name: str, capability: ComputeCapability) -> GpuPeak | None:
        """The peaks of a device, by name and capability: 'NVIDIA H100 80GB HBM3' and 9.0 is h100-sxm.

        A MIG slice has the name of its GPU but not its speed: it has no row.
        """
        if re.search(r"\bMIG\b", name):
            return None
        fitting = (row for row in self.gpu_peaks if row.capability == capability)
        return next((row for row in fitting if re.search(row.pattern, name)), None)

    def gpu_rate(self, name: str, capability: ComputeCapability) -> GpuRate | None:
        """What an SM of a device does per clock; the professional rate where the name says nothing."""
        fitting = [row for row in self.gpu_rates if capability in row.capabilities]
        named = (row for row in fitting if row.names and re.search(row.names, name))
        return next(named, next((row for row in fitting if not row.names), None))

    def gpu_rate_of(self, line: str) -> GpuRate | None:
        """The rates of a product line, e.g. 'hopper'."""
        return next((row for row in self.gpu_rates if row.line == line), None)

    @property
    def nvlink_rates(self) -> tuple[NvlinkRate, ...]:
        return self._rows("nvlink_rates")

    def nvlink_rate(self, nvml_version: int) -> NvlinkRate | None:
        """The rate of one link by the number that NVML gives its generation: 6 is NVLink 4.0, 25 GB/s each way."""
        return next((row for row in self.nvlink_rates if row.nvml_version == nvml_version), None)
