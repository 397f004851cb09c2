"""Forward compatibility on one machine: which library is in use, whom it takes, whether the wheel needs one."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import observed_cuda, platform
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import LibcudaCandidate
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.tables import CompatVerdict
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import CudaVersion, DriverVersion

# NVML brands that no compat library lists, but NVIDIA_REQUIRE_CUDA of the CUDA images lets in: unknown and GRID.
_LET_IN_BY_IMAGES = (0, 4)


@dataclass(frozen=True, slots=True)
class InUse:
    """The compat library that a plain process loads, the kernel driver below it, and what cuInit said."""

    library: LibcudaCandidate
    version: DriverVersion
    kernel: DriverVersion
    seen_in: str  # where the kernel driver's version was seen
    copied: str  # the compat folder it is a copy of, when a container runtime put it among the system's libraries

    @property
    def place(self) -> str:
        """Where it comes from, e.g. /usr/local/cuda/compat (LD_LIBRARY_PATH)."""
        folder = self.library.path.rpartition("/")[0]
        if self.copied:
            return f"{folder} (put there by the container runtime from {self.copied})"
        return f"{folder} ({wired_by(self.library)})"


def compat_in_use(facts: Facts) -> InUse | None:
    """The compat library that wins the loader's search, where its version and the kernel driver's are known."""
    found, kernel = facts.libcuda.would_load, facts.driver.kernel_version
    if isinstance(found, Unknown) or isinstance(kernel, Unknown) or isinstance(found.value.version, Unknown):
        return None
    library, version = found.value, found.value.version.value
    copied = ""
    if not library.is_compat:
        # nvidia-container-cli mounts the image's compat libraries over the host's: the path no longer tells.
        known = {each.version.value: each.folder for each in facts.compat if isinstance(each.version, Known)}
        if version == kernel.value or version not in known:
            return None
        copied = known[version]
    return InUse(library, version, kernel.value, kernel.seen_in, copied)


def wired_by(library: LibcudaCandidate) -> str:
    """What makes the loader take it: LD_LIBRARY_PATH, LD_PRELOAD, or the ldconfig file that names its folder."""
    if library.found_by is FoundBy.CACHE:
        return library.entry
    return str(library.found_by.value)


def init_code(facts: Facts) -> int | None:
    """What cuInit returned, or None where it was not called."""
    code = facts.libcuda.init_code
    return code.value if isinstance(code, Known) else None


def init_said(facts: Facts, expected: int) -> str:
    """The end of a sentence: 'cuInit gives 803', or that it will, where it was not called."""
    code = init_code(facts)
    return f"cuInit will give {expected} (it was not called here)" if code is None else f"cuInit gives {code}"


def takes_branch(question: Question, library: CompatLibrary, *, branch: int) -> bool | None:
    """Whether a library works with a kernel-driver branch: by its own note, else by the table; None: neither tells."""
    if isinstance(library.note, Known):
        accepted = library.note.value.driver_branches
        return branch in accepted if accepted else None  # the Orin form of the note has no list
    cuda = cuda_of(question, library)
    if cuda is None:
        return None
    verdict = question.tables.accepts_kernel_branch(cuda, branch).verdict
    if verdict is CompatVerdict.NOT_LISTED:
        return None
    return verdict in (CompatVerdict.ACCEPTS, CompatVerdict.SAME_RELEASE)


def branches_of(question: Question, library: CompatLibrary) -> tuple[tuple[int, ...], str]:
    """The kernel-driver branches a library takes and who says so, e.g. ((535, 550), 'its own note')."""
    if isinstance(library.note, Known):
        return library.note.value.driver_branches, "its own note"
    cuda = cuda_of(question, library)
    rows = () if cuda is None else question.tables.accepts_kernel_branch(cuda, 0).rows
    return (rows[0].accepts, rows[0].source) if rows else ((), "")


def cuda_of(question: Question, library: CompatLibrary) -> CudaVersion | None:
    """The CUDA release a library belongs to: by its note, else by its driver branch."""
    if isinstance(library.note, Known):
        return library.note.value.cuda
    return question.tables.native_cuda(library.version.value) if isinstance(library.version, Known) else None


def ineligible_gpus(question: Question, listed: tuple[int, ...] = ()) -> Iterator[str]:
    """GPUs that may not use compat, e.g. 'NVIDIA GeForce RTX 4090 (NVML brand 5, GEFORCE)'; `listed`: a note's brands.

    A Jetson is always eligible.
    """
    if platform(question.facts) is Platform.JETSON:
        return
    for gpu in question.facts.gpus.devices:
        if isinstance(gpu.brand, Unknown) or gpu.brand.value in _LET_IN_BY_IMAGES:
            continue
        row = question.tables.compat_brand(gpu.brand.value)
        if (listed and gpu.brand.value not in listed) or (not listed and row is not None and not row.listed):
            name = gpu.name.value if isinstance(gpu.name, Known) else gpu.id
            yield f"{name} (NVML brand {gpu.brand.value}{', ' + row.name if row is not None else ''})"


def all_eligible(question: Question, library: CompatLibrary) -> bool:
    """Whether every GPU is known to be of a kind that may use compat."""
    if platform(question.facts) is Platform.JETSON:
        return True
    listed = library.note.value.device_brands if isinstance(library.note, Known) else ()
    gpus = question.facts.gpus.devices
    known = [gpu for gpu in gpus if isinstance(gpu.brand, Known) and gpu.brand.value not in _LET_IN_BY_IMAGES]
    return bool(gpus) and len(known) == len(gpus) and not tuple(ineligible_gpus(question, listed))


def by_product_line(question: Question) -> bool:
    """Whether every GPU is known as a data-center one by its name; NVML does not tell every brand."""
    gpus = question.facts.gpus.devices
    models = [question.tables.gpu_named(gpu.name.value) for gpu in gpus if isinstance(gpu.name, Known)]
    known = [model for model in models if model is not None and model.kind is GpuKind.DATA_CENTER]
    return bool(gpus) and len(known) == len(gpus)


def wheel_needs_compat(question: Question) -> CudaVersion | None:
    """The CUDA of a torch wheel that the kernel driver is too old for and no library makes up for; else None."""
    facts = question.facts
    kernel, observed = facts.driver.kernel_version, observed_cuda(facts)
    wheel = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else Unknown("no torch")
    if isinstance(kernel, Unknown) or isinstance(wheel, Unknown):
        return None
    if observed is not None:
        return wheel.value if is_beyond(question, wheel.value, observed) else None
    return None if driver_runs(question, kernel.value, wheel.value) else wheel.value


def offered_cuda(question: Question) -> CudaVersion | None:
    """The CUDA of the libcuda that starts, else what the kernel driver's branch came with."""
    observed, driver = observed_cuda(question.facts), question.facts.driver.kernel_version
    if observed is not None:
        return observed
    return question.tables.native_cuda(driver.value) if isinstance(driver, Known) else None


def is_beyond(question: Question, cuda: CudaVersion, offered: CudaVersion) -> bool:
    """Whether a CUDA is later than what a libcuda of `offered` runs: by its major; before CUDA 11 by its release."""
    by_release = cuda.major == offered.major and not question.tables.has_minor_compat(cuda)
    return cuda.major > offered.major or (by_release and cuda.release > offered.release)


def driver_runs(question: Question, driver: DriverVersion, cuda: CudaVersion) -> bool:
    """Whether a kernel driver runs a CUDA by itself; of one that the tables do not know it is supposed."""
    floor = question.tables.oldest_driver(cuda)
    if floor is None:
        return True
    # A Jetson's driver 580.00 has CUDA 13.0; NVIDIA's floor names the branch, its exact number is of other builds.
    return driver.branch >= floor.branch if platform(question.facts) is Platform.JETSON else driver >= floor
