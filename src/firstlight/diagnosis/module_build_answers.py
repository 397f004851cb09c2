"""The nvidia modules built here: what dkms and akmods have to build from, and what they could not build."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import kernel_is_gone
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, value_or
from firstlight.facts.module_builds import FailedBuild, ModuleSource
from firstlight.tables.system_rows import Role
from firstlight.versions import DriverVersion
from firstlight.ways.kinds import InstallDriver, RemovePackages
from firstlight.ways.module_folders import comes_first
from firstlight.ways.platform import Platform, platform_of
from firstlight.ways.system_names import filled, names_for, rows_for
from firstlight.ways.way import Chain

AKMODS, DKMS = "akmods", "dkms"


def failed_here(facts: Facts) -> tuple[FailedBuild, ...]:
    """Builds for the kernel that runs which did not come to their end: the same build fails again."""
    builds = facts.driver.module_builds
    if not isinstance(builds, Known):
        return ()
    return tuple(each for each in builds.value.failed if each.kernel == facts.place.kernel_release)


def said_of_failed(facts: Facts) -> str:
    """For what was seen: '; 550.163.01 could not be built for it (/var/lib/dkms/...)', or nothing."""
    return "".join(f"; {each.version} could not be built for it ({each.log})" for each in failed_here(facts))


def sources_of(facts: Facts, builder: str) -> tuple[ModuleSource, ...]:
    builds = facts.driver.module_builds
    return tuple(each for each in builds.value.sources if each.builder == builder) if isinstance(builds, Known) else ()


def can_be_built(facts: Facts, builder: str) -> bool:
    """Whether something is left to build that did not fail for this kernel; so it is taken where nobody knows."""
    if kernel_is_gone(facts):
        return False
    failed = {each.version for each in failed_here(facts)}
    sources = {each.version for each in sources_of(facts, builder)}
    return not failed or bool(sources - failed)


def without_failed(chains: tuple[Chain, ...], facts: Facts) -> tuple[Chain, ...]:
    """The answers but those that install a driver of the branch that could not be built for this kernel."""
    branches = {each.version.branch for each in failed_here(facts)}
    return tuple(
        each for each in chains if not any(isinstance(w, InstallDriver) and w.branch in branches for w in each.ways)
    )


def source_for(facts: Facts, builder: str, version: DriverVersion) -> str:
    """What dkms is told to build for modules of this version, e.g. nvidia/595.84; "" where it has none of it."""
    names = [each.name for each in sources_of(facts, builder) if each.version == version]
    return f"{names[0]}/{version}" if names and builder == DKMS else ""


def is_behind(facts: Facts, builder: str, version: DriverVersion) -> bool:
    """Whether what is here to build from is of other versions only: building it gives the old module again."""
    sources = sources_of(facts, builder)
    return bool(sources) and all(each.version != version for each in sources)


def source_package(question: Question, builder: str) -> tuple[str, ...]:
    """The package that brings the sources, as it is installed or as the tables have it, e.g. ("akmod-nvidia",)."""
    facts, platform = question.facts, platform_of(question.facts)
    sign = "akmod-" if builder == AKMODS else DKMS
    own = tuple(name for name in value_or(facts.driver.packages, ()) if sign in name)
    return own[:1] or _of_tables(question, platform, sign)[:1]


def built_here_taken_out(question: Question) -> tuple[RemovePackages, ...]:
    """The package whose modules dkms built for the running kernel: depmod prefers them to what the system signed."""
    facts, platform = question.facts, platform_of(question.facts)
    if not comes_first(value_or(facts.driver.module_file, "")):
        return ()
    # Where packages were not seen, by a pattern: which of them is installed only the package manager knows.
    names = source_package(question, DKMS) or names_for(Role.BUILT_MODULES, platform, question.tables)
    return (RemovePackages(names, alone=True),) if names else ()


def _of_tables(question: Question, platform: Platform, sign: str) -> tuple[str, ...]:
    library = value_or(question.facts.driver.nvml_library_version, None)
    branch = 0 if library is None else library.branch
    found: list[str] = []
    for flavour in ("open", "proprietary"):
        for row in rows_for(Role.DRIVER, platform, question.tables, flavour=flavour):
            names = (name for name in filled(row, platform, branch=str(branch)) if sign in name)
            found += [name for name in names if "xx" not in name]
    return tuple(dict.fromkeys(found))
