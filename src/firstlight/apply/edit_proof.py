"""An edit of a shell file is tried before it is written: it must parse as before, and set what it is meant to set."""

from __future__ import annotations

import json
import os
import posixpath
import pwd
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from firstlight.apply.shell_readers import START_FILES, Reader, is_shell_file, is_start_file, readers_of, there
from firstlight.frozen import dataclass
from firstlight.plan.library_path import VARIABLE
from firstlight.plan.shell_kinds import Dialect, dialect_of
from firstlight.plan.step import FileChange

LIMIT_S = 10.0
_PRESENT = "/firstlight/was/there"  # what the variable is before a shell starts, in every second trial
_CHANGES_BY_ITSELF = ("_", "SHLVL", "PWD", "OLDPWD", VARIABLE)
_LINKS = 2000  # entries of a home folder that are lent to a trial
_SCRIPT = os.path.join(os.path.dirname(__file__), "children", "run_shells.py")


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one trial: the environment that a child of the shell got, None where it never came to that."""

    status: int | None  # None: it did not end in time
    printed: str
    complained: str
    variables: dict[str, str] | None


def why_not(change: FileChange) -> str:
    """Why an edit must not be written, "" where it was tried and is right, or is no edit of a shell file."""
    if change.links_to or change.removes or not is_shell_file(change.path, change.after or change.before):
        return ""
    if dialect_of(change.path, change.before) is Dialect.ENVIRONMENT:
        return _environment(change)
    every = readers_of(change.path, change.after)
    readers = there(every)
    if not readers:
        shells = " or ".join(dict.fromkeys(reader.shell for reader in every)) or "shell that is known to read it"
        return f"there is no {shells} on this machine to try it with" if change.before else ""
    with tempfile.TemporaryDirectory(prefix="firstlight-") as folder:
        trial = _Trial(folder, change)
        found = trial.does_not_parse(readers)
        if not found and change.before and is_start_file(change.path):
            found = trial.means_something_else(readers)
    return found


def _environment(change: FileChange) -> str:
    """NAME=value files, read by us as PAM reads them."""
    before, after = _pairs(change.before), _pairs(change.after)
    other = sorted(name for name in {*before, *after} - {VARIABLE} if before.get(name) != after.get(name))
    if other:
        return f"{other[0]} would change with it"
    return _wrong_path(before.get(VARIABLE), after.get(VARIABLE), change.takes_out)


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("#")[0].strip().removeprefix("export ").partition("=")
        if equals:
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found


def _wrong_path(before: str | None, after: str | None, folders: tuple[str, ...]) -> str:
    """Why the variable is not what it was less the folders, in the same order; "" where it is."""
    old = [each.strip("\r") for each in (before or "").split(":")]
    wanted = [each for each in old if each and each.rstrip("/") not in folders]
    found = [each.strip("\r") for each in (after or "").split(":")]
    if not wanted and after == _PRESENT and _PRESENT not in old:
        return ""  # the file overrode what was there with the folders alone; now it leaves it
    if [each for each in found if each] != wanted:
        return f"{VARIABLE} would be {after or 'empty'} in a new shell, not {':'.join(wanted) or 'empty'}"
    if found.count("") > old.count("") and after:
        return f"{VARIABLE} would have an empty element, which is the current folder"
    return ""


class _Trial:
    """Both texts of a change in folders of their own, each with a home that looks like the real one."""

    def __init__(self, folder: str, change: FileChange) -> None:
        self.folder, self.change, self.homes = folder, change, 0
        self.real_home = _home_of(change.path)

    def does_not_parse(self, readers: tuple[Reader, ...]) -> str:
        files = [self._home(text)[1] for text in (self.change.before, self.change.after)]
        for reader in readers:
            before, after = self._run([self._job(reader.parse(file), files[0], {}) for file in files])
            if after["status"] is None or before["status"] is None:
                return f"{reader.shell} did not say within {LIMIT_S:.0f} s whether it parses"
            if (before["status"] == 0) != (after["status"] == 0):
                lines = after["complained"].strip().splitlines() or [f"status {after['status']}"]
                return f"{reader.shell} would not parse it any more: {lines[0].replace(files[1], self.change.path)}"
        return ""

    def means_something_else(self, readers: tuple[Reader, ...]) -> str:
        """Read by each shell as at a start, with the variable unset and set before; one of them must get to the end."""
        judged = False
        for reader in readers:
            for start in ({}, {VARIABLE: _PRESENT}):
                before, after = self._seen(reader, (self.change.before, self.change.after), start)
                if before.status is None or after.status is None:
                    return f"a new {reader.shell} that reads it did not end within {LIMIT_S:.0f} s"
                if before.variables is None and after.variables is None:
                    continue
                judged = True
                if found := self._differs(reader, before, after, start):
                    return found
        return "" if judged else f"a new {readers[0].shell} that reads it ends before it can be asked"

    def _differs(self, reader: Reader, before: Seen, after: Seen, start: dict[str, str]) -> str:
        if before.variables is None or after.variables is None:
            return f"a new {reader.shell} would {'end before it is ready' if before.variables else 'go on after it'}"
        if found := _wrong_path(
            before.variables.get(VARIABLE), after.variables.get(VARIABLE), self.change.takes_out
        ):
            return found
        names = _different(before, after)
        if names or before.printed != after.printed:
            again = self._seen(reader, (self.change.before,), start)[0]  # what differs from run to run says nothing
            names -= _different(before, again)
            if names:
                return f"{min(names)} would change with it"
            if before.printed == again.printed:
                return f"a new {reader.shell} would print something else"
        return ""

    def _seen(self, reader: Reader, texts: tuple[str, ...], start: dict[str, str]) -> tuple[Seen, ...]:
        jobs, answers, homes = [], [], []
        for text in texts:
            home, file = self._home(text)
            answers.append(f"{posixpath.dirname(home)}/answer")
            homes.append(home)
            jobs.append(self._job(reader.run(file, answer=answers[-1]), home, {"HOME": home, **start}))
        found = []
        for said, answer, home in zip(self._run(jobs), answers, homes, strict=True):
            at = self.real_home or home
            printed = said["printed"].replace(home, at)
            found.append(Seen(said["status"], printed, said["complained"], _variables(answer, home, at)))
        return tuple(found)

    def _home(self, text: str) -> tuple[str, str]:
        """A home folder with the text in its place: other start-up files are empty, the rest is the real one's."""
        self.homes += 1
        home = f"{self.folder}/{self.homes}/home"
        os.makedirs(home)
        if not self.real_home:
            file = f"{self.folder}/{self.homes}{self.change.path}"
        else:
            inside = posixpath.relpath(self.change.path, self.real_home)
            _lend(self.real_home, home, inside.split("/"))
            file = f"{home}/{inside}"
        os.makedirs(posixpath.dirname(file), exist_ok=True)
        with open(file, "wb") as sink:
            sink.write(text.encode("utf-8", "surrogateescape"))
        return home, file

    def _job(self, argv: tuple[str, ...], home: str, variables: dict[str, str]) -> dict[str, Any]:
        folder = home if os.path.isdir(home) else posixpath.dirname(home)
        return {
            "argv": list(argv),
            "folder": folder,
            "env": {**_basics(argv[0]), **_hook(self.change.path), **variables},
            "limit_s": LIMIT_S,
            "printed": f"{self.folder}/printed",
            "complained": f"{self.folder}/complained",
        }

    def _run(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # -S: what sitecustomize prints would stand in the answer.
        done = subprocess.run(
            (sys.executable, "-I", "-S", _SCRIPT), input=json.dumps(jobs), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return [{"status": None, "printed": "", "complained": done.stderr}] * len(jobs)
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers


def _different(one: Seen, other: Seen) -> set[str]:
    left, right = one.variables or {}, other.variables or {}
    return {name for name in {*left, *right} - {*_CHANGES_BY_ITSELF} if left.get(name) != right.get(name)}


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
    name, folder = posixpath.basename(path), posixpath.dirname(path)
    if "/.config/" in path:
        return path.partition("/.config/")[0]
    return folder if name in START_FILES else ""


def _lend(real: str, home: str, inside: list[str]) -> None:
    """Links to what is in the real folder, but for the file on trial and the other start-up files."""
    try:
        names = sorted(os.listdir(real), key=lambda name: (not name.startswith("."), name))[:_LINKS]
    except OSError:
        names = []
    for name in names:
        if name == inside[0]:
            continue
        if name in START_FILES:
            open(f"{home}/{name}", "wb").close()
        else:
            os.symlink(f"{real}/{name}", f"{home}/{name}")
    if len(inside) > 1:
        os.mkdir(f"{home}/{inside[0]}")
        _lend(f"{real}/{inside[0]}", f"{home}/{inside[0]}", inside[1:])


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
