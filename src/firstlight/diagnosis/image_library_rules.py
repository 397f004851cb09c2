"""A rule about driver libraries that an image brings along: the host's driver cannot speak with them."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import WHOLE_SYSTEMS, libraries_of_host, restart_with_gpus
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_with
from firstlight.diagnosis.observed import container, cuda_starts, init_code, listed, shown
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, value_or
from firstlight.facts.owners import NOT_NAMED, FileOwner
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, Way, cannot, chain

_LIBRARY_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_TOLD_BY_SETTING = (ContainerKind.LXC, ContainerKind.LXD, ContainerKind.INCUS)  # nvidia.runtime, or bind mounts
_OF_OWN_SYSTEM = (
    "The host's driver takes libraries of its own version alone, and the package in this container brings others; none "
    "of the host's are handed in."
)
_QUERIES = {"dpkg": ("dpkg", "-S"), "rpm": ("rpm", "-qf"), "pacman": ("pacman", "-Qo")}


def image_brings_driver_libraries(question: Question) -> Iterator[Seen]:
    """libcuda or libnvidia-ml was installed inside the image; in a container both come from the host."""
    facts, kernel = question.facts, question.facts.driver.kernel_version
    # A compat library comes with CUDA's images on purpose, and has findings of its own.
    compat = {each.package.value for each in facts.compat if isinstance(each.package, Known)}
    owners = tuple(each for each in value_or(facts.library_owners, ()) if each.package not in compat)
    kind = container(facts)
    if not owners or kind is None or not isinstance(kernel, Known):
        return
    refused = value_or(facts.driver.nvml_code, 0) == _LIBRARY_MISMATCH
    if not refused and (cuda_starts(facts) or init_code(facts) <= 0):
        return
    files = listed(f"{each.path} is of {_named(each)}" for each in owners)
    said = [f"nvmlInit gives {_LIBRARY_MISMATCH}"] if refused else []
    said += [f"cuInit gives {init_code(facts)}"] if init_code(facts) > 0 else []
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}): {files}, installed inside it; the host's module is "
        f"{shown(kernel)}; {listed(said)}",
        answers=_without_them(question, owners),
        means=_OF_OWN_SYSTEM if _is_own_system(question) else "",
        lines=lines_with(facts, "API mismatch"),
    )


def _named(owner: FileOwner) -> str:
    return f"a package of {owner.database}" if owner.package == NOT_NAMED else f"{owner.package} ({owner.database})"


def _handed_in(question: Question) -> tuple[Way, ...]:
    """The host's own libraries, where none lies beside these: Docker's runtime puts them there, LXC's does if told."""
    kind = container(question.facts)
    told = kind is not None and kind.value in _TOLD_BY_SETTING and not _lie_beside(question)
    return restart_with_gpus(question)[0].ways if told else ()


def _lie_beside(question: Question) -> bool:
    """Whether the host's own libraries are here too, so that taking the others out is enough."""
    kernel = question.facts.driver.kernel_version
    return any(each.version == kernel for each in question.facts.libcuda.candidates)


def _is_own_system(question: Question) -> bool:
    """Whether this container is a system of its own into which nothing has handed the host's libraries."""
    kind = container(question.facts)
    return kind is not None and kind.value in WHOLE_SYSTEMS and not _lie_beside(question)


def _without_them(question: Question, owners: tuple[FileOwner, ...]) -> tuple[Chain, ...]:
    """The packages go, here and where the image is made; what the runtime put beside them is loaded then."""
    names = tuple(dict.fromkeys(each.package for each in owners if each.package != NOT_NAMED))
    paths = dict.fromkeys(each.path for each in owners)
    look = tuple((*_QUERIES.get(owners[0].database, ("ls", "-l")), path) for path in paths)
    image = AskPerson("leave-driver-out-of-image", Why.PROGRAM, look, cures=False)
    anew = cannot("the container started again", "its image brings the same libraries along again")
    if not names or any(each.package == NOT_NAMED for each in owners):
        return (chain(AskPerson("remove-packages-of-libraries", Why.DECISION, look), image), anew)
    own = _is_own_system(question)
    same = (chain(*libraries_of_host(question)),) if own else ()
    handed = _handed_in(question)
    if handed:
        return (chain(kinds.RemovePackages(names), *handed, *(() if own else (image,))), *same)
    if own:
        return same
    return (chain(kinds.RemovePackages(names), kinds.RefreshLoaderCache(), image), anew)


IMAGE_LIBRARY_RULES: tuple[Rule, ...] = (
    Rule(
        check=image_brings_driver_libraries,
        severity=Severity.BLOCKS,
        depth=15,
        title="This image has driver libraries of its own, in another version than the host's driver.",
        fires_when="In a container NVML gives 18 or cuInit fails, and dpkg, rpm or pacman of the image owns the "
        "libcuda or libnvidia-ml that loads, which has another version than the loaded module.",
        looks_at=("library_owners", "driver.nvml_library", "driver.kernel_version", "libcuda.would_load"),
        means="The container runtime hands the host's libraries in; a package inside the image put its own before "
        "them. Starting the container again changes nothing, nor does a restart of the host.",
        error="Failed to initialize NVML: Driver/library version mismatch",
        source="Syllo/nvtop#199, E4S-Project/e4s#172, tensorflow/build#59",
        ways=(kinds.RemovePackages, kinds.RefreshLoaderCache, kinds.StartContainer, kinds.InstallPackages, AskPerson),
        explains=("driver-library-mismatch", "cuinit-fails", "device-access-lost"),
    ),
)
