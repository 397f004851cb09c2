"""CUTLASS on this machine: source trees and wheels, with version and commit."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import defines, plain_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_VARIABLES = ("CUTLASS_HOME", "CUTLASS_PATH", "CUTLASS_DIR")
_FOLDERS = ("/opt/cutlass", "/usr/local/cutlass", "/workspace/cutlass")
_COMMIT = r"[0-9a-f]{40}"
_REF = r"ref: (refs/[\w./+@-]{1,200})"


@dataclass(frozen=True, slots=True)
class CutlassTree:
    """One tree, e.g. 4.3.0 at /opt/cutlass; `has_cute`: include/cute/tensor.hpp is there."""

    path: str
    found_by: tuple[str, ...]
    version: Fact[str]
    commit: Fact[str]
    has_cute: bool


@dataclass(frozen=True, slots=True)
class CutlassWheel:
    """An installed distribution, e.g. nvidia_cutlass_dsl 4.8.1."""

    name: str
    version: str
    site_packages: str


@dataclass(frozen=True, slots=True)
class CutlassFacts:
    """Every CUTLASS found."""

    trees: tuple[CutlassTree, ...]
    wheels: tuple[CutlassWheel, ...]


def probe_cutlass(machine: Machine, *, site_packages: tuple[str, ...] = ()) -> CutlassFacts:
    """CUTLASS trees that hold include/cutlass, and the cutlass wheels."""
    found: dict[str, list[str]] = {}
    for path, found_by in _candidates(machine, site_packages):
        if machine.stat(f"{path}/include/cutlass") is not None:
            found.setdefault(machine.real_path(path), []).append(found_by)
    trees = tuple(_tree(machine, path, tuple(dict.fromkeys(reasons))) for path, reasons in found.items())
    return CutlassFacts(trees, tuple(_wheels(machine, site_packages)))


def _candidates(machine: Machine, site_packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in _VARIABLES:
        if path := plain_path(machine.env(name) or ""):
            yield path, name
            if posixpath.basename(path) == "include":  # some projects point the variable at the headers
                yield posixpath.dirname(path), name
    for path in (*_FOLDERS, plain_path(f"{machine.host.home}/cutlass")):
        if path:
            yield path, path
    for site in site_packages:
        yield f"{site}/cutlass_library/source", "site-packages"


def _wheels(machine: Machine, site_packages: tuple[str, ...]) -> Iterator[CutlassWheel]:
    for site in site_packages:
        for folder in machine.list(site, "nvidia_cutlass*.dist-info"):
            name, _, version = folder.removesuffix(".dist-info").partition("-")
            if version:
                yield CutlassWheel(name, version, site)


def _tree(machine: Machine, path: str, found_by: tuple[str, ...]) -> CutlassTree:
    header = f"{path}/include/cutlass/version.h"
    numbers = defines(machine, header, "CUTLASS_MAJOR", "CUTLASS_MINOR", "CUTLASS_PATCH")
    version: Fact[str]
    if "CUTLASS_MAJOR" in numbers and "CUTLASS_MINOR" in numbers:
        parts = (numbers["CUTLASS_MAJOR"], numbers["CUTLASS_MINOR"], numbers.get("CUTLASS_PATCH", 0))
        version = Known(".".join(map(str, parts)), seen_in=header)
    elif machine.stat(header) is None:
        version = Unknown(f"{header}: no such file")
    else:
        version = Unknown(f"{header} defines no CUTLASS_MAJOR and CUTLASS_MINOR")
    has_cute = machine.stat(f"{path}/include/cute/tensor.hpp") is not None
    return CutlassTree(path, found_by, version, commit_of(machine, path), has_cute)


def commit_of(machine: Machine, tree: str) -> Fact[str]:
    """The commit a git work tree stands at, read from its files: a branch, a detached head, a worktree, a submodule."""
    folder = _git_folder(machine, tree)
    if not folder:
        return Unknown(f"{tree} is not a git work tree")
    head = (machine.read(f"{folder}/HEAD", limit=512) or "").strip()
    if re.fullmatch(_COMMIT, head):
        return Known(head, seen_in=f"{folder}/HEAD")
    match = re.fullmatch(_REF, head)
    if match is None or ".." in match.group(1):
        return Unknown(f"{folder}/HEAD names neither a commit nor a branch")
    ref = match.group(1)
    common = _common_folder(machine, folder)
    for place in dict.fromkeys((folder, common)):
        commit = (machine.read(f"{place}/{ref}", limit=512) or "").strip()
        if re.fullmatch(_COMMIT, commit):
            return Known(commit, seen_in=f"{place}/{ref}")
    packed = machine.search(f"{common}/packed-refs", rf"(?m)^[0-9a-f]{{40}}(?= {re.escape(ref)}$)".encode())
    if packed:
        return Known(packed[0].decode("ascii", "replace"), seen_in=f"{common}/packed-refs")
    return Unknown(f"{ref} has no commit in {common}")


def _git_folder(machine: Machine, tree: str) -> str:
    """The folder with HEAD: TREE/.git, or the one that a .git file points to; '' without either."""
    found = machine.stat(f"{tree}/.git")
    if found is None:
        return ""
    if found.kind == "folder":
        return f"{tree}/.git"
    text = (machine.read(f"{tree}/.git", limit=4096) or "").strip()
    return _joined(tree, text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else ""


def _common_folder(machine: Machine, folder: str) -> str:
    """Where a worktree's branches live (its file commondir says '../..'); the folder itself otherwise."""
    text = (machine.read(f"{folder}/commondir", limit=4096) or "").strip()
    return _joined(folder, text) or folder if text else folder


def _joined(base: str, path: str) -> str:
    return plain_path(posixpath.join(base, path)) if path.isprintable() else ""
