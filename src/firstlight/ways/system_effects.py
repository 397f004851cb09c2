"""What system and conda packages do to the facts: known by what they bring and by the tables' package names."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.compilers import NumberedGcc, Tool
from firstlight.facts.cuda_libraries import FoundIn
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.facts.toolkits import Part
from firstlight.tables import Tables
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion
from firstlight.ways.driver_effects import newest_of_branch, parsed_driver
from firstlight.ways.kinds import InstallConda, InstallPackages, RemovePackages
from firstlight.ways.libcuda_on_paper import after_ldconfig, drivers_own, put_in_cache, with_candidates
from firstlight.ways.loader_effects import with_compat, without_missing
from firstlight.ways.module_folders import comes_first
from firstlight.ways.owned_effects import in_one_version, without_owned
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, becomes, planned
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import roles_of
from firstlight.ways.toolkit_effects import whole_toolkit, with_toolkit
from firstlight.ways.way import Way

_FABRIC_MANAGER = "/usr/bin/nv-fabricmanager"
_TAKEN_OUT = Unknown("planned: the modules that dkms built are taken out")
_OWN_COMPILERS = ("gcc", "g++", "c++")
_NUMBERED = re.compile(r"(gcc|g\+\+)-?(\d{1,2})(-c\+\+)?")  # gcc-13 and g++-13; gcc13 and gcc13-c++ of Fedora and SUSE


def after_packages(way: Way, facts: Facts, tables: Tables) -> Facts | None:
    """The facts after a way of system or conda packages; None for any other way."""
    match way:
        case InstallPackages():
            for name in way.packages:
                facts = _with_package(way, facts, tables, name)
            facts = in_one_version(facts, tables, way)
            return without_missing(facts, {posixpath.basename(each) for each in way.brings})
        case RemovePackages():
            return _without_packages(way, facts, tables)
        case InstallConda():
            return _with_conda(way, facts, tables)
    return None


def _with_package(way: InstallPackages, facts: Facts, tables: Tables, name: str) -> Facts:
    compat = next((row for row in tables.compat_packages if row.package == name), None)
    if compat is not None:
        folder = compat.folder.rstrip("/")
        return replace(facts, compat=with_compat(facts, _compat(way, tables, name, folder=folder, cuda=compat.cuda)))
    for row in tables.toolkit_targets:
        if name == f"cuda-toolkit-{row.toolkit.major}-{row.toolkit.minor}":
            toolkit = whole_toolkit(f"/usr/local/cuda-{row.toolkit.release}", row.toolkit.release, way)
            linked = replace(toolkit, found_by=(*toolkit.found_by, "/usr/local/cuda"))
            free = all("/usr/local/cuda" not in (each.path, *each.found_by) for each in facts.toolkits.toolkits)
            return with_toolkit(facts, linked if free else toolkit, parts=tuple(Part))
    for role in dict.fromkeys(row.role for row in roles_of(name, platform_of(facts), tables)):
        changed = _by_role(role, way, facts, tables, name=name)
        if changed is not None:
            return changed
    return _with_numbered_compiler(facts, name)


def _by_role(role: Role, way: InstallPackages, facts: Facts, tables: Tables, *, name: str) -> Facts | None:
    """What a package does, by what this system's tables have it for; None: nothing that was looked at."""
    match role:
        case Role.FABRIC_MANAGER:
            return _with_fabric_manager(way, facts)
        case Role.CONTAINER_TOOLKIT:
            runtime = facts.container.runtime
            runtime = replace(runtime, container_toolkit=_there(runtime.container_toolkit, way))
            return replace(facts, container=replace(facts.container, runtime=runtime))
        case Role.DRIVER_LIBRARIES:
            return _with_driver_library(way, facts, tables, name)
        case Role.SIGNED_MODULES:
            file = facts.driver.module_file
            facts = _with_driver_package(facts, name, way)
            if isinstance(file, Known) and (file.origin is Origin.PLANNED or comes_first(file.value)):
                return facts  # it is installed beside the one that was built here, which is loaded before it
            return replace(facts, driver=replace(facts.driver, module_file=planned(_signed_file(facts, name), way)))
        case Role.CXX_LIBRARY:
            return _with_newer_libstdcxx(facts)
        case Role.COMPILER:
            return _with_tools(facts, ("gcc", "g++", "c++", "make"))
        case Role.NINJA:
            return _with_tools(facts, ("ninja",))
    return None


def _there(fact: Fact[str], way: Way) -> Fact[str]:
    return fact if isinstance(fact, Known) else planned("installed", way)


def _compat(way: Way, tables: Tables, name: str, *, folder: str, cuda: CudaVersion) -> CompatLibrary:
    builds = [build.driver for build in tables.compat_builds(cuda)]
    branch = tables.branch_of(cuda)
    version = max(builds) if builds else None if branch is None else newest_of_branch(tables, branch)
    return CompatLibrary(
        folder=folder,
        aliases=(),
        library=f"{folder}/libcuda.so.{'1' if version is None else version}",
        version=NOT_READ if version is None else planned(version, way),
        note=NOT_READ,
        package=planned(name, way),
        init_code=NOT_READ,
    )


def _with_fabric_manager(way: InstallPackages, facts: Facts) -> Facts:
    driver, health = facts.driver.kernel_version, facts.health
    version = parsed_driver(way.version) or (driver.value if isinstance(driver, Known) else None)
    program = health.fabric_manager
    health = replace(
        health,
        fabric_manager=program if isinstance(program, Known) else planned(_FABRIC_MANAGER, way),
        fabric_manager_version=NOT_READ if version is None else becomes(health.fabric_manager_version, version, way),
    )
    return replace(facts, health=health)


def _with_driver_library(way: InstallPackages, facts: Facts, tables: Tables, name: str) -> Facts:
    """libcuda of the loaded module's version, in the folder of the driver."""
    kernel = facts.driver.kernel_version
    given = parsed_driver(way.version) or (kernel.value if isinstance(kernel, Known) else None)
    own = drivers_own(facts, NOT_READ if given is None else planned(given, way))
    if any(each.path == own.path and each.real_path == own.real_path for each in facts.libcuda.candidates):
        return facts
    others = tuple(each for each in facts.libcuda.candidates if each.path != own.path)
    left = tuple(each for each in facts.libcuda.out_of_reach if each != own.path)
    facts = _with_driver_package(replace(facts, libcuda=replace(facts.libcuda, out_of_reach=left)), name, way)
    return with_candidates(facts, tables, put_in_cache(others, own), way=way)


def _with_driver_package(facts: Facts, name: str, way: Way) -> Facts:
    names = value_or(facts.driver.packages, ())
    if name in names:
        return facts
    return replace(facts, driver=replace(facts.driver, packages=planned(tuple(sorted((*names, name))), way)))


def _signed_file(facts: Facts, package: str) -> str:
    return f"/lib/modules/{facts.place.kernel_release}/kernel/{package}/nvidia.ko"


def _module_left(facts: Facts, tables: Tables, way: Way) -> Fact[str]:
    """What is loaded once the modules that dkms built are gone: those that the system signed, where there are any."""
    for name in value_or(facts.driver.packages, ()):
        if any(row.role is Role.SIGNED_MODULES for row in roles_of(name, platform_of(facts), tables)):
            return planned(_signed_file(facts, name), way)
    return _TAKEN_OUT


def _with_newer_libstdcxx(facts: Facts) -> Facts:
    torch = facts.torch_libraries
    if isinstance(torch, Unknown):
        return facts
    return replace(facts, torch_libraries=replace(torch, value=replace(torch.value, libstdcxx_offered=ONLY_RUNNING)))


def _with_tools(facts: Facts, programs: tuple[str, ...]) -> Facts:
    compilers = facts.compilers
    for program in programs:
        if isinstance(compilers.find(program), Known):
            continue
        tool = Tool(program, f"/usr/bin/{program}", NOT_READ)
        if program in _OWN_COMPILERS:
            compilers = replace(compilers, compilers=(*compilers.compilers, tool))
        else:
            compilers = replace(compilers, tools=(*compilers.tools, tool))
    return replace(facts, compilers=compilers)


def _with_numbered_compiler(facts: Facts, name: str) -> Facts:
    """gcc-13 and g++-13 as a pair, whatever the packages are called."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return _with_tools(facts, ("g++", "c++")) if name == "g++" else facts
    number, compilers = int(match[2]), facts.compilers
    pairs = {each.number: each for each in compilers.numbered}
    pair = pairs.get(number, NumberedGcc(number, Unknown("no gcc"), Unknown("no g++")))
    kind = "g++" if match[3] else match[1]
    path: Fact[str] = Known(f"/usr/bin/{kind}-{number}", "PATH", Origin.PLANNED)
    if isinstance(pair.gcc if kind == "gcc" else pair.gxx, Unknown):
        pair = replace(pair, gcc=path) if kind == "gcc" else replace(pair, gxx=path)
    pairs[number] = pair
    return replace(facts, compilers=replace(compilers, numbered=tuple(pairs[each] for each in sorted(pairs))))


def _without_packages(way: RemovePackages, facts: Facts, tables: Tables) -> Facts:
    """Compat libraries, a Linux driver inside WSL, and CUDA's own libraries go with their packages."""
    folders = {each.folder for each in facts.compat if _is_removed(way, value_or(each.package, ""))}
    gone = {each for one in facts.compat if one.folder in folders for each in (one.folder, *one.aliases)}
    owned = value_or(facts.library_owners, ())
    candidates = tuple(
        each
        for each in facts.libcuda.candidates
        if posixpath.dirname(each.path) not in gone and posixpath.dirname(each.real_path) not in gone
    )
    packages = facts.driver.packages
    if isinstance(packages, Known) and any(_is_removed(way, each) for each in packages.value):
        drivers = tuple(each for each in packages.value if not _is_removed(way, each))
        facts = replace(facts, driver=replace(facts.driver, packages=planned(drivers, way)))
    file = facts.driver.module_file
    if isinstance(file, Known) and comes_first(file.value) and any("dkms" in each for each in way.packages):
        facts = replace(facts, driver=replace(facts.driver, module_file=_module_left(facts, tables, way)))
    wsl = facts.place.wsl_libraries
    if value_or(facts.place.platform, None) is Platform.WSL2 and isinstance(wsl, Known) and _has_driver(way):
        candidates = tuple(each for each in candidates if each.path.startswith(f"{wsl.value}/"))
        if not candidates:
            own = drivers_own(facts, NOT_READ)
            path = f"{wsl.value}/libcuda.so.1"
            candidates = (replace(own, path=path, real_path=path, entry=wsl.value, is_damaged=False),)
    facts = replace(facts, compat=tuple(each for each in facts.compat if each.folder not in folders))
    facts = with_candidates(facts, tables, after_ldconfig(candidates), way=way)
    facts = without_owned(facts, tables, tuple(each for each in owned if _is_removed(way, each.package)), way=way)
    return _without_libraries(way, facts)


def _has_driver(way: RemovePackages) -> bool:
    return any(name.startswith(("libnvidia-", "nvidia-")) for name in way.packages)


def _is_removed(way: RemovePackages, package: str) -> bool:
    """Whether a package is one of those named; a name may be a pattern: libcudnn9-*."""
    return bool(package) and any(fnmatch.fnmatchcase(package, each) for each in way.packages)


def _without_libraries(way: RemovePackages, facts: Facts) -> Facts:
    """libcudnn9-cuda-13 takes the system's libcudnn along: Debian's packages carry the name of the library."""
    libraries = tuple(
        each
        for each in facts.cuda_libraries.libraries
        if each.found_in is not FoundIn.SYSTEM or not any(name.startswith(f"lib{each.name}") for name in way.packages)
    )
    return replace(facts, cuda_libraries=replace(facts.cuda_libraries, libraries=libraries))


def _with_conda(way: InstallConda, facts: Facts, tables: Tables) -> Facts:
    """A conda package by the file that it is known by: nvcc, libcuda of cuda-compat, a compiler; else by its name."""
    _, _, number = way.package.partition("=")
    cuda = _cuda_number(number)
    if way.brings == "bin/nvcc" and cuda is not None:
        parts = tuple(part for part in Part if part is not Part.LIB64)
        return with_toolkit(facts, whole_toolkit(way.prefix, cuda, way), parts=parts)
    if posixpath.basename(posixpath.dirname(way.brings)) == "cuda-compat":
        if cuda is None:
            return facts
        library = _compat(way, tables, way.package, folder=f"{way.prefix}/cuda-compat", cuda=cuda)
        return replace(facts, compat=with_compat(facts, library))
    if way.brings.endswith("-g++") and number.isdecimal():
        gxx = f"{way.prefix}/{way.brings}"
        pair = NumberedGcc(int(number), planned(f"{gxx.removesuffix('g++')}gcc", way), planned(gxx, way))
        others = {each.number: each for each in facts.compilers.numbered}
        pairs = {int(number): pair, **others}
        listed = tuple(pairs[each] for each in sorted(pairs))
        return replace(facts, compilers=replace(facts.compilers, numbered=listed))
    if not way.prefix:
        return _with_newer_libstdcxx(facts) if way.package.startswith("libstdcxx") else facts
    return facts


def _cuda_number(text: str) -> CudaVersion | None:
    parts = text.split(".")
    numbers = [int(part) for part in parts[:2] if part.isdecimal()]
    return CudaVersion(numbers[0], numbers[1]) if len(numbers) == 2 else None
