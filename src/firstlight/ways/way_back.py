"""Whether the packages that an environment holds can be had again once others took their place, and from where."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.tables import Tables
from firstlight.tables.torch_index import index_of_version
from firstlight.ways.building import environment_to_change, installed_versions
from firstlight.ways.kinds import InstallWheels, Manner, Package, RemoveDistributions
from firstlight.ways.names import normal
from firstlight.ways.traits import reversible
from firstlight.ways.way import Reversible, Way

ON_TORCH_INDEX = (
    "torchvision",
    "torchaudio",
    "xformers",
)  # what it has for every CUDA, of the packages that go with torch
# Builds of Triton for one maker's torch; they write the files of `triton` itself.
TRITONS = ("pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-rocm", "triton-xpu")
_PYPI = ""
_COMPILED = ("flash-attn",)  # no index has a wheel of it
_OF_TORCH = ("torch", "torchvision", "torchaudio")
_BY_CONDA = (EnvironmentKind.CONDA, EnvironmentKind.PIXI)


def is_from_index(package: Package) -> bool:
    """Whether it is on the index that a way names: a local part such as +cu128 says so, and so does torch's family."""
    return "+" in package.version or package.project in ("torch", *ON_TORCH_INDEX)


def is_compiled(package: Package, way: InstallWheels) -> bool:
    """Whether it is built here, against the torch that is installed."""
    return way.manner is Manner.COMPILED or package.project in _COMPILED


def built_anew(way: InstallWheels, have: dict[str, str]) -> tuple[str, ...]:
    """Packages of which another build of the same number is made here; no index has the one that was there."""
    return tuple(
        each.project
        for each in way.packages
        if is_compiled(each, way)
        and each.project in have
        and each.version.partition("+")[0] in ("", have[each.project].partition("+")[0])
    )


def replaced_of_condas(facts: Facts, way: Way) -> tuple[str, ...]:
    """Packages that conda brought and that pip would put its own in the place of, or take away: conda is not told."""
    names = way.projects if isinstance(way, RemoveDistributions) else ()
    if isinstance(way, InstallWheels):
        names = tuple(each.project for each in way.packages)
    if facts.environment is None or facts.environment.kind not in _BY_CONDA or isinstance(facts.torch, Unknown):
        return ()
    by_conda = value_or(facts.torch.value.installer, "") == "conda"
    return tuple(
        each for each in names if by_conda and each in _OF_TORCH and each in installed_versions(facts.environment)
    )


def index_of(facts: Facts, tables: Tables, name: str, version: str) -> Fact[str]:
    """The index that has what is installed, "" for the default one; Unknown: why no pip brings it back."""
    local = version.partition("+")[2]
    if index := index_of_version(version):
        return Known(index, "its local part")
    if name in TRITONS and not local and (index := index_of_version(_torch_beside(facts))):
        return Known(index, "the build of torch beside it")
    beside = _nightly(facts) if ".dev" in version or name == "pytorch-triton" else ""
    if beside and (not local or name.endswith("triton")):
        return Known(beside, "the build of torch beside it")
    if local:
        return Unknown(f"{name} {version} is a build of its own, which no index is known to have")
    return _of_pypi(facts, tables, name, version) if name in _OF_TORCH else Known(_PYPI, "no local part")


def what_is_lost(facts: Facts, tables: Tables, names: tuple[str, ...], *, have: dict[str, str] | None = None) -> str:
    """Why taking an install back does not bring everything back that was there, in a sentence; '' where it does.

    `have`: the versions of what goes, where they are not those that the environment to change has.
    """
    environment = environment_to_change(facts)
    have = installed_versions(environment) if have is None else have
    for name in names:
        source = index_of(facts, tables, name, have[name]) if name in have else Known(_PYPI, "")
        if isinstance(source, Unknown):
            return f"The {name} installed now does not come back: {source.reason}."
        if "/nightly/" in source.value:
            return f"{name} {have[name]} is a nightly: PyTorch takes those off its index after some weeks."
    twice = next(((name, count) for name, count in copies(environment) if name in names), None)
    return f"Of the {twice[1]} copies of {twice[0]} one comes back." if twice else ""


def comes_back(way: Way, facts: Facts, tables: Tables) -> Reversible:
    """As `reversible` says, and less where a package that goes can be had from no index, or not for long."""
    told = reversible(way)
    if not isinstance(way, (InstallWheels, RemoveDistributions)) or told is not Reversible.YES:
        return told
    environment = environment_to_change(facts)
    if environment is None:
        return told  # a new environment is removed whole
    names = tuple(each.project for each in way.packages) if isinstance(way, InstallWheels) else way.projects
    have = installed_versions(environment)
    if isinstance(way, InstallWheels) and built_anew(way, have):
        return Reversible.PARTLY
    stays = isinstance(way, InstallWheels) and all(have.get(each.project) == each.version for each in way.packages)
    return told if stays or not what_is_lost(facts, tables, names) else Reversible.PARTLY


def copies(environment: PythonEnvironment | None) -> Iterator[tuple[str, int]]:
    """Packages of which one folder holds several records, and how many: their files are mixed."""
    for twice in () if environment is None else environment.duplicates:
        count = max(twice.folders.count(folder) for folder in twice.folders)
        if count > 1:
            yield normal(twice.name), count


def _nightly(facts: Facts) -> str:
    """The index of cu130's nightlies beside a nightly torch of that build; '' beside any other."""
    torch = _torch_beside(facts)
    return index_of_version(torch) if ".dev" in torch else ""


def _torch_beside(facts: Facts) -> str:
    return installed_versions(facts.environment).get("torch", "")


def _of_pypi(facts: Facts, tables: Tables, name: str, version: str) -> Fact[str]:
    """PyPI has one build of each torch; conda's and those of other indexes may carry the same number.

    A torchvision without a local part is of the kind of the torch beside it, unless that has one.
    """
    environment = facts.environment
    torch, recorded = facts.torch, installed_versions(environment).get("torch", "")
    if "+" in recorded:
        return Known(_PYPI, "no local part")
    if isinstance(torch, Unknown) or torch.origin is Origin.WANTED:
        if environment is not None and environment.kind in _BY_CONDA:
            return Unknown(f"whether pip or conda brought {name} {version} is not known")
        return Known(_PYPI, "no local part")
    if value_or(torch.value.installer, "") == "conda":
        return Unknown(f"conda brought {name} {version}, and pip has other builds of it")
    try:
        row = tables.torch_release(recorded, facts.place.arch)
    except BadVersion:
        row = None
    cuda = torch.value.wheel_cuda
    if (
        row is None
        or isinstance(cuda, Unknown)
        or row.wheel_cuda is None
        or row.wheel_cuda.release == cuda.value.release
    ):
        return Known(_PYPI, "no local part")
    return Unknown(
        f"{name} {version} is built with CUDA {cuda.value.release} here, and with {row.wheel_cuda.release} on PyPI"
    )
