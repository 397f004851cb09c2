"""What it does to the facts that driver libraries of another version go with the package that brought them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.owners import FileOwner
from firstlight.tables import Tables
from firstlight.tables.system_rows import Role
from firstlight.versions import DriverVersion
from firstlight.ways.kinds import InstallPackages
from firstlight.ways.libcuda_on_paper import asked_anew, drivers_own, put_in_cache, with_candidates
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, becomes, planned
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Way


def without_owned(facts: Facts, tables: Tables, gone: tuple[FileOwner, ...], *, way: Way) -> Facts:
    """The facts without these files: beside them lie those of the module's version, which the runtime put there."""
    owners, kernel = facts.library_owners, facts.driver.kernel_version
    if not gone or not isinstance(owners, Known) or not isinstance(kernel, Known):
        return facts
    paths = {each.path for each in gone}
    left = tuple(each for each in owners.value if each not in gone)
    facts = replace(facts, library_owners=planned(left, way))
    if isinstance(facts.driver.nvml_library, Known) and facts.driver.nvml_library.value in paths:
        version = becomes(facts.driver.nvml_library_version, kernel.value, way)
        driver = replace(facts.driver, nvml_library=NOT_READ, nvml_library_version=version, nvml_code=ONLY_RUNNING)
        facts = asked_anew(replace(facts, driver=replace(driver, nvml_message=ONLY_RUNNING)))
    candidates = tuple(each for each in facts.libcuda.candidates if each.real_path not in paths)
    if len(candidates) < len(facts.libcuda.candidates):
        if not any(each.version == kernel for each in candidates):
            candidates = put_in_cache(candidates, drivers_own(facts, kernel))
        facts = asked_anew(with_candidates(facts, tables, candidates, way=way))
    return facts


def driver_libraries(facts: Facts, tables: Tables, module: DriverVersion) -> tuple[str, ...]:
    """What this system calls the package of libcuda and NVML of a driver's branch; () where no table has it."""
    platform, branch = platform_of(facts), module.branch
    return names_for(Role.DRIVER_LIBRARIES, platform, tables, number=branch, branch=str(branch), version=str(module))


def in_one_version(facts: Facts, tables: Tables, way: InstallPackages) -> Facts:
    """The facts once packages of driver libraries are of the version of the loaded module."""
    kernel = facts.driver.kernel_version
    if not isinstance(kernel, Known) or way.version.rstrip("-*") != str(kernel.value):
        return facts
    owners = facts.library_owners
    if not isinstance(owners, Known) and set(way.packages) & set(driver_libraries(facts, tables, kernel.value)):
        owners = planned(tuple(_supposed(facts, way.packages[0], kernel.value)), way)
        facts = replace(facts, library_owners=owners)
    if not isinstance(owners, Known):
        return facts
    return without_owned(facts, tables, tuple(each for each in owners.value if each.package in way.packages), way=way)


def _supposed(facts: Facts, package: str, kernel: DriverVersion) -> Iterator[FileOwner]:
    """The driver libraries that are of another version, as those of a package."""
    nvml, version, loads = facts.driver.nvml_library, facts.driver.nvml_library_version, facts.libcuda.would_load
    if isinstance(nvml, Known) and isinstance(version, Known) and version.value != kernel:
        yield FileOwner(nvml.value, package, "")
    if isinstance(loads, Known) and isinstance(loads.value.version, Known) and loads.value.version.value != kernel:
        yield FileOwner(loads.value.real_path, package, "")
