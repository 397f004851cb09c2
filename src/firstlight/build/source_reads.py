"""Reads a source tree: every name it takes from outside, by the files of its build; nothing of it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from firstlight.build.cmake_language import parse_cmake
from firstlight.build.cmake_reads import reads_of
from firstlight.build.python_reads import (
    Passed,
    environment_reads,
    helpers_of,
    imported,
    parsed,
    passed_on,
)
from firstlight.build.reads import Read, ReadKind
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular

_MOST_BYTES = 8 << 20
_NEVER = (".git", "__pycache__", ".venv", "node_modules")
_MADE = ("build", "dist", "_skbuild")  # at the top of a tree: what a build leaves there
_NOT_THE_PROGRAM = ("test", "tests", "docs", "benchmarks", "third_party")
_BUNDLED = ("third_party/", "external_libs/", "3rdparty/", "vendor/")
_PROGRAM_FILES = (".cpp", ".cc", ".c", ".cu", ".h", ".hpp", ".cuh", ".py")


@dataclass(frozen=True, slots=True)
class SourceReads:
    """What one tree reads: names with places, files that could not be read to their end, what is handed to CMake."""

    root: str
    reads: tuple[Read, ...]
    unread: tuple[str, ...]
    cmake_files: int
    python_files: int
    passed: Passed
    packages: tuple[str, ...] = ()  # that CMake must find: find_package(... REQUIRED) outside bundled projects

    def of(self, name: str) -> tuple[Read, ...]:
        """Where a name is read, declarations first."""
        order = list(ReadKind)
        return tuple(
            sorted((each for each in self.reads if each.name == name), key=lambda each: order.index(each.kind))
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.reads))


def read_source(root: str) -> SourceReads:
    """Read the CMake files of a tree, its setup.py and the modules of its own that this imports."""
    reads: dict[tuple[str, ReadKind], Read] = {}
    unread: list[str] = []
    packages: dict[str, None] = {}
    cmake = tuple(_cmake_files(root))
    for path in cmake:
        name = os.path.relpath(path, root)
        found = parse_cmake(_text(path), name)
        unread.extend([found.stopped] if found.stopped else [])
        for command in found.commands:
            if command.name == "find_package" and "REQUIRED" in command.texts and not name.startswith(_BUNDLED):
                packages[command.texts[0]] = None
            for read in reads_of(command, name):
                reads.setdefault((read.name, read.kind), read)
    python = _python_files(root)
    trees = {name: tree for name in python if (tree := parsed(_text(os.path.join(root, name)))) is not None}
    unread.extend(f"{name}: no Python that this interpreter reads" for name in python if name not in trees)
    helpers = frozenset(each for tree in trees.values() for each in helpers_of(tree))
    helpers |= frozenset(each for tree in trees.values() for each in helpers_of(tree, helpers))
    passed = [passed_on(tree) for tree in trees.values()]
    for name, tree in trees.items():
        for read in environment_reads(tree, name, helpers):
            reads.setdefault((read.name, read.kind), read)
    together = Passed(
        tuple(dict.fromkeys(prefix for each in passed for prefix in each.prefixes)),
        tuple(dict.fromkeys(name for each in passed for name in each.names)),
    )
    return SourceReads(root, tuple(reads.values()), tuple(unread), len(cmake), len(python), together, tuple(packages))


def options_of_file(path: str) -> tuple[Read, ...]:
    """The options that one CMake file declares, each once, e.g. 118 of PyTorch 2.6.0's top file."""
    commands = parse_cmake(_text(path), os.path.basename(path)).commands
    found = {
        read.name: read
        for command in reversed(commands)
        for read in reads_of(command, os.path.basename(path))
        if read.kind in (ReadKind.OPTION, ReadKind.DEPENDENT_OPTION)
    }
    return tuple(reversed(found.values()))


def read_when_it_runs(root: str, name: str) -> tuple[Read, ...]:
    """Where the program that is built, not its build, asks for a variable: getenv("NAME") in its sources."""
    spoken = re.compile(
        rf"(?:getenv|environ(?:\.get)?|get_env|check_env|has_env|Env)\w*\s*[\[(]\s*\"{re.escape(name)}\""
    )
    needle = name.encode()
    for path in _walk(root, _PROGRAM_FILES, without=_NOT_THE_PROGRAM):
        data = _bytes(path)
        if needle not in data:
            continue
        text = data.decode("utf-8", "replace").replace("'", '"')
        if match := spoken.search(text):
            where = f"{os.path.relpath(path, root)}:{text.count(chr(10), 0, match.start()) + 1}"
            return (Read(name, ReadKind.RUN_TIME, where),)
    return ()


def _cmake_files(root: str) -> Iterator[str]:
    return _walk(root, (".cmake", "CMakeLists.txt", ".cmake.in"))


def _walk(root: str, endings: tuple[str, ...], *, without: tuple[str, ...] = ()) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        left_out = (*_NEVER, *without, *(_MADE if folder == root else ()))
        folders[:] = sorted(each for each in folders if each not in left_out)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(endings) and not os.path.islink(path):
                yield path


def _python_files(root: str) -> tuple[str, ...]:
    """setup.py and whatever of the tree it imports, followed to the end."""
    waiting = [each for each in ("setup.py", *_backends(root)) if os.path.isfile(os.path.join(root, each))]
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found[name] = None
        tree = parsed(_text(os.path.join(root, name)))
        for module in imported(tree) if tree is not None else ():
            waiting.extend(_files_of(root, os.path.dirname(name), module))
    return tuple(found)


def _files_of(root: str, folder: str, module: str) -> Iterator[str]:
    """The files of a module that lies in the tree; parents' __init__ are run by an import, and so are read."""
    level = len(module) - len(module.lstrip("."))
    bases = ("",) if not level else (os.path.normpath(os.path.join(folder, *[".."] * (level - 1))),)
    parts = [each for each in module[level:].split(".") if each]
    for base in (*bases, folder) if not level else bases:
        stem = os.path.normpath(os.path.join(base, *parts))
        for name in (f"{stem}.py", f"{stem}/__init__.py"):
            if not name.startswith("..") and os.path.isfile(os.path.join(root, name)):
                yield name


def _backends(root: str) -> Iterator[str]:
    """A build backend that lies in the tree itself."""
    path = os.path.join(root, "pyproject.toml")
    text = _text(path) if os.path.isfile(path) else ""
    backend = re.search(r"(?m)^build-backend\s*=\s*[\"']([\w.]+)", text)
    folder = re.search(r"(?m)^backend-path\s*=\s*\[\s*[\"']([^\"']+)", text)
    if backend and folder:
        yield os.path.normpath(f"{folder[1]}/{backend[1].replace('.', '/')}.py")


def _bytes(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES)
    except (OSError, BadInput):
        return b""


def _text(path: str) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}).") from error
