"""What the commands of an image install: pip, uv and conda read as far as torch and its surroundings need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.frozen import dataclass
from firstlight.lint.conda_spec import conda_named
from firstlight.lint.model import EnvSet, Install, ProjectAsked, Ran, Target, Where
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import canonical

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[(?P<extras>[^\]]*)\])?\s*(?P<spec>(?:[=<>!~].*)?)")
_WITH_VALUE = (
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index", "--default-index", "-c", "--constraint",
    "-r", "--requirement", "-t", "--target", "--prefix", "--python", "-p", "--root", "--cache-dir", "--timeout",
    "--retries", "--progress-bar", "--torch-backend", "--platform", "--python-version", "--only-binary", "--no-binary",
    "--config-settings", "-C", "--trusted-host", "--proxy", "--python-preference", "--index-strategy",
    "--upgrade-strategy", "--prerelease",
)  # fmt: skip
_WITH_VALUE_IN_CONDA = ("-n", "--name", "--channel", "--file")
LONGEST_WORD = 2000  # what is longer is no requirement: int() alone refuses a version of that many digits
_PIP = re.compile(r"pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_CONDA = ("conda", "mamba", "micromamba")
OF_INSTALLERS = ("PIP_", "UV_", "CONDA_")  # how the variables that they read begin
_INDEXES = ("-i", "--index-url", "--default-index")
_FIND_LINKS = ("-f", "--find-links")
AUTO = "auto"  # of --torch-backend: by the driver that uv finds
CPU = "cpu"
LOCK = "uv.lock"  # what `uv sync` installs
# What installs all that one file of its own names; without its lock file the newest that fits comes.
MANIFEST_OF = {"poetry": "pyproject.toml", "pixi": "pixi.toml", "pdm": "pyproject.toml"}
# Projects whose source releases compile CUDA code while they are installed.
CUDA_EXTENSIONS = frozenset(("flash-attn", "causal-conv1d", "mamba-ssm", "apex", "grouped-gemm", "flash-attn-3"))
# Those that compile only where they come as source, by the name of their repository.
CUDA_SOURCES = frozenset(("detectron2", "pytorch3d", "mamba", "flash-attention", "xformers", "vllm", "nvdiffrast",
                          "tiny-cuda-nn", "transformerengine", "deepspeed", "pointnet2-ops"))  # fmt: skip


def installs(target: Target) -> tuple[Install, ...]:
    """All installs of an image in order, with what variables such as PIP_INDEX_URL and files of -r add to them."""
    lists = dict(target.lists)
    return tuple(each for install in installs_of(target) for each in _with_files(install, lists))


def installs_of(target: Target) -> tuple[Install, ...]:
    """All installs of an image as they are written."""
    found: list[Install] = []
    env: dict[str, str] = {}
    for event in target.events:
        if isinstance(event, EnvSet):
            env[event.name] = event.value
        elif isinstance(event, Install):
            found.append(event)
        elif isinstance(event, Ran):
            env = {**dict(_configured(event)), **env}  # variables win over pip's configuration
            here = {**env, **dict(event.command.assigned)}
            found += (_as_solved(install, target, here) for install in _installs_of(event, here))
    return tuple(found)


_FORGE_IMAGES = re.compile(r"(?:condaforge|mambaorg)/.*|.*/(?:miniforge|mambaforge|micromamba)\w*")


def _as_solved(install: Install, target: Target, env: dict[str, str]) -> Install:
    """An install of conda's in a build: conda-forge's builds with CUDA ask for __cuda, which comes of a driver alone.

    docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-virtual.html: CONDA_OVERRIDE_CUDA stands in for the
    driver. What the pytorch channel gives, and what a command that names a CUDA comes to, is not said here.
    """
    solved = install.tool == "conda" and install.ran.command.program != "pixi"  # which goes by its own file
    if not solved or target.where is not Where.BUILD or env.get("CONDA_OVERRIDE_CUDA"):
        return install
    lists = dict(target.lists)
    named = [*install.extra_indexes, *(word.partition("::")[0] for word in install.ran.words if "::" in word)]
    named += [each for name in install.files if name in lists for each in lists[name].extra_indexes]
    forge = [each for each in named if each.rpartition("/")[2] == "conda-forge"]
    alone = bool(named) and len(forge) == len(named)
    by_image = not named and _FORGE_IMAGES.fullmatch(target.image.repository) is not None
    return replace(install, backend=CPU) if alone or by_image else install


def _configured(ran: Ran) -> Iterator[tuple[str, str]]:
    """What `pip config set global.extra-index-url URL` or `export` sets, as the variable that means the same."""
    words = [word for word in ran.words if not word.startswith("-")]
    if words[:1] == ["export"]:
        yield from (pair for word in words if (pair := word.partition("=")[::2])[0].startswith(OF_INSTALLERS))
    if "config" in words and words[0].rpartition("/")[2].startswith(("pip", "python")):
        start = words.index("config") + 1
        if words[start : start + 1] == ["set"] and len(words) > start + 2:
            yield "PIP_" + words[start + 1].rpartition(".")[2].upper().replace("-", "_"), words[start + 2]


PIP_PART = "#pip"  # behind the name of an environment.yml: what pip installs on top of it


def _with_files(install: Install, lists: dict[str, Install]) -> Iterator[Install]:
    """An install with the requirements of the files that it names, as far as these were found; its line stays."""
    read = [lists[name] for name in install.files if name in lists]
    parts = [lists[name] for name in (f"{each}{PIP_PART}" for each in install.files) if name in lists]
    if not read and not parts:
        yield install
    if read:
        yield _joined(install, read)
    for part in parts:
        yield replace(part, ran=install.ran, requirements=_on_its_line(part))


def _joined(install: Install, read: list[Install]) -> Install:
    return replace(
        install,
        requirements=(*install.requirements, *(each for one in read for each in _on_its_line(one))),
        index=next(filter(None, (install.index, *(each.index for each in read))), ""),
        extra_indexes=(*install.extra_indexes, *(index for each in read for index in each.extra_indexes)),
        find_links=(*install.find_links, *(link for each in read for link in each.find_links)),
        python=install.python or read[0].python,
        backend=install.backend or read[0].backend,
    )


def _on_its_line(listed: Install) -> tuple[ProjectAsked, ...]:
    """What a list asks for, said at the command that names the list."""
    return tuple(replace(each, place=None) for each in listed.requirements)


def _installs_of(ran: Ran, env: dict[str, str]) -> Iterator[Install]:
    words = list(ran.words)
    python = ""
    if words and _PYTHON.fullmatch(ran.command.program) and words[1:2] == ["-m"]:
        python = _version(ran.command.program)
        words = words[2:]
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program in _CONDA and words[1:2] == ["run"]:
        inner = replace(ran, command=replace(ran.command, words=_run_in(words[2:])))
        yield from (replace(each, ran=ran) for each in _installs_of(inner, env))
        return
    if _PIP.fullmatch(program):
        python = python or _version(program)
        tool, rest = "pip", words[1:]
    elif program == "uv" and words[1:2] == ["pip"]:
        tool, rest = "uv", words[2:]
    elif program == "uv" and words[1:2] == ["add"]:
        tool, rest = "uv", ["install", *words[2:]]
    elif program == "uv" and words[1:2] == ["sync"]:
        synced = _install(ran, words[2:], "uv", python=python, env=env)
        yield replace(synced, requirements=(), files=(LOCK,))
        return
    elif program in MANIFEST_OF and words[1:2] == ["install"]:
        made = _install(ran, [], "conda" if program == "pixi" else "pip", python=python, env=env)
        yield replace(made, files=(MANIFEST_OF[program],))
        return
    elif program in _CONDA and words[1:2] == ["env"]:
        tool, rest = "conda", ["create", *words[3:]] if words[2:3] in (["create"], ["update"]) else []
    elif program in _CONDA:
        tool, rest = "conda", words[1:]
    else:
        return
    while rest and rest[0].startswith("-"):  # pip --no-cache-dir install
        rest = rest[2:] if rest[0] in _WITH_VALUE and "=" not in rest[0] else rest[1:]
    if rest[:1] not in (["install"], ["create"]) or (tool != "conda" and rest[0] == "create"):
        return
    yield _install(ran, rest[1:], tool, python=python, env=env)


def _run_in(words: list[str]) -> tuple[str, ...]:
    """The command of `micromamba run -n env pip install ...`, less the options before it."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-n", "--name", "-p", "--prefix") else words[1:]
    return tuple(words)


def _install(ran: Ran, words: list[str], tool: str, *, python: str, env: dict[str, str]) -> Install:
    requirements: list[ProjectAsked] = []
    options: list[str] = []
    values: dict[str, list[str]] = {}
    with_value = (*_WITH_VALUE, *_WITH_VALUE_IN_CONDA) if tool == "conda" else _WITH_VALUE
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            options.append(name)
            if name in with_value and not equals and index < len(words):
                value = words[index]
                index += 1
            values.setdefault(name, []).append(value)
        elif tool == "conda" and "://" not in word:
            requirements += conda_named(word)
        elif (requirement := requirement_named(word)) is not None:
            requirements.append(requirement)
    named = ("-f", "--file") if tool == "conda" else ("-r", "--requirement")
    files = tuple(value for option in named for value in values.get(option, []))
    searched = _searched(values, tool, env)
    return Install(ran, tuple(requirements), searched.index, searched.extra, files, tuple(options), python, tool,
                   searched.find_links, first_index=searched.first_index, backend=searched.backend)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Searched:
    """Where an install looks, by its options and its variables."""

    index: str
    extra: tuple[str, ...]
    find_links: tuple[str, ...]
    first_index: bool
    backend: str = ""


def _searched(values: dict[str, list[str]], tool: str, env: dict[str, str]) -> _Searched:
    """pip adds its options to PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS; with uv an option replaces the variable."""

    def given(*options: str) -> list[str]:
        return [value for option in options for value in values.get(option, [])]

    if tool == "uv":
        index = (given(*_INDEXES) or [env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL", "")])[-1]
        backend = (given("--torch-backend") or [env.get("UV_TORCH_BACKEND", "")])[0]
        extra = [
            # For torch it comes before all; what `auto` comes to is not known before it runs.
            *([index_of_build(backend)] if backend not in ("", AUTO) else []),
            *(given("--index") or env.get("UV_INDEX", "").split()),
            *(given("--extra-index-url") or env.get("UV_EXTRA_INDEX_URL", "").split()),
        ]
        links = given(*_FIND_LINKS) or env.get("UV_FIND_LINKS", "").split()
        strategy = (given("--index-strategy") or [env.get("UV_INDEX_STRATEGY", "")])[-1]
        first = strategy != "unsafe-best-match"
        return _Searched(index, tuple(extra), tuple(links), first_index=first, backend=backend)
    if tool == "conda":
        return _Searched("", tuple(given("-c", "--channel")), (), first_index=False)  # its channels
    index = (given(*_INDEXES, "--index") or [env.get("PIP_INDEX_URL", "")])[-1]  # pip takes shortened options
    extra = [*env.get("PIP_EXTRA_INDEX_URL", "").split(), *given("--extra-index-url")]
    links = [*env.get("PIP_FIND_LINKS", "").split(), *given(*_FIND_LINKS)]
    return _Searched(index, tuple(extra), tuple(links), first_index=False)


def requirement_named(word: str) -> ProjectAsked | None:
    """What one word of an install names: torch==2.5.1, jax[cuda12], torch @ https://...; None of a folder."""
    if word in (".", "..") or word.startswith(("./", "/", "file:")) or "$(" in word or len(word) > LONGEST_WORD:
        return None
    address = re.fullmatch(r"(?:(?P<name>[\w.-]+)\s*@\s*)?(?P<address>(?:git\+|https?:)\S+)", word)
    if address is not None:
        name = address["name"] or _project_of(address["address"])
        return ProjectAsked(canonical(name), "", address["address"]) if name else None
    match = _REQUIREMENT.fullmatch(word)
    if match is None:
        return None
    extras = tuple(canonical(each.strip()) for each in (match["extras"] or "").split(",") if each.strip())
    return ProjectAsked(canonical(match["name"]), match["spec"].strip(), extras=extras)


def _project_of(address: str) -> str:
    """The project of a wheel's address or of a repository: torch for .../torch-2.5.1%2Bcu124-cp311-....whl."""
    last = re.split(r"[?#@]", address.rstrip("/").rpartition("/")[2])[0]
    if last.endswith(".whl"):
        return last.split("-")[0]
    return last.removesuffix(".git")


def _version(program: str) -> str:
    match = re.search(r"3\.\d+", program)
    return match.group() if match is not None else ""


def apt_packages(target: Target) -> Iterator[tuple[str, Ran]]:
    """The packages that apt-get, apt, dnf, yum or apk install, with where: ('python3-pip', RUN on line 5)."""
    for ran in target.ran:
        order = "add" if ran.command.program == "apk" else "install"
        managers = ("apt-get", "apt", "aptitude", "dnf", "yum", "microdnf", "apk")
        if ran.command.program in managers and order in ran.words:
            start = ran.words.index(order) + 1
            for word in ran.words[start:]:
                if not word.startswith("-"):
                    yield word.partition("=")[0], ran


def nvcc_of_apt(target: Target) -> str:
    """The CUDA release that apt brings a compiler of: '12.4' of cuda-toolkit-12-4; '' of none."""
    for package, _ in apt_packages(target):
        match = re.fullmatch(r"(?:cuda-toolkit|cuda-nvcc|cuda-compiler|cuda)-(\d+)-(\d+)", package)
        if match is not None:
            return f"{match.group(1)}.{match.group(2)}"
    return ""
