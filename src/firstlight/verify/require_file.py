"""A team's own list, read from TOML: what a machine must have before work starts on it.

gpus = 1                       # at least so many in torch
gpu_name = "H100|H200"         # a pattern that every GPU's name matches
min_driver = "580"
min_capability = "9.0"
toolkit = ">=13.0,<14"
commands = ["git", "ninja"]    # on PATH
files = ["/opt/cutlass/include/cute/tensor.hpp"]

[versions]                     # distributions of the environment, and python
torch = ">=2.9,<3"

[checkouts]
cutlass = { path = "/opt/cutlass", tag = "v4.3.0" }    # or commit = "8afb19d9"

[env]
CUDA_HOME = "/usr/local/cuda-13.0"    # this value; true: set; false: not set

[binaries]
"build/sparse_h100" = "sm_90a"        # holds this code
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from firstlight.errors import BadInput, BadVersion
from firstlight.frozen import dataclass
from firstlight.near import nearest
from firstlight.opening import open_given
from firstlight.toml import parse_toml
from firstlight.versions import ComputeCapability, DriverVersion

_LARGEST = 1 << 20
_CODE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")


class RequirementKind(enum.Enum):
    """What a requirement is about."""

    GPUS = "gpus"
    GPU_NAME = "gpu_name"
    DRIVER = "min_driver"
    CAPABILITY = "min_capability"
    TOOLKIT = "toolkit"
    COMMAND = "command"
    FILE = "file"
    VERSION = "version"
    TAG = "tag"
    COMMIT = "commit"
    VARIABLE = "variable"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: version of torch, >=2.9,<3, said in line 3 of the file."""

    kind: RequirementKind
    name: str  # torch, /opt/cutlass, CUDA_HOME; "" for what the machine has one of
    needed: str  # ">=2.9,<3"; of a variable: "=value", "set" or "not set"
    line: int
    path: str = ""  # of a checkout


def read_require_file(path: str) -> tuple[Requirement, ...]:
    """Every requirement of a file, in its order; BadInput names the line that cannot be used."""
    try:
        with open_given(path) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"--require {path}: {error.strerror}; accepted: a TOML file, see docs/verify.md.") from error
    if len(data) > _LARGEST:
        raise BadInput(f"--require {path}: larger than 1 MiB; accepted: a list of requirements in TOML.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"--require {path}: line {line}: not UTF-8 text. Save the file as UTF-8.") from error
    try:
        document: dict[str, Any] = parse_toml(text)
    except ValueError as error:  # TOMLDecodeError says '... (at line 3, column 7)'
        raise BadInput(f"--require {path}: {_with_line_first(str(error), text)}. Correct the line.") from error
    except RecursionError as error:
        raise BadInput(f"--require {path}: nested too deeply. Keep to the form in docs/verify.md.") from error
    reader = _Reader(path, text)
    found = [requirement for key, value in document.items() for requirement in reader.read(key, value)]
    if not found:
        raise BadInput(f"--require {path}: no requirement in it; accepted: {', '.join(_READERS)}.")
    return tuple(found)


def _with_line_first(message: str, text: str) -> str:
    match = re.search(r" ?\(at (line \d+), column (\d+)\)", message)
    if match is None:
        return f"line {text.count(chr(10)) + 1}: {message.replace(' (at end of document)', ', at the end')}"
    return f"{match[1]}: {message.replace(match[0], '')}, at column {match[2]}"


class _Reader:
    """Knows the file it reads, so that every refusal names a line."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.lines = path, text.splitlines()

    def read(self, key: str, value: Any) -> list[Requirement]:
        if key not in _READERS:
            near = nearest(key, _READERS)
            hint = f" Did you mean {near[0]}?" if near else ""
            self.refuse("", key, f"{key!r} is not a requirement; accepted: {', '.join(_READERS)}.{hint}")
        return _READERS[key](self, key, value)

    def refuse(self, table: str, key: str, why: str) -> None:
        raise BadInput(f"--require {self.path}: line {self.line_of(table, key)}: {why}")

    def line_of(self, table: str, key: str) -> int:
        """The line a key stands in: under its table's heading, or the heading itself; dotted keys are seen too."""
        word = re.escape(key)
        pattern = re.compile(rf"""\s*(?:{re.escape(table)}\s*\.\s*)?["']?{word}["']?\s*[=.]""")
        heading = re.compile(rf"""\s*\[+\s*["']?{re.escape(table)}["']?(?:\.["']?{word}["']?)?\s*\]""")
        inside, found = table == "", 0
        for number, line in enumerate(self.lines, 1):
            if line.lstrip().startswith("["):
                inside = bool(heading.match(line)) if table else f"[{key}]" in line.replace(" ", "")
                if inside and not found:
                    found = number
                if inside and f".{key}]" in line.replace('"', "").replace(" ", ""):
                    return number
            elif (inside or line.lstrip().startswith(f"{table}.")) and pattern.match(line):
                return number
        return found or 1


def _text(reader: _Reader, table: str, key: str, value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        reader.refuse(table, key, f"{key} is {ascii(value)[:60]}; accepted: {what}.")
    return str(value)


def _specifier(reader: _Reader, table: str, key: str, value: Any) -> str:
    text = _text(reader, table, key, value, 'version bounds in quotes, e.g. ">=2.9,<3"')
    try:
        SpecifierSet(bounds := f"=={text}" if text[0].isdigit() else text)
    except InvalidSpecifier:
        reader.refuse(
            table, key, f'{key} is {ascii(text)[:60]}; accepted: version bounds, e.g. ">=2.9,<3" or "==2.9.0".'
        )
    return bounds


def _gpus(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        reader.refuse("", key, f"gpus is {ascii(value)[:60]}; accepted: a whole number, e.g. gpus = 8.")
    return [Requirement(RequirementKind.GPUS, "", str(value), reader.line_of("", key))]


def _gpu_name(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    text = _text(reader, "", key, value, 'a part of the name or a pattern, e.g. "H100|H200"')
    try:
        re.compile(text)
    except re.error as error:
        reader.refuse("", key, f"gpu_name is not a regular expression: {error}.")
    return [Requirement(RequirementKind.GPU_NAME, "", text, reader.line_of("", key))]


def _driver(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    text = _text(reader, "", key, text, 'a driver version in quotes, e.g. "580.65.06"')
    try:
        DriverVersion.parse(text)
    except BadVersion as error:
        reader.refuse("", key, str(error))
    return [Requirement(RequirementKind.DRIVER, "", text, reader.line_of("", key))]


def _capability(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    text = _text(reader, "", key, value, 'a compute capability in quotes, e.g. "9.0"')
    try:
        text = str(ComputeCapability.parse(text))
    except BadVersion as error:
        reader.refuse("", key, str(error))
    return [Requirement(RequirementKind.CAPABILITY, "", text, reader.line_of("", key))]


def _toolkit(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    return [Requirement(RequirementKind.TOOLKIT, "", _specifier(reader, "", key, value), reader.line_of("", key))]


def _listed(kind: RequirementKind) -> Callable[[_Reader, str, Any], list[Requirement]]:
    def read(reader: _Reader, key: str, value: Any) -> list[Requirement]:
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            reader.refuse("", key, f'{key} is {ascii(value)[:60]}; accepted: a list, e.g. {key} = ["git"].')
        line = reader.line_of("", key)
        return [
            Requirement(kind, each, "on PATH" if kind is RequirementKind.COMMAND else "exists", line) for each in value
        ]

    return read


def _table(reader: _Reader, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        reader.refuse("", key, f"{key} is {ascii(value)[:60]}; accepted: a table, [{key}].")
    return dict(value)


def _versions(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    return [
        Requirement(RequirementKind.VERSION, name, _specifier(reader, key, name, bounds), reader.line_of(key, name))
        for name, bounds in _table(reader, key, value).items()
    ]


def _checkouts(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    found = []
    for name, entry in _table(reader, key, value).items():
        known = (
            isinstance(entry, dict) and "path" in entry and len(entry) == 2 and ("tag" in entry or "commit" in entry)
        )
        if not known or not all(isinstance(each, str) and each for each in entry.values()):
            form = '{ path = "/opt/cutlass", tag = "v4.3.0" }, or commit instead of tag'
            reader.refuse(key, name, f"{name} is {ascii(entry)[:80]}; accepted: {name} = {form}.")
        kind = RequirementKind.TAG if "tag" in entry else RequirementKind.COMMIT
        needed = entry[kind.value]
        if kind is RequirementKind.COMMIT and not re.fullmatch(r"[0-9a-f]{7,40}", needed):
            reader.refuse(key, name, f"commit is {ascii(needed)[:60]}; accepted: 7 to 40 hexadecimal digits.")
        found.append(Requirement(kind, name, needed, reader.line_of(key, name), entry["path"]))
    return found


def _env(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    found = []
    for name, entry in _table(reader, key, value).items():
        if not isinstance(entry, (bool, str)):
            reader.refuse(key, name, f"{name} is {ascii(entry)[:60]}; accepted: a value in quotes, true or false.")
        needed = f"={entry}" if isinstance(entry, str) else "set" if entry else "not set"
        found.append(Requirement(RequirementKind.VARIABLE, name, needed, reader.line_of(key, name)))
    return found


def _binaries(reader: _Reader, key: str, value: Any) -> list[Requirement]:
    found = []
    for name, entry in _table(reader, key, value).items():
        if not isinstance(entry, str) or not _CODE.fullmatch(entry):
            reader.refuse(key, name, f"{name} is {ascii(entry)[:60]}; accepted: an architecture, e.g. sm_90a.")
        found.append(Requirement(RequirementKind.BINARY, name, entry, reader.line_of(key, name)))
    return found


_READERS: dict[str, Callable[[_Reader, str, Any], list[Requirement]]] = {
    "gpus": _gpus,
    "gpu_name": _gpu_name,
    "min_driver": _driver,
    "min_capability": _capability,
    "toolkit": _toolkit,
    "commands": _listed(RequirementKind.COMMAND),
    "files": _listed(RequirementKind.FILE),
    "versions": _versions,
    "checkouts": _checkouts,
    "env": _env,
    "binaries": _binaries,
}
