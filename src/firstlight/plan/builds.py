"""The builds of torch that are known for this machine: which run on it, and why the others do not."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import listed, platform
from firstlight.diagnosis.wheel_bounds import glibc_of_wheel, may_have_code, variants_of, why_no_variant
from firstlight.diagnosis.wheel_choice import cuda_major_in_reach, glibc_takes, gpus_of, wheels_that_run
from firstlight.errors import BadVersion
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.plan.pins import Place, admits
from firstlight.plan.want import PYTHON, Want
from firstlight.tables.gpu_rows import Runs
from firstlight.tables.torch_index import index_of_build
from firstlight.tables.torch_rows import TorchRelease, VariantStatus
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

CPU = "cpu"


class Surety(enum.Enum):
    """How well it is known that a build exists and has code for the GPUs, best first."""

    DOCUMENTED = "documented"  # or measured: PyPI's own wheels
    LISTED = "listed"  # only torch's own list of builds names it
    REPORTED = "reported"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Build:
    """One build of torch, e.g. 2.9.0 with CUDA 13.0 from PyTorch's index; cuda 0.0 = without CUDA."""

    torch: TorchVersion
    cuda: CudaVersion
    index: str
    local: str  # "" on PyPI
    why_not: tuple[str, ...]  # sentences; () = it runs here
    surety: Surety
    doubt: str  # what is not known of it, as a sentence; a build in doubt is taken only where it was asked for by name
    source: str

    @property
    def has_cuda(self) -> bool:
        return self.cuda.major > 0

    @property
    def name(self) -> str:
        """torch 2.9.0+cu130, and torch 2.9.0 for PyPI's."""
        return f"torch {self.torch.public}" + (f"+{self.local}" if self.local else "")


def supposing(question: Question, wants: tuple[Want, ...], *, driver_cuda: CudaVersion | None) -> Question:
    """The question as it would be with the wanted Python and with a libcuda of that CUDA."""
    facts = question.facts
    if (python := _wanted_python(wants)) and facts.environment is not None:
        selected = replace(facts.environment, python_version=Known(python, "--want"))
        environments = tuple(selected if each is facts.environment else each for each in facts.python.environments)
        facts = replace(facts, python=replace(facts.python, environments=environments))
    if driver_cuda is not None:
        cuda = Known(driver_cuda, "supposed", Origin.PRETENDED)
        libcuda = replace(facts.libcuda, driver_cuda=cuda, init_code=Known(0, "supposed", Origin.PRETENDED))
        facts = replace(facts, libcuda=libcuda)
    return replace(question, facts=facts)


def place_of(question: Question, wants: tuple[Want, ...]) -> Place:
    """The machine and the Python that wheels are for: the wanted Python, else that of the environment judged."""
    facts = question.facts
    version = facts.environment.python_version if facts.environment is not None else Unknown("no environment")
    found = version.value if isinstance(version, Known) else ""
    return Place(facts.place.arch, _wanted_python(wants) or found)


def _wanted_python(wants: tuple[Want, ...]) -> str:
    return next((want.exact for want in wants if want.project == PYTHON), "")


def builds_for(question: Question, want: Want, *, place: Place) -> tuple[Build, ...]:
    """Every known build for this processor that fits the bounds of a want, its local part aside; best first.

    Those that run come first; then the newest release; of one release PyPI's own build, then the others in the order
    of wheels_that_run: CUDA up to the driver's own, the newest first.
    """
    runs = {(wheel.torch.public, wheel.cuda): number for number, wheel in enumerate(wheels_that_run(question))}
    found: list[Build] = []

    def order(build: Build) -> tuple[int, CudaVersion]:
        return runs.get((build.torch.public, build.cuda), len(runs)), build.cuda

    releases = (row for row in question.tables.torch_releases if row.machine == place.machine)
    for release in sorted(releases, key=lambda row: row.torch, reverse=True):
        if admits(want.specifier, release.torch.public):
            builds = _builds_of(question, release, place=place, runs=set(runs))
            builds += _unlisted(question, release, want, place=place)
            if want.local == CPU:
                builds.append(_cpu_build(question, release, place=place))
            found += sorted(builds, key=lambda each: (bool(each.index), order(each)))
    return tuple(sorted(found, key=lambda build: bool(build.why_not)))


def suits(build: Build, want: Want) -> bool:
    """Whether a build is the one wanted: its local part where one is asked for, else any that is beyond doubt."""
    if want.local:
        return want.local == (build.local or (build.cuda.tag if build.has_cuda else CPU))
    return build.has_cuda and build.surety is Surety.DOCUMENTED


def _builds_of(
    question: Question, release: TorchRelease, *, place: Place, runs: set[tuple[str, CudaVersion]]
) -> list[Build]:
    variants = {row.wheel_cuda: row for row in question.tables.torch_variants(release.torch)}
    pypi = f"{release.source}, {release.date}"
    builds = []
    for cuda in {*variants, *((release.wheel_cuda,) if release.wheel_cuda else ())}:
        known = (release.torch.public, cuda) in runs and _fits_python(release, place)
        why_not = () if known else _why_not(question, release, cuda=cuda, place=place)
        unproved = f"Whether torch {release.torch.public} with CUDA {cuda} has code for every GPU here is not known."
        if cuda == release.wheel_cuda:
            doubt = (Surety.DOCUMENTED, "") if known else (Surety.NOT_KNOWN, unproved)
            builds.append(Build(release.torch, cuda, "", "", why_not, *doubt, pypi))
        row = variants.get(cuda)
        if row is not None and (row.status is not VariantStatus.IN_WHEEL_TABLE or cuda != release.wheel_cuda):
            doubt = _doubt(question, release, cuda=cuda)
            if doubt[0] is Surety.DOCUMENTED and not known:
                doubt = (Surety.NOT_KNOWN, unproved)
            source = f"{row.source}, {row.date}"
            builds.append(Build(release.torch, cuda, index_of_build(cuda.tag), cuda.tag, why_not, *doubt, source))
    return builds


def _unlisted(question: Question, release: TorchRelease, want: Want, *, place: Place) -> Iterator[Build]:
    """A variant that was asked for by name and that no list has, where nothing speaks against it: 2.9.0+cu129."""
    cuda = _cuda_asked(want)
    tables, machine = question.tables, place.machine
    if cuda is None or cuda in variants_of(tables, release.torch, machine=machine):
        return
    if why_no_variant(tables, release.torch, cuda, machine=machine):
        return
    seen = tables.variant_sightings(release.torch, cuda)
    name = f"torch {release.torch.public}+{cuda.tag}"
    surety = Surety.REPORTED if seen else Surety.NOT_KNOWN
    where = "its address on PyTorch's index is quoted in public projects" if seen else "PyTorch's index may have it"
    doubt = f"PyTorch does not name {name} among its variants; {where}, and for which GPUs it is compiled is not known."
    source = f"{seen[0].source}, {seen[0].date}" if seen else doubt
    why_not = _why_not(question, release, cuda=cuda, place=place)
    yield Build(release.torch, cuda, index_of_build(cuda.tag), cuda.tag, why_not, surety, doubt, source)


def _cuda_asked(want: Want) -> CudaVersion | None:
    try:
        return CudaVersion.from_tag(want.local)
    except BadVersion:  # cpu, or none
        return None


def _cpu_build(question: Question, release: TorchRelease, *, place: Place) -> Build:
    why_not = tuple(_no_wheel_here(question, release, place, cuda=None))
    doubt = "PyTorch's index was not looked at."
    return Build(
        release.torch, CudaVersion(0, 0), index_of_build(CPU), CPU, why_not, Surety.LISTED, doubt, release.source
    )


def _fits_python(release: TorchRelease, place: Place) -> bool:
    return not place.python or place.minor in release.cpython


def _no_wheel_here(
    question: Question, release: TorchRelease, place: Place, *, cuda: CudaVersion | None
) -> Iterator[str]:
    """Why pip takes no wheel of a release here: its Python, its C library."""
    name = f"torch {release.torch.public}"
    if not _fits_python(release, place):
        yield f"{name} has wheels for Python {listed(release.cpython)}; this is Python {place.python}."
    have = question.facts.runtime.glibc
    if isinstance(have, Known) and not glibc_takes(have.value, release, cuda):
        needed = glibc_of_wheel(release, cuda)
        yield f"The wheels of {name} need glibc {needed} or newer; this machine has {have.value}."


def _why_not(question: Question, release: TorchRelease, *, cuda: CudaVersion, place: Place) -> tuple[str, ...]:
    """The sentences that keep a build from running here; () where nothing is known against it."""
    name = f"torch {release.torch.public}+{cuda.tag}"
    found = list(_no_wheel_here(question, release, place, cuda=cuda))
    reach = cuda_major_in_reach(question)
    offered = question.facts.libcuda.driver_cuda
    if reach is not None and cuda.major > reach:
        driver = question.facts.driver.kernel_version
        shown = f"driver {driver.value}" if isinstance(driver, Known) else "driver"
        found.append(f"{name} needs a driver that runs CUDA {cuda.major}; the {shown} here runs CUDA {reach}.")
    elif isinstance(offered, Known) and _is_jetson(question) and cuda.release > offered.value.release:
        found.append(f"{name} is later than CUDA {offered.value.release}, the one that this Jetson's driver has.")
    codes = _codes(question, release, cuda)
    for gpu in gpus_of(question):
        if not codes and not may_have_code(question.tables, cuda, gpu.capability):
            found.append(
                f"{name} has no code for {gpu.name} (capability {gpu.capability}): the compiler of CUDA {cuda.release} "
                "knows none that runs on it."
            )
        elif question.tables.any_runs_on(codes, gpu.capability, torch_cuda=cuda) is Runs.NO:
            compiled = " ".join(str(each) for each in codes)
            found.append(
                f"{name} is compiled for {compiled}, which {gpu.name} (capability {gpu.capability}) cannot run."
            )
    return tuple(dict.fromkeys(found))


def _is_jetson(question: Question) -> bool:
    return platform(question.facts) is Platform.JETSON


def _doubt(question: Question, release: TorchRelease, *, cuda: CudaVersion) -> tuple[Surety, str]:
    """How well a build on PyTorch's index is known, and what is not known of it, as a sentence."""
    variants = question.tables.torch_variants(release.torch)
    row = next((each for each in variants if each.wheel_cuda == cuda), None)
    name = f"torch {release.torch.public}+{cuda.tag}"
    targets = question.tables.variant_targets(release.torch, cuda, machine=release.machine)
    if row is not None and row.status is VariantStatus.IN_WHEEL_TABLE:
        return Surety.LISTED, f"Only torch's own list of builds names {name}; PyTorch's index was not looked at."
    if release.wheel_cuda == cuda:
        return Surety.DOCUMENTED, ""
    if release.machine == "aarch64" and (targets is None or targets.machine == "any"):
        return Surety.NOT_KNOWN, f"That {name} was built for aarch64 is not documented."
    if release.machine == "aarch64" and release.wheel_cuda is None:
        return Surety.REPORTED, f"That {name} was built for aarch64 is reported, not documented."
    if targets is None:
        return Surety.NOT_KNOWN, f"For which GPUs {name} is compiled is not known."
    return Surety.DOCUMENTED, ""


def _codes(question: Question, release: TorchRelease, cuda: CudaVersion) -> tuple[ComputeCapability, ...]:
    if release.wheel_cuda == cuda:
        return release.compiled_for
    row = question.tables.variant_targets(release.torch, cuda, machine=release.machine)
    return () if row is None else row.compiled_for
