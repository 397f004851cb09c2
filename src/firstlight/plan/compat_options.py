"""Forward compatibility as options: a library that is here, the system package, or without root an archive or conda."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import (
    all_eligible,
    branches_of,
    compat_in_use,
    cuda_of,
    ineligible_gpus,
    init_code,
    takes_branch,
)
from firstlight.diagnosis.observed import listed, platform
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.plan.costs import NOTHING, cost, summed
from firstlight.plan.option import Cost, Kind, Option, Proof, Risk
from firstlight.plan.removals import after_removal
from firstlight.plan.rights import NO_ROOT, may_become_root
from firstlight.plan.situation import Situation
from firstlight.plan.with_set import set_bytes, with_set
from firstlight.tables.compat_rows import CompatPackage
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import CudaVersion, DriverVersion

_KIND = Kind.COMPAT
_WIRED = "wired at each start"
_APT, _REDIST = "NVIDIA apt", "NVIDIA redist"


@dataclass(frozen=True, slots=True)
class _Need:
    """What a compat library has to make up for: CUDA 13.0 on kernel driver 570.133.20."""

    cuda: CudaVersion
    kernel: DriverVersion


def compat_options(situation: Situation) -> Iterator[Option]:
    """Every way to a compat library that this driver and these GPUs take; else one rejection that says why not."""
    for option in _ways(situation):
        is_here = situation.is_primary("compat-baked-in")  # it is taken out of the path because it is wired at start
        yield option if is_here else replace(option, title=after_removal(situation, option.title))


def _ways(situation: Situation) -> Iterator[Option]:
    needed, kernel = situation.needs, situation.kernel
    why_not = _why_not(situation)
    if why_not or needed is None or kernel is None:
        yield _rejected(situation, why_not)
        return
    need = _Need(needed, kernel)
    here = tuple(_from_the_disk(situation, need))
    yield from here
    if here:
        return
    if platform(situation.facts) is Platform.JETSON:
        yield _rejected(situation, f"no compat library for CUDA {needed.release} and this Jetson is on the disk")
        return
    package = _package(situation, need)
    if package is None:
        yield _rejected(situation, _no_package(situation, need))
        return
    yield _from_the_package(situation, need, package)
    yield from _without_root(situation, need)


def _why_not(situation: Situation) -> str:
    """Why no compat library helps here; '' where one might."""
    facts, needed, kernel = situation.facts, situation.needs, situation.kernel
    if kernel is None:
        return "no kernel driver was seen; a compat library works on top of one"
    if needed is None:
        cuda = situation.torch_cuda
        if cuda is None:
            return "nothing here needs a newer CUDA than the driver's"
        return (
            f"driver {kernel} runs CUDA {cuda.major} by itself; a compat library adds nothing, and once it is older "
            "than the driver cuInit gives 803"
        )
    if situation.primary is not None and not situation.answered_by(_KIND):
        return f"it does not answer {situation.diagnosis.primary}"
    if refused := sorted(set(ineligible_gpus(situation.question))):
        return f"{listed(refused)} may not use it: cuInit gives 804 (data-center GPUs, some RTX ones and Jetson may)"
    if platform(facts) in (Platform.WSL1, Platform.WSL2):
        return "in WSL libcuda belongs to the Windows driver"
    return ""


def _from_the_disk(situation: Situation, need: _Need) -> Iterator[Option]:
    """Libraries that lie here already: nothing is fetched and no root is needed."""
    question, facts = situation.question, situation.facts
    in_use = compat_in_use(facts)
    for library in facts.compat:
        cuda = cuda_of(question, library)
        newer = isinstance(library.version, Known) and library.version.value > need.kernel
        accepted = takes_branch(question, library, branch=need.kernel.branch)
        if cuda is None or not newer or cuda.major != need.cuda.major or not accepted:
            continue
        works = in_use is not None and isinstance(library.version, Known) and in_use.version == library.version.value
        proof, proof_by = _proof_of(situation, library, need.kernel.branch)
        if (works and init_code(facts) == 0) or value_or(library.init_code, -1) == 0:
            proof, proof_by = Proof.PROVED_HERE, f"cuInit of {library.library} returned 0 on this machine"
        option = replace(
            situation.blank(_KIND, library.folder),
            title=f"the compat library in {library.folder}, {_WIRED}",
            proof=proof,
            proof_by=proof_by,
            folder=library.folder,
        )
        if value_or(library.init_code, 0) != 0:
            said = value_or(library.init_code, 0)
            yield replace(option, feasible=False, why_not=f"cuInit of {library.library} gives {said} on this machine")
            continue
        yield with_set(situation, option)


def _proof_of(situation: Situation, library: CompatLibrary, branch: int) -> tuple[Proof, str]:
    branches, says = branches_of(situation.question, library)
    eligible = all_eligible(situation.question, library)
    takes = f"{says} lists branch {branch}" if branch in branches else "its CUDA release takes this driver"
    if not eligible and not _by_product_line(situation):
        return Proof.GUESSED, f"{takes}; whether this GPU may use compat is not known"
    return Proof.DOCUMENTED, f"{takes}, and {_eligible(situation)}; cuInit was not called with it"


def _eligible(situation: Situation) -> str:
    brands = sorted({gpu.brand.value for gpu in situation.facts.gpus.devices if isinstance(gpu.brand, Known)})
    if brands:
        return f"NVML brand {', '.join(str(each) for each in brands)} is in the list of GPUs that may use it"
    return "it is a product line that may use it"


def _by_product_line(situation: Situation) -> bool:
    """Whether every GPU is known as a data-center one by its name; NVML does not tell every brand."""
    gpus = situation.facts.gpus.devices
    models = [situation.question.tables.gpu_named(gpu.name.value) for gpu in gpus if isinstance(gpu.name, Known)]
    kinds = [None if model is None else model.kind for model in models]
    return bool(gpus) and len(kinds) == len(gpus) and all(kind is GpuKind.DATA_CENTER for kind in kinds)


def _package(situation: Situation, need: _Need) -> CompatPackage | None:
    """The package of the very release where it takes this driver, else the next later one, else the newest."""
    rows = situation.question.tables.compat_packages_for(need.kernel.branch)
    fitting = sorted((row for row in rows if row.cuda.major == need.cuda.major), key=lambda row: row.cuda)
    later = [row for row in fitting if row.cuda >= need.cuda.release]
    return later[0] if later else fitting[-1] if fitting else None


def _no_package(situation: Situation, need: _Need) -> str:
    of_major = [row for row in situation.question.tables.compat_packages if row.cuda.major == need.cuda.major]
    names = listed(row.package for row in sorted(of_major, key=lambda row: row.cuda)) or "no package"
    return f"no list of {names} has driver branch {need.kernel.branch}"


def _from_the_package(situation: Situation, need: _Need, package: CompatPackage) -> Option:
    proof, proof_by = _proof_of_package(situation, need, package.cuda)
    option = replace(
        situation.blank(_KIND, package.package),
        title=f"{package.package} from NVIDIA's repository, {_WIRED}",
        proof=proof,
        proof_by=proof_by,
        cost=_paid(situation, _package_bytes(situation, package.cuda)),
        needs_root=True,
        risk=Risk.MEDIUM,
        brings=(package.package,),
        folder=package.folder,
    )
    if not may_become_root(situation.facts):
        return replace(option, feasible=False, why_not=NO_ROOT)
    return with_set(situation, option)


def _proof_of_package(situation: Situation, need: _Need, cuda: CudaVersion) -> tuple[Proof, str]:
    rows = situation.question.tables.accepts_kernel_branch(cuda, need.kernel.branch).rows
    takes = f"{rows[0].library} lists branch {need.kernel.branch} ({rows[0].source})" if rows else ""
    gpus = situation.facts.gpus.devices
    brands = [gpu for gpu in gpus if isinstance(gpu.brand, Known) and gpu.brand.value != 0]
    if (len(brands) < len(gpus) or not gpus) and not _by_product_line(situation):
        return Proof.GUESSED, f"{takes}; whether this GPU may use compat is not known"
    return Proof.DOCUMENTED, f"{takes}, and {_eligible(situation)}; cuInit decides once it is here"


def _package_bytes(situation: Situation, cuda: CudaVersion) -> Fact[int]:
    for row in situation.question.tables.compat_downloads(_APT, situation.facts.place.arch):
        if row.cuda == cuda:
            return Known(row.download_bytes, f"{row.source}, {row.date}")
    return Unknown(f"no size of the compat package of CUDA {cuda} is on record")


def _without_root(situation: Situation, need: _Need) -> Iterator[Option]:
    """The library in a folder of the user's: NVIDIA's redist archive, and conda-forge's package."""
    tables = situation.question.tables
    accepted = {package.cuda for package in tables.compat_packages_for(need.kernel.branch)}
    archives = tables.compat_downloads(_REDIST, situation.facts.place.arch)
    fitting = [row for row in archives if row.cuda >= need.cuda.release and row.cuda in accepted]
    if fitting:
        row = fitting[0]
        proof, proof_by = _proof_of_package(situation, need, row.cuda)
        size = Known(row.download_bytes, f"{row.source}, {row.date}")
        option = replace(
            situation.blank(_KIND, f"archive-{row.cuda}"),
            title=f"CUDA {row.cuda} compat library from NVIDIA's archive, {_WIRED}",
            proof=proof,
            proof_by=proof_by,
            cost=_paid(situation, size),
            brings=(row.file,),
            folder=f"~/.local/share/firstlight/cuda-compat-{row.cuda}",
        )
        yield with_set(situation, option)
    elif archives:
        listed_for = f"no archive on record is of CUDA {need.cuda.major}, {need.cuda.release} or later, and takes"
        yield replace(
            _rejected(situation, f"{listed_for} driver branch {need.kernel.branch}"),
            id=f"{_KIND.value}:archive",
            title="a compat library from NVIDIA's redist archive",
        )
    yield from _from_conda(situation, need)


def _paid(situation: Situation, size: Fact[int]) -> Cost:
    """What a compat library of some size costs, with the wanted packages; what it takes unpacked is not on record."""
    unpacked = Unknown("what the library takes once unpacked is not on record")
    return cost(situation.request, download=summed((size, set_bytes(situation))), disk=unpacked)


def _from_conda(situation: Situation, need: _Need) -> Iterator[Option]:
    """conda-forge's cuda-compat, in the release that was seen there."""
    tables = situation.question.tables
    seen = [
        row
        for package in tables.compat_packages
        for row in tables.compat_builds(package.cuda)
        if row.seen_in.startswith("conda-forge") and package.cuda.major == need.cuda.major
    ]
    accepted = {package.cuda for package in tables.compat_packages_for(need.kernel.branch)}
    fitting = [row for row in seen if row.cuda in accepted and row.cuda >= need.cuda.release]
    if not seen:
        return
    cuda = (fitting or seen)[0].cuda
    proof, proof_by = _proof_of_package(situation, need, cuda)
    option = replace(
        situation.blank(_KIND, f"conda-{cuda}"),
        title=f"cuda-compat {cuda} from conda-forge, {_WIRED}",
        proof=proof,
        proof_by=proof_by,
        cost=_paid(situation, Unknown("the size of conda-forge's package is not on record")),
        risk=Risk.LOW,
        brings=(f"conda-forge::cuda-compat={cuda}",),
        folder="$CONDA_PREFIX/cuda-compat",
    )
    if fitting:
        yield with_set(situation, option)
        return
    lists = f"the release seen there, {cuda}, does not list driver branch {need.kernel.branch}"
    yield replace(option, feasible=False, why_not=lists)


def _rejected(situation: Situation, why_not: str) -> Option:
    return replace(
        situation.blank(_KIND, "any"),
        title="a forward-compat library",
        cost=cost(situation.request, download=NOTHING, disk=NOTHING),
        feasible=False,
        why_not=why_not,
        proof=Proof.DOCUMENTED,
        proof_by="docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    )
