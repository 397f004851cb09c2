"""Which official torch wheels run here, by GPUs, driver, processor, Python and C library."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import driver_runs, offered_cuda
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import observed_cuda, platform
from firstlight.diagnosis.wheel_bounds import glibc_of_wheel, may_have_code
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.gpu_rows import Runs
from firstlight.tables.torch_index import index_of_build
from firstlight.tables.torch_rows import TorchRelease, VariantStatus
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU whose capability is known, e.g. NVIDIA H100 80GB HBM3, 9.0, told by NVML."""

    name: str
    capability: ComputeCapability
    seen_in: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """An official wheel, e.g. torch 2.9.0 with CUDA 12.8 on https://download.pytorch.org/whl/cu128; "" is PyPI."""

    torch: TorchVersion
    cuda: CudaVersion
    index: str


def gpus_of(question: Question) -> tuple[SeenGpu, ...]:
    """The GPUs with their capabilities; a Jetson's NVML tells none, so libcuda and the board's name are asked too."""
    facts, tables = question.facts, question.tables
    found = [
        SeenGpu(gpu.name.value if isinstance(gpu.name, Known) else gpu.id, gpu.capability.value, gpu.capability.seen_in)
        for gpu in facts.gpus.devices
        if isinstance(gpu.capability, Known)
    ]
    if not found:
        found = [SeenGpu(device.name, device.capability, "libcuda") for device in facts.libcuda.devices]
    if not found:
        names = [gpu.name for gpu in facts.gpus.devices] or [facts.place.board_model]
        for name in names:
            row = tables.gpu_named(name.value) if isinstance(name, Known) else None
            if isinstance(name, Known) and row is not None:
                found.append(SeenGpu(name.value, row.capability, name.seen_in))
    return tuple(found)


def cuda_major_in_reach(question: Question) -> int | None:
    """The newest CUDA major that runs as the machine is: that of a libcuda that starts, else by the driver's number."""
    observed, kernel = observed_cuda(question.facts), question.facts.driver.kernel_version
    if observed is not None:
        return observed.major
    if isinstance(kernel, Unknown):
        return None
    majors = [row.major for row in question.tables.cuda_majors]
    fitting = (major for major in majors if driver_runs(question, kernel.value, CudaVersion(major, 0)))
    return max(fitting, default=min(majors) - 1)


def wheels_that_run(question: Question) -> Iterator[Wheel]:
    """Official wheels known to run with this processor, Python and driver and on every GPU seen, newest first."""
    return _wheels(question, Runs.YES)


def unproved_wheels(question: Question) -> Iterator[Wheel]:
    """Wheels for this processor, Python and driver that the tables do not tell the code of, newest first."""
    return _wheels(question, Runs.NOT_KNOWN)


@dataclass(frozen=True, slots=True)
class _Place:
    """All of a machine that decides which wheels run on it."""

    arch: str
    python: str  # 3.12, "" where it is not known
    glibc: str
    capabilities: tuple[ComputeCapability, ...]
    major: int | None  # the newest CUDA major that the driver runs
    native: CudaVersion | None  # the CUDA of the driver itself
    minor_compat: bool  # whether the driver runs later releases of its own major too
    limit: CudaVersion | None  # of a Jetson, which runs none that is later


def _place(question: Question) -> _Place:
    facts = question.facts
    said, offered = facts.libcuda.driver_cuda, offered_cuda(question)
    own = said.value.release if isinstance(said, Known) else None
    native = own if offered is None else offered.release
    return _Place(
        arch=facts.place.arch,
        python=_python(facts),
        glibc=value_or(facts.runtime.glibc, ""),
        capabilities=tuple(dict.fromkeys(gpu.capability for gpu in gpus_of(question))),
        major=cuda_major_in_reach(question),
        native=native,
        minor_compat=native is None or question.tables.has_minor_compat(native),
        limit=(own or native) if platform(facts) is Platform.JETSON else None,
    )


def _wheels(question: Question, runs: Runs) -> Iterator[Wheel]:
    place = _place(question)
    for number in range(len(_installable(question.tables, place))):
        yield from (wheel for wheel, answer in _judged(question.tables, place, number) if answer is runs)


# A plan judges a machine a hundred times over, with few other places for wheels: what is known of each is kept.
@functools.lru_cache(maxsize=64)
def _installable(tables: Tables, place: _Place) -> tuple[TorchRelease, ...]:
    """The releases that have wheels here, newest first: of this processor and Python."""
    releases = (row for row in tables.torch_releases if row.machine == place.arch)
    fitting = (row for row in releases if _takes_python(place.python, row))
    return tuple(sorted(fitting, key=lambda row: row.torch, reverse=True))


@functools.lru_cache(maxsize=1024)
def _judged(tables: Tables, place: _Place, number: int) -> tuple[tuple[Wheel, Runs], ...]:
    """The wheels of one of these releases that the driver takes, each with whether it has code for every GPU."""
    release = _installable(tables, place)[number]
    found = []
    for wheel in _variants(tables, place, release):
        codes = _codes(tables, release, wheel.cuda)
        answers = {tables.any_runs_on(codes, each, torch_cuda=wheel.cuda) for each in place.capabilities}
        runs = Runs.YES if answers <= {Runs.YES} else Runs.NO
        if not codes and all(may_have_code(tables, wheel.cuda, each) for each in place.capabilities):
            runs = Runs.NOT_KNOWN if place.capabilities else Runs.YES
        if _driver_takes(place, wheel.cuda) and glibc_takes(place.glibc, release, wheel.cuda):
            found.append((wheel, runs))
    return tuple(found)


def fits_python(facts: Facts, release: TorchRelease) -> bool:
    """Whether a release has a wheel for the Python that is judged; True where that is not known."""
    return _takes_python(_python(facts), release)


def _takes_python(python: str, release: TorchRelease) -> bool:
    return not python or python in release.cpython


def glibc_takes(have: str, release: TorchRelease, cuda: CudaVersion | None) -> bool:
    """Whether a C library, "2.17", is new enough for a wheel of a release; True where that is not known."""
    needed = glibc_of_wheel(release, cuda)
    return not needed or not have or _numbers(have) >= _numbers(needed)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def runs_here(question: Question, torch: TorchVersion) -> Wheel | None:
    """The wheel of exactly this release that runs here, or None."""
    return next((wheel for wheel in wheels_that_run(question) if wheel.torch.release == torch.release), None)


def _python(facts: Facts) -> str:
    """3.12 of 3.12.3, or "" where it is not known."""
    environment = facts.environment
    version = environment.python_version if environment is not None else Unknown("no environment")
    return ".".join(version.value.split(".")[:2]) if isinstance(version, Known) else ""


def _driver_takes(place: _Place, cuda: CudaVersion) -> bool:
    """Whether the driver runs a CUDA release: one of its major; on a Jetson no later than its own."""
    if place.limit is not None:
        return cuda.release <= place.limit
    if place.native is not None and not place.minor_compat and cuda.major == place.native.major:
        return cuda.release <= place.native
    return place.major is None or cuda.major <= place.major


def _variants(tables: Tables, place: _Place, release: TorchRelease) -> list[Wheel]:
    """What a release can be had as: CUDA up to the driver's own first, newest first.

    A variant that only torch's own table lists may not be published.
    """
    rows = tables.torch_variants(release.torch)
    listed = [row.wheel_cuda for row in rows if row.status is not VariantStatus.IN_WHEEL_TABLE]
    found = {cuda: index_of_build(cuda.tag) for cuda in listed}
    if release.wheel_cuda is not None:
        found.setdefault(release.wheel_cuda, "")
    native = place.native or max(found, default=CudaVersion(0, 0))
    order = sorted(found, key=lambda cuda: (cuda <= native, cuda), reverse=True)
    return [Wheel(release.torch, cuda, found[cuda]) for cuda in order]


def _codes(tables: Tables, release: TorchRelease, cuda: CudaVersion) -> tuple[ComputeCapability, ...]:
    if release.wheel_cuda == cuda:
        return release.compiled_for
    row = tables.variant_targets(release.torch, cuda, machine=release.machine)
    return () if row is None else row.compiled_for
