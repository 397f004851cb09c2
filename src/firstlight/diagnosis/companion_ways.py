"""Ways to make torch and the packages around it fit: another torch for all, other releases, or compiling anew."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.specifiers import newest
from firstlight.diagnosis.wheel_choice import INDEX, install, install_wheel, runs_here
from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.companions import Companion
from firstlight.facts.known import Known, Unknown
from firstlight.versions import TorchVersion

# PyTorch's own index has these for every CUDA variant.
_ON_TORCH_INDEX = ("torchvision", "torchaudio", "xformers")


def one_torch_for_all(question: Question, clashing: list[tuple[Companion, str]]) -> Iterator[str]:
    """The torch that all clashing packages pin, where one wheel of it runs here, e.g. torch==2.8.0 from cu128."""
    pins = {specifier for _, specifier in clashing}
    pin = re.fullmatch(r"==(\d+(?:\.\d+)+)", next(iter(pins))) if len(pins) == 1 else None
    if pin is None:
        return
    try:
        wheel = runs_here(question, TorchVersion.parse(pin.group(1)))
    except BadVersion:
        return
    if wheel is not None:
        names = ", ".join(f"{each.name} {each.version}" for each, _ in clashing)
        yield install_wheel(question, wheel, remark=f"the torch of {names}")


def releases_for_this_torch(question: Question, clashing: list[tuple[Companion, str]]) -> Iterator[str]:
    """Other releases of the clashing packages, made for the torch that is here."""
    packages = [fitting for each, _ in clashing if (fitting := _release_for_this_torch(question, each.name))]
    if packages:
        yield _install(question, packages)


def for_this_torch(question: Question, name: str) -> str:
    """The command for the release of a package that was made for the torch that is here; '' where none is known."""
    fitting = _release_for_this_torch(question, name)
    return _install(question, [fitting]) if fitting else ""


def for_this_cuda(question: Question, name: str) -> str:
    """The same, for the packages that PyTorch's own index has in torch's CUDA; '' for others."""
    return for_this_torch(question, name) if name in _ON_TORCH_INDEX else ""


def rebuilt(facts: Facts, each: Companion) -> str:
    """The command that compiles a package against the torch that is here; it takes an nvcc of torch's CUDA major."""
    package = f"{each.name}=={each.version.partition('+')[0]}"
    command = install(facts, "--force-reinstall", "--no-deps", "--no-cache-dir", "--no-build-isolation", package)
    cuda = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else Unknown("no torch")
    nvcc = f", takes an nvcc of CUDA {cuda.value.major}" if isinstance(cuda, Known) else ""
    return f"{command}  # compiles against this torch{nvcc}"


def _release_for_this_torch(question: Question, name: str) -> str:
    """xformers==0.0.33.post1 for torch 2.9.0; '' for wheels that are on PyPI alone and of another CUDA major."""
    torch = question.facts.torch
    if isinstance(torch, Unknown) or isinstance(torch.value.version, Unknown):
        return ""
    version, cuda = torch.value.version.value, torch.value.wheel_cuda
    release = question.tables.torch_release(version, question.facts.place.arch)
    default = None if release is None else release.wheel_cuda
    if (
        name not in _ON_TORCH_INDEX
        and isinstance(cuda, Known)
        and (default is None or default.major != cuda.value.major)
    ):
        return ""
    rows = question.tables.companions_for(name, version)
    fitting = newest(tuple(row.version for row in rows))
    return f"{name}=={fitting}" if fitting else ""


def _install(question: Question, packages: list[str]) -> str:
    """From PyTorch's index of torch's CUDA where all are there, else from PyPI.

    pip takes an installed 0.24.0+cu128 for a 0.24.0: where only the build changes it must be told to reinstall.
    """
    facts = question.facts
    cuda = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else Unknown("no torch")
    there = all(package.partition("==")[0] in _ON_TORCH_INDEX for package in packages)
    index = INDEX + cuda.value.release.tag if there and isinstance(cuda, Known) else ""
    present = {f"{each.name}=={each.version.partition('+')[0]}" for each in facts.companions}
    again = ("--force-reinstall", "--no-deps") if present & set(packages) else ()
    return install(facts, *again, *packages, index=index)
