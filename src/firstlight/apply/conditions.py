"""Whether a step is done: looked at before it (skip) and after it (prove)."""

from __future__ import annotations

import json
import os
import subprocess
from fnmatch import fnmatchcase

from firstlight.apply.saved_files import read_if_there
from firstlight.frozen import dataclass
from firstlight.plan.step import CheckKind, Condition

LIMIT_S = 60.0
# Prints name==version of everything in an environment, without importing any of it.
LIST_DISTRIBUTIONS = (
    "import importlib.metadata as m, json, re;"
    "print(json.dumps(sorted({re.sub('[-_.]+', '-', d.name).lower() + '==' + d.version "
    "for d in m.distributions() if d.name})))"
)


@dataclass(frozen=True, slots=True)
class Met:
    """Whether a condition holds, and what was seen, e.g. False, 'torch is 2.8.0+cu128'."""

    holds: bool
    saw: str


def _yes(saw: str) -> Met:
    return Met(holds=True, saw=saw)


def _no(saw: str) -> Met:
    return Met(holds=False, saw=saw)


def all_met(conditions: tuple[Condition, ...]) -> Met:
    """The first condition that does not hold, or that all do; a step without conditions is never done."""
    if not conditions:
        return _no("it has no condition that could be looked at")
    seen = []
    for condition in conditions:
        met = look(condition)
        if not met.holds:
            return met
        seen.append(met.saw)
    return _yes("; ".join(seen))


def look(condition: Condition) -> Met:
    """Look at one condition."""
    kind = condition.kind
    if kind in _FILES:
        return _file(condition)
    if kind is CheckKind.LINK:
        return _link(condition)
    if kind is CheckKind.DISTRIBUTIONS:
        return _distributions(condition)
    if kind is CheckKind.APT_PACKAGE:
        return _package(condition)
    if kind is CheckKind.GIT_COMMIT:
        return _commit(condition)
    if kind is CheckKind.COMMAND:
        done = run(condition.argv)
        return Met(done.returncode == 0, f"{condition.argv[0]} ends with {done.returncode}")
    return _no("only a person can tell whether this is done")


_FILES = (
    CheckKind.FILE_EXISTS,
    CheckKind.FILE_ABSENT,
    CheckKind.FILE_HOLDS,
    CheckKind.FILE_HAS_LINE,
    CheckKind.FILE_LACKS_LINE,
)


def _file(condition: Condition) -> Met:
    path, there = condition.target, os.path.exists(condition.target)
    if condition.kind is CheckKind.FILE_EXISTS:
        return Met(there, f"{path} is {'there' if there else 'not there'}")
    if condition.kind is CheckKind.FILE_ABSENT:
        return Met(not there, f"{path} is {'there' if there else 'not there'}")
    text = (read_if_there(path) or b"").decode(errors="surrogateescape") if there and not os.path.isdir(path) else ""
    if condition.kind is CheckKind.FILE_HOLDS:
        same = there and text == condition.expected
        return Met(same, f"{path} {'holds' if same else 'does not hold'} the planned text")
    has = condition.expected in text.splitlines()
    holds = has if condition.kind is CheckKind.FILE_HAS_LINE else not has
    return Met(holds, f"{path} {'has' if has else 'does not have'} the line {condition.expected!r}")


def _link(condition: Condition) -> Met:
    path = condition.target
    leads = os.readlink(path) if os.path.islink(path) else ""
    if leads != condition.expected:
        return _no(f"{path} is {f'a link to {leads}' if leads else 'no link'}")
    there = os.path.exists(path)
    return Met(there, f"{path} is a link to {leads}" + ("" if there else ", which is gone"))


def _distributions(condition: Condition) -> Met:
    """Whether each requirement is met: torch==2.9.0+cu128, torch==*.dev*+cu132 of any date, or torch of any version."""
    expected = condition.expected.split()
    if not expected:
        return _no("no package is named that could be looked at")
    installed = installed_distributions(condition.target)
    if installed is None:
        return _no(f"{condition.target} does not start")
    by_name = dict(each.split("==", 1) for each in installed)
    for wanted in expected:
        name, _, version = wanted.partition("==")
        if name not in by_name or not fnmatchcase(by_name[name], version or "*"):
            instead = f", not {version}" if version else ""
            return _no(f"{name} is {by_name.get(name, 'not installed')}{instead}")
    return _yes(f"{', '.join(expected)} installed")


def installed_distributions(interpreter: str) -> tuple[str, ...] | None:
    """name==version of everything in an environment, sorted; None where the interpreter does not start."""
    done = run((interpreter, "-I", "-c", LIST_DISTRIBUTIONS))
    if done.returncode != 0:
        return None
    found: list[str] = json.loads(done.stdout)
    return tuple(found)


def _package(condition: Condition) -> Met:
    done = run(("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", condition.target))
    status, _, version = done.stdout.partition(" ")
    installed = done.returncode == 0 and status == "installed"
    right = installed and condition.expected in ("", version)
    return Met(right, f"{condition.target} is {version if installed else 'not installed'}")


def _commit(condition: Condition) -> Met:
    done = run(("git", "-C", condition.target, "rev-parse", "HEAD"))
    commit = done.stdout.strip()
    right = done.returncode == 0 and bool(condition.expected) and commit.startswith(condition.expected)
    return Met(right, f"{condition.target} is at {commit or 'no commit'}")


def run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a question with a time limit; one that cannot start or does not end answers 127 or 124."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
            cwd="/",  # python -m pip would run a pip.py of the folder that it is asked in
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {LIMIT_S:.0f} s")
