"""A small real plan in a folder, and ways to run it in a process that is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from firstlight.apply.disk import Disk, never_stop
from firstlight.apply.executor import Acting
from firstlight.apply.journal import Journal
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.facts.known import Unknown
from firstlight.ways.back import Back, BackKind
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind

UNKNOWN = Unknown("not measured")
OLD_RC = "alias ll='ls -l'\nexport LD_LIBRARY_PATH=/usr/local/cuda/compat\nexport EDITOR=vi\n"
NEW_RC = "alias ll='ls -l'\nexport EDITOR=vi\n"


class Quiet:
    """A watcher that keeps what it was told, and says no unless it was given an answer."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.answer, self.somebody = False, False

    def step_begins(self, step: Step, *, number: int, total: int) -> None:
        self.heard.append(f"begins {step.id} {number}/{total}")

    def step_skipped(self, step: Step, *, saw: str) -> None:
        self.heard.append(f"skipped {step.id}: {saw}")

    def step_ended(self, step: Step, *, seconds: float, saw: str) -> None:
        self.heard.append(f"ended {step.id}: {saw}")

    def line(self, text: str) -> None:
        self.heard.append(text)

    def say(self, text: str) -> None:
        self.heard.append(text)

    def asks(self, question: str) -> bool:
        self.heard.append(question)
        return self.answer

    def somebody_answers(self) -> bool:
        return self.somebody


def step(
    name: str,
    *,
    kind: StepKind = StepKind.FILE,
    files: tuple[FileChange, ...] = (),
    commands: tuple[tuple[str, ...], ...] = (),
    undo: tuple[tuple[str, ...], ...] = (),
    done_when: tuple[Condition, ...] = (),
) -> Step:
    """A step with what the tests do not care about filled in."""
    return Step(
        id=name, kind=kind, title=name, because="compat-stale", commands=commands, files=files, needs_root=False,
        done_when=done_when, back=tuple(map(back_of, undo)), seconds=UNKNOWN, bytes=UNKNOWN,
    )  # fmt: skip


def back_of(argv: tuple[str, ...]) -> Back:
    """The typed way back for a command as a reader sees it; others are for a reader alone."""
    kinds = {"rm -f": BackKind.REMOVE_FILE, "rm -rf": BackKind.REMOVE_FOLDER}
    kind = kinds.get(" ".join(argv[:2]))
    return Back(BackKind.SHOWN, argv) if kind is None else Back(kind, argv[2:])


def home_with_files(folder: Path) -> Path:
    """A home folder before anything was done to it."""
    home = folder / "home"
    home.mkdir()
    (home / "settings").write_text(OLD_RC)  # no shell's own file: those are tried by their shell before each write
    (home / "settings").chmod(0o600)
    (home / "stale.conf").write_bytes(b"\xff\xfe not text \r\n")
    return home


def plan_for(home: Path) -> tuple[Step, ...]:
    """Edit a file, write one into a new folder, remove one, and run a command that makes a file."""
    rc, made, stale, marker = home / "settings", home / "a/b/hook", home / "stale.conf", home / "marker"
    gone = stale.read_bytes().decode("utf-8", "surrogateescape") if stale.exists() else ""
    return (
        step("01-edit", files=(FileChange(str(rc), OLD_RC, NEW_RC),),
             done_when=(Condition(CheckKind.FILE_HOLDS, str(rc), NEW_RC),)),
        step("02-new", files=(FileChange(str(made), "", "echo hello\n", mode=0o755),
                              FileChange(str(stale), gone, "", removes=True)),
             done_when=(Condition(CheckKind.FILE_EXISTS, str(made)), Condition(CheckKind.FILE_ABSENT, str(stale)))),
        step("03-run", kind=StepKind.GIT, commands=(("sh", "-c", f"echo done > {marker}"),),
             undo=(("rm", "-f", str(marker)),),
             done_when=(Condition(CheckKind.FILE_HAS_LINE, str(marker), "done"),)),
    )  # fmt: skip


def acting(folder: Path, passing: Callable[[str], None] = never_stop) -> Acting:
    """The state folder beside the home folder, with its journal open."""
    disk = Disk(passing)
    journal = Journal(str(folder / "state/journal.jsonl"), disk=disk, now=lambda: "2026-11-15T00:00:00Z")
    journal.open()
    return Acting(str(folder / "state"), journal, disk, Quiet(), {"PATH": os.environ["PATH"]})


def apply_in(folder: Path, passing: Callable[[str], None] = never_stop) -> None:
    """What `apply` does with the small plan: go on with an unfinished run, or begin one."""
    doing = acting(folder, passing)
    try:
        for run in interrupted(doing):
            finish(doing, run)
        act(doing, Asked(plan_for(folder / "home"), "d" * 16, "remove:stale", "remove the stale path"))
    finally:
        doing.journal.close()


def undo_in(folder: Path, passing: Callable[[str], None] = never_stop) -> None:
    """What `undo` does: take the newest run back that was not."""
    doing = acting(folder, passing)
    for run in newest_to_undo(doing):
        undo(doing, run)
    doing.journal.close()


def killed_at(number: int, work: Callable[[Callable[[str], None]], None]) -> bool:
    """Run `work` in a forked process that kills itself at its Nth point; False when it ended before reaching it."""
    process = os.fork()
    if process == 0:
        passed = 0

        def passing(point: str) -> None:
            nonlocal passed
            passed += 1
            if passed == number:
                os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            work(passing)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed instead of being killed"
    return os.WIFSIGNALED(status)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below a folder with its mode and bytes."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }
