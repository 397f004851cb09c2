"""A wheel below --prefix, and out of it again: python -m firstlight.build.into_prefix LEDGER takes it out.

`pip install --prefix` alone takes the environment's own copy away and keeps no list of what it wrote over. So pip
unpacks beside the prefix, and what goes into it is written down first: undo takes these files and no other.
"""

from __future__ import annotations

import csv
import glob
import os
import shutil
import subprocess
import sys
from typing import Any

from firstlight.build.keys import digest_of_file, finished_wheel
from firstlight.build.running import say
from firstlight.build.spec import BuildSpec, digest_of, read_document, write_document
from firstlight.errors import CouldNotAct, FirstlightError
from firstlight.frozen import dataclass
from firstlight.ways.names import normal

_HALF = ".firstlight-half"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What one install wrote below a prefix; all paths are relative to it."""

    prefix: str
    placed: dict[str, str]  # path -> SHA-256 of what we put there
    replaced: tuple[str, ...]  # files that were there; their bytes lie in the folder `kept` beside the ledger
    folders: tuple[str, ...]  # that were not there, outermost first; "." is the prefix itself
    compiled: tuple[str, ...]  # .pyc files of the same names that were there before and stay


def ledger_path(spec: BuildSpec) -> str:
    """Where the list of this install lies, in the build's own folder."""
    return f"{spec.folder}/prefix/{digest_of(spec)}/ledger.json"


def install_into_prefix(spec: BuildSpec) -> None:
    """Put the finished wheel below the prefix; an earlier copy there is kept for undo, the environment stays as is."""
    wheel, path = finished_wheel(spec), ledger_path(spec)
    if not wheel:
        raise CouldNotAct("the wheel that was built is not there any more. Run the same command again.")
    if os.path.exists(path):
        take_out(path)  # an install that was killed, or whose files somebody took away since
    staged = f"{spec.folder}/staged"
    shutil.rmtree(staged, ignore_errors=True)
    _unpacked_by_pip(spec, wheel, staged)
    ledger = _ledger_of(spec, staged)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_document(os.path.dirname(path), "ledger.json", {
        "prefix": ledger.prefix, "placed": ledger.placed, "replaced": list(ledger.replaced),
        "folders": list(ledger.folders), "compiled": list(ledger.compiled),
    })  # fmt: skip
    kept = _kept(path)
    for name in ledger.replaced:
        _copied(f"{ledger.prefix}/{name}", f"{kept}/{name}")
    for name in ledger.replaced:
        os.unlink(f"{ledger.prefix}/{name}")
    for folder in {os.path.dirname(name) for name in ledger.replaced if name.endswith(".dist-info/RECORD")}:
        if not os.listdir(f"{ledger.prefix}/{folder}"):
            os.rmdir(f"{ledger.prefix}/{folder}")  # an empty one is still taken for an installed package
    for name in ledger.placed:
        _copied(f"{staged}/{name}", f"{ledger.prefix}/{name}")
    shutil.rmtree(staged)
    say(f"{len(ledger.placed)} files below {ledger.prefix}; {len(ledger.replaced)} that were there are kept for undo")


def take_out(path: str) -> None:
    """Take away the files of a ledger and put back what they replaced; killed half-way, it can be called again."""
    if not os.path.isdir(os.path.dirname(os.path.dirname(os.path.dirname(path)))):
        raise CouldNotAct(
            f"{path} is gone with the folder of the build, and with it the list of what was written below its prefix. "
            "Remove the package there by hand."
        )
    if not os.path.exists(path):
        return  # taken out already
    ledger, kept = _read(path), _kept(path)
    placed = [name for name in ledger.placed if not _is_untouched(ledger, kept, name)]
    for name in placed:
        there = f"{ledger.prefix}/{name}"
        if os.path.lexists(there) and not _is_ours(there, ledger.placed[name]) and not _is_back(ledger, kept, name):
            raise CouldNotAct(
                f"{there} was changed since it was installed, and taking the package out would lose that. Move it away "
                "and run undo again."
            )
    for name in placed:
        there = f"{ledger.prefix}/{name}"
        if os.path.lexists(there) and not _is_back(ledger, kept, name):
            os.unlink(there)
        _remove_if_there(there + _HALF)
        for compiled in _compiled_of(ledger.prefix, name):
            if compiled not in ledger.compiled:
                _remove_compiled(f"{ledger.prefix}/{compiled}")
    for name in ledger.replaced:
        if os.path.exists(f"{kept}/{name}"):
            _copied(f"{kept}/{name}", f"{ledger.prefix}/{name}")
    _remove_empty(ledger)
    os.unlink(path)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def _read(path: str) -> Ledger:
    document: Any = read_document(path)
    try:
        return Ledger(
            str(document["prefix"]), dict(document["placed"]), tuple(document["replaced"]),
            tuple(document["folders"]), tuple(document["compiled"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise CouldNotAct(f"{path} cannot be read, so it is not known which files are ours ({error}).") from error


def _kept(path: str) -> str:
    return f"{os.path.dirname(path)}/kept"


def _is_untouched(ledger: Ledger, kept: str, name: str) -> bool:
    """Whether a file that was to be replaced is still the old one: the install was killed while it copied these."""
    return name in ledger.replaced and not os.path.exists(f"{kept}/{name}")


def _is_back(ledger: Ledger, kept: str, name: str) -> bool:
    """Whether the old file lies in its place again: the undo was killed while it copied these."""
    old, there = f"{kept}/{name}", f"{ledger.prefix}/{name}"
    return name in ledger.replaced and os.path.exists(old) and _is_ours(there, digest_of_file(old))


def _is_ours(path: str, digest: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path) and digest_of_file(path) == digest


def _ledger_of(spec: BuildSpec, staged: str) -> Ledger:
    names = sorted(_files_below(staged))
    old = {name for name in names if os.path.lexists(f"{spec.prefix}/{name}")}
    for site in {os.path.dirname(os.path.dirname(name)) for name in names if name.endswith(".dist-info/RECORD")}:
        old.update(_recorded(spec.prefix, site, normal(spec.name)))
    above = {folder for name in names for folder in _folders_above(name)}
    made = tuple(each for each in sorted(above, key=len) if not os.path.isdir(os.path.join(spec.prefix, each)))
    for name in old:
        if os.path.isdir(f"{spec.prefix}/{name}") or os.path.islink(f"{spec.prefix}/{name}"):
            raise CouldNotAct(
                f"{spec.prefix}/{name} is a folder or a link, and the wheel has a file of that name. Move it away, or "
                "name another --prefix."
            )
    compiled = tuple(each for name in names for each in _compiled_of(spec.prefix, name) if each not in old)
    return Ledger(
        spec.prefix, {name: digest_of_file(f"{staged}/{name}") for name in names}, tuple(sorted(old)), made, compiled
    )


def _files_below(folder: str) -> list[str]:
    return [os.path.relpath(os.path.join(base, name), folder) for base, _, files in os.walk(folder) for name in files]


def _folders_above(name: str) -> list[str]:
    """'.', 'lib', 'lib/python3.12', ... of lib/python3.12/site-packages/x.py."""
    parts = os.path.dirname(name).split("/")
    return [".", *("/".join(parts[: at + 1]) for at in range(len(parts)) if parts[at])]


def _recorded(prefix: str, site: str, project: str) -> list[str]:
    """The files of the copies of a project that a prefix has already, by their own RECORD."""
    found = []
    for record in glob.glob(f"{glob.escape(f'{prefix}/{site}')}/*.dist-info/RECORD"):
        if normal(os.path.basename(os.path.dirname(record)).partition("-")[0]) != project:
            continue
        with open(record, encoding="utf-8", errors="surrogateescape", newline="") as file:
            named = [os.path.normpath(os.path.join(site, row[0])) for row in csv.reader(file) if row]
        found += [name for name in named if not name.startswith(("..", "/")) and os.path.isfile(f"{prefix}/{name}")]
    return found


def _compiled_of(prefix: str, name: str) -> list[str]:
    """What Python may have made of a module: __pycache__/x.cpython-312.pyc."""
    if not name.endswith(".py"):
        return []
    stem = f"{os.path.dirname(name)}/__pycache__/{os.path.basename(name)[:-3]}"
    return [os.path.relpath(each, prefix) for each in glob.glob(f"{glob.escape(f'{prefix}/{stem}')}.*.pyc")]


def _copied(source: str, target: str) -> None:
    """A copy under its name only when it is whole."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(source, target + _HALF, follow_symlinks=False)
    os.replace(target + _HALF, target)


def _remove_if_there(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)


def _remove_compiled(path: str) -> None:
    os.unlink(path)
    if not os.listdir(os.path.dirname(path)):
        os.rmdir(os.path.dirname(path))


def _remove_empty(ledger: Ledger) -> None:
    """The folders that the install made, where nothing of anybody is in them."""
    for folder in reversed(ledger.folders):
        path = os.path.normpath(os.path.join(ledger.prefix, folder))
        if os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)


def _unpacked_by_pip(spec: BuildSpec, wheel: str, staged: str) -> None:
    """pip puts everything where it would below the prefix; --ignore-installed, or it empties the environment first."""
    argv = [
        spec.python, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-deps", "--no-index",
        "--no-compile", "--no-warn-script-location", "--ignore-installed", "--prefix", staged, wheel,
    ]  # fmt: skip
    say("$ " + " ".join(argv))
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", cwd="/", check=False)
    for line in (*done.stdout.splitlines(), *done.stderr.splitlines()):
        say(line)
    if done.returncode != 0:
        raise CouldNotAct(f"pip ended with status {done.returncode} and unpacked no wheel. Nothing was installed.")


def main(words: list[str]) -> int:
    try:
        take_out(words[0])
    except (FirstlightError, OSError) as error:
        say(f"firstlight: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
