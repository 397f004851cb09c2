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
    "--config-settings", "-C", "--trusted-host", "--proxy", "--python-preference",
)  # fmt: skip
_PIP = re.compile(r"pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_CONDA = ("conda", "mamba", "micromamba")
_INDEXES = ("-i", "--index-url", "--index", "--default-index")
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
            found += _installs_of(event, {**env, **dict(event.command.assigned)})
    return tuple(found)


def _with_files(install: Install, lists: dict[str, str]) -> Install:
    """An install with the requirements of the files that it names, as far as these were found."""
    requirements, index, extra = list(install.requirements), install.index, list(install.extra_indexes)
    for name in install.files:
        for line in lists.get(name, "").splitlines():
            text = re.split(r"(?:^|\s)#|;|\s--hash", line.strip())[0].strip()
            option, _, value = text.replace("=", " ", 1).partition(" ") if text.startswith("-") else ("", "", "")
            if option in _INDEXES:
                index = index or value.strip()
            elif option == "--extra-index-url":
                extra.append(value.strip())
            elif text and not option and (found := _requirement(text.replace(" ", ""), "pip")) is not None:
                requirements.append(found)
    return replace(install, requirements=tuple(requirements), index=index, extra_indexes=tuple(extra))


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
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            options.append(name)
            if name in _WITH_VALUE and not equals and index < len(words):
                value = words[index]
                index += 1
            values.setdefault(name, []).append(value)
        elif (requirement := _requirement(word, tool)) is not None:
            requirements.append(requirement)
    set_by = {"pip": "PIP_INDEX_URL", "uv": "UV_INDEX_URL"}.get(tool, "")
    given = [value for option in _INDEXES for value in values.get(option, [])]
    chosen = given[-1] if given else env.get(set_by, "")
    if tool == "uv" and (backend := (values.get("--torch-backend") or [env.get("UV_TORCH_BACKEND", "")])[0]):
        chosen = chosen or f"https://download.pytorch.org/whl/{backend}"
    extra = tuple(values.get("--extra-index-url", []))
    if not extra and tool == "pip" and env.get("PIP_EXTRA_INDEX_URL"):
        extra = (env["PIP_EXTRA_INDEX_URL"],)
    files = tuple(value for option in ("-r", "--requirement") for value in values.get(option, []))
    return Install(ran, tuple(requirements), chosen, extra, files, tuple(options), python, tool)


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
