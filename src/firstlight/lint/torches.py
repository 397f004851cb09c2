"""Which torch an image ends up with: the base's, then what each install makes of it, by what the tables know."""

from __future__ import annotations

import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import platform
from firstlight.diagnosis.specifiers import newest, satisfies
from firstlight.errors import BadVersion
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.lint.installs import Install, installs
from firstlight.lint.model import Place, Ran, Target
from firstlight.tables.torch_rows import TorchRelease, VariantStatus
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

_INDEX_TAG = re.compile(r"/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]*|xpu)/?$")


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
    from_index: bool  # PyTorch's own index, or the local part in the version
    python: str
    install: Install | None = None

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
    replaced: list[Replacement] = []
    history: list[tuple[Ran, InImage | None]] = [(target.ran[0], current)] if target.ran else []
    for install in installs(target):
        after = _after(target, install, question, current)
        if after is not None and current is not None and _other(current, after):
            replaced.append(_replacement(current, install, after))
        elif after is None and current is not None and (found := _dragged(install, question, current)) is not None:
            replaced.append(found)
            after = found.after
        current = after or current
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
    where = f" from {install.index}" if install.index else ""
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
    asked = install.of("torch") or (install.of("pytorch") if install.tool == "conda" else None)
    if asked is None or platform(question.facts) is Platform.JETSON:
        return None
    if current is not None and not install.upgrades and not asked.address:
        meets = True if not asked.spec else satisfies(str(current.version), asked.spec)
        if meets and (not asked.exact or "+" not in asked.exact):
            return None  # pip keeps what fits, whatever the index
    python = python_of(target, install)
    variant, from_index = _variant_asked(install, asked.exact, asked.address)
    version = _version_asked(install, question, variant, python=python)
    if version is None:
        return None
    cuda, variant = _cuda_of(version, variant, question)
    how = install.ran.shown
    if how.endswith("..."):
        how = f"{install.tool} install torch{asked.spec}" + (f" from {install.index}" if install.index else "")
    return InImage(
        version, cuda, variant, install.ran.place, how, bool(asked.exact or asked.address), from_index, python, install
    )


def _variant_asked(install: Install, exact: str, address: str) -> tuple[str, bool]:
    """('cu124', True) of a local part, an address or PyTorch's index; ('', False) of PyPI."""
    if "+" in exact:
        return exact.partition("+")[2], True
    if address:
        match = re.search(r"(?:%2B|\+)(cu\d+|cpu)", address)
        return (match.group(1), True) if match is not None else ("", False)
    match = _INDEX_TAG.search(install.index)
    return (match.group(1), True) if match is not None else ("", False)


def _version_asked(install: Install, question: Question, variant: str, *, python: str) -> TorchVersion | None:
    asked = install.of("torch") or install.of("pytorch")
    assert asked is not None
    text = asked.exact
    if asked.address:
        match = re.search(r"torch-(\d+\.\d+\.\d+(?:(?:%2B|\+)\w+)?)", asked.address)
        text = match.group(1).replace("%2B", "+") if match is not None else ""
        if not text:
            return None
    if text:
        try:
            return TorchVersion.parse(text)
        except BadVersion:
            return None
    if install.tool == "conda" or "nightly" in install.index or "--pre" in install.options:
        return None  # what these give is in no table
    return _newest(question, asked.spec, variant, python=python)


def _newest(question: Question, spec: str, variant: str, *, python: str) -> TorchVersion | None:
    """The newest release that the tables know for this machine, Python, specifier and variant."""
    tables = question.tables
    fitting: dict[str, TorchRelease] = {}
    for row in tables.torch_releases:
        if row.machine != question.facts.place.arch or (python and python not in row.cpython):
            continue
        if spec and not satisfies(row.torch.public, spec):
            continue
        if variant.startswith("cu") and CudaVersion.from_tag(variant) not in _variants(question, row.torch):
            continue
        fitting[row.torch.public] = row
    best = newest(tuple(fitting))
    return fitting[best].torch if best else None


def _variants(question: Question, torch: TorchVersion) -> set[CudaVersion]:
    """The CUDA variants of a torch that PyTorch's index is said to have."""
    rows = question.tables.torch_variants(torch)
    known = {row.wheel_cuda for row in rows}
    release = question.tables.torch_release(torch.public, question.facts.place.arch)
    if release is not None and release.wheel_cuda is not None:
        known.add(release.wheel_cuda)
    return known


def certain_variants(question: Question, torch: TorchVersion) -> set[CudaVersion]:
    """The same, () where one of them is only in torch's own list, so that the index may have more or fewer."""
    rows = question.tables.torch_variants(torch)
    if any(row.status is VariantStatus.IN_WHEEL_TABLE for row in rows):
        return set()
    return _variants(question, torch)


def _cuda_of(version: TorchVersion, variant: str, question: Question) -> tuple[CudaVersion | None, str]:
    if variant.startswith("cu"):
        return CudaVersion.from_tag(variant), variant
    if variant:
        return None, "cpu" if variant == "cpu" else variant
    release = question.tables.torch_release(version.public, question.facts.place.arch)
    if release is None:
        return None, ""
    return release.wheel_cuda, "cpu" if release.wheel_cuda is None else release.wheel_cuda.tag


def _dragged(install: Install, question: Question, current: InImage) -> Replacement | None:
    """An install that does not name torch and yet replaces it, since what it names pins another one."""
    if "--no-deps" in install.options or install.tool == "conda":
        return None
    for each in install.requirements:
        rows = [row for row in question.tables.companions if row.project == each.project]
        if each.spec:
            rows = [row for row in rows if satisfies(row.version, each.spec)]
        best = newest(tuple(row.version for row in rows))
        row = next((row for row in rows if row.version == best), None)
        pin = None if row is None else row.pin("torch")
        if row is None or pin is None or pin.admits(current.version):
            continue
        supposed = "" if each.exact else f" ({row.version} is the newest that the tables know)"
        why = f"{each.project} {row.version} requires torch{pin.spec}{supposed}"
        after = _pinned(pin.spec, install, question)
        return Replacement(current, install, f"{each.project}{each.spec}", each.project, why, after)
    return None


def _pinned(spec: str, install: Install, question: Question) -> InImage | None:
    match = re.fullmatch(r"==\s*([\d.]+)", spec)
    version = TorchVersion.parse(match.group(1)) if match is not None else _newest(question, spec, "", python="")
    if version is None:
        return None
    found = _INDEX_TAG.search(install.index)
    cuda, variant = _cuda_of(version, found.group(1) if found is not None else "", question)
    return InImage(
        version,
        cuda,
        variant,
        install.ran.place,
        install.ran.shown,
        pinned=True,
        from_index=found is not None,
        python=install.python,
        install=install,
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
