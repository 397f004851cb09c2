"""Installed Python distributions that matter for torch and CUDA, from folder names; nothing is imported or spawned."""

from __future__ import annotations

import enum
import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import canonical

# What is kept of a listing. A name is compared in its normal form (PEP 503): lower case, runs of -_. as one hyphen.
_NAMES = {
    "apex", "auto-gptq", "bitsandbytes", "causal-conv1d", "deepspeed", "flash-attn", "flash-attn-3", "mamba-ssm",
    "numpy", "onnxruntime", "onnxruntime-gpu", "pytorch-triton", "sageattention", "setuptools", "sgl-kernel",
    "tensorflow", "tensorflow-cpu", "torch",
    "torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv", "torch-tensorrt", "torchao", "torchaudio",
    "torchcodec", "torchtext", "torchvision", "triton", "vllm", "vllm-flash-attn", "xformers",
}  # fmt: skip
_PREFIXES = (
    "nvidia-", "cuda-", "cupy", "cutensor", "nvpl", "jax", "tensorrt", "transformer-engine", "fbgemm-gpu",
    "pytorch-triton-", "triton-", "flashinfer-",
)  # fmt: skip
# Regexes are texts, compiled when first used: a machine without torch never needs most of them.
_RUNS = r"[-_.]+"
_EGG = r"(?P<name>.+?)-(?P<version>\d[^-]*)(?:-py\d.*)?\.egg-info"
_REQUIREMENT = (
    r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?:@\s*\S+\s*)?"
    r"(?P<specifier>[^;]*)(?:;(?P<marker>.*))?"
)
_DIRECT = rb'"(?:dir_info|vcs_info|archive_info)"|"editable": ?true'
_CHECKOUT = rb'"url": ?"file:///[^"\n]*"'
_MARKER_WORD = r"\s*(?:(\(|\))|(<=|>=|==|!=|~=|<|>)|\"([^\"]*)\"|'([^']*)'|([A-Za-z_][\w.]*))"
_SEARCH_LIMIT = 32 << 20
_LONGEST_REQUIREMENT = 1000
_MOST_PARENTHESES = 16


class InstalledFrom(enum.Enum):
    """Where an installer took a distribution from."""

    INDEX = "index"  # or a wheel found by name: pip leaves no direct_url.json then
    FOLDER = "folder"
    EDITABLE = "editable folder"
    ARCHIVE = "archive"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution, e.g. torch 2.9.0+cu130 in /opt/venv/lib/python3.12/site-packages."""

    name: str  # normal form: flash-attn
    version: str  # as the folder name has it
    folder: str
    record: str  # torch-2.9.0+cu130.dist-info

    @property
    def record_path(self) -> str:
        """The folder of its metadata."""
        return f"{self.folder}/{self.record}"


@dataclass(frozen=True, slots=True)
class DuplicateDistribution:
    """A name that is installed more than once on one search path, first found first: numpy (1.26.4, 2.1.0)."""

    name: str
    versions: tuple[str, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A dependency that applies on this machine, e.g. nvidia-cudnn-cu13 ==9.19.0.56, asked for by torch."""

    name: str
    extras: tuple[str, ...]
    specifier: str  # "" is any version
    open_marker: str  # a condition that could not be decided; "" when it applies for certain
    asked_by: str = "torch"  # or the package between, e.g. cuda-toolkit


def of_interest(name: str) -> bool:
    """Whether a normal name is one that we keep, e.g. nvidia-cublas."""
    return name in _NAMES or name.startswith(_PREFIXES)


def search_file(machine: Machine, path: str, *, pattern: bytes, limit: int = 8) -> tuple[bytes, ...] | None:
    """Matches in a small regular file; None for anything else, so that no pipe or absurd size keeps us waiting."""
    seen = machine.stat(path)
    if seen is None or seen.kind != "file" or seen.size > _SEARCH_LIMIT:
        return None
    return machine.search(path, pattern, limit=limit)


def list_distributions(machine: Machine, folder: str) -> tuple[Distribution, ...]:
    """The distributions of interest in a site-packages folder, by one listing; no metadata file is opened."""
    found = []
    for record in machine.list(folder, "*-info", keep=_is_of_interest):
        name, version = name_and_version(record)
        found.append(Distribution(name, version, folder, record))
    return tuple(sorted(found, key=lambda each: (each.name, each.version)))


def _is_of_interest(record: str) -> bool:
    name, version = name_and_version(record)
    return bool(version) and of_interest(name)


def name_and_version(record: str) -> tuple[str, str]:
    """('torch', '2.9.0') for torch-2.9.0.dist-info; two empty texts for what is no record."""
    if record.endswith(".dist-info"):
        name, _, version = record.removesuffix(".dist-info").rpartition("-")
    elif match := re.fullmatch(_EGG, record):
        name, version = match["name"], match["version"]
    else:
        return "", ""
    return (canonical(name), version) if name else ("", "")


def duplicates(distributions: tuple[Distribution, ...]) -> tuple[DuplicateDistribution, ...]:
    """Names with more than one record; `distributions` come in the order of the search path."""
    by_name: dict[str, list[Distribution]] = {}
    for each in distributions:
        by_name.setdefault(each.name, []).append(each)
    return tuple(
        DuplicateDistribution(name, tuple(each.version for each in group), tuple(each.folder for each in group))
        for name, group in sorted(by_name.items())
        if len(group) > 1
    )


def find_distribution(distributions: tuple[Distribution, ...], name: str) -> Distribution | None:
    """The first of that normal name: the one that importlib.metadata would report."""
    return next((each for each in distributions if each.name == name), None)


def installed_from(machine: Machine, distribution: Distribution) -> Fact[InstalledFrom]:
    """How it got here, e.g. EDITABLE. The URL in direct_url.json may hold a token: only its kind is looked for."""
    path = f"{distribution.record_path}/direct_url.json"
    if machine.stat(path) is None:
        return Known(InstalledFrom.INDEX, f"no {path}")
    found = search_file(machine, path, pattern=_DIRECT)
    if not found:
        return Unknown(f"{path}: " + (machine.why_not(path) if found is None else "says neither folder nor archive"))
    said = b" ".join(found)
    if b"editable" in said:
        return Known(InstalledFrom.EDITABLE, path)
    kinds = {b"vcs_info": InstalledFrom.REPOSITORY, b"archive_info": InstalledFrom.ARCHIVE}
    return Known(next((kind for key, kind in kinds.items() if key in said), InstalledFrom.FOLDER), path)


def checkout_of(machine: Machine, distribution: Distribution) -> str | None:
    """The source folder of an editable install, e.g. /home/user/pytorch; None when there is none."""
    found = search_file(machine, f"{distribution.record_path}/direct_url.json", pattern=_CHECKOUT)
    if not found:
        return None
    from urllib.parse import unquote

    return unquote(found[0].decode("utf-8", "replace").partition("file://")[2].rstrip('"'))


def read_headers(machine: Machine, distribution: Distribution) -> Fact[tuple[str, ...]]:
    """The header lines of METADATA (or PKG-INFO), up to the first blank line, e.g. 'Requires-Dist: triton==3.6.0'."""
    for name in ("METADATA", "PKG-INFO"):
        path = f"{distribution.record_path}/{name}"
        text = machine.read(path, until="\n\n")
        if text is not None:
            # Old torch wheels have CRLF: the cut above then finds nothing, and the blank line is a lone \r.
            headers = text.replace("\r\n", "\n").partition("\n\n")[0]
            return Known(tuple(headers.split("\n")), path)
    return Unknown(f"{distribution.record_path}/METADATA: {machine.why_not(distribution.record_path + '/METADATA')}")


def requirements(
    headers: tuple[str, ...], *, asked_by: str, arch: str, python: str, extras: tuple[str, ...] = ()
) -> tuple[Requirement, ...]:
    """Requires-Dist lines that apply on Linux with this arch and Python, and with these extras asked for."""
    found = []
    for line in headers:
        key, _, text = line.partition(":")
        if key.lower() != "requires-dist" or len(text) > _LONGEST_REQUIREMENT:
            continue
        match = re.fullmatch(_REQUIREMENT, text.strip())
        if match is None:
            continue
        marker = (match["marker"] or "").strip()
        applies = evaluate_marker(marker, arch=arch, python=python, extras=extras) if marker else True
        if applies is False:
            continue
        specifier = match["specifier"].strip().removeprefix("(").removesuffix(")").replace(" ", "")
        wanted = tuple(sorted(part.strip() for part in (match["extras"] or "").split(",") if part.strip()))
        name = canonical(match["name"])
        found.append(Requirement(name, wanted, specifier, "" if applies else marker, asked_by))
    return tuple(found)


def evaluate_marker(marker: str, *, arch: str, python: str, extras: tuple[str, ...] = ()) -> bool | None:
    """Whether an environment marker holds on Linux, e.g. 'platform_machine == "x86_64"'; None: cannot tell."""
    if len(marker) > _LONGEST_REQUIREMENT or marker.count("(") > _MOST_PARENTHESES:
        return None
    tokens = _tokens(marker)
    if not tokens:
        return None
    variables = {
        "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix", "platform_machine": arch,
        "python_version": ".".join(python.split(".")[:2]), "python_full_version": python, "extra": ",".join(extras),
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    answer, rest = _either(tokens, variables)
    return None if rest else answer


def _tokens(marker: str) -> list[str]:
    """Words, operators and parentheses; a quoted text keeps one quote in front. [] when something else is there."""
    found = []
    position = 0
    marker = marker.rstrip()
    word_pattern = re.compile(_MARKER_WORD)
    while position < len(marker):
        match = word_pattern.match(marker, position)
        if match is None:
            return []
        sign, operator, double, single, word = match.groups()
        quoted = double if double is not None else single
        found.append(sign or operator or word or f'"{quoted}')
        position = match.end()
    return found


def _either(tokens: list[str], variables: dict[str, str]) -> tuple[bool | None, list[str]]:
    """A chain of `or`; true wins over 'cannot tell'."""
    answer, rest = _both(tokens, variables)
    while rest and rest[0] == "or":
        right, rest = _both(rest[1:], variables)
        answer = True if answer or right else (None if answer is None or right is None else False)
    return answer, rest


def _both(tokens: list[str], variables: dict[str, str]) -> tuple[bool | None, list[str]]:
    """A chain of `and`; false wins over 'cannot tell'."""
    answer, rest = _comparison(tokens, variables)
    while rest and rest[0] == "and":
        right, rest = _comparison(rest[1:], variables)
        answer = False if answer is False or right is False else (None if answer is None or right is None else True)
    return answer, rest


def _comparison(tokens: list[str], variables: dict[str, str]) -> tuple[bool | None, list[str]]:
    if tokens and tokens[0] == "(":
        answer, rest = _either(tokens[1:], variables)
        return (answer, rest[1:]) if rest and rest[0] == ")" else (None, ["unbalanced"])
    if tokens[1:3] == ["not", "in"]:
        tokens = [tokens[0], "not in", *tokens[3:]]
    if len(tokens) < 3:
        return None, ["too short"]
    left, operator, right = tokens[:3]
    name = right if left.startswith('"') else left
    values = [word[1:] if word.startswith('"') else variables.get(word) for word in (left, right)]
    if values[0] is None or values[1] is None:
        return None, tokens[3:]
    if name == "extra":  # holds for each extra that was asked for
        asked = (values[0] if left.startswith('"') else values[1]) in variables["extra"].split(",")
        return {"==": asked, "!=": not asked}.get(operator), tokens[3:]
    if operator in ("in", "not in"):
        return (values[0] in values[1]) is (operator == "in"), tokens[3:]
    if name.startswith("python_"):
        return _compare_numbers(values[0], operator, right=values[1]), tokens[3:]
    return {"==": values[0] == values[1], "!=": values[0] != values[1]}.get(operator), tokens[3:]


def _compare_numbers(left: str, operator: str, *, right: str) -> bool | None:
    """Dotted numbers, the shorter one filled up with zeros: 3.12 < 3.12.1."""
    try:
        one, other = (tuple(int(part) for part in text.split(".")) for text in (left, right))
    except ValueError:  # '3.*' and pre-releases
        return None
    size = max(len(one), len(other))
    first, second = one + (0,) * (size - len(one)), other + (0,) * (size - len(other))
    answers = {"==": first == second, "!=": first != second, "<": first < second, ">": first > second}
    return {**answers, "<=": first <= second, ">=": first >= second}.get(operator)
