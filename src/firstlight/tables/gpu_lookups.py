"""Questions about GPU models, capabilities, code and Jetson releases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows
from firstlight.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from firstlight.tables.gpu_rows import Capability, CodeRule, GpuModel, JetPack, KernelModule, Runs, TegraRelease


class GpuLookups(StoredRows):
    """The groups `gpu` and `jetson`. None means that the tables do not know."""

    __slots__ = ()

    @property
    def gpus(self) -> tuple[GpuModel, ...]:
        return self._rows("gpus")

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return self._rows("capabilities")

    @property
    def code_rules(self) -> tuple[CodeRule, ...]:
        return self._rows("code_rules")

    def gpu_named(self, name: str) -> GpuModel | None:
        """The model of a device name: gpu_named('NVIDIA H100 80GB HBM3').capability is 9.0."""
        return next((row for row in self.gpus if re.search(row.pattern, name)), None)

    def capability(self, capability: ComputeCapability) -> Capability | None:
        """The row of a capability: capability(9.0).architecture is 'Hopper'."""
        found: Capability | None = self._one("capabilities", capability=capability)
        return found

    def runs_on(self, code: ComputeCapability, device: ComputeCapability, *, torch_cuda: CudaVersion) -> Runs:
        """Whether machine code built for one capability runs on a device: 12.0 code runs on 12.1, 8.0 not on 8.7.

        torch_cuda is the CUDA the code was built with: from 13.2 on, 8.0 code does run on 8.7.
        """
        from firstlight.tables.gpu_rows import Runs

        known: tuple[CodeRule, ...] = self._where("code_rules", code=code)
        rules = [rule for rule in known if _applies(rule, torch_cuda)]
        if not rules:
            return Runs.NOT_KNOWN
        rule = next((rule for rule in rules if rule.torch_cuda_from is not None), rules[0])
        return Runs.YES if _allows(rule, device) else Runs.NO

    def any_runs_on(
        self, codes: Iterable[ComputeCapability], device: ComputeCapability, *, torch_cuda: CudaVersion
    ) -> Runs:
        """Whether any code of a wheel runs on a device: YES if one does, NO if each is known not to."""
        from firstlight.tables.gpu_rows import Runs

        answers = {self.runs_on(code, device, torch_cuda=torch_cuda) for code in codes}
        if Runs.YES in answers:
            return Runs.YES
        return Runs.NOT_KNOWN if Runs.NOT_KNOWN in answers or not answers else Runs.NO

    def kernel_module(self, architecture: str) -> KernelModule | None:
        """Which kernel modules drive an architecture, e.g. 'Volta': the proprietary ones only."""
        found: KernelModule | None = self._one("kernel_modules", architecture=architecture)
        return found

    def tegra_release(self, l4t: str) -> TegraRelease | None:
        """The row of a Jetson Linux release, by its longest known beginning: 36.4.3 is the line 36.4."""
        rows: tuple[TegraRelease, ...] = self._rows("tegra")
        fitting = [row for row in rows if f"{l4t}.".startswith(f"{row.l4t}.")]
        return max(fitting, key=lambda row: len(row.l4t), default=None)

    @property
    def tegra_releases(self) -> tuple[TegraRelease, ...]:
        """The lines of Jetson Linux with the CUDA of each, the oldest CUDA first."""
        rows: tuple[TegraRelease, ...] = self._rows("tegra")
        return tuple(sorted(rows, key=lambda row: row.cuda))

    def jetpack(self, l4t: str) -> JetPack | None:
        """The JetPack of an exact Jetson Linux release: jetpack('38.4.0').jetpack is '7.1'."""
        found: JetPack | None = self._one("jetpacks", l4t=l4t)
        return found


def _applies(rule: CodeRule, torch_cuda: CudaVersion) -> bool:
    return rule.torch_cuda_from is None or torch_cuda.release >= rule.torch_cuda_from


def _allows(rule: CodeRule, device: ComputeCapability) -> bool:
    if rule.only_on:
        return device in rule.only_on
    return device.major == rule.code.major and device.minor >= rule.code.minor and device not in rule.not_on
