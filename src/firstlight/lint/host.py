"""The machine that an image will run on, as the rules ask for it: driver, its CUDA, GPUs, whether compat works."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.compat_choice import driver_runs, ineligible_gpus
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_choice import Wheel, gpus_of, wheels_that_run
from firstlight.facts.known import Known, Unknown
from firstlight.tables import CompatVerdict
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import CudaVersion, DriverVersion, TorchVersion

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


def driver_cuda(question: Question) -> CudaVersion | None:
    """The CUDA that the driver reports by itself: 12.4 for 550; of an unknown branch that of the next older one."""
    driver = driver_of(question)
    if driver is None:
        said = question.facts.libcuda.driver_cuda
        return said.value.release if isinstance(said, Known) else None
    rows = [row for row in question.tables.driver_branches if row.branch <= driver.branch]
    return max(rows, key=lambda row: row.branch).native_cuda if rows else None


def runs_major(question: Question, major: int) -> bool | None:
    """Whether the driver runs a CUDA major by itself; None where the driver is not known."""
    driver = driver_of(question)
    if driver is None:
        own = driver_cuda(question)
        return None if own is None else own.major >= major
    return driver_runs(question, driver, major=major)


def floor_of(question: Question, major: int) -> str:
    """The oldest driver of a CUDA major: '580.65.06'; 'a newer one' where the tables do not know."""
    row = question.tables.cuda_major(major)
    return "a newer one" if row is None else str(row.min_driver_same_major)


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


def wheel_for(question: Question, like: TorchVersion | None, python: str = "") -> Wheel | None:
    """The official wheel that runs on the machine: the same torch where there is one, else of its minor, else newest.

    The Python of the machine is not that of the image, so the image's decides.
    """
    found = []
    for wheel in _wheels(question):
        release = question.tables.torch_release(wheel.torch.public, question.facts.place.arch)
        if not python or release is None or python in release.cpython:
            found.append(wheel)
    if like is not None:
        for size in (3, 2):
            for wheel in found:
                if wheel.torch.release[:size] == like.release[:size]:
                    return wheel
    return found[0] if found else None


def _wheels(question: Question) -> list[Wheel]:
    facts = question.facts
    bare = replace(facts, python=replace(facts.python, selected=Unknown("the image has a Python of its own")))
    return list(wheels_that_run(Question(bare, question.tables, question.goal)))


def install_words(wheel: Wheel, *also: str) -> str:
    """pip install torch==2.5.1+cu124 --index-url https://download.pytorch.org/whl/cu124."""
    names = " ".join(also)
    rest = f" {names}" if names else ""
    if not wheel.index:
        return f"pip install torch=={wheel.torch.public}{rest}"
    return f"pip install torch=={wheel.torch.public}+{wheel.cuda.tag}{rest} --index-url {wheel.index}"
