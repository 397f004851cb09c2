"""What setting and unsetting variables does to the facts: wherever a variable shows, and what it leads to."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from firstlight.facts.build_variables import NAMES as BUILD_VARIABLES
from firstlight.facts.build_variables import BuildVariable
from firstlight.facts.collect import Facts
from firstlight.facts.compilers import ChosenCompiler, CompilerFacts
from firstlight.facts.distributions import duplicates, find_distribution
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.toolkits import ToolkitFacts
from firstlight.tables import Tables
from firstlight.ways.kinds import ReadEnvironment, Scope, SetVariables, UnsetVariables
from firstlight.ways.libcuda_on_paper import asked_anew, counted_anew
from firstlight.ways.loader_effects import plain, with_library_path, with_preload
from firstlight.ways.paper import NOT_READ, becomes, planned
from firstlight.ways.torch_on_paper import installed_torch
from firstlight.ways.way import Way

# Variables that the facts of the GPUs name, and those of them that decide which devices CUDA lists.
_OF_GPUS = {
    "CUDA_VISIBLE_DEVICES": "cuda_visible_devices",
    "NVIDIA_VISIBLE_DEVICES": "nvidia_visible_devices",
    "CUDA_DEVICE_ORDER": "cuda_device_order",
    "CUDA_MPS_PIPE_DIRECTORY": "mps_pipe_directory",
}
_ASKED_BY_CUDA = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY")
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH")  # in the order in which torch's extension builder takes them
_LAST_RESORT = "/usr/local/cuda"
_COMPILERS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")


def after_variables(way: Way, facts: Facts, tables: Tables) -> Facts | None:
    """The facts after a way that sets or unsets variables; None for any other way."""
    match way:
        case SetVariables():
            for each in way.variables:
                facts = _with_variable(facts, tables, each.name, value=each.value, way=way)
            return _heard(facts, tuple(each.name for each in way.variables)) if way.scope is Scope.LOGIN else facts
        case UnsetVariables():
            for name in way.names:
                facts = _with_variable(facts, tables, name, value=None, way=way)
            return facts
        case ReadEnvironment():
            return _handed_on(way, facts, tables)
    return None


def _with_variable(facts: Facts, tables: Tables, name: str, *, value: str | None, way: Way) -> Facts:
    """The facts with one variable set to a value, or unset where that is None."""
    match name:
        case "LD_LIBRARY_PATH":
            path = tuple((value or "").replace(";", ":").split(":")) if value else ()
            return with_library_path(facts, tables, path, way=way)
        case "LD_PRELOAD":
            return with_preload(facts, tables, tuple((value or "").replace(":", " ").split()), way=way)
        case "PYTHONPATH":
            return _with_python_path(facts, tables, tuple((value or "").split(":")) if value else (), way=way)
        case "PYTHONNOUSERSITE" if value:
            return _without_user_site(facts, tables, way=way)
        case "UV_TORCH_BACKEND":
            backend = _as_set(facts.network.uv_torch_backend, name, value=value, way=way)
            return replace(facts, network=replace(facts.network, uv_torch_backend=backend))
    if name in _OF_GPUS:
        return _of_gpus(facts, name, value=value, way=way)
    if name in _TOOLKITS:
        return replace(facts, toolkits=_with_toolkit(facts.toolkits, name, value=value, way=way))
    if name in _COMPILERS:
        return replace(facts, compilers=_with_compiler(facts.compilers, name, value=value))
    if name in BUILD_VARIABLES:
        kept = {each.name: each.value for each in facts.build_variables if each.name != name}
        now = kept | ({name: value.strip()} if value and value.strip() else {})
        listed = tuple(BuildVariable(each, now[each]) for each in BUILD_VARIABLES if each in now)
        return replace(facts, build_variables=listed)
    return facts


def _as_set(fact: Fact[str], name: str, *, value: str | None, way: Way) -> Fact[str]:
    return Unknown(f"{name} is not set") if value is None else becomes(fact, value, way)


def _of_gpus(facts: Facts, name: str, *, value: str | None, way: Way) -> Facts:
    before: Fact[str] = getattr(facts.gpus, _OF_GPUS[name])
    now = _as_set(before, name, value=value, way=way)
    changed: dict[str, Fact[str]] = {_OF_GPUS[name]: now}
    asked = name in _ASKED_BY_CUDA and value_or(before, None) != value
    facts = replace(facts, gpus=replace(facts.gpus, **changed))  # type: ignore[arg-type]
    if not asked:
        return facts
    return asked_anew(facts) if value else counted_anew(facts)  # a mask may leave no GPU to start with


def _with_toolkit(facts: ToolkitFacts, name: str, *, value: str | None, way: Way) -> ToolkitFacts:
    """CUDA_HOME or CUDA_PATH set anew, and with it the toolkit that torch's extension builder takes."""
    if name == "CUDA_HOME":
        facts = replace(facts, cuda_home=_as_set(facts.cuda_home, name, value=value, way=way))
    else:
        facts = replace(facts, cuda_path=_as_set(facts.cuda_path, name, value=value, way=way))
    toolkits = tuple(
        replace(each, found_by=_found_by(each.found_by, name, leads_there=_leads_to(each.path, each.found_by, value)))
        for each in facts.toolkits
    )
    return replace(facts, toolkits=toolkits, cpp_extension_home=_extension_home(facts, _LAST_RESORT))


def _leads_to(path: str, found_by: tuple[str, ...], value: str | None) -> bool:
    return bool(value) and plain(value or "") in (path, *found_by)


def _found_by(names: tuple[str, ...], name: str, *, leads_there: bool) -> tuple[str, ...]:
    if leads_there:
        return names if name in names else (name, *names)
    return tuple(each for each in names if each != name)


def _extension_home(facts: ToolkitFacts, last_resort: str) -> Fact[str]:
    """torch's own order: CUDA_HOME, CUDA_PATH, two up from nvcc on PATH, /usr/local/cuda."""
    for name, fact in zip(_TOOLKITS, (facts.cuda_home, facts.cuda_path), strict=True):
        if isinstance(fact, Known) and fact.value:
            return Known(fact.value, name, fact.origin)
    if isinstance(facts.nvcc_on_path, Known):
        home = posixpath.dirname(posixpath.dirname(facts.nvcc_on_path.value.path)) or "/"
        return Known(home, "nvcc on PATH", Origin.PLANNED)
    if any(last_resort in (each.path, *each.found_by) for each in facts.toolkits):
        return Known(last_resort, last_resort, Origin.PLANNED)
    return Unknown("no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda")


def with_new_toolkit(facts: ToolkitFacts) -> ToolkitFacts:
    """The toolkits with what torch's extension builder finds now that one more is there."""
    return replace(facts, cpp_extension_home=_extension_home(facts, _LAST_RESORT)) \
        if isinstance(facts.cpp_extension_home, Unknown) else facts  # fmt: skip


def _with_compiler(facts: CompilerFacts, name: str, *, value: str | None) -> CompilerFacts:
    others = {each.variable: each for each in facts.chosen if each.variable != name}
    if value:
        others[name] = _chosen(facts, name, value)
    return replace(facts, chosen=tuple(others[each] for each in _COMPILERS if each in others))


def _chosen(facts: CompilerFacts, name: str, command: str) -> ChosenCompiler:
    """A compiler named by a variable: one of a numbered pair, one on PATH, else one that was not looked at."""
    for pair in facts.numbered:
        for path, plain_name in ((pair.gcc, f"gcc-{pair.number}"), (pair.gxx, f"g++-{pair.number}")):
            if isinstance(path, Known) and command in (path.value, plain_name):
                return ChosenCompiler(name, command, path, Known(str(pair.number), path.value, Origin.PLANNED))
    for tool in facts.compilers:
        if command in (tool.name, tool.path):
            return ChosenCompiler(name, command, Known(tool.path, "PATH"), tool.version)
    named = command.startswith(("/", "~/"))
    return ChosenCompiler(name, command, Known(command, name, Origin.PLANNED) if named else NOT_READ, NOT_READ)


def _with_python_path(facts: Facts, tables: Tables, path: tuple[str, ...], *, way: Way) -> Facts:
    """Another PYTHONPATH; where a torch was found through it, the installed one is imported again."""
    if path == facts.python.python_path:
        return facts
    facts = replace(facts, python=replace(facts.python, python_path=path))
    torch = facts.torch
    if isinstance(torch, Unknown) or torch.value.found_via != "PYTHONPATH":
        return facts
    if posixpath.dirname(torch.value.folder) in (plain(each) for each in path):
        return facts
    environment = facts.environment
    found = None if environment is None else find_distribution(environment.distributions, "torch")
    if found is None:
        return replace(facts, torch=Unknown("planned: no torch is installed"), torch_libraries=NOT_READ)
    return replace(facts, torch=planned(installed_torch(facts, tables, found, way=way), way), torch_libraries=NOT_READ)


def _heard(facts: Facts, names: tuple[str, ...]) -> Facts:
    """Variables that login shells have now as well."""
    lost = facts.container.only_in_pid_1
    if isinstance(lost, Unknown) or not set(lost.value) & set(names):
        return facts
    left = tuple(each for each in lost.value if each not in names)
    return replace(facts, container=replace(facts.container, only_in_pid_1=replace(lost, value=left)))


def _handed_on(way: ReadEnvironment, facts: Facts, tables: Tables) -> Facts:
    """The container's variables in this shell: their names are known, their values only a program sees."""
    lost = set(value_or(facts.container.only_in_pid_1, ())) & set(way.names)
    facts = _heard(facts, way.names)
    if "LD_LIBRARY_PATH" in lost and facts.libcuda.out_of_reach and isinstance(facts.libcuda.would_load, Unknown):
        folder = posixpath.dirname(facts.libcuda.out_of_reach[0])  # what the container's path is there for
        facts = with_library_path(facts, tables, (folder, *facts.libcuda.ld_library_path), way=way)
    return asked_anew(facts) if lost & {"CUDA_VISIBLE_DEVICES"} else facts


def _without_user_site(facts: Facts, tables: Tables, *, way: Way) -> Facts:
    """The folder of this user's own packages out of the search path: what lies behind it is imported."""
    environment, chosen = facts.environment, facts.python.selected
    if environment is None or isinstance(chosen, Unknown) or facts.python.no_user_site:
        return facts
    sites = tuple(each for each in environment.site_packages if each.startswith((f"{environment.prefix}/", "/usr/")))
    kept = tuple(each for each in environment.distributions if each.folder in sites)
    other = replace(environment, site_packages=sites, distributions=kept, duplicates=duplicates(kept))
    every = tuple(other if place == chosen.value else each for place, each in enumerate(facts.python.environments))
    facts = replace(facts, python=replace(facts.python, environments=every, no_user_site=True))
    torch = facts.torch
    if isinstance(torch, Unknown) or posixpath.dirname(torch.value.folder) in sites:
        return facts
    found = find_distribution(kept, "torch")
    if found is None:
        return replace(facts, torch=Unknown("planned: no torch is installed"), torch_libraries=NOT_READ)
    return replace(facts, torch=planned(installed_torch(facts, tables, found, way=way), way), torch_libraries=NOT_READ)
