"""Python environments in reach, without starting an interpreter: where they are, what they search, which one counts."""

from __future__ import annotations

import enum
import posixpath
import re
from collections.abc import Iterator

from firstlight.facts.distributions import (
    Distribution,
    DuplicateDistribution,
    duplicates,
    find_distribution,
    list_distributions,
    search_file,
)
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which

_INTERPRETER = r"python(3\.\d+t?)"
_NUMBERS = r"\d+\.\d+(?:\.\d+)?"
_ROOT_MARKS = (".git", ".hg", ".jj", ".svn")
_MOST_PARENTS = 16
_CFG_LIMIT = 16 << 10
_MOST_PTH = 40
# .pth files that set nothing a GPU stack would notice, on nearly every machine.
_QUIET_PTH = ("distutils-precedence.pth", "_virtualenv.pth")
_HOOK = rb"(?:\A|\n)import[ \t]|(?i:torch|cuda)"
_HOOK_MATCHES = 64
_UV_TORCH = rb'name = "torch"\r?\nversion = "[^"\n]*"'
_PIXI_TORCH = rb"/(?:pytorch|torch)-\d[\w.+!%-]*"
_TOOL_TABLE = rb"(?:\A|\n)\[tool\.(?:uv|pixi)[\].]"
_PYPROJECT_TORCH = rb'"torch ?[=<>~!][^";\n]*'


class EnvironmentKind(enum.Enum):
    """What sort of Python environment a prefix is."""

    VENV = "venv"
    UV_VENV = "uv venv"
    TOOL = "tool"  # made by pipx or uv tool for one program
    CONDA = "conda"
    PIXI = "pixi"
    SYSTEM = "system"
    STANDALONE = "standalone"  # a Python in a prefix of its own: pyenv, uv python, /opt
    MISSING = "missing"  # named by a variable or by the user, but not there


@dataclass(frozen=True, slots=True)
class StartupHook:
    """A file that runs at every start of the interpreter, and which of torch and cuda it names."""

    path: str
    mentions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """One environment, e.g. the uv venv /home/user/app/.venv with Python 3.12.3."""

    prefix: str
    kind: EnvironmentKind
    found_by: tuple[str, ...]
    python_version: Fact[str]
    interpreter: Fact[str]
    site_packages: tuple[str, ...]  # folders that exist, in the order of sys.path
    writable: Fact[bool]
    externally_managed: bool
    distributions: tuple[Distribution, ...]
    duplicates: tuple[DuplicateDistribution, ...]
    hooks: tuple[StartupHook, ...]


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file that fixes a project's packages, and what it says of torch: 2.9.0+cu130 in a lock, >=2.8 elsewhere."""

    path: str
    torch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """The environments in the order in which they count, the one that is judged, and variables that bend imports."""

    environments: tuple[PythonEnvironment, ...]
    selected: Fact[int]
    python_path: tuple[str, ...]  # "." is the current folder: an empty element means it
    python_home: Fact[str]
    no_user_site: bool
    project_files: tuple[ProjectFile, ...]


def probe_environments(machine: Machine, *, python: str = "") -> PythonFacts:
    """Environments without starting one, e.g. selected 0, found by VIRTUAL_ENV; `python`: an interpreter or prefix."""
    project = _project_folders(machine)
    found: dict[tuple[str, str], list[str]] = {}
    places: dict[tuple[str, str], tuple[str, str]] = {}
    for path, why in _candidates(machine, python, project=project):
        prefix, interpreter = _resolve(machine, path)
        match = re.fullmatch(_INTERPRETER, posixpath.basename(machine.real_path(interpreter))) if interpreter else None
        key = (machine.real_path(prefix), match.group(1) if match else "")
        found.setdefault(key, []).append(why)
        places.setdefault(key, (prefix, interpreter))
    listed: dict[str, tuple[Distribution, ...]] = {}
    environments = tuple(
        _look(machine, places[key], found_by=tuple(dict.fromkeys(reasons)), named=key[1], listed=listed)
        for key, reasons in found.items()
    )
    home = machine.env("PYTHONHOME")
    return PythonFacts(
        environments=environments,
        selected=_select(machine, environments, python=python),
        python_path=python_path(machine),
        python_home=Known(home, "PYTHONHOME") if home else Unknown("PYTHONHOME is not set"),
        no_user_site=bool(machine.env("PYTHONNOUSERSITE")),
        project_files=tuple(_project_files(machine, project)),
    )


def python_path(machine: Machine) -> tuple[str, ...]:
    """The elements of PYTHONPATH; an empty one, as in ':/opt/lib', is the current folder and shown as '.'."""
    text = machine.env("PYTHONPATH")
    return tuple(part or "." for part in text.split(":")) if text else ()


def _candidates(machine: Machine, python: str, *, project: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Interpreters and prefixes with the reason each is looked at, in the order in which they count."""
    if python:
        here = posixpath.normpath(posixpath.join(machine.host.cwd, python))
        is_folder = machine.stat(f"{here}/pyvenv.cfg") is not None  # called env, as a program is too
        on_path = which(machine, python) if "/" not in python and not is_folder else None
        yield on_path or here, "given"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if (value := machine.env(name)) and value.startswith("/"):
            yield posixpath.normpath(value), name
    if machine.host.python_prefix:
        yield machine.host.python_prefix, "runs firstlight"
    for name in ("python3", "python"):
        if path := which(machine, name):
            yield path, f"{name} on PATH"
    if (value := machine.env("UV_PROJECT_ENVIRONMENT")) and project:
        yield posixpath.normpath(posixpath.join(project[0], value)), "UV_PROJECT_ENVIRONMENT"
    for folder in project:
        for name in (".venv", "venv"):
            if machine.stat(f"{folder}/{name}/pyvenv.cfg") is not None:
                yield f"{folder}/{name}", f"project {name}"
        if machine.stat(f"{folder}/.pixi/envs/default/conda-meta") is not None:
            yield f"{folder}/.pixi/envs/default", "project .pixi"


def _project_folders(machine: Machine) -> tuple[str, ...]:
    """The current folder and its parents up to the root of the checkout, the home folder or /."""
    found: list[str] = []
    folder = machine.host.cwd
    while folder.startswith("/") and len(found) < _MOST_PARENTS:
        found.append(folder.rstrip("/"))
        at_root = any(machine.stat(f"{found[-1]}/{mark}") is not None for mark in _ROOT_MARKS)
        if at_root or folder in ("/", machine.host.home):
            break
        folder = posixpath.dirname(folder)
    return tuple(found)


def _resolve(machine: Machine, path: str) -> tuple[str, str]:
    """Prefix and interpreter of what was named; the interpreter is '' where there is none."""
    seen = machine.stat(path)
    if seen is None or seen.kind == "folder":
        paths = (f"{path}/bin/{name}" for name in ("python3", "python"))
        return path, next((each for each in paths if machine.stat(each) is not None), "")
    prefix = posixpath.dirname(posixpath.dirname(path))
    if machine.stat(f"{prefix}/pyvenv.cfg") is not None:  # Python looks here before it follows links
        return prefix, path
    if posixpath.basename(posixpath.dirname(path)) == "shims":
        return _behind_shim(machine, prefix)
    real = machine.real_path(path)
    return posixpath.dirname(posixpath.dirname(real)), path


def _behind_shim(machine: Machine, root: str) -> tuple[str, str]:
    """The prefix that a pyenv shim starts: PYENV_VERSION, .python-version here, or the global choice."""
    chosen = (
        machine.env("PYENV_VERSION")
        or machine.read(f"{machine.host.cwd.rstrip('/')}/.python-version", limit=200)
        or machine.read(f"{root}/version", limit=200)
        or ""
    )
    words = re.split(r"[\s:]+", chosen.strip())
    if words[0] in ("", "system") or machine.stat(f"{root}/versions/{words[0]}") is None:
        return "/usr", "/usr/bin/python3"
    return _resolve(machine, f"{root}/versions/{words[0]}")


def _look(
    machine: Machine,
    place: tuple[str, str],
    *,
    found_by: tuple[str, ...],
    named: str,
    listed: dict[str, tuple[Distribution, ...]],
) -> PythonEnvironment:
    """One environment; `named` is the version in the interpreter's file name, `listed` keeps folders listed once."""
    prefix, interpreter = place
    cfg = _read_cfg(machine, prefix)
    kind = _kind(machine, prefix, cfg=cfg)
    version = _version(machine, prefix, named=named, cfg=cfg or {})
    lib = _lib_name(machine, prefix, version=version, named=named)
    sites = _site_folders(machine, prefix, lib=lib, cfg=cfg)
    for folder in sites:
        if folder not in listed:
            listed[folder] = list_distributions(machine, folder)
    distributions = tuple(each for folder in sites for each in listed[folder])
    first = machine.stat(sites[0]) if sites else None
    markers = (f"{prefix}/{each}/{lib}/EXTERNALLY-MANAGED" for each in ("lib", "lib64"))
    return PythonEnvironment(
        prefix=prefix,
        kind=kind,
        found_by=found_by,
        python_version=version,
        interpreter=Known(interpreter, found_by[0])
        if interpreter
        else Unknown(f"{prefix}/bin/python3 does not exist or is a link to nowhere"),
        site_packages=sites,
        writable=Unknown(f"{prefix} has no site-packages folder") if first is None else Known(first.writable, sites[0]),
        externally_managed=any(machine.stat(marker) is not None for marker in markers),
        distributions=distributions,
        duplicates=duplicates(distributions),
        hooks=tuple(_hooks(machine, sites)),
    )


def _read_cfg(machine: Machine, prefix: str) -> dict[str, str] | None:
    """pyvenv.cfg as lower-case keys; None when it is no virtual environment, {} when the file tells nothing."""
    path = f"{prefix}/pyvenv.cfg"
    text = machine.read(path, limit=_CFG_LIMIT)
    if text is None:
        return None if machine.stat(path) is None else {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _kind(machine: Machine, prefix: str, *, cfg: dict[str, str] | None) -> EnvironmentKind:
    if machine.stat(prefix) is None:
        return EnvironmentKind.MISSING
    if cfg is not None:
        receipts = (f"{prefix}/{name}" for name in ("uv-receipt.toml", "pipx_metadata.json"))
        ours = r"/uv/(?:archive|environments)-v\d|/firstlight/fleet/tool-[0-9a-f]{16}$"  # the last: brought by `fleet`
        if re.search(ours, prefix) or any(machine.stat(each) for each in receipts):
            return EnvironmentKind.TOOL
        return EnvironmentKind.UV_VENV if "uv" in cfg else EnvironmentKind.VENV
    if machine.stat(f"{prefix}/conda-meta") is not None:
        return EnvironmentKind.PIXI if "/.pixi/envs/" in prefix else EnvironmentKind.CONDA
    return EnvironmentKind.SYSTEM if prefix in ("/usr", "/usr/local") else EnvironmentKind.STANDALONE


def _version(machine: Machine, prefix: str, *, named: str, cfg: dict[str, str]) -> Fact[str]:
    """Version of the environment's Python, e.g. 3.12.3 from pyvenv.cfg or 3.12 from a folder name."""
    for key in ("version_info", "version"):
        if match := re.match(_NUMBERS, cfg.get(key, "")):
            return Known(match.group(0), f"{prefix}/pyvenv.cfg")
    running = machine.host.python_version
    if prefix == machine.host.python_prefix and running and running.startswith(named.rstrip("t")):
        return Known(running, "the running interpreter")
    if named:
        return Known(named.rstrip("t"), f"{prefix}/bin/python{named}")
    if machine.stat(prefix) is None:
        return Unknown(f"{prefix} does not exist")
    folders = [
        match for name in machine.list(f"{prefix}/lib", "python3.*") if (match := re.fullmatch(_INTERPRETER, name))
    ]
    if not folders:
        return Unknown(f"{prefix}/lib has no python3.* folder")
    newest = max(folders, key=lambda match: int(re.sub(r"\D", "", match.group(1)[2:])))
    return Known(newest.group(1).rstrip("t"), f"{prefix}/lib/{newest.group(0)}")


def _lib_name(machine: Machine, prefix: str, *, version: Fact[str], named: str) -> str:
    """The folder under lib, e.g. python3.12, or python3.13t of a free-threaded build."""
    if isinstance(version, Unknown):
        return "python3"
    minor = ".".join(version.value.split(".")[:2])
    threaded = named.endswith("t") or (
        machine.stat(f"{prefix}/lib/python{minor}") is None and machine.stat(f"{prefix}/lib/python{minor}t") is not None
    )
    return f"python{minor}t" if threaded else f"python{minor}"


def _site_folders(machine: Machine, prefix: str, *, lib: str, cfg: dict[str, str] | None) -> tuple[str, ...]:
    """Site folders that exist, in the order in which the interpreter adds them; one that is a link is listed once."""
    wanted = _sites_under(prefix, lib)
    own_base = machine.env("PYTHONUSERBASE") or f"{machine.host.home.rstrip('/')}/.local"
    user = [] if machine.env("PYTHONNOUSERSITE") else [f"{own_base}/lib/{lib}/site-packages"]
    if cfg is None:
        wanted = user + wanted
    elif cfg.get("include-system-site-packages", "").lower() == "true":
        base = posixpath.dirname(machine.real_path(cfg.get("home", "/usr/bin")))
        wanted = wanted + user + _sites_under(base, lib)
    kept: dict[str, str] = {}
    for folder in wanted:
        seen = machine.stat(folder)
        if seen is not None and seen.kind == "folder":
            kept.setdefault(machine.real_path(folder), folder)
    return tuple(kept.values())


def _sites_under(prefix: str, lib: str) -> list[str]:
    """Where a prefix may keep its packages: lib, lib64 (Fedora), dist-packages (Debian), /usr/local before /usr."""
    if prefix != "/usr":
        return [f"{prefix}/{each}/{lib}/site-packages" for each in ("lib", "lib64")]
    return [
        f"/usr/local/lib/{lib}/dist-packages",
        f"/usr/local/lib64/{lib}/site-packages",
        f"/usr/local/lib/{lib}/site-packages",
        "/usr/lib/python3/dist-packages",
        f"/usr/lib/{lib}/dist-packages",
        f"/usr/lib64/{lib}/site-packages",
        f"/usr/lib/{lib}/site-packages",
    ]


def _hooks(machine: Machine, sites: tuple[str, ...]) -> Iterator[StartupHook]:
    """Files that run code at start-up. Of each only the searched words are taken, never the text."""
    for folder in sites:
        for name in machine.list(folder, "[!_]*.pth")[:_MOST_PTH]:
            if name in _QUIET_PTH or name.endswith("-nspkg.pth"):
                continue
            words = search_file(machine, f"{folder}/{name}", pattern=_HOOK, limit=_HOOK_MATCHES) or ()
            if any(word.strip().startswith(b"import") for word in words):
                yield StartupHook(f"{folder}/{name}", _mentions(words))
    here = [posixpath.normpath(posixpath.join(machine.host.cwd, each)) for each in python_path(machine)]
    for folder in [*here, *sites]:
        for name in ("sitecustomize.py", "usercustomize.py"):
            if machine.stat(f"{folder}/{name}") is not None:
                words = search_file(machine, f"{folder}/{name}", pattern=_HOOK, limit=_HOOK_MATCHES) or ()
                yield StartupHook(f"{folder}/{name}", _mentions(words))


def _mentions(words: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(sorted({word.decode("ascii", "replace").lower() for word in words if b"import" not in word}))


def _project_files(machine: Machine, project: tuple[str, ...]) -> Iterator[ProjectFile]:
    """uv.lock, pixi.lock and a pyproject.toml that uv or pixi reads; only what they say of torch is taken."""
    for folder in project:
        for name, pattern in (("uv.lock", _UV_TORCH), ("pixi.lock", _PIXI_TORCH), ("pyproject.toml", _PYPROJECT_TORCH)):
            path = f"{folder}/{name}"
            if machine.stat(path) is None or (
                name == "pyproject.toml" and not search_file(machine, path, pattern=_TOOL_TABLE)
            ):
                continue
            said = search_file(machine, path, pattern=pattern) or ()
            found = [_torch_in(name, text.decode("utf-8", "replace")) for text in said]
            yield ProjectFile(path, tuple(dict.fromkeys(found)))


def _torch_in(name: str, text: str) -> str:
    """2.9.0+cu130 of a uv.lock, '2.5.1 cuda126_py312_h1_300' of a conda package in a pixi.lock, '==2.9.0' elsewhere."""
    if name == "uv.lock":
        return text.rpartition("version = ")[2].strip('"')
    if name == "pyproject.toml":
        return text.lstrip('"').removeprefix("torch").strip()
    parts = text.replace("%2B", "+").removesuffix(".conda").removesuffix(".tar.bz2").split("-", 2)
    return f"{parts[1]} {parts[2]}" if parts[0] == "/pytorch" and len(parts) > 2 else parts[1]


def _select(machine: Machine, environments: tuple[PythonEnvironment, ...], *, python: str) -> Fact[int]:
    """The user's choice, else the first that holds torch, else the first that can be installed into."""
    if python:
        return Known(0, "given")
    for index, each in enumerate(environments):
        if holds_torch(machine, each):
            return Known(index, each.found_by[0])
    there = [(i, each) for i, each in enumerate(environments) if each.kind is not EnvironmentKind.MISSING]
    own = [(i, each) for i, each in there if each.kind is not EnvironmentKind.TOOL]
    for index, each in [pair for pair in own if not pair[1].externally_managed] + own + there:
        return Known(index, each.found_by[0])
    return Unknown("no Python environment was found")


def holds_torch(machine: Machine, environment: PythonEnvironment) -> bool:
    """Whether torch is there: a record, a torch folder, or a link to a checkout."""
    return find_distribution(environment.distributions, "torch") is not None or any(
        machine.stat(f"{folder}/{name}") is not None
        for folder in environment.site_packages
        for name in ("torch/version.py", "torch.egg-link")
    )
