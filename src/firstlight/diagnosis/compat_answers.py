"""Forward compatibility as answers: a library that is here, the package, the archive, conda; and taking one out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import (
    InUse,
    all_eligible,
    branches_of,
    by_product_line,
    compat_in_use,
    cuda_of,
    driver_runs,
    ineligible_gpus,
    takes_branch,
)
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import NO_ROOT, init_code, listed, may_become_root, platform
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary, is_compat_path
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.libcuda import LibcudaCandidate
from firstlight.facts.place import Platform
from firstlight.frozen import dataclass
from firstlight.tables.compat_rows import CompatPackage
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why, WireCompat
from firstlight.ways.nvidia_repository import repository_of
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, Way, cannot, chain

COMPAT_WAYS: tuple[type[Way], ...] = (
    kinds.SetUpRepository,
    kinds.InstallPackages,
    kinds.FetchCompat,
    kinds.InstallConda,
    WireCompat,
)
UNWIRE_WAYS: tuple[type[Way], ...] = (
    kinds.Unwire,
    kinds.RefreshLoaderCache,
    kinds.RemoveFiles,
    kinds.RemovePackages,
    AskPerson,
)
LOADER = "ld.so(8): the order in which the loader looks"
_ANY = "a forward-compat library"
_REDIST = "NVIDIA redist"  # a channel of the table compat_downloads
_HOME = "~/.local/share/firstlight"
_STATE = "~/.local/state/firstlight"


@dataclass(frozen=True, slots=True)
class _Need:
    """What a compat library has to make up for: CUDA 13.0 on kernel driver 570.133.20."""

    cuda: CudaVersion
    kernel: DriverVersion


def compat_answers(question: Question, needed: CudaVersion) -> tuple[Chain, ...]:
    """Every compat library for a CUDA that this driver and these GPUs take; else one that says why not."""
    kernel = question.facts.driver.kernel_version
    if isinstance(kernel, Unknown):
        return (cannot(_ANY, "no kernel driver was seen; a compat library works on top of one"),)
    need = _Need(needed, kernel.value)
    if platform(question.facts) in (Platform.WSL1, Platform.WSL2):
        return (cannot(_ANY, "it works on top of a Linux kernel driver, and the driver here is that of Windows"),)
    if why_not := _why_not(question, need):
        return (cannot(_ANY, why_not),)
    if here := tuple(_from_the_disk(question, need)):
        return here
    if platform(question.facts) is Platform.JETSON:
        return (cannot(_ANY, f"no compat library for CUDA {needed.release} and this Jetson is on the disk"),)
    package = _package(question, need)
    if package is None:
        return (cannot(_ANY, _no_package(question, need)),)
    return (
        _from_the_package(question, need, package),
        *_from_the_archive(question, need),
        *_from_conda(question, need),
    )


def _why_not(question: Question, need: _Need) -> str:
    """Why no compat library helps here; '' where one might."""
    if driver_runs(question, need.kernel, need.cuda):
        return (
            f"driver {need.kernel} runs CUDA {need.cuda.major} by itself; a compat library adds nothing, and once it "
            "is older than the driver cuInit gives 803"
        )
    if refused := sorted(set(ineligible_gpus(question))):
        return f"{listed(refused)} may not use it: cuInit gives 804 (data-center GPUs, some RTX ones and Jetson may)"
    if platform(question.facts) in (Platform.WSL1, Platform.WSL2):
        return "in WSL libcuda belongs to the Windows driver"
    return ""


def _from_the_disk(question: Question, need: _Need) -> Iterator[Chain]:
    """Libraries that lie here already: nothing is fetched and no root is needed."""
    facts, in_use = question.facts, compat_in_use(question.facts)
    for library in facts.compat:
        cuda = cuda_of(question, library)
        newer = isinstance(library.version, Known) and library.version.value > need.kernel
        accepted = takes_branch(question, library, branch=need.kernel.branch)
        if cuda is None or not newer or cuda.major != need.cuda.major or not accepted:
            continue
        works = in_use is not None and isinstance(library.version, Known) and in_use.version == library.version.value
        proof, by = _proof_of(question, library, need.kernel.branch)
        if (works and init_code(facts) == 0) or value_or(library.init_code, -1) == 0:
            proof, by = Proof.PROVED_HERE, f"cuInit of {library.library} returned 0 on this machine"
        if said := value_or(library.init_code, 0):
            title = f"the compat library in {library.folder}"
            yield cannot(title, f"cuInit of {library.library} gives {said} on this machine")
        else:
            title = f"wire the compat library in {library.folder} at each start"
            yield chain(wired(question, library, cuda), proof=proof, by=by, title=title)


def wired(question: Question, library: CompatLibrary, cuda: CudaVersion) -> WireCompat:
    """A library that is here wired at each start, under the drivers that take it and do not run its CUDA alone."""
    branches, _ = branches_of(question, library)
    return WireCompat(library.folder, cuda.release, _in_need(question, cuda, branches))


def wired_release(question: Question, cuda: CudaVersion, folder: str) -> WireCompat:
    """The library of a release, which is or will be in a folder, wired at each start under those drivers."""
    rows = question.tables.accepts_kernel_branch(cuda, 0).rows
    accepted = tuple(branch for row in rows for branch in row.accepts)
    return WireCompat(folder, cuda.release, _in_need(question, cuda, accepted))


def _in_need(question: Question, cuda: CudaVersion, accepted: tuple[int, ...]) -> tuple[int, ...]:
    """Branches that a library takes, less those that run its CUDA major by themselves: there it is not needed."""
    alone = {each for each in accepted if driver_runs(question, DriverVersion((each, 999), f"{each}.999"), cuda)}
    return tuple(sorted(set(accepted) - alone))


def _proof_of(question: Question, library: CompatLibrary, branch: int) -> tuple[Proof, str]:
    branches, says = branches_of(question, library)
    takes = f"{says} lists branch {branch}" if branch in branches else "its CUDA release takes this driver"
    if not all_eligible(question, library) and not by_product_line(question):
        return Proof.GUESSED, f"{takes}; whether this GPU may use compat is not known"
    return Proof.DOCUMENTED, f"{takes}, and {_eligible(question)}; cuInit was not called with it"


def _eligible(question: Question) -> str:
    brands = sorted({gpu.brand.value for gpu in question.facts.gpus.devices if isinstance(gpu.brand, Known)})
    if brands:
        return f"NVML brand {', '.join(str(each) for each in brands)} is in the list of GPUs that may use it"
    return "it is a product line that may use it"


def _package(question: Question, need: _Need) -> CompatPackage | None:
    """The package of the very release where it takes this driver, else the next later one, else the newest."""
    rows = question.tables.compat_packages_for(need.kernel.branch)
    fitting = sorted((row for row in rows if row.cuda.major == need.cuda.major), key=lambda row: row.cuda)
    later = [row for row in fitting if row.cuda >= need.cuda.release]
    return later[0] if later else fitting[-1] if fitting else None


def _no_package(question: Question, need: _Need) -> str:
    of_major = [row for row in question.tables.compat_packages if row.cuda.major == need.cuda.major]
    if not of_major:
        return f"no package on record holds CUDA {need.cuda.major}'s, for driver branch {need.kernel.branch} or any"
    names = listed(row.package for row in sorted(of_major, key=lambda row: row.cuda))
    return f"no list of {names} has driver branch {need.kernel.branch}"


def _from_the_package(question: Question, need: _Need, package: CompatPackage) -> Chain:
    platform = platform_of(question.facts)
    names = (
        names_for(Role.COMPAT, platform, question.tables, major=str(package.cuda.major), minor=str(package.cuda.minor))
        if repository_of(platform)
        else ()
    )
    if not platform.distribution:
        names = (package.package,)  # which system it is was not said; NVIDIA calls it the same in every repository
    if not names:
        none = f"NVIDIA's repository for {platform.distribution or 'this system'} {platform.release}".rstrip()
        return cannot(f"{package.package} from NVIDIA's repository", f"{none} is not in the tables")
    if not may_become_root(question.facts):
        return cannot(f"{package.package} from NVIDIA's repository", NO_ROOT)
    proof, by = _proof_of_package(question, need, package.cuda)
    return chain(
        kinds.SetUpRepository(),
        kinds.InstallPackages(names, brings=(f"{package.folder}/libcuda.so.1",)),
        wired_release(question, package.cuda, package.folder),
        proof=proof,
        by=by,
        title=f"wire {package.package} from NVIDIA's repository at each start",
    )


def _proof_of_package(question: Question, need: _Need, cuda: CudaVersion) -> tuple[Proof, str]:
    rows = question.tables.accepts_kernel_branch(cuda, need.kernel.branch).rows
    takes = f"{rows[0].library} lists branch {need.kernel.branch} ({rows[0].source})" if rows else ""
    gpus = question.facts.gpus.devices
    brands = [gpu for gpu in gpus if isinstance(gpu.brand, Known) and gpu.brand.value != 0]
    if (len(brands) < len(gpus) or not gpus) and not by_product_line(question):
        return Proof.GUESSED, f"{takes}; whether this GPU may use compat is not known"
    return Proof.DOCUMENTED, f"{takes}, and {_eligible(question)}; cuInit decides once it is here"


def _from_the_archive(question: Question, need: _Need) -> Iterator[Chain]:
    """NVIDIA's redist archive, unpacked into a folder of the user's."""
    accepted = {package.cuda for package in question.tables.compat_packages_for(need.kernel.branch)}
    archives = question.tables.compat_downloads(_REDIST, question.facts.place.arch)
    fitting = [row for row in archives if row.cuda >= need.cuda.release and row.cuda in accepted]
    if fitting:
        row = fitting[0]
        folder = f"{_HOME}/cuda-compat-{row.cuda}"
        proof, by = _proof_of_package(question, need, row.cuda)
        fetched = kinds.FetchCompat(row.file, row.cuda, row.driver, folder)
        title = f"wire cuda-compat {row.cuda} from NVIDIA's archive at each start"
        yield chain(fetched, wired_release(question, row.cuda, folder), proof=proof, by=by, title=title)
    elif archives:
        listed_for = f"no archive on record is of CUDA {need.cuda.major}, {need.cuda.release} or later, and takes"
        yield cannot("a compat library from NVIDIA's archive", f"{listed_for} driver branch {need.kernel.branch}")


def _from_conda(question: Question, need: _Need) -> Iterator[Chain]:
    """conda-forge's cuda-compat, in the release that was seen there."""
    tables = question.tables
    of_major = [package.cuda for package in tables.compat_packages if package.cuda.major == need.cuda.major]
    seen = [
        row for cuda in of_major for row in tables.compat_builds(cuda) if row.seen_in.startswith("conda-forge")
    ]  # fmt: skip
    accepted = {package.cuda for package in tables.compat_packages_for(need.kernel.branch)}
    fitting = [row.cuda for row in seen if row.cuda in accepted and row.cuda >= need.cuda.release]
    if fitting:
        cuda, prefix = fitting[0], f"{_STATE}/conda-compat-{fitting[0]}"
        proof, by = _proof_of_package(question, need, cuda)
        package = kinds.InstallConda(f"cuda-compat={cuda}", "conda-forge", prefix, "cuda-compat/libcuda.so.1")
        title = f"wire cuda-compat {cuda} from conda-forge at each start"
        yield chain(package, wired_release(question, cuda, f"{prefix}/cuda-compat"), proof=proof, by=by, title=title)
    elif seen:
        lists = f"the release seen there, {seen[0].cuda}, does not list driver branch {need.kernel.branch}"
        yield cannot(f"cuda-compat {seen[0].cuda} from conda-forge", lists)


def unwire_compat(facts: Facts, found: InUse) -> tuple[Chain, ...]:
    """What stops the loader from taking the compat library in use; the package alone is a further answer."""
    if found.copied:
        mode = "nvidia-container-runtime.modes.legacy.cuda-compat-mode=disabled"
        config = ("sudo", "nvidia-ctk", "config", "--in-place", "--set", mode)
        return (
            chain(kinds.Unwire((found.copied,), kinds.WiredBy.CONTAINER_RUNTIME)),
            chain(AskPerson("keep-runtime-from-compat", Why.HOST, (config,), as_root=True)),
        )
    packages = _packages(facts)
    first = unwire(facts, found.library, folders=tuple(filter(is_compat_path, facts.libcuda.ld_library_path)))
    alone = chain(first, proof=Proof.DOCUMENTED, by=LOADER)
    return (alone, *((replace(alone, ways=(first, kinds.RemovePackages(packages))),) if packages else ()))


def unwire(facts: Facts, library: LibcudaCandidate, *, folders: tuple[str, ...]) -> Way:
    """The way that hides one libcuda from the loader; `folders`: all of its kind in LD_LIBRARY_PATH."""
    folder = library.path.rpartition("/")[0]
    if library.found_by is FoundBy.LIBRARY_PATH:
        entries = (library.entry,) if library.entry in facts.libcuda.ld_library_path else ()
        return kinds.Unwire(tuple(dict.fromkeys((*entries, *folders))) or (folder,), kinds.WiredBy.LIBRARY_PATH)
    if library.found_by is FoundBy.PRELOAD:
        return kinds.Unwire((library.entry,), kinds.WiredBy.PRELOAD)
    if library.found_by is FoundBy.CACHE and library.entry != "/etc/ld.so.cache":
        return kinds.Unwire((folder,), kinds.WiredBy.LOADER_CONF, library.entry)
    if library.found_by is FoundBy.CACHE and (library.is_compat or library.is_stub):
        # The cache holds it and no file of ldconfig's names the folder any more.
        return kinds.RefreshLoaderCache()
    return kinds.RemoveFiles((library.path,))


def _packages(facts: Facts) -> tuple[str, ...]:
    """Compat packages that dpkg knows, e.g. cuda-compat-13-0."""
    names = {each.package.value for each in facts.compat if isinstance(each.package, Known)}
    return tuple(sorted(each for each in names if each.startswith("cuda-compat-") and "-impl" not in each))
