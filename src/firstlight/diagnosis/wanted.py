"""`--want torch==2.9.0+cu130`: the machine as it would be with that wheel, from what the tables know of it."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.errors import BadInput, BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Requirement
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.torch_install import TorchBuild, TorchChannel, TorchInstall
from firstlight.tables import Tables
from firstlight.versions import CudaVersion, TorchVersion

_WANT = re.compile(r"\s*torch\s*==\s*(\S+?)\s*")
_NOT_YET = Unknown("not installed yet")
_RELEASE = 2  # the stage of a TorchVersion that is neither nightly nor a pre-release


def with_wanted(facts: Facts, tables: Tables, wants: tuple[str, ...]) -> Facts:
    """The facts with the wanted torch in the place of the installed one; the companions stay as they are."""
    for want in wants:
        match = _WANT.fullmatch(want)
        if match is None:
            raise BadInput(f'--want {want[:80]!r}: accepted is torch==VERSION, e.g. --want "torch==2.9.0+cu130"')
        try:
            version = TorchVersion.parse(match.group(1))
        except BadVersion as error:
            raise BadInput(f"--want {want[:80]!r}: {error}") from None
        _refuse_what_is_not_there(facts, tables, version)
        torch = _wheel(facts, tables, version)
        facts = replace(facts, torch=Known(torch, f"--want {want.strip()[:80]}"), torch_libraries=_NOT_YET)
    return facts


def _refuse_what_is_not_there(facts: Facts, tables: Tables, version: TorchVersion) -> None:
    """A release newer than the tables, or a CUDA variant that a release they know was never built for.

    Nightlies and pre-releases pass: the tables do not list them.
    """
    if version.stage < _RELEASE:
        return
    arch = facts.place.arch
    newest = tables.newest_torch(arch) or tables.newest_torch()
    if newest is not None and version > newest.torch:
        raise BadInput(
            f"--want torch=={version}: the newest torch that the tables know is {newest.torch} (they are of "
            f"{tables.newest_date()}). Give that or an older one, or upgrade firstlight."
        )
    if version.cuda is None:
        return
    known = _variants(facts, tables, version)
    if known and version.cuda.release not in known:
        tags = ", ".join(cuda.tag for cuda in sorted(known))
        raise BadInput(
            f"--want torch=={version}: torch {version.public} has no {version.cuda.tag}; known for it: {tags}. "
            f'Give one of these, e.g. --want "torch=={version.public}+{max(known).tag}".'
        )


def _variants(facts: Facts, tables: Tables, version: TorchVersion) -> set[CudaVersion]:
    """The CUDA releases a torch is known to be built for, on PyPI and on PyTorch's own index."""
    known = {row.wheel_cuda for row in tables.torch_variants(version)}
    release = tables.torch_release(version.public, facts.place.arch)
    if release is not None and release.wheel_cuda is not None:
        known.add(release.wheel_cuda)
    return known


def _wheel(facts: Facts, tables: Tables, version: TorchVersion) -> TorchInstall:
    arch = facts.place.arch
    release = tables.torch_release(version.public, arch)
    cuda = version.cuda or (None if release is None or version.local else release.wheel_cuda)
    source = "tables" if version.cuda is None else f"the name {version}"
    same_build = release is not None and cuda == release.wheel_cuda
    targets = release.compiled_for if release is not None and same_build else ()
    if not targets and cuda is not None and (row := tables.variant_targets(version, cuda, machine=arch)) is not None:
        targets = row.compiled_for
    pins = release.pins if release is not None and same_build else ()
    return TorchInstall(
        folder="",
        found_via="--want",
        version=Known(version, "--want"),
        recorded_version=_NOT_YET,
        channel=Known(TorchChannel.NIGHTLY if version.is_nightly else TorchChannel.RELEASE, "--want"),
        build=Known(_build(version, cuda), source) if release or cuda or version.local else _NOT_YET,
        wheel_cuda=_cuda(cuda, source),
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


def _build(version: TorchVersion, cuda: CudaVersion | None) -> TorchBuild:
    if version.local.startswith("rocm"):
        return TorchBuild.ROCM
    if version.local.startswith("xpu"):
        return TorchBuild.XPU
    return TorchBuild.CPU if cuda is None else TorchBuild.CUDA


def _cuda(cuda: CudaVersion | None, source: str) -> Fact[CudaVersion]:
    return Unknown("no CUDA build of that version is known") if cuda is None else Known(cuda, source)
