"""Which torch an image ends up with: the base's, then what each install makes of it, by what the tables know."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_bounds import compiler_knows
from firstlight.diagnosis.wheel_choice import SeenGpu, gpus_of
from firstlight.frozen import dataclass
from firstlight.lint.companions import (
    Present,
    kept,
    present_after,
    present_in_base,
    release_left,
    torches_admitted,
)
from firstlight.lint.host import runs_major
from firstlight.lint.installs import installs
from firstlight.lint.model import Install, Place, ProjectAsked, Ran, Target
from firstlight.lint.wheels import built_for, taken, torch_asked
from firstlight.specifiers import satisfies
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion


@dataclass(frozen=True, slots=True)
class InImage:
    """The torch that a step leaves in the image: 2.5.1 with CUDA 12.4, by pip on line 8.

    cuda is None where it is a CPU wheel (variant 'cpu') or where the tables do not know (variant '').
    """

    version: TorchVersion
    cuda: CudaVersion | None
    variant: str  # cu124, cpu, or ''
    place: Place
    how: str  # 'pip install torch==2.5.1', or the name of the base image
    pinned: bool  # the file names the version
    from_index: bool  # PyTorch's own index, or the local part in the version, so that the version has a local part
    python: str
    install: Install | None = None
    index: str = ""  # that it is of; '' is PyPI
    was_there: bool = False  # before the install that names it, which leaves it

    @property
    def installed_version(self) -> str:
        """The version as pip lists it, e.g. 2.5.1+cu124; PyPI's wheels have no local part."""
        return f"{self.version.public}+{self.variant}" if self.from_index and self.variant else self.version.public

    @property
    def shown(self) -> str:
        with_ = f"with CUDA {self.cuda}" if self.cuda is not None else "without CUDA" if self.variant == "cpu" else ""
        python = f" for Python {self.python}" if self.python else ""
        supposed = "" if self.pinned else f" (the newest the tables know{python})"
        return f"torch {self.version.public} {with_}".rstrip() + supposed


@dataclass(frozen=True, slots=True)
class Replacement:
    """An install that puts another torch in the place of one that was chosen: vllm 0.11.0 wants ==2.8.0."""

    before: InImage
    install: Install
    by: str  # the requirement that does it, e.g. vllm==0.11.0
    project: str  # vllm
    why: str
    after: InImage | None


@dataclass(frozen=True, slots=True)
class Torches:
    """The torch in the end, what replaced one on the way, and which one was there after each install."""

    last: InImage | None
    replaced: tuple[Replacement, ...]
    after: tuple[tuple[Ran, InImage | None], ...] = ()

    def when(self, ran: Ran, target: Target) -> InImage | None:
        """The torch that a command of the image meets; one that it installs itself included."""
        met = [torch for each, torch in self.after if each in (*target.before(ran), ran)]
        return met[-1] if met else None


def torches(target: Target, question: Question) -> Torches:
    """Walk the installs; a stage that has no torch of its own has that of a stage it copies from."""
    current: InImage | None = None
    image = target.image
    if image.torch is not None:
        tag = "" if image.cuda is None else image.cuda.release.tag
        cuda = None if image.cuda is None else image.cuda.release
        current = InImage(
            image.torch, cuda, tag, target.place, image.name, pinned=True, from_index=True, python=image.python
        )
    present = present_in_base(image, question)
    replaced: list[Replacement] = []
    history: list[tuple[Ran, InImage | None]] = [(target.ran[0], current)] if target.ran else []
    for install in installs(target):
        after = _after(target, install, question, current)
        current = _named_again(current, install, after)
        if after is not None and current is not None and _other(current, after):
            replaced.append(_replacement(current, install, after))
        elif after is None and current is None and not image.vendor_torch:
            after = _brought(target, install, question)
        elif after is None and current is not None:
            dragged = _dragged(install, question, current, present=present)
            if dragged is not None:
                replaced.append(dragged)
                after = dragged.after
        current = after or current
        present = present_after(install, question, present=present, torch=None if current is None else current.version)
        history.append((install.ran, current))
    if current is None:
        for other in target.copied_from:
            current = current or torches(other, question).last
    return Torches(current, tuple(replaced), tuple(history))


def _other(before: InImage, after: InImage) -> bool:
    return before.version != after.version or before.variant != after.variant


def _replacement(before: InImage, install: Install, after: InImage) -> Replacement:
    asked = install.of("torch")
    by = f"torch{asked.spec}" if asked is not None else "torch"
    where = f" from {after.index}" if after.index else ""
    return Replacement(before, install, by, "torch", f"it asks for {by}{where}", after)


def python_of(target: Target, install: Install) -> str:
    """The Python an install is for: named by the command, else by the base image."""
    if install.python:
        return install.python
    for ran in target.ran:  # a Python of its own takes the system's place: what it is, is seen only in part
        if ran.command.program in ("conda", "mamba", "micromamba", "uv", "pyenv"):
            return _python_named(target)
    return _python_named(target) or target.image.python


def _python_named(target: Target) -> str:
    """The one 3.x that uv, conda or apt name in the file; '' where none or several are."""
    found: set[str] = set()
    for ran in target.ran:
        line = " ".join(ran.words)
        if ran.command.program in ("uv", "conda", "mamba", "micromamba", "pyenv", "apt-get", "apt"):
            found.update(re.findall(r"(?<![\w.])python(?:==?|@| )?(3\.\d+)(?![\d])", line))
            found.update(re.findall(r"(?:--python|-p)[ =](?:python)?(3\.\d+)", line))
            found.update(re.findall(r"python install (3\.\d+)", line))
    return found.pop() if len(found) == 1 else ""


def _after(target: Target, install: Install, question: Question, current: InImage | None) -> InImage | None:
    """The torch that an install which names torch leaves; None where it leaves what there was."""
    asked = torch_asked(install)
    if asked is None:
        return None
    if current is not None and _keeps(current, install, asked):
        return None
    if current is None and target.image.vendor_torch and not replaces_vendor_torch(install, asked):
        return None
    python = python_of(target, install)
    admitted, by = torches_admitted(install, asked, question)
    alone = replace(asked, spec=f"=={next(iter(admitted))}") if len(admitted) == 1 else asked
    found = taken(install, alone, question, python=python, admitted=admitted)
    if found is None:
        return None
    built = built_for(found, install, question)
    how = install.ran.shown
    if by:
        how = f"torch{asked.spec}, held back by {by}"
    elif asked.place is not None:
        how = f"torch{asked.spec}" + (f" from {found.index}" if found.index else "")
    elif how.endswith("..."):
        how = f"{install.tool} install torch{asked.spec}" + (f" from {found.index}" if found.index else "")
    return InImage(
        found.version,
        built.cuda,
        built.variant,
        _named_at(install, asked),
        how,
        pinned=bool(alone.exact or asked.address),
        from_index=found.has_local,
        python=python,
        install=install,
        index=found.index,
    )


def _named_at(install: Install, asked: ProjectAsked) -> Place:
    """The line that chooses the torch: in a list that of conda's cpuonly, where it is there."""
    cpuonly = install.of("cpuonly") if install.tool == "conda" else None
    place = asked.place if cpuonly is None else cpuonly.place
    return place or install.ran.place


def replaces_vendor_torch(install: Install, asked: ProjectAsked) -> bool:
    """Whether pip puts another torch over one of a vendor's build, whose version (2.7.0a0+...) no release has."""
    return install.upgrades or bool(asked.address or asked.exact)


def _named_again(current: InImage | None, install: Install, after: InImage | None) -> InImage | None:
    """The torch that is kept, where an install names exactly that one: from there on it is that line's."""
    asked = torch_asked(install)
    if current is None or after is not None or asked is None or not asked.exact or install.upgrades:
        return current
    place = asked.place or install.ran.place
    return replace(current, place=place, install=install, how=install.ran.shown, index=install.index, was_there=True)


def _keeps(current: InImage, install: Install, asked: ProjectAsked) -> bool:
    """Whether pip keeps the torch that is there, which it does where it fits, whatever the index."""
    if install.upgrades or asked.address:
        return False
    return not asked.spec or satisfies(current.installed_version, asked.spec) is True


def _dragged(
    install: Install, question: Question, current: InImage, *, present: tuple[Present, ...]
) -> Replacement | None:
    """An install that does not name torch and yet replaces it, since what it names pins another one."""
    named = torch_asked(install)
    if "--no-deps" in install.options or install.tool == "conda" or (named is not None and named.exact):
        return None
    for each in install.requirements:
        row = release_left(each, install, question, present=present)
        pin = None if row is None else row.pin("torch")
        if row is None or pin is None or pin.admits(current.version):
            continue
        supposed = "" if each.exact else f" ({row.version} is the newest that the tables know)"
        if kept(each, install, present) is not None:
            supposed = " and is in the image already"
        why = f"{each.project} {row.version} requires torch{pin.spec}{supposed}"
        after = _pinned(pin.spec, install, question)
        if after is not None and each.place is not None:
            after = replace(after, place=each.place, how=f"{each.project}{each.spec}")
        return Replacement(current, install, f"{each.project}{each.spec}", each.project, why, after)
    return None


def brought_torch(install: Install, question: Question) -> tuple[ProjectAsked, str, str] | None:
    """Which requirement brings an exact torch with it: vllm, ==2.8.0, 'vllm 0.11.0 requires torch==2.8.0'."""
    if "--no-deps" in install.options or install.tool == "conda":
        return None
    for each in install.requirements:
        row = release_left(each, install, question, present=())
        pin = None if row is None else row.pin("torch")
        if row is not None and pin is not None and pin.version:
            return each, pin.spec, f"{each.project} {row.version} requires torch{pin.spec}"
    return None


def _brought(target: Target, install: Install, question: Question) -> InImage | None:
    """The torch that comes with something else where nothing names one: 2.8.0 with vllm 0.11.0."""
    found = None if torch_asked(install) is not None else brought_torch(install, question)
    if found is None:
        return None
    asked, spec, why = found
    torch = _pinned(spec, install, question)
    place = asked.place or install.ran.place
    return None if torch is None else replace(torch, how=why, place=place, python=python_of(target, install))


def _pinned(spec: str, install: Install, question: Question) -> InImage | None:
    found = taken(install, ProjectAsked("torch", spec), question, python="")
    if found is None:
        return None
    built = built_for(found, install, question)
    return InImage(
        found.version,
        built.cuda,
        built.variant,
        install.ran.place,
        install.ran.shown,
        pinned=True,
        from_index=found.has_local,
        python=install.python,
        install=install,
        index=found.index,
    )


def codes_of(torch: InImage, question: Question) -> tuple[ComputeCapability, ...]:
    """The capabilities that a torch is compiled for; () where the tables do not know."""
    arch = question.facts.place.arch
    release = question.tables.torch_release(torch.version.public, arch)
    if release is not None and release.wheel_cuda == torch.cuda:
        return release.compiled_for
    if torch.cuda is None:
        return ()
    row = question.tables.variant_targets(torch.version, torch.cuda, machine=arch)
    return () if row is None else row.compiled_for


# Code for the GPUs in Jetson's chips is in no wheel of PyTorch's; they run others' from CUDA 13.2 on (code_rules).
_OF_JETSON = {ComputeCapability.parse(each) for each in ("5.3", "6.2", "7.2", "8.7", "8.8")}


def codes_in_reach(torch: InImage, question: Question) -> tuple[ComputeCapability, ...]:
    """All that the compiler of a wheel's CUDA makes code for, oldest first: sm_35 to sm_90 for 11.8; () not known.

    PyTorch's own builds have no PTX for later GPUs; where conda's had some, the libraries beside it had no code.
    """
    if torch.cuda is None:
        return ()
    row = question.tables.targets(torch.cuda)
    found = {ComputeCapability.parse(each) for each in row.targets} if row is not None else set()
    return tuple(sorted(found - _OF_JETSON))


def runs_on_gpu(torch: InImage, gpu: ComputeCapability, question: Question) -> Runs:
    """Whether a torch has code for a GPU; where its list is not known: NO where its compiler knows no such code."""
    assert torch.cuda is not None, torch
    if codes := codes_of(torch, question):
        return question.tables.any_runs_on(codes, gpu, torch_cuda=torch.cuda)
    possible = question.tables.any_runs_on(codes_in_reach(torch, question), gpu, torch_cuda=torch.cuda)
    if question.tables.targets(torch.cuda) is None and not _compiler_may_know(torch.cuda, gpu, question):
        return Runs.NO
    return Runs.NO if possible is Runs.NO else Runs.NOT_KNOWN


def _compiler_may_know(cuda: CudaVersion, gpu: ComputeCapability, question: Question) -> bool:
    """Whether a compiler without a row of its own may know a code that runs on a GPU: 11.3 knows none of 9.x."""
    named = {ComputeCapability.parse(each) for row in question.tables.toolkit_targets for each in row.targets}
    family = [each for each in named if each.major == gpu.major and each <= gpu]
    return not family or any(compiler_knows(question.tables, cuda, each) for each in family)


def works(torch: InImage, question: Question) -> bool:
    """Whether a torch runs with the driver and has code for the GPUs."""
    return runs_there(torch, question) and not without_code(torch, question)


def runs_there(torch: InImage, question: Question) -> bool:
    """Whether the driver runs the CUDA of a torch."""
    return torch.cuda is not None and runs_major(question, torch.cuda.major) is not False


def without_code(torch: InImage, question: Question) -> list[SeenGpu]:
    """The GPUs that a torch has no code for: no driver and no compat library makes it run there."""
    return [gpu for gpu in gpus_of(question) if runs_on_gpu(torch, gpu.capability, question) is Runs.NO]


def fails(torch: InImage, question: Question) -> bool:
    """Whether a torch is known not to work there; of conda's the CUDA may not be in the file."""
    return (torch.cuda is not None or bool(torch.variant)) and not works(torch, question)
