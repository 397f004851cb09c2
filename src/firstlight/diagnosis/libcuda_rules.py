"""Rules about libcuda.so.1 itself: a stub in its place, none in reach, or a file that is no library."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.compat_answers import LOADER, unwire
from firstlight.diagnosis.compat_choice import init_code, wired_by
from firstlight.diagnosis.driver_answers import of_somebody_else
from firstlight.diagnosis.driver_packages import LTS_BRANCH
from firstlight.diagnosis.elsewhere_answers import restart_with_gpus, started
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.libcuda import LIBCUDA
from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.managers import of_driver
from firstlight.ways.platform import GuestKind, ModuleBuilder, platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, Way, cannot, chain

_STUB = 34
_LIB64 = "/usr/lib64"
_CONF = "/etc/ld.so.conf.d/nvidia-driver.conf"
_NOT_OUR_DRIVER = (GuestKind.WSL1, GuestKind.WSL2, GuestKind.JETSON, GuestKind.VGPU)
_BOUND_BY_HAND = (ContainerKind.NSPAWN, ContainerKind.LXC, ContainerKind.PROXMOX)
_JAILS = "Jip-Hop/jailmaker#127, Jip-Hop/jailmaker#165"
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"


def stub_libcuda_wins(question: Question) -> Iterator[Seen]:
    """The toolkit's libcuda is for linking: it holds no driver, and every call returns 34."""
    facts = question.facts
    found, code = facts.libcuda.would_load, init_code(facts)
    if isinstance(found, Unknown) or code not in (None, _STUB) or not (found.value.is_stub or code == _STUB):
        return
    library = found.value
    said = "cuInit will give 34 (it was not called here)" if code is None else "cuInit gives 34"
    others = [each.path for each in facts.libcuda.candidates if not each.is_stub and not each.is_damaged]
    behind = f"; the driver's own {others[0]} is behind it" if others else ""
    stubs = tuple(each for each in facts.libcuda.ld_library_path if "/stubs" in each)
    yield Seen(
        saw=f"{library.path} ({wired_by(library)}) is the toolkit's stub; {said}{behind}",
        answers=(chain(unwire(facts, library, folders=stubs), proof=Proof.DOCUMENTED, by=LOADER),),
    )


def libcuda_missing(question: Question) -> Iterator[Seen]:
    """A kernel driver is there, but no libcuda.so.1 where the loader looks."""
    facts = question.facts
    libcuda, kernel = facts.libcuda, facts.driver.kernel_version
    later = [each for each in libcuda.candidates if each.found_by is FoundBy.LATER_CACHE_ENTRY]
    if isinstance(libcuda.would_load, Known) or (libcuda.candidates and not later):
        return
    if isinstance(kernel, Unknown) and not libcuda.out_of_reach:
        return  # no driver at all: the rules about the driver speak
    driver = f"kernel driver {kernel.value} ({kernel.seen_in})" if isinstance(kernel, Known) else "a driver"
    if libcuda.candidates and later:
        yield Seen(
            saw=f"{driver} is there; the first libcuda.so.1 of /etc/ld.so.cache is gone, and the loader does not try "
            f"the next one, {later[0].path}",
            answers=(chain(kinds.RefreshLoaderCache()),),
        )
    elif libcuda.out_of_reach:
        path = libcuda.out_of_reach[0]
        folder, _, name = path.rpartition("/")
        if name != LIBCUDA:
            yield Seen(
                saw=f"{path} is there, and no link to it of the name {LIBCUDA}, which programs ask for",
                answers=_with_the_name(facts, folder),
                means="The driver's library is here and not found: programs take it that there is no driver.",
                error=f"{LIBCUDA}: cannot open shared object file: No such file or directory",
            )
            return
        yield Seen(
            saw=f"{driver} is there, and {path} too; that folder is neither in LD_LIBRARY_PATH nor in the loader's "
            "cache",
            answers=_in_reach(facts, folder),
        )
    else:
        where = ", ".join(libcuda.ld_library_path) or "not set"
        yield Seen(
            saw=f"{driver} is there; {libcuda.would_load.reason} (LD_LIBRARY_PATH: {where})",
            answers=_how_to_get_libcuda(question),
        )


def libcuda_damaged(question: Question) -> Iterator[Seen]:
    """The loader stops at the first file it meets, even one that is empty."""
    facts = question.facts
    libcuda = facts.libcuda
    first = libcuda.candidates[0] if libcuda.candidates else None
    if isinstance(libcuda.would_load, Known) or first is None or not first.is_damaged:
        return
    real = "" if first.real_path == first.path else f"; it is a link to {first.real_path}"
    behind = [each.path for each in libcuda.candidates[1:] if not each.is_damaged and not each.is_stub]
    rest = f"; {behind[0]} behind it is not tried" if behind else ""
    yield Seen(
        saw=f"{first.path} ({wired_by(first)}) is not an ELF file{real}{rest}", answers=_without_damaged(question)
    )


def _without_damaged(question: Question) -> tuple[Chain, ...]:
    """The file goes, and the real one comes; an image built with the NVIDIA runtime keeps more such files."""
    facts = question.facts
    damaged = tuple(dict.fromkeys(each.real_path for each in facts.libcuda.candidates if each.is_damaged))
    remove = kinds.RemoveFiles(damaged)
    if platform_of(facts).is_image_based:
        return (chain(AskPerson("take-image-whole-libcuda", Why.IMAGE)),)
    if container(facts) is None:
        return (chain(remove, *_package(question)),)
    folder = damaged[0].rpartition("/")[0]
    find = (("find", folder, "-maxdepth", "1", "-name", "*.so.*", "-size", "0", "-print"),)
    more = AskPerson("look-for-empty-libraries", Why.DECISION, find, cures=False)
    bound = _bound_whole(facts, damaged)
    return bound or tuple(chain(remove, *one.ways, more) for one in restart_with_gpus(question))


def _bound_whole(facts: Facts, damaged: tuple[str, ...]) -> tuple[Chain, ...]:
    """Where the host's files are bound in one by one: an empty one is a place to bind to whose source was not named."""
    kind, folder = container(facts), damaged[0].rpartition("/")[0]
    if kind is None or kind.value not in _BOUND_BY_HAND:
        return ()
    own = "nvidia" in folder or "tegra" in folder  # a folder of the driver's alone is bound whole
    paths = (folder,) if own else damaged
    binds = tuple(f"--bind-ro={path}" for path in paths)
    return (chain(kinds.StartContainer(binds, gives_gpus=True), proof=Proof.REPORTED, by=_JAILS),)


def _with_the_name(facts: Facts, folder: str) -> tuple[Chain, ...]:
    """ldconfig makes the link in each folder that it knows: the default ones, and a Jetson's, which JetPack names."""
    known = platform_of(facts).guest is GuestKind.JETSON or folder in (f"/usr/lib/{facts.place.arch}-linux-gnu", _LIB64)
    return (chain(kinds.RefreshLoaderCache() if known else kinds.RegisterFolder(folder, _CONF)),)


def _in_reach(facts: Facts, folder: str) -> tuple[Chain, ...]:
    """The folder of the driver's own libraries made known, for all or, without root, in front of this user's path."""
    path = ":".join((folder, *(each for each in facts.libcuda.ld_library_path if each)))
    answers = (
        chain(kinds.RegisterFolder(folder, _CONF)),
        chain(kinds.SetVariables((kinds.Variable("LD_LIBRARY_PATH", path),), kinds.Scope.PROGRAM)),
    )
    kind = container(facts)
    if platform_of(facts).is_image_based:
        return answers[1:]  # the loader's files come with the image
    if kind is None:
        return answers
    if kind.value is ContainerKind.APPTAINER:
        return answers[1:]  # its files are not to be written: the variable alone
    return (*answers, cannot("the container started again with its GPUs", f"the driver's libcuda is in {folder}"))


def _how_to_get_libcuda(question: Question) -> tuple[Chain, ...]:
    """In a container the runtime brings libcuda, and leaves it out without the capability `compute`; else a package."""
    kind = container(question.facts)
    if platform_of(question.facts).is_image_based:
        return (chain(AskPerson("take-image-whole-loader", Why.IMAGE)),)
    if kind is None:
        package = _package(question)
        if package:
            return (chain(*package),)
        driver = question.facts.driver.kernel_version
        theirs = of_somebody_else(question, driver.value.branch if isinstance(driver, Known) else LTS_BRANCH)
        look = AskPerson("install-libraries-of-module", Why.DECISION)
        return (chain(look),) if theirs is None else (theirs,)
    if kind.value in (ContainerKind.DOCKER, ContainerKind.PODMAN):
        return (chain(started(kind.value, "--env", _CAPABILITIES)),)
    return restart_with_gpus(question)


def _package(question: Question) -> tuple[Way, ...]:
    """The package that has libcuda on this system; it must be of the loaded module's version."""
    facts, platform = question.facts, platform_of(question.facts)
    kernel = facts.driver.kernel_version
    if isinstance(kernel, Unknown) or platform.guest in _NOT_OUR_DRIVER:
        return ()
    branch = str(kernel.value.branch)
    server = any("-server" in each for each in value_or(facts.driver.packages, ()))
    of = "server" if server else "rpmfusion" if ModuleBuilder.AKMODS in platform.module_builders else ""
    names = names_for(Role.DRIVER_LIBRARIES, platform, question.tables, of=of, branch=branch)
    return (kinds.InstallPackages(names, version=of_driver(kernel.value)),) if names else ()


LIBCUDA_RULES = (
    Rule(
        check=stub_libcuda_wins,
        severity=Severity.BLOCKS,
        depth=30,
        title="The toolkit's stub libcuda is loaded in place of the driver's.",
        fires_when="The libcuda.so.1 that loads lies in a stubs folder, or cuInit gives 34.",
        looks_at=("libcuda.would_load", "libcuda.candidates", "libcuda.ld_library_path", "libcuda.init_code"),
        means="No CUDA program starts; the stub is there to link against and contains no driver.",
        error="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library",
        source="NVIDIA/warp#219",
        ways=(kinds.Unwire, kinds.RefreshLoaderCache, kinds.RemoveFiles),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        check=libcuda_missing,
        severity=Severity.BLOCKS,
        depth=30,
        title="The driver's libcuda.so.1 is not where programs look for it.",
        fires_when="A kernel driver is loaded, or a driver's library is on disk, and the loader finds no libcuda.so.1 "
        "by any of its rules.",
        looks_at=("libcuda.would_load", "libcuda.candidates", "libcuda.out_of_reach", "driver.kernel_version"),
        means="torch sees no GPU and says that there is no driver, although one is loaded.",
        error="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver from http://www.nvidia.com/Download/index.aspx",
        source="keras-team/kinetic#269, NVIDIA/nvidia-container-toolkit#231",
        ways=(
            kinds.RefreshLoaderCache,
            kinds.RegisterFolder,
            kinds.SetVariables,
            kinds.StartContainer,
            kinds.InstallPackages,
            AskPerson,
        ),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        check=libcuda_damaged,
        severity=Severity.BLOCKS,
        depth=30,
        title="The libcuda.so.1 that programs load first is empty or broken.",
        fires_when="The first libcuda.so.1 that the loader meets is not an ELF file.",
        looks_at=("libcuda.would_load", "libcuda.candidates"),
        means="Every program that needs CUDA stops at this file; the loader does not try the next one.",
        error="ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short",
        source="NVIDIA/libnvidia-container#140, Jip-Hop/jailmaker#127",
        ways=(kinds.RemoveFiles, kinds.StartContainer, kinds.InstallPackages, AskPerson),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
)
