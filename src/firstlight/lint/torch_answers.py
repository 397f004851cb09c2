"""Another torch as an answer to a finding in a file: doctor's choice, for the Python and the base of the image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_answers import compat_answers, wired_release
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.torch_build_rules import jetson_wheel
from firstlight.diagnosis.wheel_answers import COMPANIONS
from firstlight.diagnosis.wheel_choice import Wheel, gpus_of
from firstlight.lint.arch_list import named_targets
from firstlight.lint.build_rules import arch_lists, cuda_builds, toolkit_of
from firstlight.lint.host import driver_cuda, install_of, is_board, lets_in, runs_major, wheel_for, wheels_for
from firstlight.lint.images import KNOWS_BLACKWELL, Image
from firstlight.lint.installs import CPU, LOCK, MANIFEST_OF, installs
from firstlight.lint.model import Install, Place, Syntax, Target, stages_of
from firstlight.lint.torches import InImage, Replacement, brought_torch, fails, torches, without_code
from firstlight.lint.wheels import torch_asked
from firstlight.lint.written import ask, variables_in
from firstlight.lint.written_kinds import pip_line
from firstlight.specifiers import newest
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion
from firstlight.ways.kinds import (
    ChangeImage,
    InstallWheels,
    MakeEnvironment,
    Package,
    UseImage,
    Variable,
    Why,
    WireCompat,
)
from firstlight.ways.way import Chain, chain

_LISTS = (Syntax.REQUIREMENTS, Syntax.PYPROJECT, Syntax.LOCK, Syntax.CONDA, Syntax.PIXI)  # which name no image
_SOLVED_AT_ONCE = (Syntax.REQUIREMENTS, Syntax.PYPROJECT, Syntax.CONDA, Syntax.PIXI)
_PYPI = "https://pypi.org/simple"
_BUILT = (Syntax.DOCKERFILE, Syntax.COMPOSE)
_WIRES = "start it where the container toolkit, or `firstlight run`, wires it"
_COMPAT_AT_START = f"install the compat library, and {_WIRES}"
_COMPAT_BUILT = f"in place of `image` build one with the compat library, and {_WIRES}"


def other_torch(torch: InImage, target: Target, question: Question) -> tuple[Chain, ...]:
    """The same torch with a compat library where one serves, and another wheel, else a newer driver."""
    others = other_wheel(torch, target, question)
    stays = replaces_vendors(torch, target) or any(_kept(torch, target, question))
    compat = () if stays else _with_compat(torch, question)
    return (*others, *compat) if torch.place.syntax is Syntax.COMPOSE else (*compat, *others)  # there it takes a build


def other_wheel(torch: InImage, target: Target, question: Question) -> tuple[Chain, ...]:
    """The torch that doctor names first, for the image's Python; for another Python where none is for that one.

    Where something is compiled, one of the compiler's CUDA major, if there is one.
    """
    if replaces_vendors(torch, target):
        return (vendors_torch(target.image, question, torch.install),)
    for kept in _kept(torch, target, question):
        title = f"keep {kept.shown} of line {kept.place.line}: see torch-overwritten-later"
        return (ask("keep the torch of the earlier line", Why.PROGRAM, title=title),)
    if is_board(question):
        return jetson_wheel(question)
    if together := _with_its_project(torch, target, question):
        return together
    base = torch.install is None and torch.place.syntax not in _LISTS
    found = wheels_for(question, torch.version, torch.python, cuda_major=compiled_for(target))
    found = found or wheels_for(question, torch.version, torch.python)
    wheel = best_of(with_image(found, torch, question), target, question) if base else next(iter(found), None)
    if wheel is None and torch.python:
        wheel = wheel_for(question, torch.version)
        python = "" if wheel is None else question.tables.newest_python(wheel.torch, question.facts.place.arch)
        if wheel is not None and python:
            way, title = with_companions(wheel, torch, question), f"use Python {python} and {_shown(wheel)}"
            return (chain(MakeEnvironment(python=python), way, title=title),)
    if wheel is None and is_board(question):
        return jetson_wheel(question)
    if wheel is None:
        title = "no official wheel is known to run there: a newer driver is needed"
        return (ask("get a newer driver on that machine", Why.HOST, title=title),)
    if base and (held := _held_later(torch, target, question)):
        return held
    if base:
        image = image_of(wheel, torch)
        return (chain(UseImage(image), title=f"take the image of {_shown(wheel)}"),)
    way = with_companions(wheel, torch, question)
    return (chain(way, title=_in_other_file(wheel, torch) or _in_its_place(way, torch)),)


def replaces_vendors(torch: InImage, target: Target) -> bool:
    """Whether a torch is installed over one of NVIDIA's own build, which is the one to keep."""
    return target.image.vendor_torch and torch.install is not None and torch.install in tuple(installs(target))


def vendors_torch(image: Image, question: Question, install: Install | None) -> Chain:
    """The image's own torch, of an image that has code for the GPU: no install over it."""
    _, other = other_date(image, question)
    asked = () if install is None or install.files else install.requirements
    alone = bool(asked) and all(each.project in ("torch", *COMPANIONS) for each in asked)
    without = "remove this install" if alone else "leave torch out of this install"
    return ask(f"take {other} of the image, and {without}" if other else f"{without}: the image has one", Why.PROGRAM)


# docs.nvidia.com/deeplearning/triton-inference-server, introduction/compatibility: 25.10 at the latest is of CUDA 13,
# which has left out what is older than 7.5.
_OF_CUDA_13 = (25, 10)


def other_date(image: Image, question: Question) -> tuple[str, str]:
    """Why an image of NVIDIA's has no code for the GPU, by its date, and what to take; two times '' where it may."""
    if image.released == (0, 0) or image.processors:
        return "", ""
    if is_board(question):
        return "is for servers", "the -igpu tag"
    gpu = next(iter(gpus_of(question)), None)
    if gpu is not None and gpu.capability.major >= 10 and image.released < KNOWS_BLACKWELL:
        return "is from before CUDA 12.8", "a later date"
    if gpu is not None and gpu.capability < ComputeCapability(7, 5) and image.released >= _OF_CUDA_13:
        return "is of CUDA 13", "an earlier date"
    return "", ""


def _in_its_place(way: InstallWheels, torch: InImage) -> str:
    """Where a project names torch's index already, what to write over what (a second table is no TOML); else ''."""
    if torch.place.syntax is not Syntax.PYPROJECT or not torch.index or not way.index:
        return ""
    named = " and ".join(package.requirement for package in way.packages)
    asked = () if torch.install is None else torch.install.requirements
    local = {package.project for package in way.packages if "+" in package.version}
    without = [each.project for each in asked if not each.index and each.project in local]
    also = f", the index of torch for {' and '.join(without)} too under [tool.uv.sources]" if without else ""
    return f"write {named} among the dependencies{also}, and {way.index} in place of {torch.index}"


def _in_other_file(wheel: Wheel, torch: InImage) -> str:
    """Where the release is to be named, where the command takes it of a lock, a project or environment.yml; else ''."""
    files = () if torch.install is None else torch.install.files
    of_a_project = LOCK in files or files[:1] in tuple((each,) for each in MANIFEST_OF.values())
    if not files or (torch.install is not None and torch.install.tool != "conda" and not of_a_project):
        return ""
    file = "pyproject.toml" if LOCK in files else files[0]
    way = install_of(wheel)
    return f"name {way.packages[0].requirement} in {file}" + (f", from {way.index}" if way.index else "")


def solved_without_driver(torch: InImage) -> bool:
    """Whether conda took the pytorch without CUDA since there is no driver in a build."""
    install = torch.install  # with a build of its own (=cpu*) it is what the command asks for
    return install is not None and install.tool == "conda" and install.backend == CPU and not install.of("cpuonly")


def one_with_cuda(torch: InImage, target: Target, question: Question) -> tuple[Chain, ...]:
    """Another wheel; where conda saw no driver, first the CUDA of the driver told to it."""
    others, own = other_wheel(torch, target, question), driver_cuda(question)
    if not solved_without_driver(torch) or own is None or is_board(question):
        return others
    told = variables_in(torch.place, Variable("CONDA_OVERRIDE_CUDA", str(own)))
    return chain(told, title="tell conda the CUDA of the driver"), *others


def _kept(torch: InImage, target: Target, question: Question) -> Iterator[InImage]:
    """The torch of an earlier line that is not known to fail there, and that this one replaces."""
    for each in torches(target, question).replaced:
        if each.after == torch and not fails(each.before, question):
            yield each.before


def begin_with(found: Replacement, target: Target, question: Question) -> tuple[Chain, ...]:
    """A torch that works there from the first line on, and the release of the later project that goes with it."""
    like = None if found.after is None else found.after.version
    wheels, for_image = wheels_for(question, like), found.before.install is None
    wheels = with_image(wheels, found.before, question) if for_image else wheels
    best = best_of(wheels, target, question)
    for wheel in (*((best,) if best is not None else ()), *wheels):
        fitting = _going_with(found.project, wheel, question)
        first = install_of(wheel)
        later = first if found.project == "torch" else InstallWheels((Package(found.project, fitting),))
        if not fitting and later != first:
            continue
        line, named, here = found.before.place.line, first.packages[0].requirement, later.packages[0].requirement
        source = f" (from {first.index})" if first.index else ""
        title = f"{found.before.shown} does not work there: "
        if for_image:
            same = "leave torch out here, or name the same: " if later == first else ""
            title += f"begin with the image of torch {wheel.torch.public}, and {same}{here}"
            return (chain(later, UseImage(image_of(wheel, found.before)), title=title),)
        if later == first:
            title += f"take it out of line {line}, and name {here}{source} here"
            return (chain(ask(f"take torch out of line {line}").ways[0], later, title=title),)
        title += f"name {named}{source} on line {line}, and {here} here"
        return (chain(ask(f"name {named} on line {line}").ways[0], later, title=title),)
    return (ask("install torch once, in one place", Why.PROGRAM),)


def _going_with(project: str, wheel: Wheel, question: Question) -> str:
    """The newest release of a project that goes with a torch: 0.26.0 of vllm with 2.11.0; '' where none is known."""
    return newest(tuple(row.version for row in question.tables.companions_for(project, wheel.torch)))


def _with_its_project(torch: InImage, target: Target, question: Question) -> tuple[Chain, ...]:
    """Where vllm brings the torch: another vllm, with the torch that it brings; () where torch is named itself."""
    install = torch.install
    if install is None or install.files or torch_asked(install) is not None:
        return ()
    for each in torches(target, question).replaced:
        if each.after == torch and fails(each.before, question):
            return begin_with(each, target, question)
    brought = brought_torch(install, question)
    project = "" if brought is None else brought[0].project
    for wheel in wheels_for(question, torch.version, torch.python):
        if not (fitting := _going_with(project, wheel, question)):
            continue
        first, later = install_of(wheel), Package(project, fitting)
        if torch.place.syntax in _SOLVED_AT_ONCE:
            index = first.index or pypi_where_named(torch.place, torch.index)
            return (chain(InstallWheels((*first.packages, later), index)),)
        if not first.index:
            return (chain(InstallWheels((later,)), title=f"name the one whose torch runs there: {later.requirement}"),)
        title = f"install {first.packages[0].requirement} before it, and {later.requirement} here"
        return (chain(InstallWheels((later,)), ChangeImage(f"RUN {pip_line(first)}"), title=title),)
    return ()


def _held_later(torch: InImage, target: Target, question: Question) -> tuple[Chain, ...]:
    """Where vllm==0.6.6 behind the image wants the torch that is in it: another image and another vllm; else ()."""
    held = ((each, one) for each in installs(target) if "--no-deps" not in each.options for one in each.requirements)
    for install, asked in held:
        row = question.tables.companion(asked.project, asked.exact.partition("+")[0]) if asked.exact else None
        pin = None if row is None else row.pin("torch")
        if pin is None or not pin.version or not pin.admits(torch.version):
            continue
        wants = f"{asked.project} {asked.exact} wants torch{pin.spec}"
        for wheel in with_image(wheels_for(question, torch.version), torch, question):
            if fitting := _going_with(asked.project, wheel, question):
                there = f"name {asked.project}=={fitting} on line {install.ran.place.line}"
                title = f"take the image of {_shown(wheel)}, and {there}: {wants}"
                return (chain(ask(there).ways[0], UseImage(image_of(wheel, torch)), title=title),)
    return ()


def best_of(wheels: tuple[Wheel, ...], target: Target, question: Question) -> Wheel | None:
    """The first wheel whose nvcc knows all that TORCH_CUDA_ARCH_LIST names, else the first."""
    named = {each.sm for stage in stages_of(target) for _, value in arch_lists(stage) for each in named_targets(value)}
    knowing = (
        wheel
        for wheel in wheels
        if (row := question.tables.targets(wheel.cuda)) is not None and named <= set(row.targets)
    )
    return next(knowing, next(iter(wheels), None))


def compiled_for(target: Target) -> int | None:
    """The major of the nvcc that compiles something in the image, or of the one to put there; None: nothing is."""
    building = (stage for stage in stages_of(target) if any(cuda_builds(stage)))
    toolkits = (toolkit_of(stage) or (stage.image.cuda if stage.image.requires_cuda else None) for stage in building)
    return next((toolkit.major for toolkit in toolkits if toolkit is not None and not target.image.torch), None)


def _shown(wheel: Wheel) -> str:
    return f"torch {wheel.torch.public} with CUDA {wheel.cuda}"


# github.com/pytorch/pytorch: docker.Makefile has ubuntu below the runtime images and nvidia/cuda below the devel ones;
# .github/scripts/generate_docker_release_matrix.py makes both of every CUDA that a release has wheels of.
def with_image(wheels: tuple[Wheel, ...], torch: InImage, question: Question) -> tuple[Wheel, ...]:
    """The wheels whose image starts there: a devel one is built on nvidia/cuda and has its gate, a runtime one none."""
    gated = "devel" in torch.how
    return tuple(wheel for wheel in wheels if not gated or lets_in(question, wheel.cuda))


def image_of(wheel: Wheel, torch: InImage) -> str:
    """pytorch/pytorch:2.9.0-cuda12.8-cudnn9-devel, of the content that the one at hand has."""
    content = "devel" if "devel" in torch.how else "runtime"
    return pytorch_image(wheel.torch, wheel.cuda, content)


def pytorch_image(torch: TorchVersion, cuda: CudaVersion, content: str) -> str:
    """The name of PyTorch's image: torch, CUDA, the major of its cuDNN (9 from 2.4 on), devel or runtime."""
    cudnn = 9 if torch.release[:2] >= (2, 4) else 8
    return f"pytorch/pytorch:{torch.public}-cuda{cuda.release}-cudnn{cudnn}-{content}"


def with_companions(wheel: Wheel, torch: InImage, question: Question) -> InstallWheels:
    """The wheel, and of what the same command names beside it the releases that go with it."""
    both = beside(install_of(wheel), torch.install, wheel, question)
    return replace(both, index=both.index or pypi_where_named(torch.place, torch.index))


def beside(plain: InstallWheels, install: Install | None, wheel: Wheel, question: Question) -> InstallWheels:
    """torch, and torchvision and torchaudio of an install in the releases that go with it."""
    found = []
    for each in () if install is None else install.requirements:
        if each.project in COMPANIONS and (each.exact or each.spec):
            rows = question.tables.companions_for(each.project, wheel.torch)
            fitting = newest(tuple(row.version for row in rows))
            found.append(Package(each.project, f"{fitting}+{wheel.cuda.tag}" if wheel.index and fitting else fitting))
    return InstallWheels((*plain.packages, *found), plain.index)


def pypi_where_named(place: Place, index: str) -> str:
    """PyPI by its address, where a project names another index for torch, which otherwise stays the one."""
    return _PYPI if index and place.syntax is Syntax.PYPROJECT else ""


def _with_compat(torch: InImage, question: Question) -> tuple[Chain, ...]:
    """The compat library in the image, where doctor would put it on the machine."""
    cuda = torch.cuda
    if cuda is None or runs_major(question, cuda.major) is not False or torch.place.syntax not in _BUILT:
        return ()
    if without_code(torch, question):
        return ()
    for answer in compat_answers(question, cuda):
        wired = next((way for way in answer.ways if isinstance(way, WireCompat)), None)
        image = next((each for each in _images(question) if wired is not None and each.release == wired.cuda), None)
        if wired is not None and image is not None and not answer.why_not:
            folder, inside = f"/usr/local/cuda-{wired.cuda}/compat", "/usr/local/cuda/compat"
            line = f"COPY --from=nvidia/cuda:{image}-base-ubuntu22.04 {folder} {inside}"
            wire = wired_release(question, wired.cuda, inside)
            if torch.place.syntax is Syntax.COMPOSE:  # the base is how its torch is called
                return (chain(ChangeImage(f"FROM {torch.how}"), ChangeImage(line), wire, title=_COMPAT_BUILT),)
            return (chain(ChangeImage(line), wire, title=_COMPAT_AT_START),)
    return ()


def _images(question: Question) -> tuple[CudaVersion, ...]:
    """The images of nvidia/cuda that the tables know, by their CUDA, e.g. 12.8.1."""
    return tuple(CudaVersion.parse(row.image.partition(":")[2]) for row in question.tables.images)


def cuda_image(image: Image, question: Question, *, major: int | None = None) -> Chain | None:
    """Another image of nvidia/cuda with the same content and system, whose CUDA the driver has; None where none is."""
    own = driver_cuda(question)
    rest = re.match(r"\d+\.\d+(?:\.\d+)?(-.*)", image.tag)
    if own is None or rest is None or not image.requires_cuda or image.torch is not None:
        return None
    found = [each for each in _images(question) if each.release <= own and major in (None, each.major)]
    suffix = re.sub(r"-cudnn\d", "-cudnn", rest.group(1))
    if not found:
        return None
    best = max(found)
    system = "" if best.major >= 13 and "ubuntu20.04" in suffix else suffix
    return chain(UseImage(f"{image.repository}:{best}{system}")) if system else None
