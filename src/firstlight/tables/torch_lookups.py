"""Questions about torch wheels, variants, Triton and companions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.compiler_lookups import CompilerLookups
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

if TYPE_CHECKING:
    from firstlight.tables.pin_rows import PackagePins
    from firstlight.tables.torch_rows import (
        Companion,
        CompilePython,
        NewestRelease,
        ReleaseWheel,
        TorchIndex,
        TorchRelease,
        TorchVariant,
        TritonPtxas,
        VariantSighting,
        VariantTargets,
    )


class TorchLookups(CompilerLookups):
    """The groups `torch` and `companions`. None or () means that the tables do not know."""

    __slots__ = ()

    @property
    def torch_releases(self) -> tuple[TorchRelease, ...]:
        return self._rows("torch_releases")

    @property
    def torch_indexes(self) -> tuple[TorchIndex, ...]:
        return self._rows("torch_indexes")

    @property
    def compile_pythons(self) -> tuple[CompilePython, ...]:
        return self._rows("compile_pythons")

    @property
    def triton_ptxas(self) -> tuple[TritonPtxas, ...]:
        return self._rows("triton_ptxas")

    @property
    def companions(self) -> tuple[Companion | PackagePins, ...]:
        """Every release of a companion: those of its own table, and the newer ones that package_pins has."""
        older: tuple[Companion, ...] = self._rows("companions")
        return tuple(row for name in dict.fromkeys(row.project for row in older) for row in self._releases(name))

    @property
    def newest_releases(self) -> tuple[NewestRelease, ...]:
        return self._rows("newest_releases")

    def torch_release(self, torch: TorchVersion | str, machine: str = "x86_64") -> TorchRelease | None:
        """The PyPI wheel of a version: torch_release('2.9.0').wheel_cuda is 12.8. The local part is ignored."""
        wanted = TorchVersion.parse(torch) if isinstance(torch, str) else torch
        found: TorchRelease | None = self._one("torch_releases", torch=wanted, machine=machine)
        return found

    def compiles_in(self, torch: TorchVersion, python: str) -> bool:
        """Whether torch.compile works in a Python such as 3.14; True where that is not known, as before torch 2."""
        row = next((each for each in self.compile_pythons if torch.public.startswith(f"{each.torch}.")), None)
        return row is None or _place(python) < _place(row.below)

    def newest_python(self, torch: TorchVersion, machine: str = "x86_64") -> str:
        """The newest Python that a torch has wheels for and torch.compile works in: 3.13 for 2.9.0; '' not known."""
        release = self.torch_release(torch.public, machine)
        known = () if release is None else tuple(each for each in release.cpython if each[-1].isdigit())
        working = [each for each in known if self.compiles_in(torch, each)] or known
        return max(working, key=_place, default="")

    def newest_torch(self, machine: str = "x86_64") -> TorchRelease | None:
        """The newest wheel on PyPI the tables know for a machine, e.g. 2.15.0."""
        return max((row for row in self.torch_releases if row.machine == machine), key=lambda r: r.torch, default=None)

    def torch_variants(self, torch: TorchVersion) -> tuple[TorchVariant, ...]:
        """The CUDA variants of a torch on the PyTorch wheel index: 12.6, 12.8 and 13.0 for 2.9.0."""
        return self._where("torch_variants", torch=_minor(torch))

    def last_torch_of(self, cuda: CudaVersion) -> tuple[int, ...]:
        """The last torch minor that is built for a CUDA: (2, 5) for 12.1; () where none ever was."""
        rows: tuple[TorchVariant, ...] = self._rows("torch_variants")
        minors = (TorchVersion.parse(row.torch).release for row in rows if row.wheel_cuda == cuda.release)
        return max(minors, default=())

    def variant_targets(self, torch: TorchVersion, wheel_cuda: CudaVersion, *, machine: str) -> VariantTargets | None:
        """What a variant is compiled for on a machine; a row for 'any' machine where the list is not split."""
        fitting: tuple[VariantTargets, ...] = self._where(
            "variant_targets", torch=_minor(torch), wheel_cuda=wheel_cuda.release
        )
        exact = next((row for row in fitting if row.machine == machine), None)
        return exact or next((row for row in fitting if row.machine == "any"), None)

    def variant_sightings(self, torch: TorchVersion, wheel_cuda: CudaVersion) -> tuple[VariantSighting, ...]:
        """Where wheels of a variant were seen, e.g. 2.9.0 with 13.0 in the stable channel."""
        return self._where("variant_sightings", torch=torch, wheel_cuda=wheel_cuda.release)

    def triton_programs(self, triton: str) -> tuple[TritonPtxas, ...]:
        """The ptxas programs inside a Triton: 3.6.0 has ptxas 12.8.93 and ptxas-blackwell 12.9.86."""
        return tuple(row for row in self.triton_ptxas if f"{triton}.".startswith(f"{row.triton}."))

    def triton_knows(self, triton: str, capability: ComputeCapability) -> bool | None:
        """Whether a Triton's own ptxas compiles for a capability: 3.5 not for 12.1, 3.6 does; None: not known."""
        programs = self.triton_programs(triton)
        targets = [row for program in programs if (row := self.targets(program.ptxas)) is not None]
        if len(targets) < len(programs) or not programs:
            return None
        return any(capability.sm in row.targets for row in targets)

    def companion(self, project: str, version: str) -> Companion | PackagePins | None:
        """One companion: companion('vllm', '0.11.0').pin('torch').spec is '==2.8.0'."""
        return next((row for row in self._releases(project) if row.version == version), None)

    def companions_for(self, project: str, torch: TorchVersion) -> tuple[Companion | PackagePins, ...]:
        """The releases of a project whose wheel admits a torch, in the order of the table: torchvision for 2.9.0.

        Where none names this torch, wheels that name none and are numbered as torch is go with their own and later
        ones: torchaudio 2.11.0 with torch 2.13.0.
        """
        rows = self._releases(project)
        named = tuple(row for row in rows if (pin := row.pin("torch")) is not None and pin.admits(torch))
        return named or tuple(row for row in self._where("package_pins", project=project) if _is_for_later(row, torch))

    def _releases(self, project: str) -> tuple[Companion | PackagePins, ...]:
        """The releases of a companion, those of its own table first."""
        older = self._where("companions", project=project)
        return (*older, *self._where("package_pins", project=project)) if older else ()

    def release_wheels_for(self, project: str, torch: TorchVersion) -> tuple[ReleaseWheel, ...]:
        """The wheels of a project's own release page that are known to fit a torch, in the order of the table."""
        return self._where("release_wheels", project=project, torch=_minor(torch))


def _is_for_later(row: PackagePins, torch: TorchVersion) -> bool:
    """Whether a wheel without a pin is of this torch's major and no newer than it; a source distribution is not."""
    if row.pin("torch") is not None or not (row.x86_64 or row.aarch64):
        return False
    own = TorchVersion.parse(row.version).release
    return own[0] == torch.release[0] and own <= torch.release


def _minor(torch: TorchVersion) -> str:
    """2.9 for 2.9.1+cu130."""
    return f"{torch.release[0]}.{torch.release[1]}"


def _place(python: str) -> int:
    return int(python.split(".")[1])
