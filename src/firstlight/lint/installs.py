"""What the commands of an image install: pip, uv and conda read as far as torch and its surroundings need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.frozen import dataclass
from firstlight.lint.model import EnvSet, Ran, Target

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*(?P<spec>(?:[=<>!~].*)?)")
_WITH_VALUE = (
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index", "--default-index", "-c", "--constraint",
    "-r", "--requirement", "-t", "--target", "--prefix", "--python", "-p", "--root", "--cache-dir", "--timeout",
    "--retries", "--progress-bar", "--torch-backend", "--platform", "--python-version", "--only-binary", "--no-binary",
    "--config-settings", "-C", "--trusted-host", "--proxy", "--python-preference", "--index-strategy",
    "--upgrade-strategy", "--prerelease",
)  # fmt: skip
_WITH_VALUE_IN_CONDA = ("-n", "--name", "--channel", "--file")
_PIP = re.compile(r"pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_CONDA = ("conda", "mamba", "micromamba")
_INDEXES = ("-i", "--index-url", "--default-index")
_FIND_LINKS = ("-f", "--find-links")
# Projects whose source releases compile CUDA code while they are installed.
CUDA_EXTENSIONS = frozenset(("flash-attn", "causal-conv1d", "mamba-ssm", "apex", "grouped-gemm", "flash-attn-3"))


@dataclass(frozen=True, slots=True)
class Requirement:
    """One project asked for: torch ==2.5.1, or from an address."""

    project: str  # as PyPI compares names: flash-attn for flash_attn
    spec: str
    address: str = ""

    @property
    def exact(self) -> str:
        """The version of ==, e.g. 2.5.1+cu124; '' where there is none."""
        match = re.fullmatch(r"===?\s*([^,*\s]+)", self.spec.strip())
        return match.group(1) if match is not None else ""


@dataclass(frozen=True, slots=True)
class Install:
    """One `pip install`: what, from where, into which Python."""

    ran: Ran
    requirements: tuple[Requirement, ...]
    index: str  # --index-url, "" is PyPI
    extra_indexes: tuple[str, ...]
    files: tuple[str, ...]  # of -r
    options: tuple[str, ...]
    python: str  # 3.11 of pip3.11 or python3.11 -m pip; "" where it does not say
    tool: str  # pip, uv, conda
    find_links: tuple[str, ...] = ()
    first_index: bool = False  # uv takes a project from the first index that has it, pip the best of all

    def of(self, project: str) -> Requirement | None:
        return next((each for each in self.requirements if each.project == project), None)

    @property
    def upgrades(self) -> bool:
        wanted = ("-U", "--upgrade", "--force-reinstall", "--reinstall", "--ignore-installed", "-I")
        return any(option in wanted for option in self.options)


def installs(target: Target) -> tuple[Install, ...]:
    """All installs of an image in order, with what variables such as PIP_INDEX_URL and files of -r add to them."""
    lists = dict(target.lists)
    return tuple(_with_files(install, lists) if install.files else install for install in installs_of(target))


def installs_of(target: Target) -> tuple[Install, ...]:
    """All installs of an image as they are written."""
    found: list[Install] = []
    env: dict[str, str] = {}
    for event in target.events:
        if isinstance(event, EnvSet):
            env[event.name] = event.value
        elif isinstance(event, Ran):
            env = {**dict(_configured(event)), **env}  # variables win over pip's configuration
            found += _installs_of(event, {**env, **dict(event.command.assigned)})
    return tuple(found)


def _configured(ran: Ran) -> Iterator[tuple[str, str]]:
    """What `pip config set global.extra-index-url URL` or `export` sets, as the variable that means the same."""
    words = [word for word in ran.words if not word.startswith("-")]
    if words[:1] == ["export"]:
        yield from (pair for word in words if (pair := word.partition("=")[::2])[0].startswith(("PIP_", "UV_")))
    if "config" in words and words[0].rpartition("/")[2].startswith(("pip", "python")):
        start = words.index("config") + 1
        if words[start : start + 1] == ["set"] and len(words) > start + 2:
            yield "PIP_" + words[start + 1].rpartition(".")[2].upper().replace("-", "_"), words[start + 2]


def _with_files(install: Install, lists: dict[str, str]) -> Install:
    """An install with the requirements of the files that it names, as far as these were found."""
    requirements, index = list(install.requirements), install.index
    extra, links = list(install.extra_indexes), list(install.find_links)
    for name in install.files:
        for line in lists.get(name, "").splitlines():
            text = re.split(r"(?:^|\s)#|;|\s--hash", line.strip())[0].strip()
            option, _, value = text.replace("=", " ", 1).partition(" ") if text.startswith("-") else ("", "", "")
            if option in _INDEXES:
                index = index or value.strip()
            elif option == "--extra-index-url":
                extra.append(value.strip())
            elif option in _FIND_LINKS:
                links.append(value.strip())
            elif text and not option and (found := _requirement(text.replace(" ", ""), "pip")) is not None:
                requirements.append(found)
    return replace(
        install,
        requirements=tuple(requirements),
        index=index,
        extra_indexes=tuple(extra),
        find_links=tuple(links),
    )


def _installs_of(ran: Ran, env: dict[str, str]) -> Iterator[Install]:
    words = list(ran.words)
    python = ""
    if words and _PYTHON.fullmatch(ran.command.program) and words[1:2] == ["-m"]:
        python = _version(ran.command.program)
        words = words[2:]
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if _PIP.fullmatch(program):
        python = python or _version(program)
        tool, rest = "pip", words[1:]
    elif program == "uv" and words[1:2] == ["pip"]:
        tool, rest = "uv", words[2:]
    elif program in _CONDA:
        tool, rest = "conda", words[1:]
    else:
        return
    while rest and rest[0].startswith("-"):  # pip --no-cache-dir install
        rest = rest[2:] if rest[0] in _WITH_VALUE and "=" not in rest[0] else rest[1:]
    if rest[:1] not in (["install"], ["create"]) or (tool != "conda" and rest[0] == "create"):
        return
    yield _install(ran, rest[1:], tool, python=python, env=env)


def _install(ran: Ran, words: list[str], tool: str, *, python: str, env: dict[str, str]) -> Install:
    requirements: list[Requirement] = []
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
        elif (requirement := _requirement(word, tool)) is not None:
            requirements.append(requirement)
    files = tuple(value for option in ("-r", "--requirement") for value in values.get(option, []))
    searched = _searched(values, tool, env)
    return Install(ran, tuple(requirements), searched.index, searched.extra, files, tuple(options), python, tool,
                   searched.find_links, first_index=searched.first_index)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Searched:
    """Where an install looks, by its options and its variables."""

    index: str
    extra: tuple[str, ...]
    find_links: tuple[str, ...]
    first_index: bool


def _searched(values: dict[str, list[str]], tool: str, env: dict[str, str]) -> _Searched:
    """pip adds its options to PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS; with uv an option replaces the variable."""

    def given(*options: str) -> list[str]:
        return [value for option in options for value in values.get(option, [])]

    if tool == "uv":
        index = (given(*_INDEXES) or [env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL", "")])[-1]
        backend = (given("--torch-backend") or [env.get("UV_TORCH_BACKEND", "")])[0]
        extra = [
            *([f"https://download.pytorch.org/whl/{backend}"] if backend else []),  # for torch it comes before all
            *(given("--index") or env.get("UV_INDEX", "").split()),
            *(given("--extra-index-url") or env.get("UV_EXTRA_INDEX_URL", "").split()),
        ]
        links = given(*_FIND_LINKS) or env.get("UV_FIND_LINKS", "").split()
        strategy = (given("--index-strategy") or [env.get("UV_INDEX_STRATEGY", "")])[-1]
        return _Searched(index, tuple(extra), tuple(links), first_index=strategy != "unsafe-best-match")
    if tool == "conda":
        return _Searched("", (), (), first_index=False)
    index = (given(*_INDEXES, "--index") or [env.get("PIP_INDEX_URL", "")])[-1]  # pip takes shortened options
    extra = [*env.get("PIP_EXTRA_INDEX_URL", "").split(), *given("--extra-index-url")]
    links = [*env.get("PIP_FIND_LINKS", "").split(), *given(*_FIND_LINKS)]
    return _Searched(index, tuple(extra), tuple(links), first_index=False)


def _requirement(word: str, tool: str) -> Requirement | None:
    if word in (".", "..") or word.startswith(("./", "/", "file:")) or "$(" in word:
        return None
    address = re.fullmatch(r"(?:(?P<name>[\w.-]+)\s*@\s*)?(?P<address>(?:git\+|https?:)\S+)", word)
    if address is not None:
        name = address["name"] or _project_of(address["address"])
        return Requirement(canonical(name), "", address["address"]) if name else None
    if tool == "conda":
        word = re.sub(r"^[^:]*::", "", word)
        word = re.sub(r"^([\w.-]+)=(\d[^=]*)(?:=.*)?$", r"\1==\2", word)
    match = _REQUIREMENT.fullmatch(word)
    return None if match is None else Requirement(canonical(match["name"]), match["spec"].strip())


def _project_of(address: str) -> str:
    """The project of a wheel's address or of a repository: torch for .../torch-2.5.1%2Bcu124-cp311-....whl."""
    last = re.split(r"[?#@]", address.rstrip("/").rpartition("/")[2])[0]
    if last.endswith(".whl"):
        return last.split("-")[0]
    return last.removesuffix(".git")


def canonical(name: str) -> str:
    """A project's name as PyPI compares it: flash-attn for Flash_Attn."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(program: str) -> str:
    match = re.search(r"3\.\d+", program)
    return match.group() if match is not None else ""


def apt_packages(target: Target) -> Iterator[tuple[str, Ran]]:
    """The packages that apt-get, apt, dnf or yum install, with where: ('python3-pip', RUN on line 5)."""
    for ran in target.ran:
        if ran.command.program in ("apt-get", "apt", "aptitude", "dnf", "yum", "microdnf") and "install" in ran.words:
            start = ran.words.index("install") + 1
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
