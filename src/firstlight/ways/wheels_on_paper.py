"""A torch that is not installed yet, from what the tables know of its wheel."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Requirement
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.torch_install import TorchBuild, TorchChannel, TorchInstall
from firstlight.tables import Tables
from firstlight.tables.torch_rows import TorchRelease
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

_NOT_YET = Unknown("not installed yet")


def torch_wheel(facts: Facts, tables: Tables, version: TorchVersion, *, asked_by: str) -> TorchInstall:
    """The torch of a version as its wheel would be here, e.g. 2.9.0+cu130; what no table knows is Unknown."""
    release = tables.torch_release(version.public, facts.place.arch)
    cuda = cuda_of(version, release)
    source = "tables" if version.cuda is None else f"the name {version}"
    targets = _targets(facts, tables, version, release)
    pins = release.pins if release is not None and cuda == release.wheel_cuda else ()
    return TorchInstall(
        folder="",
        found_via=asked_by,
        version=Known(version, asked_by),
        recorded_version=_NOT_YET,
        channel=Known(TorchChannel.NIGHTLY if version.is_nightly else TorchChannel.RELEASE, asked_by),
        build=Known(_build(version, cuda), source) if release or cuda or version.local else _NOT_YET,
        wheel_cuda=_known_cuda(cuda, source),
        rocm=_NOT_YET,
        xpu=_NOT_YET,
        commit=_NOT_YET,
        compiled_for=Known(tuple(each.sm for each in targets), "tables") if targets else _NOT_YET,
        requires=Known(tuple(Requirement(pin.project, (), pin.spec, "") for pin in pins), "tables"),
        wheel_tags=_NOT_YET,
        installer=_NOT_YET,
        installed_from=_NOT_YET,
        libraries=(),
        unreadable_libraries=(),
        shadowed_by=(),
    )


def cuda_of(version: TorchVersion, release: TorchRelease | None) -> CudaVersion | None:
    """The CUDA of a wheel: by its name, else by what PyPI's wheel of that release has; None for none."""
    return version.cuda or (None if release is None or version.local else release.wheel_cuda)


def _targets(
    facts: Facts, tables: Tables, version: TorchVersion, release: TorchRelease | None
) -> tuple[ComputeCapability, ...]:
    cuda = cuda_of(version, release)
    if release is not None and cuda == release.wheel_cuda and release.compiled_for:
        return release.compiled_for
    row = None if cuda is None else tables.variant_targets(version, cuda, machine=facts.place.arch)
    return () if row is None else row.compiled_for


def _build(version: TorchVersion, cuda: CudaVersion | None) -> TorchBuild:
    if version.local.startswith("rocm"):
        return TorchBuild.ROCM
    if version.local.startswith("xpu"):
        return TorchBuild.XPU
    return TorchBuild.CPU if cuda is None else TorchBuild.CUDA


def _known_cuda(cuda: CudaVersion | None, source: str) -> Fact[CudaVersion]:
    return Unknown("no CUDA build of that version is known") if cuda is None else Known(cuda, source)
