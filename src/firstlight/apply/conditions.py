"""Whether a step is done: looked at before it (skip) and after it (prove)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase

from firstlight.apply.environments import Environment, Installed, look_at
from firstlight.apply.saved_files import read_if_there
from firstlight.errors import CouldNotLook
from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.specifiers import satisfies
from firstlight.ways.step import CheckKind, Condition

LIMIT_S = 60.0
# Questions of ours that need no process of their own: the module of `python -m`, and what answers with an exit code.
ANSWERED_HERE: dict[str, Callable[[list[str]], int]] = {}
NO_SUCH_PACKAGE = 1  # of dpkg-query(1): no package matches; 2 is trouble


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


def proved(conditions: tuple[Condition, ...]) -> Met:
    """What holds after the commands ended well; that they did is all that ONCE asks."""
    left = tuple(each for each in conditions if each.kind is not CheckKind.ONCE)
    return all_met(left) if left or not conditions else _yes("its commands ended well")


def look(condition: Condition) -> Met:
    """Look at one condition."""
    kind = condition.kind
    if kind in _FILES:
        return _file(condition)
    if kind is CheckKind.LINK:
        return _link(condition)
    if kind is CheckKind.DISTRIBUTIONS:
        return _distributions(condition)
    if kind is CheckKind.DISTRIBUTIONS_ABSENT:
        return _distributions_absent(condition)
    if kind in (CheckKind.APT_PACKAGE, CheckKind.APT_ABSENT):
        return _package(condition)
    if kind is CheckKind.GIT_COMMIT:
        return _commit(condition)
    if kind is CheckKind.COMMAND:
        done = run(condition.argv)
        return Met(done.returncode == 0, f"{condition.argv[0]} ends with {done.returncode}")
    return _no(condition.target if kind is CheckKind.ONCE else "only you can tell whether this is done")


_FILES = (
    CheckKind.FILE_EXISTS,
    CheckKind.FILE_ABSENT,
    CheckKind.FILE_HOLDS,
    CheckKind.FILE_HAS_LINE,
    CheckKind.FILE_LACKS_LINE,
)


def _file(condition: Condition) -> Met:
    path = condition.target
    try:
        there = _is_there(path)
    except OSError as error:
        return _no(f"{path} could not be looked at: {error.strerror}")
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


def _is_there(path: str) -> bool:
    """As os.path.exists, and an OSError where nobody may look: a folder that is closed to us is not an empty one."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _link(condition: Condition) -> Met:
    path = condition.target
    leads = os.readlink(path) if os.path.islink(path) else ""
    if leads != condition.expected:
        return _no(f"{path} is {f'a link to {leads}' if leads else 'no link'}")
    there = os.path.exists(path)
    return Met(there, f"{path} is a link to {leads}" + ("" if there else ", which is gone"))


def _distributions(condition: Condition) -> Met:
    """Whether each requirement is met: torch==2.9.0+cu128, torch==*.dev*+cu132 of any date, numpy>=2,<3, or torch."""
    expected = condition.expected.split()
    if not expected:
        return _no("no package is named that could be looked at")
    seen = look_at(condition.target)
    if isinstance(seen, Unknown):
        return _no(seen.reason)
    for wanted in expected:
        name = re.split("[<>=!~]", wanted, maxsplit=1)[0]
        lacks = _lacks(name, wanted.removeprefix(name), seen.value.named(name))
        if lacks:
            return _no(lacks)
    return _yes(f"{', '.join(expected)} installed")


def _distributions_absent(condition: Condition) -> Met:
    """Whether none of the names is installed, or none in this version; a part of one counts as there."""
    seen = look_at(condition.target, condition.folder)
    if isinstance(seen, Unknown):
        return _no(seen.reason)
    there = of_condition(condition, seen.value)
    where = f" in {condition.folder}" if condition.folder else ""
    if there:
        return _no(f"{there[0].name} {there[0].version} is installed{where}")
    return _yes(f"no {', '.join(condition.expected.split())} is installed{where}")


def of_condition(condition: Condition, seen: Environment) -> tuple[Installed, ...]:
    """The copies that a condition wants gone: torch, or torch==2.4.1+cpu alone."""
    wanted = [each.partition("==") for each in condition.expected.split()]
    return tuple(each for name, _, version in wanted for each in seen.named(name) if version in ("", each.version))


def _lacks(name: str, bounds: str, copies: tuple[Installed, ...]) -> str:
    """Why a requirement is not met by what is installed under its name; "" where it is."""
    instead = f", not {bounds.removeprefix('==')}" if bounds else ""
    whole = [each for each in copies if not each.torn]
    if not copies:
        return f"{name} is not installed{instead}"
    if not whole:
        return f"{name} {copies[0].version} is there in part: {copies[0].torn}"
    if len({each.version for each in whole}) > 1:
        return f"{name} is there more than once: {', '.join(sorted(each.version for each in whole))}"
    return "" if fits(whole[0].version, bounds) else f"{name} is {whole[0].version}{instead}"


def fits(version: str, bounds: str) -> bool:
    """Whether a version is the one (==2.9.0), of the form ==*.dev*+cu132, or within >=2.29,<3; "" takes any."""
    if not bounds or bounds.startswith("=="):
        return fnmatchcase(version, bounds.removeprefix("==") or "*")
    return satisfies(version, bounds) is True


def installed_distributions(interpreter: str) -> tuple[str, ...]:
    """name==version of everything in an environment, sorted; CouldNotLook where the interpreter gives no answer."""
    seen = look_at(interpreter)
    if isinstance(seen, Unknown):
        raise CouldNotLook(seen.reason)
    return seen.value.pins


def _package(condition: Condition) -> Met:
    done = run(("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}\\n", condition.target))
    if done.returncode not in (0, NO_SUCH_PACKAGE):
        return _no(f"{condition.target} could not be looked at: {_complaint(done)}")
    found = (line.partition(" ") for line in done.stdout.splitlines())  # several where the name is a pattern
    versions = [version for status, _, version in found if status == "installed"]
    saw = f"{condition.target} is {', '.join(versions) or 'not installed'}"
    if condition.kind is CheckKind.APT_ABSENT:
        return Met(not versions, saw)
    return Met(any(fnmatchcase(version, condition.expected or "*") for version in versions), saw)


def _commit(condition: Condition) -> Met:
    done = run(("git", "-C", condition.target, "rev-parse", "HEAD"))
    if done.returncode != 0:
        return _no(f"{condition.target} is at no commit: {_complaint(done)}")
    commit = done.stdout.strip()
    return Met(bool(condition.expected) and commit.startswith(condition.expected), f"{condition.target} is at {commit}")


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """'dpkg-query ended with 2: error: cannot scan updates directory'."""
    said = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
    return f"{done.args[0]} ended with {done.returncode}: {said[:200]}"


def run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Ask a question, once more where a signal killed it; one that cannot start or does not end answers 127 or 124."""
    if argv[:2] == (sys.executable, "-m") and (answer := ANSWERED_HERE.get(argv[2])):
        return subprocess.CompletedProcess(argv, answer(list(argv[3:])), "", "")
    done = _run_once(argv)
    return _run_once(argv) if done.returncode < 0 else done


def _run_once(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
            cwd="/",  # python -m pip would run a pip.py of the folder that it is asked in
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {LIMIT_S:.0f} s")
