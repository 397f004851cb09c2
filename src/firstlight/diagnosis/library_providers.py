"""Who provides a missing library here: a wheel with bounds, for this CUDA major and processor, or a Debian package."""

from __future__ import annotations

import posixpath
import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.specifiers import newest, satisfies
from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.known import Known, Unknown
from firstlight.facts.torch_install import TorchInstall
from firstlight.frozen import dataclass
from firstlight.tables.soname_rows import SonameWheel
from firstlight.versions import CudaVersion

DRIVERS_OWN = ("libcuda.so", "libnvidia-ml.so")  # never in a package for torch: libcuda-missing speaks for them
# What torch opens by path before its own libraries, from whichever site-packages has it (torch/__init__.py, 2.1 on).
PRELOADED = (
    "libcublasLt", "libcublas", "libcudnn", "libnvrtc", "libcudart", "libcupti", "libcufft", "libcurand",
    "libnvJitLink", "libcusparse", "libcusparseLt", "libcusolver", "libnccl", "libnvshmem_host", "libcufile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Provider:
    """A wheel that ships a library, e.g. libcudss.so.0: nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10 in nvidia/cu13/lib."""

    soname: str
    project: str
    requirement: str
    folder: str  # under site-packages
    installed: str  # the version that is installed, "" when none is
    installed_fits: bool  # and has the library


def provider(question: Question, soname: str) -> Provider | None:
    """The wheel to take for a library on this machine; the version that torch pins where it pins one."""
    facts = question.facts
    rows = question.tables.wheels_with(soname, machine=facts.place.arch)
    fitting = [row for row in rows if _is_for(row.project, cuda_major(facts))]
    if not fitting:
        return None
    # nvidia-cudnn-jit-cu13 has libcudnn.so.9 as well, and next to nothing beside it.
    project = min((row.project for row in fitting), key=lambda name: ("-jit-" in name, len(name), name))
    runs = [row for row in fitting if row.project == project]
    pin = _pin(question, project)
    pinned = [row for row in runs if pin and _in_run(_first_version(pin), row)]
    last = newest(tuple(row.last for row in runs))
    row = pinned[0] if pinned else next(each for each in runs if each.last == last)
    have = installed_wheel(facts, project)
    return Provider(
        soname=soname,
        project=project,
        requirement=f"{project}{pin}" if pinned else row.requirement,
        folder=row.folder,
        installed="" if have is None else have.version,
        installed_fits=have is not None and any(_in_run(have.version, run) for run in runs),
    )


def installed_wheel(facts: Facts, project: str) -> NvidiaWheel | None:
    return next((wheel for wheel in facts.nvidia_wheels if wheel.name == project), None)


def wheel_with(question: Question, soname: str) -> NvidiaWheel | None:
    """The installed wheel that ships a library, e.g. nvidia-nvjitlink-cu12 12.4.127 for libnvJitLink.so.12."""
    for row in question.tables.wheels_with(soname, machine=question.facts.place.arch):
        wheel = installed_wheel(question.facts, row.project)
        if wheel is not None and _in_run(wheel.version, row):
            return wheel
    return None


def cuda_major(facts: Facts) -> int | None:
    """The CUDA major torch is built for, as its version file has it, else by the libcudart it asks for."""
    if isinstance(facts.torch, Known) and isinstance(facts.torch.value.wheel_cuda, Known):
        return facts.torch.value.wheel_cuda.value.major
    links = facts.torch.value.libraries if isinstance(facts.torch, Known) else ()
    for name in (name for link in links for name in link.needed):
        if match := re.fullmatch(r"libcudart\.so\.(\d+)(?:\.\d+)*", name):
            return int(match.group(1))
    return None


def search_path_of_torch(torch: TorchInstall) -> set[str]:
    """The folders that the RPATH or RUNPATH of torch's own libraries lead to."""
    found = set()
    for link in torch.libraries:
        here = posixpath.dirname(link.file)
        for entry in (*link.rpath, *link.runpath):
            folder = entry.replace("${ORIGIN}", here).replace("$ORIGIN", here)
            found.add(posixpath.normpath(folder) if folder else "")
    return found


def site_packages(torch: TorchInstall) -> str:
    return posixpath.dirname(torch.folder)


def stem(soname: str) -> str:
    """libcublasLt of libcublasLt.so.13."""
    return soname.partition(".so")[0]


def _is_for(project: str, major: int | None) -> bool:
    """Whether a project is of a CUDA major: -cu12 is of 12; a toolkit's part without a suffix is of 13 or later."""
    if major is None:
        return True
    if match := re.search(r"-cu(\d\d)$", project):
        return int(match.group(1)) == major
    return major >= 13 or not project.startswith("nvidia-")


def _in_run(version: str, row: SonameWheel) -> bool:
    return satisfies(version, f">={row.first},<={row.last}") is True


def _pin(question: Question, project: str) -> str:
    """What torch asks of a project, itself or through cuda-toolkit: ==9.19.0.56, ==13.0.96.*; "" when nothing."""
    torch = question.facts.torch
    if isinstance(torch, Unknown) or isinstance(torch.value.requires, Unknown):
        return ""
    asked = {each.name: each.specifier.replace(" ", "") for each in torch.value.requires.value}
    if project in asked:
        return asked[project] if asked[project].startswith("==") else ""
    try:
        toolkit = CudaVersion.parse(asked.get("cuda-toolkit", "").removeprefix("=="))
    except BadVersion:
        return ""
    row = question.tables.toolkit_wheel(toolkit)
    specs = () if row is None else tuple(part.spec for part in row.parts if part.project == project)
    return specs[0] if specs and specs[0].startswith("==") else ""


def _first_version(pin: str) -> str:
    return pin.removeprefix("==").removesuffix(".*")
