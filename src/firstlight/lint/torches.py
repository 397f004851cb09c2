"""Which torch an image ends up with: the base's, then what each install makes of it, by what the tables know."""

from __future__ import annotations

import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import platform
from firstlight.diagnosis.specifiers import satisfies
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.lint.companions import Present, kept, present_after, present_in_base, release_left
from firstlight.lint.installs import Install, Requirement, installs
from firstlight.lint.model import Place, Ran, Target
from firstlight.lint.wheels import built_for, taken, torch_asked
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
        ran_before = target.ran[: target.ran.index(ran) + 1]
        met = [torch for each, torch in self.after if each in ran_before]
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
        if after is not None and current is not None and _other(current, after):
            replaced.append(_replacement(current, install, after))
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
    if asked is None or platform(question.facts) is Platform.JETSON:
        return None
    if current is not None and _keeps(current, install, asked):
        return None
    python = python_of(target, install)
    found = taken(install, asked, question, python=python)
    if found is None:
        return None
    built = built_for(found, install, question)
    how = install.ran.shown
    if how.endswith("..."):
        how = f"{install.tool} install torch{asked.spec}" + (f" from {found.index}" if found.index else "")
    return InImage(
        found.version,
        built.cuda,
        built.variant,
        install.ran.place,
        how,
        pinned=bool(asked.exact or asked.address),
        from_index=found.has_local,
        python=python,
        install=install,
        index=found.index,
    )


def _keeps(current: InImage, install: Install, asked: Requirement) -> bool:
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
        return Replacement(current, install, f"{each.project}{each.spec}", each.project, why, after)
    return None


def _pinned(spec: str, install: Install, question: Question) -> InImage | None:
    found = taken(install, Requirement("torch", spec), question, python="")
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


def codes_in_reach(torch: InImage, question: Question) -> tuple[ComputeCapability, ...]:
    """All that the compiler of a wheel's CUDA makes code for, oldest first: sm_35 to sm_90 for 11.8; () not known.

    Only of wheels, which have no PTX in the variants that the tables do not list; conda's builds may have some.
    """
    if torch.cuda is None or torch.install is None or torch.install.tool == "conda":
        return ()
    row = question.tables.targets(torch.cuda)
    return () if row is None else tuple(sorted({ComputeCapability.parse(each) for each in row.targets}))


def runs_on_gpu(torch: InImage, gpu: ComputeCapability, question: Question) -> Runs:
    """Whether a torch has code for a GPU; where its list is not known: NO where its compiler knows no such code."""
    assert torch.cuda is not None, torch
    if codes := codes_of(torch, question):
        return question.tables.any_runs_on(codes, gpu, torch_cuda=torch.cuda)
    possible = question.tables.any_runs_on(codes_in_reach(torch, question), gpu, torch_cuda=torch.cuda)
    return Runs.NO if possible is Runs.NO else Runs.NOT_KNOWN
