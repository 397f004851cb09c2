"""What tells one tree from another: the commit and every edit since, or its list of files."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator

from firstlight.errors import CouldNotLook
from firstlight.frozen import dataclass

_NEVER = (".git", "__pycache__")
_MADE = ("build", "dist")  # at the top of a tree: what a build leaves there


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree as it lies there, e.g. commit 1a2b3c with two files edited since."""

    commit: str  # "" where it is no checkout
    edits: tuple[str, ...]  # files of a checkout that differ from its commit, and files that it does not know
    digest: str  # of the bytes of the edits; of the list of files where it is no checkout


def read_tree_state(tree: str) -> TreeState:
    """The state of a tree; what a build leaves in it does not count."""
    commit = commit_of(tree)
    if not commit:
        return TreeState("", (), _digest_of(listed(tree)))
    edits = dict(_edits(tree, ""))
    return TreeState(commit, tuple(edits), _digest_of(f"{name} {held}" for name, held in edits.items()))


def commit_of(tree: str) -> str:
    """The commit of a checkout; "" for a tree that is none."""
    if not os.path.exists(f"{tree}/.git"):
        return ""
    asked = subprocess.run(["git", "-C", tree, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def listed(tree: str) -> Iterator[str]:
    """Every file of a tree with its size and time, in order: what tells one tree from another without reading it."""
    for folder, folders, files in os.walk(tree):
        left_out = (*_NEVER, *(_MADE if folder == tree else ()))
        folders[:] = sorted(each for each in folders if each not in left_out and not each.endswith(".egg-info"))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not name.endswith((".so", ".pyc")):
                yield f"{os.path.relpath(path, tree)} {os.path.getsize(path)} {os.stat(path).st_mtime_ns}"


def _edits(tree: str, below: str) -> Iterator[tuple[str, str]]:
    """(file, digest) of all that git calls changed or does not know, those of submodules too."""
    # Without the lock that writes a fresher index down: a full disk or one that takes nothing would end it.
    argv = [
        "git",
        "--no-optional-locks",
        "-C",
        tree,
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
    ]
    asked = subprocess.run(
        [*argv, "--ignore-submodules=none"], capture_output=True, text=True, errors="surrogateescape", check=False
    )
    if asked.returncode != 0:
        said = (asked.stderr.strip().splitlines() or ["no reason given"])[0]
        raise CouldNotLook(f"{tree}: git cannot say what was edited there: {said}")
    for entry in sorted(filter(None, asked.stdout.split("\0")), key=lambda each: each[3:]):
        name = entry[3:]
        path = os.path.join(tree, name)
        if os.path.isdir(path) and not os.path.islink(path):
            if os.path.exists(os.path.join(path, ".git")):
                yield below + name.rstrip("/"), commit_of(path)
                yield from _edits(path, f"{below}{name.rstrip('/')}/")
        elif entry[:2] != "??" or not _is_made(name):
            yield below + name, _digest_of_bytes(path)


def _is_made(name: str) -> bool:
    parts = name.split("/")
    return (
        parts[0] in _MADE
        or any(each in _NEVER or each.endswith(".egg-info") for each in parts)
        or name.endswith((".so", ".pyc"))
    )


def _digest_of_bytes(path: str) -> str:
    if os.path.islink(path):
        return f"link to {os.readlink(path)}"
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return "removed"


def _digest_of(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
