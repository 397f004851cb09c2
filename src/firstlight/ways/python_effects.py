"""What ways of Python packages do to the facts: torch, what is around it, environments and project files."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from firstlight.facts.ability import Prefix
from firstlight.facts.collect import Facts
from firstlight.facts.companions import NOT_COMPANIONS, NVIDIA_PROJECTS, Companion, NvidiaWheel
from firstlight.facts.compilers import Tool
from firstlight.facts.distributions import Distribution, duplicates, of_interest
from firstlight.facts.known import Known, Origin, Unknown, value_or
from firstlight.facts.python_environments import EnvironmentKind, ProjectFile, PythonEnvironment
from firstlight.tables import Tables
from firstlight.versions import canonical
from firstlight.ways import kinds
from firstlight.ways.building import environment_to_change
from firstlight.ways.extension_effects import NO_EXTENSIONS, without_extensions
from firstlight.ways.loader_effects import without_missing
from firstlight.ways.paper import NOT_READ, planned
from firstlight.ways.project_steps import project_of
from firstlight.ways.toolkit_effects import toolkit_parts, with_toolkit_wheels
from firstlight.ways.torch_on_paper import (
    NEWEST,
    companion,
    installed_torch,
    nvidia_wheel,
    pinned_version,
    pins_of_torch,
    version_of,
)
from firstlight.ways.way import Way

_NO_TORCH = Unknown("planned: no torch is installed there yet")
_BUILD = re.compile(r"cu\d{2,3}|cpu")  # how an index of PyTorch's is called


def after_python(way: Way, facts: Facts, tables: Tables, *, home: str) -> Facts | None:
    """The facts after a way of Python packages; None for any other way. `home`: where a new environment is made."""
    own = f"{home}/firstlight-venv"
    match way:
        case kinds.MakeEnvironment():
            return _with_environment(facts, way.folder or own, way, python=way.python)
        case kinds.InstallWheels():
            return _installed(way, facts, tables, folder=own)
        case kinds.RemoveDistributions():
            return _removed(way, facts, tables)
        case kinds.KeepInProject():
            return _kept_by_project(facts, way.packages)
        case kinds.CloseLibraries():
            return without_missing(facts, set(way.missing))
    return None


def _with_environment(facts: Facts, folder: str, way: Way, *, python: str = "") -> Facts:
    """A virtual environment of our own, chosen: nothing is in it yet."""
    there = [index for index, each in enumerate(facts.python.environments) if each.prefix == folder]
    if there and isinstance(facts.python.selected, Known) and facts.python.selected.value == there[0]:
        return facts
    version = NOT_READ if facts.environment is None else facts.environment.python_version
    version = planned(python, way) if python else version
    minor = ".".join(value_or(version, "3").split(".")[:2])
    site = f"{folder}/lib/python{minor}/site-packages"
    made = PythonEnvironment(
        prefix=folder,
        kind=EnvironmentKind.VENV,
        found_by=(planned(0, way).seen_in,),
        python_version=version,
        interpreter=planned(f"{folder}/bin/python", way),
        site_packages=(site,),
        writable=planned(value=True, way=way),
        externally_managed=False,
        distributions=(),
        duplicates=(),
        hooks=(),
    )
    environments = facts.python.environments if there else (*facts.python.environments, made)
    index = there[0] if there else len(environments) - 1
    prefixes = facts.ability.prefixes
    if all(each.path != site for each in prefixes):
        prefixes = (*prefixes, Prefix(site, writable=True))
    return replace(
        facts,
        python=replace(facts.python, environments=environments, selected=planned(index, way)),
        ability=replace(facts.ability, prefixes=prefixes),
        torch=_NO_TORCH,
        torch_libraries=NOT_READ,
        companions=(),
        extensions=NO_EXTENSIONS,
        nvidia_wheels=(),
    )


def _installed(way: kinds.InstallWheels, facts: Facts, tables: Tables, *, folder: str) -> Facts:
    if environment_to_change(facts) is None:
        facts = _with_environment(facts, folder, way)
    environment = facts.environment
    assert environment is not None, facts.python
    site = _site(environment)
    named = tuple(replace(each, project=canonical(each.project)) for each in way.packages)
    packages = (*named, *toolkit_parts(tables, named))
    new = tuple(_distribution(each.project, _version(way, tables, each), site) for each in packages)
    unchanged = {each.name for each in new if _is_there(environment, each) and way.manner is kinds.Manner.PLAIN}
    changed = tuple(each for each in new if each.name not in unchanged)
    torch = next((each for each in changed if each.name == "torch"), None)
    if torch is None and isinstance(facts.torch, Known) and facts.torch.origin is Origin.WANTED:
        torch = next((each for each in new if each.name == "torch"), None)  # it is here: no longer only wanted
    facts = _with_distributions(facts, changed)
    if torch is not None:
        facts = _with_torch(facts, tables, torch, named={each.name for each in new}, way=way)
    facts = _with_packages(facts, tables, tuple(each for each in changed if each.name != "torch"), way=way)
    facts = _with_tools(facts, packages, way)
    facts = with_toolkit_wheels(facts, packages, site=site, way=way)
    facts = without_missing(facts, _provided(facts, tables, changed))
    facts = without_extensions(facts, {each.name for each in changed})
    through = project_of(facts, environment) is not None and way.manner in (kinds.Manner.PLAIN, kinds.Manner.EARLY)
    return _kept_by_project(facts, tuple(kinds.Package(each.name, each.version) for each in new)) if through else facts


def _version(way: kinds.InstallWheels, tables: Tables, package: kinds.Package) -> str:
    """The version with the build that the index stands for: torch 2.9.0 of .../whl/cu128 is 2.9.0+cu128."""
    version, build = version_of(tables, package), way.index.rstrip("/").rpartition("/")[2]
    if package.project == "torch" and "+" not in version and package.version and _BUILD.fullmatch(build):
        return f"{version}+{build}"
    if package.project == "torch" and way.manner is kinds.Manner.EARLY and not package.version:
        return f"{NEWEST}+{build}"
    return version


def _site(environment: PythonEnvironment) -> str:
    """Where an install goes: the first site-packages folder of the prefix itself."""
    own = (each for each in environment.site_packages if each.startswith(f"{environment.prefix}/"))
    minor = ".".join(value_or(environment.python_version, "3").split(".")[:2])
    fallback = environment.site_packages[0] if environment.site_packages else ""
    return next(own, fallback or f"{environment.prefix}/lib/python{minor}/site-packages")


def _distribution(name: str, version: str, site: str) -> Distribution:
    return Distribution(name, version, site, f"{name.replace('-', '_')}-{version}.dist-info")


def _is_there(environment: PythonEnvironment, new: Distribution) -> bool:
    found = [each for each in environment.distributions if each.name == new.name]
    return len(found) == 1 and found[0].version == new.version


def _with_distributions(facts: Facts, new: tuple[Distribution, ...]) -> Facts:
    """The judged environment with these distributions in the place of those of the same names."""
    names = {each.name for each in new}
    environment = facts.environment
    assert environment is not None, facts.python
    kept = tuple(each for each in environment.distributions if each.name not in names)
    added = tuple(each for each in new if of_interest(each.name))
    if not new or (kept, added) == (environment.distributions, ()):
        return facts
    return with_judged(facts, tuple(sorted((*kept, *added), key=lambda each: (_place(environment, each), each.name))))


def _place(environment: PythonEnvironment, each: Distribution) -> int:
    folders = environment.site_packages
    return folders.index(each.folder) if each.folder in folders else len(folders)


def with_judged(facts: Facts, distributions: tuple[Distribution, ...]) -> Facts:
    """The facts with other distributions in the judged environment."""
    chosen = facts.python.selected
    assert isinstance(chosen, Known), facts.python
    now = tuple(
        replace(each, distributions=distributions, duplicates=duplicates(distributions))
        if index == chosen.value
        else each
        for index, each in enumerate(facts.python.environments)
    )
    return replace(facts, python=replace(facts.python, environments=now))


def _with_torch(facts: Facts, tables: Tables, found: Distribution, *, named: set[str], way: Way) -> Facts:
    """torch in another version, with what it pins; a torch that hides the installed one goes on hiding it.

    What the torch before it had pinned and this one does not ask for stays: no installer takes it away.
    """
    before = facts.torch.value if isinstance(facts.torch, Known) else None
    if before is not None and before.found_via == "PYTHONPATH":
        return facts
    torch = installed_torch(facts, tables, found, way=way)
    shadows = () if before is None else before.shadowed_by
    pins = pins_of_torch(facts, tables, torch)
    pulled = {pin.project: _distribution(pin.project, pinned_version(pin), found.folder) for pin in pins}
    environment = facts.environment
    assert environment is not None, facts.python
    new = tuple(each for each in pulled.values() if each.name not in named and not _is_there(environment, each))
    facts = _with_packages(_with_distributions(facts, new), tables, new, way=way)
    seen = planned(replace(torch, shadowed_by=shadows), way)
    return replace(facts, torch=seen, torch_libraries=NOT_READ)


def _with_packages(
    facts: Facts, tables: Tables, new: tuple[Distribution, ...], *, way: kinds.InstallWheels | Way
) -> Facts:
    """Companions and NVIDIA's wheels in the versions that are installed now."""
    manner = way.manner if isinstance(way, kinds.InstallWheels) else kinds.Manner.PLAIN
    around: dict[str, Companion] = {each.name: each for each in facts.companions}
    wheels: dict[str, NvidiaWheel] = {each.name: each for each in reversed(facts.nvidia_wheels)}
    for each in new:
        if not of_interest(each.name) or each.name in NOT_COMPANIONS:
            continue
        if each.name.startswith(NVIDIA_PROJECTS):
            wheels[each.name] = nvidia_wheel(facts, each)
        else:
            around[each.name] = companion(facts, tables, each, manner=manner, way=way)
    if not new:
        return facts
    order = sorted(wheels) if {*wheels} != {each.name for each in facts.nvidia_wheels} else None
    listed = order or list(dict.fromkeys(each.name for each in facts.nvidia_wheels))
    return replace(
        facts, companions=tuple(around[name] for name in sorted(around)), nvidia_wheels=tuple(wheels[n] for n in listed)
    )


def _with_tools(facts: Facts, packages: tuple[kinds.Package, ...], way: Way) -> Facts:
    """Programs that come as wheels and are looked for on PATH."""
    if all(each.project != "ninja" for each in packages) or isinstance(facts.compilers.find("ninja"), Known):
        return facts
    prefix = "" if facts.environment is None else facts.environment.prefix
    tool = Tool("ninja", f"{prefix}/bin/ninja", NOT_READ)
    return replace(facts, compilers=replace(facts.compilers, tools=(*facts.compilers.tools, tool)))


def _provided(facts: Facts, tables: Tables, new: tuple[Distribution, ...]) -> set[str]:
    """The missing libraries that a wheel now installed brings."""
    names = {each.name for each in new}
    torch = facts.torch_libraries
    missing = () if isinstance(torch, Unknown) else torch.value.missing
    rows = {each.name: tables.wheels_with(each.name, machine=facts.place.arch) for each in missing}
    return {soname for soname, found in rows.items() if any(row.project in names for row in found)}


def _removed(way: kinds.RemoveDistributions, facts: Facts, tables: Tables) -> Facts:
    """Packages taken out, every copy of them, or those of a folder; of torch the one behind them is imported then."""
    environment = facts.environment
    names = {canonical(each) for each in way.projects}
    if environment is None or not names & {each.name for each in environment.distributions if _lies_there(each, way)}:
        return facts
    copies = [each for each in environment.distributions if each.name == "torch"] if "torch" in names else []
    behind = [each for each in copies if not _lies_there(each, way)] if way.folder else copies[way.copies :]
    if isinstance(facts.torch, Known) and facts.torch.seen_in == planned(0, way).seen_in:
        return facts  # that was done: the one behind is not taken out as well
    elsewhere = [each for each in environment.distributions if not _lies_there(each, way)]
    kept = (*behind, *elsewhere)
    facts = with_judged(
        facts, tuple(each for each in environment.distributions if each.name not in names or each in kept)
    )
    names -= {each.name for each in elsewhere if each.name != "torch"}
    if behind:
        torch = planned(installed_torch(facts, tables, behind[0], way=way), way)
        facts = replace(facts, torch=torch, torch_libraries=NOT_READ)
        names.remove("torch")
    facts = replace(
        facts,
        companions=tuple(each for each in facts.companions if each.name not in names),
        nvidia_wheels=tuple(each for each in facts.nvidia_wheels if each.name not in names),
    )
    facts = without_extensions(facts, names)
    hidden = isinstance(facts.torch, Known) and facts.torch.value.found_via == "PYTHONPATH"
    if "torch" not in names or hidden:
        return facts
    return replace(facts, torch=_NO_TORCH, torch_libraries=NOT_READ)


def _lies_there(distribution: Distribution, way: kinds.RemoveDistributions) -> bool:
    return way.folder in ("", distribution.folder)


def _kept_by_project(facts: Facts, packages: tuple[kinds.Package, ...]) -> Facts:
    """The files of the project that fills the judged environment say what is installed."""
    torch = next((each for each in packages if each.project == "torch"), None)
    environment = facts.environment
    if torch is None or environment is None or torch.version.startswith(NEWEST):
        return facts
    files = tuple(
        _says(each, torch.version) if _fills(each, environment) else each for each in facts.python.project_files
    )
    return replace(facts, python=replace(facts.python, project_files=files))


def _fills(file: ProjectFile, environment: PythonEnvironment) -> bool:
    through = any(why.startswith(("project ", "UV_PROJECT_ENVIRONMENT")) for why in environment.found_by)
    return through or environment.prefix.startswith(f"{posixpath.dirname(file.path)}/")


def _says(file: ProjectFile, version: str) -> ProjectFile:
    """A lock names the build, pyproject.toml the release alone: the index that it names decides the build."""
    name = posixpath.basename(file.path)
    return replace(file, torch=(f"=={version.partition('+')[0]}" if name == "pyproject.toml" else version,))
