"""The rule about wheels of torch that do not exist: of that CUDA, for that Python or processor, on those indexes."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_answers import COMPANIONS
from firstlight.diagnosis.wheel_bounds import why_no_variant
from firstlight.lint.host import install_of, wheel_for
from firstlight.lint.installs import installs
from firstlight.lint.model import Install, ProjectAsked, Syntax, Target
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.torch_answers import compiled_for, other_wheel, pypi_where_named
from firstlight.lint.torches import InImage, python_of, torches, works
from firstlight.lint.wheels import (
    index_may_be_told,
    may_be_configured,
    no_index_has_local,
    none_for_processor,
    only_index,
    torch_asked,
    variant_of,
)
from firstlight.lint.written import ask
from firstlight.ways.kinds import MakeEnvironment
from firstlight.ways.way import chain

_UNSOLVABLE = "LibMambaUnsatisfiableError: Encountered problems while solving"
_UNLESS_TOLD = "The list names no index: pip finds no such file, unless the command that installs it names one."


def torch_wheel_does_not_exist(target: Target, question: Question) -> Iterator[SeenAt]:
    """torch==2.9.0 from .../whl/cu121: that release was never built for it."""
    found = torches(target, question)
    torch = found.last
    if (torch is None or torch.install is not None) and (lacking := _none_for_processor(target, question)) is not None:
        yield lacking
        return
    # One that a later install replaces has to be there all the same: the build ends at the first that is not.
    on_the_way = [each for _, each in found.after if each is not None]
    for each in dict.fromkeys((*on_the_way, *([] if torch is None else [torch]))):
        if missing := tuple(_no_such_wheel(each, target, question)):
            yield from missing
            return


def _no_such_wheel(torch: InImage, target: Target, question: Question) -> Iterator[SeenAt]:
    """Why the wheel of one torch of an image does not exist: by its index, its variant or its Python."""
    if not torch.pinned or torch.was_there or torch.install is None:
        return
    if torch.install.tool == "conda":
        # the channel pytorch builds for the Pythons of the wheels; what conda-forge has of a torch is in no table
        if torch.install.of("pytorch-cuda") is not None:
            yield from _python_lacks(torch, question)
        return
    if no_index_has_local(torch.install, torch_asked(torch.install)) and not may_be_configured(
        target, torch.version.local
    ):
        default = torch.index or torch.install.index or "PyPI, which carries no versions with a local part"
        searched = " and ".join((*torch.install.extra_indexes, default))
        saw = f"{torch.how}: no torch {torch.version} is on {searched}"
        others = other_wheel(torch, target, question)
        if index_may_be_told(torch.install):
            yield SeenAt(torch.place, saw, others, _UNLESS_TOLD, severity=Severity.DEGRADES)
        else:
            yield SeenAt(torch.place, saw, others)
        return
    if torch.place.syntax is Syntax.PYPROJECT:
        yield from _beside_it(torch, torch.install)
    newest = question.tables.newest_torch(question.facts.place.arch)
    if torch.version.stage != 2 or newest is None or torch.version > newest.torch:
        return
    arch = question.facts.place.arch
    if torch.cuda is not None and torch.from_index:
        why_not = why_no_variant(question.tables, torch.version, torch.cuda, machine=arch)
        if why_not:
            yield SeenAt(torch.place, f"{torch.how}: {why_not.rstrip('.')}", other_wheel(torch, target, question))
            return
    yield from _python_lacks(torch, question)


def _beside_it(torch: InImage, install: Install) -> Iterator[SeenAt]:
    """torchvision==0.24.0+cu128 of a project whose index is `explicit`: uv looks there for what names it alone."""
    for each in install.requirements:
        if each.project in COMPANIONS and torch.index and no_index_has_local(install, each):
            where = each.index or install.index or "PyPI, which carries no versions with a local part"
            saw = f"{each.project}{each.spec}: it is looked for on {where}; {torch.index} is named for torch alone"
            title = f"name the index of torch for {each.project} too, under [tool.uv.sources]"
            error = f"Because there is no version of {each.project}{each.spec}"
            yield SeenAt(
                each.place or torch.place, saw, (ask("name the index of torch for it too", title=title),), error=error
            )


def _none_for_processor(target: Target, question: Question) -> SeenAt | None:
    """An install of torch from an index, or from conda's pytorch channel, that has nothing for this processor."""
    arch = question.facts.place.arch
    for install in installs(target):
        asked = torch_asked(install)
        if asked is None or asked.address:
            continue
        local = asked.exact.partition("+")[2]
        index = only_index(install, asked)
        with_cuda = install.of("pytorch-cuda") is not None or install.of("cudatoolkit") is not None
        conda = install.tool == "conda" and with_cuda and arch == "aarch64"
        if conda or none_for_processor(local or variant_of(index), question):
            where = "conda's pytorch channel" if conda else index or f"an index with +{local}"
            python = python_of(target, install)
            wheel = wheel_for(question, None, python, cuda_major=compiled_for(target)) or wheel_for(
                question, None, python
            )
            place = asked.place or install.ran.place
            other = ask("take an image with torch for this processor")
            if wheel is not None:
                other = chain(install_of(wheel, pypi_where_named(place, index)))
            saw = f"{_install_shown(install, asked)}: {where} has no torch with CUDA for {arch}"
            return SeenAt(place, saw, (other,))
    return None


def _install_shown(install: Install, asked: ProjectAsked) -> str:
    return install.ran.shown if asked.place is None else f"{asked.project}{asked.spec}"


def _python_lacks(torch: InImage, question: Question) -> Iterator[SeenAt]:
    release = question.tables.torch_release(torch.version.public, question.facts.place.arch)
    if release is None or not torch.python or torch.python in release.cpython:
        return
    pythons = ", ".join(release.cpython)
    conda = torch.install is not None and torch.install.tool == "conda"
    has, error = ("the file names", _UNSOLVABLE) if conda else ("the image has", "")
    saw = f"{torch.how}: torch {torch.version.public} has wheels for Python {pythons}; {has} {torch.python}"
    newest = question.tables.newest_python(torch.version, question.facts.place.arch)
    wheel = wheel_for(question, torch.version, torch.python)
    other = () if wheel is None else (chain(install_of(wheel)),)
    environment, runs = MakeEnvironment(python=newest), wheel_for(question, torch.version)
    if works(torch, question) or runs is None or torch.cuda is None:
        yield SeenAt(torch.place, saw, (chain(environment, title=f"use Python {newest}"), *other), error=error)
        return
    title = f"use Python {newest} and torch {runs.torch.public} with CUDA {runs.cuda}"
    yield SeenAt(torch.place, saw, (chain(environment, install_of(runs), title=title), *other), error=error)


MISSING_WHEEL_LINT_RULES = (
    LintRule(
        "torch-wheel-does-not-exist",
        torch_wheel_does_not_exist,
        Severity.BLOCKS,
        "the build fails: there is no such torch wheel",
        "pip finds no file for this version, CUDA and Python.",
        "ERROR: Could not find a version that satisfies the requirement torch",
        "pytorch.org/get-started/previous-versions",
    ),
)
