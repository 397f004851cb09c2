"""The machine that an image will run on, as the rules ask for it: driver, its CUDA, GPUs, whether compat works."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.compat_choice import driver_runs, ineligible_gpus
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import platform
from firstlight.diagnosis.wheel_answers import nearest_wheels
from firstlight.diagnosis.wheel_choice import Wheel, gpus_of, wheels_that_run
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform
from firstlight.tables import CompatVerdict
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import CudaVersion, DriverVersion, TorchVersion
from firstlight.ways.kinds import InstallWheels, Package

# NVML's brands as NVIDIA_REQUIRE_CUDA spells them; libnvidia-container compares these words.
_BRAND_WORDS = {
    0: "unknown", 1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc",
    9: "vcs", 10: "vws", 11: "cloudgaming", 12: "quadrortx", 13: "nvidiartx", 14: "nvidia", 15: "geforcertx",
    16: "titanrtx",
}  # fmt: skip


def driver_of(question: Question) -> DriverVersion | None:
    """The kernel driver, e.g. 550.127.05; None where it is not known."""
    kernel = question.facts.driver.kernel_version
    return kernel.value if isinstance(kernel, Known) else None


def is_board(question: Question) -> bool:
    """Whether the machine is a Jetson; in words ("Orin, driver 540") the names of its GPUs alone tell it."""
    if platform(question.facts) is Platform.JETSON:
        return True
    rows = (question.tables.gpu_named(gpu.name) for gpu in gpus_of(question))
    return any(row is not None and row.kind is GpuKind.JETSON for row in rows)


def driver_cuda(question: Question) -> CudaVersion | None:
    """The CUDA that the driver reports by itself: 12.4 for 550; of an unknown branch that of the next older one."""
    driver = driver_of(question)
    if (jetson := _cuda_of_jetson(question)) is not None:
        return jetson
    if driver is None:
        said = question.facts.libcuda.driver_cuda
        return said.value.release if isinstance(said, Known) else None
    rows = [row for row in question.tables.driver_branches if row.branch <= driver.branch]
    return max(rows, key=lambda row: row.branch).native_cuda if rows else None


def _cuda_of_jetson(question: Question) -> CudaVersion | None:
    """The CUDA of a Jetson, which goes by its Jetson Linux and not by the number of its driver; None elsewhere."""
    l4t = question.facts.place.l4t
    row = question.tables.tegra_release(str(l4t.value)) if isinstance(l4t, Known) else None
    return None if row is None else row.cuda


def runs_major(question: Question, major: int) -> bool | None:
    """Whether the driver runs a CUDA major by itself; None where the driver is not known."""
    driver = driver_of(question)
    if driver is None:
        own = driver_cuda(question)
        return None if own is None else own.major >= major
    return driver_runs(question, driver, CudaVersion(major, 0))


def floor_of(question: Question, major: int) -> str:
    """The oldest driver of a CUDA major: '580.65.06'; 'a newer one' where the tables do not know."""
    floor = question.tables.oldest_driver(CudaVersion(major, 0))
    return "a newer one" if floor is None else str(floor)


def compat_eligible(question: Question) -> bool | None:
    """Whether every GPU may use forward compatibility; None where that is not known."""
    gpus = question.facts.gpus.devices
    if any(ineligible_gpus(question)):
        return False
    kinds: list[GpuKind | None] = []
    for gpu in gpus:
        if isinstance(gpu.brand, Known) and gpu.brand.value not in (0, 4):
            continue  # its brand is listed, else it were among the ineligible
        row = question.tables.gpu_named(gpu.name.value) if isinstance(gpu.name, Known) else None
        kinds.append(None if row is None else row.kind)
    if any(kind in (GpuKind.GEFORCE, GpuKind.TITAN) for kind in kinds):
        return False
    return True if gpus and all(kind is GpuKind.DATA_CENTER for kind in kinds) else None


def lets_in(question: Question, cuda: CudaVersion) -> bool | None:
    """Whether the gate of NVIDIA's image of a CUDA lets the driver in, by itself or by its list; None: not known."""
    own, driver, row = driver_cuda(question), driver_of(question), question.tables.image(cuda)
    if own is not None and own >= cuda.release:
        return True
    if row is None or driver is None:
        return None
    return driver.branch in row.branches and (compat_eligible(question) is not False or row.brands == "all")


def brand_word(question: Question) -> str:
    """The brand of the first GPU as NVIDIA_REQUIRE_CUDA spells it, e.g. 'nvidia', 'geforce'; '' where not known."""
    for gpu in question.facts.gpus.devices:
        if isinstance(gpu.brand, Known):
            return _BRAND_WORDS.get(gpu.brand.value, "")
        row = question.tables.gpu_named(gpu.name.value) if isinstance(gpu.name, Known) else None
        if row is not None:
            return {GpuKind.GEFORCE: "geforce", GpuKind.TITAN: "titan", GpuKind.DATA_CENTER: "tesla"}.get(row.kind, "")
    return ""


def compat_serves(question: Question, cuda: CudaVersion) -> bool | None:
    """Whether the compat library of a CUDA release works with this driver and these GPUs; None: not listed."""
    driver, eligible = driver_of(question), compat_eligible(question)
    if driver is None or eligible is False:
        return False if eligible is False else None
    verdict = question.tables.accepts_kernel_branch(cuda, driver.branch).verdict
    if verdict is CompatVerdict.ACCEPTS:
        return eligible
    return False if verdict is CompatVerdict.REFUSES else None


def machine_words(question: Question) -> str:
    """'driver 550.127.05 (CUDA 12.4)', for sentences."""
    driver, cuda = driver_of(question), driver_cuda(question)
    shown = "this driver" if driver is None else f"driver {driver}"
    return shown if cuda is None else f"{shown} (CUDA {cuda})"


def gpu_words(question: Question) -> str:
    """'H100 (9.0)'; the GPUs named once each."""
    return ", ".join(dict.fromkeys(f"{gpu.name} ({gpu.capability})" for gpu in gpus_of(question))) or "this GPU"


def wheel_for(
    question: Question,
    like: TorchVersion | None,
    python: str = "",
    *,
    cuda_major: int | None = None,
) -> Wheel | None:
    """The official wheel that runs there: the same torch where there is one, else of its minor, else the newest."""
    return next(iter(wheels_for(question, like, python, cuda_major=cuda_major)), None)


def wheels_for(
    question: Question,
    like: TorchVersion | None,
    python: str = "",
    *,
    cuda_major: int | None = None,
) -> tuple[Wheel, ...]:
    """All official wheels that run on the machine, the nearest to a torch first.

    The Python of the machine is not that of the image, so the image's decides.
    """
    found = []
    for wheel in _wheels(question):
        release = question.tables.torch_release(wheel.torch.public, question.facts.place.arch)
        if cuda_major in (None, wheel.cuda.major) and (not python or release is None or python in release.cpython):
            found.append(wheel)
    return (*nearest_wheels(question, like, tuple(found)), *found)


def _wheels(question: Question) -> list[Wheel]:
    facts = question.facts
    bare = replace(facts, python=replace(facts.python, selected=Unknown("the image has a Python of its own")))
    return list(wheels_that_run(Question(bare, question.tables, question.goal)))


def install_of(wheel: Wheel, pypi: str = "") -> InstallWheels:
    """torch 2.5.1+cu124 from https://download.pytorch.org/whl/cu124; PyPI's wheels have no local part."""
    local = f"+{wheel.cuda.tag}" if wheel.index else ""
    return InstallWheels((Package("torch", f"{wheel.torch.public}{local}"),), wheel.index or pypi)
