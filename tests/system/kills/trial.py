"""One kill: a plan is carried out or taken back by a process, which is killed; then it is finished and compared."""

from __future__ import annotations

import enum
import hashlib
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from firstlight.apply.executor import Acting
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.frozen import dataclass
from tests.apply.acting import acting
from tests.system.apt_room import FILES, HOME
from tests.system.kills.cases import TRIAL, Case, environ

TEMPLATES = HOME / "templates"
LIMIT_S = 120.0


class Phase(enum.Enum):
    """What is being done when the kill comes."""

    APPLY = "apply"
    UNDO = "undo"


class Target(enum.Enum):
    """Who is killed: firstlight, one process below it, or all of them."""

    OURS = "ours"
    CHILD = "child"
    GROUP = "group"


class Then(enum.Enum):
    """What a person does after it."""

    GO_ON = "apply, then undo"
    TAKE_BACK = "undo"


@dataclass(frozen=True, slots=True)
class Kill:
    """What is killed when: `share` of the seconds that the phase takes by itself."""

    case: str
    phase: Phase
    target: Target
    then: Then
    share: float


@dataclass(frozen=True, slots=True)
class Seen:
    """How one kill went: whether it came in time, and what was wrong afterwards, "" where nothing was."""

    kill: Kill
    at_work: bool
    wrong: str


def lay_out(case: Case) -> None:
    """The folder of a trial as it is before anything is done."""
    template = TEMPLATES / case.name
    if TRIAL.exists():
        shutil.rmtree(TRIAL)
    if not template.exists():
        TRIAL.mkdir()
        case.lay_out(TRIAL)
        TEMPLATES.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", str(TRIAL), str(template)], check=True)
        return
    subprocess.run(["cp", "-a", str(template), str(TRIAL)], check=True)


def _acting() -> Acting:
    return replace(acting(HOME / "journal"), env=environ())


def apply_case(case: Case) -> None:
    """What `firstlight apply` does: go on with what was interrupted, then do what is asked."""
    doing = _acting()
    try:
        for run in interrupted(doing):
            finish(doing, run)
        act(doing, Asked(case.steps(), "d" * 16, "o", case.name))
    finally:
        doing.journal.close()


def undo_case(case: Case) -> None:
    """What `firstlight undo` does."""
    doing = _acting()
    try:
        for run in newest_to_undo(doing):
            undo(doing, run)
    finally:
        doing.journal.close()


def begun(work: Callable[[Case], None], case: Case) -> int:
    """A process at this work; its exit code is 0 where it ended well."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setsid()
            quiet = os.open(HOME / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(quiet, 2)
            work(case)
            status = 0
        except BaseException:  # noqa: BLE001 the parent sees the exit code, a person the file
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return process


def seconds_of(work: Callable[[Case], None], case: Case) -> float:
    """How long it takes when nobody is killed."""
    began = time.perf_counter()
    _, status = os.waitpid(begun(work, case), 0)
    assert status == 0, (HOME / "said").read_text()
    return time.perf_counter() - began


def below(process: int) -> list[int]:
    """Every process that descends from one."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if words[0] != "Z":
                parents.setdefault(int(words[1]), []).append(int(name))
    found, todo = [], [process]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def strike(process: int, target: Target, chance: random.Random) -> None:
    """kill -9 of the target; where no child is there yet, the next one that comes."""
    if target is Target.OURS:
        os.kill(process, signal.SIGKILL)
        return
    if target is Target.GROUP:
        for each in (process, *below(process)):
            _kill(each)
        return
    until = time.monotonic() + 2.0
    while time.monotonic() < until and _is_there(process):
        if children := below(process):
            _kill(chance.choice(sorted(children)))
            return
        time.sleep(0.002)


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _is_there(process: int) -> bool:
    """Whether our own child still runs; it stays to be waited for."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def picture(case: Case) -> dict[str, str]:
    """Everything a trial may change: each path with its kind, mode, link or bytes; and what the case looks at besides.

    Of a .pyc only that it is there: it holds the second in which its source was written.
    """
    found = {"besides": case.besides()}
    for top in (TRIAL, FILES):
        for folder, names, files in os.walk(top):
            for name in (*names, *files):
                path = os.path.join(folder, name)
                found[path] = _about(path)
    return found


def _about(path: str) -> str:
    about = os.lstat(path)
    if os.path.islink(path):
        return f"link to {os.readlink(path)}"
    if os.path.isdir(path):
        return f"folder {about.st_mode:o}"
    if path.endswith(".pyc"):
        return f"file {about.st_mode:o}"
    return f"file {about.st_mode:o} {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]}"


def differences(before: dict[str, str], now: dict[str, str]) -> str:
    """The first few things that differ; "" where nothing does."""
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    shown = [f"{path}: {before.get(path, 'not there')} -> {now.get(path, 'not there')}" for path in changed[:6]]
    return f"{len(changed)} differ: " + "; ".join(shown) if changed else ""


def carry(work: Callable[[Case], None], case: Case) -> str:
    """Do it to its end in a process of its own; what it complained of, "" where it ended well."""
    process, until = begun(work, case), time.monotonic() + LIMIT_S
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            said = (HOME / "said").read_text().strip()
            return "" if status == 0 else f"{work.__name__} failed: {said.splitlines()[-1] if said else status}"
        if time.monotonic() > until:
            for each in (process, *below(process)):
                _kill(each)
            os.waitpid(process, 0)
            return f"{work.__name__} hung"
        time.sleep(0.01)


def tried(case: Case, kill: Kill, seconds: float, chance: random.Random) -> Seen:
    """One kill, what a person does after it, and what is different from before it all."""
    shutil.rmtree(HOME / "journal", ignore_errors=True)
    (HOME / "journal").mkdir()
    lay_out(case)
    before = picture(case)
    if kill.phase is Phase.UNDO and (wrong := carry(apply_case, case)):
        return Seen(kill, at_work=False, wrong=f"before any kill: {wrong}")
    process = begun(apply_case if kill.phase is Phase.APPLY else undo_case, case)
    time.sleep(kill.share * seconds)
    strike(process, kill.target, chance)
    _, status = os.waitpid(process, 0)
    at_work = status != 0
    wrong = ""
    if kill.phase is Phase.APPLY and kill.then is Then.GO_ON:
        wrong = carry(apply_case, case)
    wrong = wrong or carry(undo_case, case) or differences(before, picture(case))
    return Seen(kill, at_work, wrong)
