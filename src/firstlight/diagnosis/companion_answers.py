"""Answers that make torch and the packages around it fit: another torch for all, other releases, compiling anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_answers import COMPANIONS, cuda_of_torch, local_of, torch_chain
from firstlight.diagnosis.wheel_choice import runs_here
from firstlight.errors import BadVersion
from firstlight.facts.companions import Companion
from firstlight.facts.known import Unknown
from firstlight.specifiers import newest
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import InstallWheels, Manner, Package
from firstlight.ways.way import Chain, chain
from firstlight.ways.way_back import ON_TORCH_INDEX


def one_torch_for_all(question: Question, clashing: list[tuple[Companion, str]]) -> Iterator[Chain]:
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
        yield torch_chain(question, wheel)


def for_this_torch(question: Question, *names: str) -> Iterator[Chain]:
    """The releases of packages that were made for the torch that is here, those together that are known."""
    packages = [fitting for name in sorted(names) if (fitting := _release_for_this_torch(question, name))]
    if packages:
        yield chain(_install(question, packages))


def for_this_cuda(question: Question, name: str) -> Iterator[Chain]:
    """The same, for the packages that PyTorch's own index has in torch's CUDA; nothing for others."""
    return for_this_torch(question, *((name,) if name in ON_TORCH_INDEX else ()))


def rebuilt(each: Companion) -> Chain:
    """A package compiled against the torch that is here; it takes an nvcc of torch's CUDA major."""
    package = Package(each.name, each.version.partition("+")[0])
    return chain(InstallWheels((package,), manner=Manner.COMPILED))


def _release_for_this_torch(question: Question, name: str) -> Package | None:
    """xformers 0.0.33.post1 for torch 2.9.0; None for wheels that are on PyPI alone and of another CUDA major."""
    torch, cuda = question.facts.torch, cuda_of_torch(question)
    if isinstance(torch, Unknown) or isinstance(torch.value.version, Unknown):
        return None
    version = torch.value.version.value
    release = question.tables.torch_release(version, question.facts.place.arch)
    default = None if release is None else release.wheel_cuda
    if name not in ON_TORCH_INDEX and cuda is not None and (default is None or default.major != cuda.major):
        return None
    fitting = newest(tuple(row.version for row in question.tables.companions_for(name, version)))
    return Package(name, fitting) if fitting else None


def _install(question: Question, packages: list[Package]) -> InstallWheels:
    """From PyTorch's index of torch's CUDA where all are there, else from PyPI.

    pip takes an installed 0.24.0+cu128 for a 0.24.0: where only the build changes it has to be told to reinstall.
    """
    cuda = cuda_of_torch(question)
    present = {(each.name, each.version.partition("+")[0]) for each in question.facts.companions}
    again = any((package.project, package.version) in present for package in packages)
    manner = Manner.AGAIN if again else Manner.PLAIN
    if cuda is None or any(package.project not in ON_TORCH_INDEX for package in packages):
        return InstallWheels(tuple(packages), manner=manner)
    local = local_of(question.facts, cuda)
    named = (replace(one, version=f"{one.version}{local}") if one.project in COMPANIONS else one for one in packages)
    return InstallWheels(tuple(named), index_of_build(cuda.release.tag), manner)
