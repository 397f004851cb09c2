"""Which names the CMake files of a tree read: options, cache entries, environment variables, plain variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.build.cmake_language import Command
from firstlight.build.reads import Read, ReadKind

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENVIRONMENT = re.compile(rf"(?:\$ENV|(?<![\w$])ENV)\{{({_NAME})\}}")
_REFERENCE = re.compile(rf"(?<!\$ENV)\$(?:CACHE)?\{{({_NAME})\}}")
_WORD = re.compile(rf"(?:CACHE\{{)?({_NAME})\}}?")
_CONDITIONS = ("if", "elseif", "while")
# Words of conditions that are no variables.
_OPERATORS = frozenset((
    "NOT", "AND", "OR", "COMMAND", "POLICY", "TARGET", "TEST", "DEFINED", "EXISTS", "IS_NEWER_THAN", "IS_DIRECTORY",
    "IS_SYMLINK", "IS_ABSOLUTE", "IS_READABLE", "IS_WRITABLE", "IS_EXECUTABLE", "MATCHES", "LESS", "GREATER", "EQUAL",
    "LESS_EQUAL", "GREATER_EQUAL", "STRLESS", "STRGREATER", "STREQUAL", "STRLESS_EQUAL", "STRGREATER_EQUAL",
    "VERSION_LESS", "VERSION_GREATER", "VERSION_EQUAL", "VERSION_LESS_EQUAL", "VERSION_GREATER_EQUAL", "IN_LIST",
    "PATH_EQUAL", "ON", "OFF", "TRUE", "FALSE", "YES", "NO",
))  # fmt: skip


def reads_of(command: Command, file: str) -> Iterator[Read]:
    """What one command reads from outside, e.g. USE_CUDA as an option with the default ON."""
    where = f"{file}:{command.line}"
    words = command.texts
    declared = _declared(command, where)
    if declared is not None:
        yield declared
    for word in words:
        for name in _ENVIRONMENT.findall(word):
            yield Read(name, ReadKind.CMAKE_ENVIRONMENT, where)
        for name in _REFERENCE.findall(word):
            yield Read(name, ReadKind.VARIABLE, where)
    if command.name in _CONDITIONS:
        for word in words:
            match = _WORD.fullmatch(word)
            if match and match[1] not in _OPERATORS:
                yield Read(match[1], ReadKind.VARIABLE, where)


def _declared(command: Command, where: str) -> Read | None:
    words = command.texts
    if not words or not re.fullmatch(_NAME, words[0]):
        return None
    if command.name == "option":
        return Read(words[0], ReadKind.OPTION, where, words[2] if len(words) > 2 else "OFF", _said(words))
    if command.name == "cmake_dependent_option":
        return Read(words[0], ReadKind.DEPENDENT_OPTION, where, words[2] if len(words) > 2 else "", _said(words))
    if command.name == "set" and "CACHE" in words[1:]:
        at = words.index("CACHE", 1)
        return Read(words[0], ReadKind.CACHE, where, " ".join(words[1:at]), " ".join(words[at + 2 : at + 3]))
    return None


def _said(words: tuple[str, ...]) -> str:
    return words[1] if len(words) > 1 else ""
