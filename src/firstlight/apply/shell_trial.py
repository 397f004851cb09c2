"""Shells that read a file in a home of its own, so that what they make of it can be seen before it is written."""

from __future__ import annotations

import json
import os
import posixpath
import pwd
import shutil
import subprocess
import sys
from typing import Any

from firstlight.apply.shell_readers import Reader
from firstlight.frozen import dataclass
from firstlight.shells.kinds import START_FILES

LIMIT_S = 10.0
_LINKS = 2000  # entries of a home folder that are lent to a trial
_NO_HOME = "/home/of-nobody"
_SCRIPT = os.path.join(os.path.dirname(__file__), "children", "run_shells.py")


@dataclass(frozen=True, slots=True)
class Trial:
    """One shell, one text, and what is set before it starts; without `runs` it only parses."""

    reader: Reader
    text: str
    start: tuple[tuple[str, str], ...] = ()
    runs: bool = True


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one trial: the environment that a child of the shell got, None where it never came to that."""

    status: int | None  # None: it did not end in time
    printed: str
    complained: str
    variables: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where trials are made: a folder for us to fill, the file's path, and other files of the home as they will be."""

    folder: str
    path: str
    beside: tuple[tuple[str, str], ...] = ()  # path and text


def seen_in(place: Place, trials: tuple[Trial, ...]) -> tuple[Tried, ...]:
    """What each shell says of its text as the file of that place."""
    folder, path = place.folder, place.path
    real = _home_of(path)
    jobs, homes, files = [], [], []
    for number, trial in enumerate(trials):
        base = f"{folder}/{number:03d}"
        home, file = _laid_out(base, place, trial.text, real=real)
        argv = trial.reader.run(file, answer=f"{base}/answer") if trial.runs else trial.reader.parse(file)
        env = {**_basics(argv[0]), **_hook(path), "HOME": home, **dict(trial.start)}
        jobs.append({"argv": list(argv), "folder": home, "env": env, "limit_s": LIMIT_S, "base": base})
        homes.append(home)
        files.append(file)
    found = []
    for said, home, file in zip(_answers(jobs), homes, files, strict=True):
        at = real or _NO_HOME
        texts = [said[key].replace(file, path).replace(home, at) for key in ("printed", "complained")]
        variables = _variables(f"{posixpath.dirname(home)}/answer", home, at)
        found.append(Tried(said["status"], texts[0], texts[1], variables))
    return tuple(found)


def _answers(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # -S: what sitecustomize prints would stand in the answer.
    done = subprocess.run(
        (sys.executable, "-I", "-S", _SCRIPT), input=json.dumps(jobs), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return [{"status": None, "printed": "", "complained": done.stderr}] * len(jobs)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def _laid_out(base: str, place: Place, text: str, *, real: str) -> tuple[str, str]:
    """A home folder with the text in its place: other start-up files are empty, the rest is the real one's."""
    home = f"{base}/home"
    os.makedirs(home)
    if not real:
        file = f"{base}/root{place.path}"
        _write(file, text)
        return home, file
    inside = {path.removeprefix(f"{real}/"): each for path, each in place.beside if path.startswith(f"{real}/")}
    inside[place.path.removeprefix(f"{real}/")] = text
    _lend(real, home, {name.partition("/")[0] for name in inside})
    for folder in {posixpath.dirname(name) for name in inside if "/" in name}:
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1):
            below = "/".join(parts[:depth])
            if not os.path.isdir(f"{home}/{below}"):
                os.mkdir(f"{home}/{below}")
                apart = {name[len(below) + 1 :].partition("/")[0] for name in inside if name.startswith(f"{below}/")}
                _lend(f"{real}/{below}", f"{home}/{below}", apart)
    for name, each in inside.items():
        _write(f"{home}/{name}", each)
    return home, f"{home}/{place.path.removeprefix(f'{real}/')}"


def _write(file: str, text: str) -> None:
    os.makedirs(posixpath.dirname(file), exist_ok=True)
    with open(file, "wb") as sink:
        sink.write(text.encode("utf-8", "surrogateescape"))


def _lend(real: str, home: str, apart: set[str]) -> None:
    """Links to what is in the real folder, but for what is laid out apart and the other start-up files."""
    try:
        names = sorted(os.listdir(real), key=lambda name: (not name.startswith("."), name))[:_LINKS]
    except OSError:
        names = []
    for name in names:
        if name in START_FILES and name not in apart:
            open(f"{home}/{name}", "wb").close()
        elif name not in apart:
            os.symlink(f"{real}/{name}", f"{home}/{name}")


def _variables(answer: str, home: str, at: str) -> dict[str, str] | None:
    try:
        with open(answer, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    pairs = (each.partition("=") for each in text.split("\0") if each)
    return {name: value.replace(home, at) for name, _, value in pairs}


def _home_of(path: str) -> str:
    """The home folder that a start-up file belongs to, "" for those of the machine."""
    folder, name = posixpath.split(path)
    if "/.config/" in path:
        return path.partition("/.config/")[0]
    return folder if name in START_FILES else ""


def _basics(shell: str) -> dict[str, str]:
    """What a login gives a shell, and that no compat library is to be wired meanwhile."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ") if name in os.environ}
    return {
        "PATH": os.defpath, **kept, "USER": user, "LOGNAME": user, "TERM": "dumb",
        "SHELL": shutil.which(shell) or shell, "FIRSTLIGHT_COMPAT": "off",
    }  # fmt: skip


def _hook(path: str) -> dict[str, str]:
    prefix, hooks, _ = path.partition("/etc/conda/activate.d/")
    return {"CONDA_PREFIX": prefix} if hooks else {}
