"""Which official torch wheel runs here, by GPUs, driver, processor, Python and C library; and how to install it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import driver_runs, offered_cuda
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import observed_cuda, platform
from firstlight.diagnosis.specifiers import newest
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.frozen import dataclass
from firstlight.tables.gpu_rows import Runs
from firstlight.tables.torch_rows import TorchRelease, VariantStatus
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

INDEX = "https://download.pytorch.org/whl/"
# torch comes with these two in one release each; who changes torch changes them with it.
_COMPANIONS = ("torchvision", "torchaudio")


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
    majors = (row.major for row in question.tables.cuda_majors)
    return max((major for major in majors if driver_runs(question, kernel.value, major=major)), default=None)


def wheels_that_run(question: Question) -> Iterator[Wheel]:
    """Official wheels known to run with this processor, Python and driver and on every GPU seen, newest first."""
    tables, gpus = question.tables, gpus_of(question)
    for release in _installable(question):
        for wheel in _variants(question, release):
            codes = _codes(question, release, wheel.cuda)
            runs = [tables.any_runs_on(codes, gpu.capability, torch_cuda=wheel.cuda) for gpu in gpus]
            if _driver_takes(question, wheel.cuda) and all(answer is Runs.YES for answer in runs):
                yield wheel


def best_wheel(question: Question, like: TorchVersion | None = None) -> Wheel | None:
    """The wheel to install: the same torch release if one runs, else the same minor, else the newest."""
    found = tuple(wheels_that_run(question))
    if like is not None:
        for size in (3, 2):
            for wheel in found:
                if wheel.torch.release[:size] == like.release[:size]:
                    return wheel
    return found[0] if found else None


def unproved_wheel(question: Question) -> Wheel | None:
    """The newest wheel for this processor, Python and driver of which the tables do not know whose code it has."""
    for release in _installable(question):
        for wheel in _variants(question, release):
            known = bool(_codes(question, release, wheel.cuda)) or not _may_have_code(question, wheel.cuda)
            if _driver_takes(question, wheel.cuda) and not known:
                return wheel
    return None


def _installable(question: Question) -> Iterator[TorchRelease]:
    """The releases that pip takes here, newest first: of this processor, Python and C library."""
    facts = question.facts
    releases = (row for row in question.tables.torch_releases if row.machine == facts.place.arch)
    for release in sorted(releases, key=lambda row: row.torch, reverse=True):
        if fits_python(facts, release) and fits_glibc(facts, release):
            yield release


def fits_python(facts: Facts, release: TorchRelease) -> bool:
    """Whether a release has a wheel for the Python that is judged; True where that is not known."""
    python = _python(facts)
    return not python or python in release.cpython


def fits_glibc(facts: Facts, release: TorchRelease) -> bool:
    """Whether the C library here is new enough for the wheels of a release; True where that is not known."""
    have, needed = facts.runtime.glibc, glibc_of(release)
    if not needed or isinstance(have, Unknown):
        return True
    return _numbers(have.value) >= _numbers(needed)


def glibc_of(release: TorchRelease) -> str:
    """The C library that a tag asks for, 2.28 of manylinux_2_28; '' of the older names of tags."""
    match = re.match(r"manylinux_(\d+)_(\d+)", release.platform_tag)
    return "" if match is None else f"{match[1]}.{match[2]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _may_have_code(question: Question, cuda: CudaVersion) -> bool:
    """Whether the compiler of a CUDA release knows the GPUs: that of 12.9 knows no Kepler."""
    row = question.tables.targets(cuda)
    return row is None or all(gpu.capability.sm in row.targets for gpu in gpus_of(question))


def runs_here(question: Question, torch: TorchVersion) -> Wheel | None:
    """The wheel of exactly this release that runs here, or None."""
    return next((wheel for wheel in wheels_that_run(question) if wheel.torch.release == torch.release), None)


def install_wheel(question: Question, wheel: Wheel, *, remark: str = "") -> str:
    """The command, e.g. /opt/venv/bin/python3 -m pip install torch==2.9.0+cu128 --index-url .../cu128.

    The local part is needed: pip takes an installed 2.9.0+cu130 for a 2.9.0 and changes nothing. Where more is wanted
    than one torch, plan finds the one that goes with all of it; `remark` is of the wheel itself.
    """
    if question.leaves_torch_open:
        return plan_for_wants(question)
    return _install_wheel(question, wheel) + (f"  # {remark}" if remark else "")


def plan_for_wants(question: Question) -> str:
    """The command that finds packages which go together: firstlight plan --want "torch<2.6" --want vllm."""
    return " ".join(["firstlight plan", *(f"--want {_word(want)}" for want in question.wants)])


def _install_wheel(question: Question, wheel: Wheel) -> str:
    facts = question.facts
    names = {each.name for each in facts.companions}
    if not wheel.index:
        again = ("--force-reinstall",) if _is_installed(facts, wheel.torch) else ()
        return install(facts, *again, f"torch=={wheel.torch.public}") + f"  # PyPI's wheel, with CUDA {wheel.cuda}"
    packages = [f"torch=={wheel.torch.public}+{wheel.cuda.tag}"]
    local = f"+{wheel.cuda.tag}" if facts.place.arch == "x86_64" else ""
    for project in _COMPANIONS:
        rows = question.tables.companions_for(project, wheel.torch) if project in names else ()
        if fitting := newest(tuple(row.version for row in rows)):
            packages.append(f"{project}=={fitting}{local}")
    return install(facts, *packages, index=wheel.index)


def _is_installed(facts: Facts, torch: TorchVersion) -> bool:
    version = facts.torch.value.version if isinstance(facts.torch, Known) else Unknown("no torch")
    return isinstance(version, Known) and version.value.release == torch.release


def install(facts: Facts, *packages: str, index: str = "") -> str:
    """The command that installs into the environment that was judged; uv's environments have no pip."""
    rest = " ".join([*(_word(each) for each in packages), *(("--index-url", shlex.quote(index)) if index else ())])
    environment = facts.environment
    if environment is None:
        return f"uv venv ~/venv && uv pip install --python ~/venv {rest}"
    if environment.kind is EnvironmentKind.UV_VENV:
        return f"uv pip install --python {shlex.quote(environment.prefix)} {rest}"
    if environment.externally_managed:
        return f"{python_of(facts)} -m venv ~/venv && ~/venv/bin/python -m pip install {rest}"
    return f"{python_of(facts)} -m pip install {rest}"


def _word(package: str) -> str:
    """A package as a shell takes it: "nvidia-nccl-cu13>=2.29,<3", and in single quotes what is stranger than that."""
    plain = re.fullmatch(r"[\w.+<>=*,\[\]-]+", package) is not None
    return f'"{package}"' if plain and set(package) & set("<>*[") else shlex.quote(package)


def uninstall(facts: Facts, package: str) -> str:
    """The command that takes a package out of the environment that was judged."""
    environment = facts.environment
    if environment is not None and environment.kind is EnvironmentKind.UV_VENV:
        return f"uv pip uninstall --python {shlex.quote(environment.prefix)} {shlex.quote(package)}"
    return f"{python_of(facts)} -m pip uninstall --yes {shlex.quote(package)}"


def python_of(facts: Facts) -> str:
    """The interpreter that was judged, as a shell takes it, e.g. /opt/venv/bin/python3."""
    environment = facts.environment
    if environment is None:
        return "python3"
    found = environment.interpreter
    return shlex.quote(found.value if isinstance(found, Known) else f"{environment.prefix}/bin/python3")


def _python(facts: Facts) -> str:
    """3.12 of 3.12.3, or "" where it is not known."""
    environment = facts.environment
    version = environment.python_version if environment is not None else Unknown("no environment")
    return ".".join(version.value.split(".")[:2]) if isinstance(version, Known) else ""


def _driver_takes(question: Question, cuda: CudaVersion) -> bool:
    """Whether the driver runs a CUDA release: one of its major; on a Jetson no later than its own."""
    offered = question.facts.libcuda.driver_cuda
    if platform(question.facts) is Platform.JETSON and isinstance(offered, Known):
        return cuda.release <= offered.value.release
    major = cuda_major_in_reach(question)
    return major is None or cuda.major <= major


def _variants(question: Question, release: TorchRelease) -> list[Wheel]:
    """What a release can be had as: CUDA up to the driver's own first, newest first.

    A variant that only torch's own table lists may not be published.
    """
    rows = question.tables.torch_variants(release.torch)
    listed = [row.wheel_cuda for row in rows if row.status is not VariantStatus.IN_WHEEL_TABLE]
    found = {cuda: INDEX + cuda.tag for cuda in listed}
    if release.wheel_cuda is not None:
        found.setdefault(release.wheel_cuda, "")
    offered, said = offered_cuda(question), question.facts.libcuda.driver_cuda
    if offered is None and isinstance(said, Known):
        offered = said.value
    native = max(found, default=CudaVersion(0, 0)) if offered is None else offered.release
    order = sorted(found, key=lambda cuda: (cuda <= native, cuda), reverse=True)
    return [Wheel(release.torch, cuda, found[cuda]) for cuda in order]


def _codes(question: Question, release: TorchRelease, cuda: CudaVersion) -> tuple[ComputeCapability, ...]:
    if release.wheel_cuda == cuda:
        return release.compiled_for
    row = question.tables.variant_targets(release.torch, cuda, machine=release.machine)
    return () if row is None else row.compiled_for
