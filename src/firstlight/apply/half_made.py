"""What lies in the folder of an attempt that did not end: whether it is whole by now, and what firstlight did not make.

Only names and bytes that git, venv or the archive give count as made by the step; all else is somebody's own.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise

from firstlight.frozen import dataclass
from firstlight.ways.step import CheckKind, Step, StepKind

LIMIT_S = 120.0
_PYTHON = r"python3?(?:\.\d+t?)?"
_SEEDS = r"(?:pip|setuptools|wheel|pkg_resources|_distutils_hack)"
# What `python -m venv` puts into its folder, relative to it.
_OF_VENV = re.compile(
    rf"pyvenv\.cfg|\.gitignore|lib64|bin/(?:{_PYTHON}|\U0001d70bthon|pip[\d.]*|easy_install[\d.-]*|wheel|activate(?:\.\w+)?|Activate\.ps1)"
    rf"|share/python-wheels/.*|lib(?:64)?/{_PYTHON}/site-packages/(?:{_SEEDS}(?:-[^/]*)?/.*|distutils-precedence\.pth"
    rf"|easy_install\.py|__pycache__/easy_install\..*)"
)


def is_whole_checkout(step: Step) -> bool:
    """Whether every folder of a checkout holds each file of its commit, and no git was stopped in it half-way."""
    folders = [path for back in step.back for path in back.words if os.path.isdir(path)]
    return bool(folders) and all(_is_whole(folder, _commit_of(step, folder)) for folder in folders)


def foreign_in(step: Step, folder: str) -> tuple[str, ...]:
    """The files in a half-made folder that the step did not make, relative to it, e.g. mine.txt."""
    if step.kind is StepKind.GIT:
        return tuple(_foreign_in_checkout(folder, _commit_of(step, folder)))
    if step.kind is StepKind.VENV:
        return tuple(path for path in _files_below(folder) if not _OF_VENV.fullmatch(path))
    made = _names_in_archives(step)
    return tuple(path for path in _files_below(folder) if os.path.basename(path) not in made)


def _commit_of(step: Step, folder: str) -> str:
    """The commit that the step asks for; HEAD where it follows a tag."""
    asked = (each.expected for each in step.done_when if each.kind is CheckKind.GIT_COMMIT and each.target == folder)
    return next(asked, "") or "HEAD"


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str  # blob, or commit for another repository inside
    id: str


def _is_whole(folder: str, commit: str) -> bool:
    entries = _tree(folder, commit)
    if not entries or glob.glob(f"{glob.escape(folder)}/.git/**/*.lock", recursive=True):
        return False
    for path, entry in entries.items():
        inner = f"{folder}/{path}"
        if not os.path.lexists(inner) or (entry.kind == "commit" and not _is_whole(inner, entry.id)):
            return False
    return True


def _foreign_in_checkout(folder: str, commit: str) -> Iterator[str]:
    """Files that are not in the commit, or hold something else than it or its beginning; then commits of somebody."""
    entries = _tree(folder, commit)
    inside = {path: entry.id for path, entry in entries.items() if entry.kind == "commit"}
    for path in _files_below(folder, without=frozenset((".git", *inside))):
        entry = entries.get(path)
        if entry is None or not _is_begun(folder, path, entry.id):
            yield path
    for path, inner in inside.items():
        yield from (f"{path}/{each}" for each in _foreign_in_checkout(f"{folder}/{path}", inner))
    head = ("HEAD",) if _git(folder, "rev-parse", "--verify", "--quiet", "HEAD") else ()
    known = (commit,) if entries else ()
    own = _git(
        folder, "rev-list", "-n1", *head, "--branches", "--glob=refs/stash", "--not", "--remotes", "--tags", *known
    )
    if own:
        yield f"commit {own.decode('ascii', 'replace').strip()}"


def _tree(folder: str, commit: str) -> dict[str, _Entry]:
    """The files of a commit; empty where it was not fetched."""
    found = {}
    for line in (_git(folder, "ls-tree", "-r", "-z", "--full-tree", commit) or b"").split(b"\0"):
        about, _, path = line.partition(b"\t")
        if path:
            _, kind, name = about.decode("ascii").split()
            found[os.fsdecode(path)] = _Entry(kind, name)
    return found


def _is_begun(folder: str, path: str, blob: str) -> bool:
    """Whether a file is what git writes, or the beginning of it: git may have been killed inside."""
    place = f"{folder}/{path}"
    try:
        if os.path.islink(place):
            data = os.fsencode(os.readlink(place))
        else:
            with open(place, "rb") as file:
                data = file.read()
    except OSError:
        return False  # what nobody can read is not known to be ours
    if hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest() == blob:
        return True
    whole = _git(folder, "cat-file", "blob", blob)
    return whole is not None and whole.startswith(data)


def _git(folder: str, *words: str) -> bytes | None:
    """What git says of the repository in this very folder, never of one around it; None where it ends badly."""
    return _asked(("git", f"--git-dir={folder}/.git", *words))


def _names_in_archives(step: Step) -> frozenset[str]:
    """The names that the archives of the step hold, and those that its commands give to files."""
    names = {os.path.basename(word) for argv in step.commands for word in argv if word.startswith("/")}
    for archive in (value for argv in step.commands for option, value in pairwise(argv) if option == "--file"):
        listed = _asked(("tar", "--list", "--quoting-style=literal", "--file", archive)) or b""
        names |= {os.path.basename(os.fsdecode(line)) for line in listed.splitlines()}
    return frozenset(names - {""})


def _asked(argv: tuple[str, ...]) -> bytes | None:
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _files_below(folder: str, without: frozenset[str] = frozenset()) -> Iterator[str]:
    """The files and links below a folder, relative to it, sorted."""
    for inside, names, files in os.walk(folder):
        here = os.path.relpath(inside, folder)
        names[:] = [name for name in sorted(names) if os.path.normpath(f"{here}/{name}") not in without]
        links = [name for name in names if os.path.islink(f"{inside}/{name}")]
        for name in sorted((*files, *links)):
            path = os.path.normpath(f"{here}/{name}")
            if path not in without:
                yield path
