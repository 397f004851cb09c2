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
        torch = _wheel(facts, tables, version)
        facts = replace(facts, torch=Known(torch, f"--want {want}"), torch_libraries=_NOT_YET)
    return facts


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
        build=Known(TorchBuild.CPU if cuda is None else TorchBuild.CUDA, source) if release or cuda else _NOT_YET,
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


def _cuda(cuda: CudaVersion | None, source: str) -> Fact[CudaVersion]:
    return Unknown("no CUDA build of that version is known") if cuda is None else Known(cuda, source)
