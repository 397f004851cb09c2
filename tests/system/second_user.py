"""A second user on the same machine: what it does is done by a process of its own with its rights alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firstlight.apply.journal import _digest

EVE = 4001


def as_eve(work: Callable[[], object]) -> None:
    """Do something as the second user, in a process that cannot get its rights back."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(EVE)
            os.setuid(EVE)
            os.umask(0)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0, "the attack itself failed"


def chained(*records: tuple[str, dict[str, Any]], form: int = 2) -> bytes:
    """A journal whose lines are chained as they should be."""
    last, out = "", b""
    for number, (event, about) in enumerate(records, 1):
        document = {
            "format": form, "number": number, "at": "2026-11-15T00:00:00Z", "event": event, "about": about,
            "before": last,
        }  # fmt: skip
        line = json.dumps(document, sort_keys=True).encode() + b"\n"
        last, out = _digest(line), out + line
    return out


def run_that(step: dict[str, Any], *more: tuple[str, dict[str, Any]], form: int) -> bytes:
    """A journal of one run with one step that was done."""
    begun = {"run": 1, "digest": "d", "option": "o", "title": "t", "steps": [step]}
    about = {"run": 1, "step": step["id"]}
    return chained(
        ("run-begun", begun), ("step-begun", {**about, "there": []}),
        ("command-started", {**about, "argv": ["true"], "process": 1, "start": "0"}),
        ("command-ended", {**about, "argv": ["true"], "status": 0}), *more,
        ("step-done", {**about, "seconds": 0.0, "saw": ""}), ("run-done", {"run": 1}), form=form,
    )  # fmt: skip


def step_of(*, form: int, kind: str = "git", **more: Any) -> dict[str, Any]:
    """A step as a journal of that format holds it."""
    way_back: dict[str, list[Any]] = {"undo": []} if form == 1 else {"back": []}
    unknown = {"unknown": "not measured"}
    return {
        "id": "01", "kind": kind, "title": "t", "because": "b", "commands": [["true"]], "files": [],
        "needs_root": False, "done_when": [], "seconds": unknown, "bytes": unknown, "optional": False, "note": "",
        **way_back, **more,
    }  # fmt: skip


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every path below a folder with its mode, owner, number of names and bytes."""
    seen = {}
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        seen[str(path)] = (found.st_mode, found.st_uid, found.st_nlink, data)
    return seen
