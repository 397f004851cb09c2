"""A CUDA compiler of torch's major as answers: one that is here, wheels, the system's package, conda."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.library_providers import installed_wheel
from firstlight.diagnosis.observed import NO_ROOT, may_become_root, typed
from firstlight.diagnosis.toolkit_in_use import has_compiler, is_wrapped, toolkit_in_use
from firstlight.diagnosis.wheel_answers import Fits, cuda_of_torch, torch_chain, torch_wheels
from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.specifiers import satisfies
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion
from firstlight.ways import kinds
from firstlight.ways.building import environment_to_change
from firstlight.ways.nvidia_repository import repository_of
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, Way, cannot, chain

PARTS = ("nvcc", "cudart", "cccl", "crt", "nvvm")
_FIRST_IN_REPOSITORIES = CudaVersion(11, 0)  # of the oldest system that they still serve, Ubuntu 20.04
_LAST_UNDER_PROD = 10  # the folder of its runfiles; later ones lie under their version
_FIRST_IN_CONDA, _FIRST_IN_CONDA_FORGE = CudaVersion(11, 3), CudaVersion(12, 0)
TOOLKIT_WAYS = (
    kinds.SetVariables,
    kinds.LinkFile,
    kinds.InstallWheels,
    kinds.SetUpRepository,
    kinds.InstallPackages,
    kinds.InstallConda,
    kinds.AskPerson,
)


def toolkit_answers(question: Question) -> tuple[Chain, ...]:
    """Toolkits that build extensions for this torch; without a torch, one first."""
    cuda = cuda_of_torch(question)
    if cuda is not None:
        return (*toolkits_of(question, cuda), *_hybrid(question, cuda))
    here = tuple(_that_are_here(question))
    why_not = "the CUDA of torch is not known, and a toolkit has to have its major"
    torch = torch_and_toolkit(question) if isinstance(question.facts.torch, Unknown) else ()
    return (*here, *torch, cannot("a CUDA toolkit", why_not))


def torch_and_toolkit(question: Question, fits: Fits = lambda _: True) -> Iterator[Chain]:
    """Another torch, and a toolkit of its CUDA."""
    for wheel in torch_wheels(question, fits):
        torch = torch_chain(question, wheel)
        toolkit = next((each for each in toolkits_of(question, wheel.cuda, wheel) if each.ways), None)
        if toolkit is not None:
            yield chain(*torch.ways, *toolkit.ways, proof=torch.proof, by=torch.proof_by)


def toolkits_of(question: Question, cuda: CudaVersion, wheel: Wheel | None = None) -> tuple[Chain, ...]:
    """Toolkits of a CUDA release: those of its major that are here, wheels, the system's package, else conda's.

    `wheel` is a torch that comes with it: its pins count then in the place of those of the judged one.
    """
    here = _that_are_here(question, cuda.major)
    of_system = tuple(_from_the_system(question, cuda))
    other = _by_runfile(question, cuda) if cuda.release < _FIRST_IN_CONDA else _from_conda(cuda)
    return (*here, *_from_wheels(question, cuda, wheel), *else_conda(of_system, other))


def else_conda(of_system: tuple[Chain, ...], conda: Chain) -> tuple[Chain, ...]:
    """The system's packages; conda's where it has none, or where nobody here may install them."""
    return of_system if any(not each.why_not for each in of_system) else (*of_system, conda)


def cuda_home(path: str) -> kinds.SetVariables:
    """CUDA_HOME for the shell that builds: torch looks at it before anything else."""
    return kinds.SetVariables((kinds.Variable("CUDA_HOME", path),), kinds.Scope.BUILD)


def is_wheel(toolkit: Toolkit) -> bool:
    return "site-packages" in toolkit.found_by or posixpath.basename(posixpath.dirname(toolkit.path)) == "nvidia"


def missing_links(toolkit: Toolkit) -> tuple[kinds.LinkFile, ...]:
    """What the wheels of a toolkit leave out and a link replaces: nvcc names lib64, the linker libcudart.so."""
    major = toolkit.version.value.major if isinstance(toolkit.version, Known) else 13  # the first with nvcc as a wheel
    links = {
        Part.LIB64: kinds.LinkFile(f"{toolkit.path}/lib64", "lib"),
        Part.CUDART_LINK: kinds.LinkFile(f"{toolkit.path}/lib/libcudart.so", f"libcudart.so.{major}"),
    }
    return tuple(link for part, link in links.items() if is_wheel(toolkit) and part in toolkit.missing)


def wheels_of(question: Question, cuda: CudaVersion, wheel: Wheel | None = None) -> kinds.InstallWheels:
    """The toolkit's wheels in the release that torch pins or that leaves its CUDA runtime alone, else the newest."""
    release = _release(question, cuda) if wheel is None else _pinned(question, wheel)
    bounds = "" if release else f"=={cuda.release}.*"
    return kinds.InstallWheels((kinds.Package("cuda-toolkit", release, PARTS, bounds),))


def package_of(question: Question, cuda: CudaVersion) -> tuple[Way, ...]:
    """NVIDIA's package of a toolkit, which goes to /usr/local/cuda-12.8; () where it has none for this system."""
    platform, nvcc = platform_of(question.facts), f"/usr/local/cuda-{cuda.release}/bin/nvcc"
    names = (
        names_for(Role.TOOLKIT, platform, question.tables, major=str(cuda.major), minor=str(cuda.minor))
        if repository_of(platform) and cuda.release >= _FIRST_IN_REPOSITORIES
        else ()
    )
    return (kinds.SetUpRepository(), kinds.InstallPackages(names, (nvcc,))) if names else ()


def _hybrid(question: Question, cuda: CudaVersion) -> Iterator[Chain]:
    """nvcc of one major with a torch of another: what comes of it does not load, or is refused before."""
    toolkit, kernel = toolkit_in_use(question.facts), question.facts.driver.kernel_version
    if toolkit is None or isinstance(toolkit.nvcc_version, Unknown) or toolkit.nvcc_version.value.major == cuda.major:
        return
    nvcc = toolkit.nvcc_version.value
    floor = question.tables.oldest_driver(nvcc)
    why_not = f"unsound: torch's extension builder refuses nvcc {nvcc.release} for CUDA {cuda.release}"
    if floor is None or isinstance(kernel, Unknown) or kernel.value >= floor:
        why_not += f", and what it builds asks for libcudart.so.{nvcc.major}, which torch does not bring"
    else:
        why_not += (
            f"; nvcc alone links CUDA runtime {nvcc.major} into what it builds, which needs driver "
            f"{floor} or newer (here {kernel.value}: error 35), and LD_LIBRARY_PATH does not "
            "change what is linked in"
        )
    yield cannot(f"compile with nvcc {nvcc.release}, run with the CUDA {cuda.release} libraries of torch", why_not)


def _that_are_here(question: Question, major: int = 0) -> Iterator[Chain]:
    """Compilers on this machine, of a major or (0) of any; the one in use only where links make it whole."""
    # Behind a wrapper nvcc is the right one and CUDA_HOME is not: naming the toolkit is the cure.
    in_use = None if is_wrapped(question.facts) else toolkit_in_use(question.facts)
    for toolkit in question.facts.toolkits.toolkits:
        known = toolkit.nvcc_version
        if isinstance(known, Unknown) or major not in (0, known.value.major) or not has_compiler(toolkit):
            continue
        if in_use is not None and toolkit.path == in_use.path and not missing_links(toolkit):
            continue
        by = f"{known.seen_in}: nvcc {known.value}" + (", of the major that torch has" if major else "")
        yield chain(*missing_links(toolkit), cuda_home(toolkit.path), proof=Proof.DOCUMENTED, by=by)


def _from_wheels(question: Question, cuda: CudaVersion, wheel: Wheel | None) -> Iterator[Chain]:
    """The toolkit as wheels: no root, in the environment of torch; nvcc is in those of CUDA 13 and later alone."""
    rows = [row for row in question.tables.nvcc_wheels if row.cuda_major == cuda.major]
    if not any(row.has_nvcc for row in rows):
        what = f"{rows[0].project} has no nvcc: {rows[0].note}" if rows else f"no wheel of CUDA {cuda.major} is known"
        yield cannot(f"the CUDA {cuda.release} toolkit from wheels", what)
        return
    home = f"{_site_packages(question.facts)}/nvidia/cu{cuda.major}"
    links = (
        kinds.LinkFile(f"{home}/lib64", "lib"),
        kinds.LinkFile(f"{home}/lib/libcudart.so", f"libcudart.so.{cuda.major}"),
    )
    yield chain(wheels_of(question, cuda, wheel), *links, cuda_home(home), proof=Proof.DOCUMENTED, by=rows[0].source)


def _site_packages(facts: Facts) -> str:
    """Where wheels go: the judged environment, or one of our own where that is not to be changed."""
    environment = environment_to_change(facts)
    if environment is not None and environment.site_packages:
        return environment.site_packages[0]
    environment = facts.environment
    version = value_or(environment.python_version, "3") if environment is not None else "3"
    return f"~/firstlight-venv/lib/python{'.'.join(version.split('.')[:2])}/site-packages"


def _release(question: Question, cuda: CudaVersion) -> str:
    """13.0.2 of the wheel cuda-toolkit; "" where no release of that CUDA is on record."""
    facts = question.facts
    for pinned in _pins(question):
        if pinned.startswith(f"=={cuda.major}.{cuda.minor}."):
            return _as_it_is_called(question, pinned)
    runtime = installed_wheel(facts, "nvidia-cuda-runtime")
    rows = sorted(
        (row for row in question.tables.toolkit_wheels if row.toolkit.release == cuda.release),
        key=lambda row: row.toolkit,
        reverse=True,
    )
    for row in rows:
        specs = [part.spec for part in row.parts if part.project == "nvidia-cuda-runtime"]
        if runtime is None or any(satisfies(runtime.version, spec) for spec in specs):
            return row.release
    return rows[0].release if rows else ""


def _pins(question: Question) -> Iterator[str]:
    """What the judged torch asks of cuda-toolkit: by its own record; by the row of that wheel, where no runtime is."""
    torch = question.facts.torch
    if isinstance(torch, Unknown):
        return
    requires, version, cuda = torch.value.requires, torch.value.version, torch.value.wheel_cuda
    yield from (each.specifier for each in value_or(requires, ()) if each.name == "cuda-toolkit")
    runtime = installed_wheel(question.facts, "nvidia-cuda-runtime")
    if runtime is None and isinstance(version, Known) and isinstance(cuda, Known):
        row = question.tables.torch_release(version.value.public, question.facts.place.arch)
        pin = row.pin("cuda-toolkit") if row is not None and row.wheel_cuda == cuda.value.release else None
        yield from () if pin is None else (pin.spec,)


def _pinned(question: Question, wheel: Wheel) -> str:
    """The release that a torch pins, 13.0.2 of torch 2.11.0; "" where that is not on record: pip finds one then."""
    row = question.tables.torch_release(wheel.torch, question.facts.place.arch)
    pin = row.pin("cuda-toolkit") if row is not None and row.wheel_cuda == wheel.cuda else None
    return "" if pin is None else _as_it_is_called(question, pin.spec)


def _as_it_is_called(question: Question, pinned: str) -> str:
    """The release that a pin leads to under its own name: ==13.0.3 is 13.0.3.0."""
    rows = (row.release for row in question.tables.toolkit_wheels if satisfies(row.release, pinned))
    return next(rows, pinned.removeprefix("==").strip())


def _from_the_system(question: Question, cuda: CudaVersion) -> Iterator[Chain]:
    manager = platform_of(question.facts).manager
    packages = package_of(question, cuda)
    if manager is Manager.NONE or not packages:
        return
    if not may_become_root(question.facts):
        yield cannot(f"the CUDA {cuda.release} toolkit from NVIDIA's {manager.value} repository", NO_ROOT)
        return
    by = "docs.nvidia.com/cuda/cuda-installation-guide-linux"
    yield chain(*packages, cuda_home(f"/usr/local/cuda-{cuda.release}"), proof=Proof.DOCUMENTED, by=by)


def _by_runfile(question: Question, cuda: CudaVersion) -> Chain:
    """NVIDIA's installer, without the driver in it; a person reads its terms."""
    row, prefix = question.tables.cuda_runfile(cuda), f"/usr/local/cuda-{cuda.release}"
    commands: tuple[tuple[str, ...], ...] = ()
    if row is not None and row.driver_shipped_with is not None and question.facts.place.arch == "x86_64":
        folder = row.toolkit if cuda.major > _LAST_UNDER_PROD else f"{cuda.release}/Prod"
        file = f"cuda_{row.toolkit}_{row.driver_shipped_with}_linux.run"
        fetch = ("curl", "-fLO", f"https://developer.download.nvidia.com/compute/cuda/{folder}/local_installers/{file}")
        commands = (fetch, typed(question.facts, "sh", file, "--silent", "--toolkit", "--override"))
    of = ("CUDA toolkit", str(cuda.release))
    install = kinds.AskPerson("install-nvidias", kinds.Why.DECISION, commands, as_root=True, of=of)
    return chain(install, cuda_home(prefix), by="docs.nvidia.com/cuda/cuda-installation-guide-linux, runfile")


def _from_conda(cuda: CudaVersion) -> Chain:
    """In a folder of its own; that torch's extension builder takes conda's layout was not tried.

    conda-forge has compilers from CUDA 12 on; of older ones NVIDIA's channel has a label each.
    """
    by = "anaconda.org/conda-forge/cuda-toolkit: all toolkit packages for CUDA development"
    channel = "conda-forge"
    if cuda.release < _FIRST_IN_CONDA_FORGE:
        by, channel = "anaconda.org/nvidia/cuda-toolkit, by label", f"nvidia/label/cuda-{cuda.release}.0"
    prefix = f"~/cuda-{cuda.release}"
    conda = kinds.InstallConda(f"cuda-toolkit={cuda.release}", channel, prefix, "bin/nvcc")
    return chain(conda, cuda_home(prefix), proof=Proof.REPORTED, by=by)
