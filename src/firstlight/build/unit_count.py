"""How many units a tree may have, by kind: the sources that its setup.py names, else all that lie in it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator

from firstlight.frozen import dataclass

_CXX, _CUDA = (".cpp", ".cc", ".cxx", ".c"), (".cu",)
_LEFT_OUT = (".git", "build", "dist", "test", "tests", "docs", "benchmarks", "benchmark", "examples", "__pycache__")
# Libraries of headers that trees carry whole: thousands of examples and profilers that no build of the tree compiles.
_HEADERS_ALONE = ("include/cutlass/cutlass.h", "include/ck/ck.hpp")
_AMD = re.compile(r"(?:^|_)(?:ROCM|HIP)(?:_|$)", re.I)
_HEAVY = re.compile(r"flash|fmha|mem_eff|cutlass", re.I)


@dataclass(frozen=True, slots=True)
class Units:
    """Source files by kind, as counted in the tree: what is really compiled is known after configuring."""

    cxx: int
    cuda: int
    heavy: int  # CUDA files of attention kernels

    @property
    def all(self) -> int:
        return self.cxx + self.cuda + self.heavy


def units_and_bytes(root: str, scripts: Iterable[ast.AST]) -> tuple[Units, int]:
    """Units by kind, and the bytes of the whole tree; scripts are the setup.py of an extension and what it imports."""
    lying, size = _lying_in(root)
    named = _named_in(scripts, root)
    chosen = named or lying
    cuda = [each for each in chosen if each.endswith(_CUDA)]
    heavy = sum(_HEAVY.search(each) is not None for each in cuda)
    return Units(len(chosen) - len(cuda), len(cuda) - heavy, heavy), size


def _lying_in(root: str) -> tuple[tuple[str, ...], int]:
    """Sources outside tests, documents and libraries of headers, and the bytes of all files."""
    found: list[str] = []
    size = 0
    aside: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each != ".git"]
        if any(os.path.isfile(os.path.join(folder, each)) for each in _HEADERS_ALONE) and folder != root:
            aside.append(folder)
        outside = any(folder == each or folder.startswith(each + os.sep) for each in aside)
        inside = not outside and not set(os.path.relpath(folder, root).split(os.sep)) & set(_LEFT_OUT)
        for name in files:
            path = os.path.join(folder, name)
            size += os.lstat(path).st_size if os.path.lexists(path) else 0
            if inside and name.endswith((*_CXX, *_CUDA)):
                found.append(os.path.relpath(path, root))
    return tuple(found), size


def _named_in(scripts: Iterable[ast.AST], root: str) -> tuple[str, ...]:
    """The sources that the extensions of these scripts name one by one; none where one of them computes its list."""
    paths: set[str] = set()
    for script in scripts:
        for node in _for_cuda(script):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Extension"):
                named = _sources_of(node)
                if not named or not all(os.path.isfile(os.path.join(root, each)) for each in named):
                    return ()
                paths.update(os.path.normpath(each) for each in named)
    return tuple(sorted(paths))


def _for_cuda(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those behind a condition that only holds for AMD's GPUs, e.g. `elif IS_ROCM:`."""
    yield node
    children = node.orelse if isinstance(node, ast.If) and _is_for_amd(node.test) else ast.iter_child_nodes(node)
    for each in children:
        yield from _for_cuda(each)


def _is_for_amd(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_for_amd(each) for each in test.values)
    return isinstance(test, (ast.Name, ast.Attribute)) and _AMD.search(ast.unparse(test)) is not None


def _sources_of(call: ast.Call) -> tuple[str, ...]:
    """The paths in `sources` of one extension; none where they are anything but texts and joined texts."""
    given = next((each.value for each in call.keywords if each.arg == "sources"), None)
    given = given or (call.args[1] if len(call.args) > 1 else None)
    if not isinstance(given, (ast.List, ast.Tuple)):
        return ()
    paths = [_path_of(each) for each in given.elts]
    return tuple(paths) if all(paths) else ()


def _path_of(node: ast.expr) -> str:
    """ "csrc/a.cu" of "csrc/a.cu" and of os.path.join(here, "csrc", "a.cu"); "" where it is neither."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("join"):
        parts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return "/".join(parts) if len(parts) >= len(node.args) - 1 else ""
    return ""
