"""Whether the packages that an environment holds can be had again once others took their place, and from where."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import is_wanted
from firstlight.diagnosis.wheel_choice import INDEX
from firstlight.errors import BadVersion
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.plan.building import environment_to_change, installed_versions, normal

_PYPI = ""
_BUILDS = ("cu", "cpu", "rocm", "xpu")  # local parts that name a folder of PyTorch's index
_OF_TORCH = ("torch", "torchvision", "torchaudio")
_BY_CONDA = (EnvironmentKind.CONDA, EnvironmentKind.PIXI)


def index_of(question: Question, name: str, version: str) -> Fact[str]:
    """The index that has what is installed, "" for the default one; Unknown: why no pip brings it back."""
    local = version.partition("+")[2]
    folder = _nightly(question) if ".dev" in version or name == "pytorch-triton" else ""
    if local.startswith(_BUILDS):
        return Known(f"{INDEX}{'nightly/' if '.dev' in version else ''}{local}", "its local part")
    if folder and (not local or name.endswith("triton")):
        return Known(f"{INDEX}{folder}", "the build of torch beside it")
    if local:
        return Unknown(f"{name} {version} is a build of its own, which no index is known to have")
    return _of_pypi(question, name, version) if name in _OF_TORCH else Known(_PYPI, "no local part")


def what_is_lost(question: Question, names: tuple[str, ...]) -> str:
    """Why taking an install back does not bring everything back that was there, in a sentence; '' where it does."""
    environment = environment_to_change(question)
    have = installed_versions(environment)
    for name in names:
        source = index_of(question, name, have[name]) if name in have else Known(_PYPI, "")
        if isinstance(source, Unknown):
            return f"{source.reason}."
        if "/nightly/" in source.value:
            return f"{name} {have[name]} is a nightly: PyTorch takes those off its index after some weeks."
    twice = next(((name, count) for name, count in copies(environment) if name in names), None)
    return f"Of the {twice[1]} copies of {twice[0]} one comes back." if twice else ""


def copies(environment: PythonEnvironment | None) -> Iterator[tuple[str, int]]:
    """Packages of which one folder holds several records, and how many: their files are mixed."""
    for twice in () if environment is None else environment.duplicates:
        count = max(twice.folders.count(folder) for folder in twice.folders)
        if count > 1:
            yield normal(twice.name), count


def _nightly(question: Question) -> str:
    """nightly/cu130 beside a nightly torch of that build; '' beside any other."""
    public, _, local = installed_versions(question.facts.environment).get("torch", "").partition("+")
    return f"nightly/{local}" if ".dev" in public and local.startswith(_BUILDS) else ""


def _of_pypi(question: Question, name: str, version: str) -> Fact[str]:
    """PyPI has one build of each torch; conda's and those of other indexes may carry the same number.

    A torchvision without a local part is of the kind of the torch beside it, unless that has one.
    """
    facts, environment = question.facts, question.facts.environment
    torch, recorded = facts.torch, installed_versions(environment).get("torch", "")
    if "+" in recorded:
        return Known(_PYPI, "no local part")
    if isinstance(torch, Unknown) or is_wanted(facts):
        if environment is not None and environment.kind in _BY_CONDA:
            return Unknown(f"whether pip or conda brought {name} {version} is not known")
        return Known(_PYPI, "no local part")
    if value_or(torch.value.installer, "") == "conda":
        return Unknown(f"conda brought {name} {version}, and pip has other builds of it")
    try:
        row = question.tables.torch_release(recorded, facts.place.arch)
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
        f"{name} {version} is there with CUDA {cuda.value.release}, and PyPI has it with {row.wheel_cuda.release}"
    )
