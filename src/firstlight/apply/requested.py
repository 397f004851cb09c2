"""Who asked for a package: pip and uv mark all that undo names to them, and what was not marked before is not left so.

The mark is an empty file, REQUESTED, and its line in RECORD. Tools that remove what nobody asked for go by it.
"""

from __future__ import annotations

import os

from firstlight.apply.environments import Environment, Installed
from firstlight.apply.executor import Acting
from firstlight.apply.journal import Journal, Record
from firstlight.apply.runs import about_step
from firstlight.apply.saved_files import look_at

MARK = "REQUESTED"
COMING_BACK = "set-coming-back"  # what undo is about to install under its name
MARKS_TAKEN = "marks-taken-away"


def unasked(journal: Journal, saved: Record, after: tuple[Record, ...], now: Environment) -> tuple[Installed, ...]:
    """What is back, has a mark and had none before the step: marked by the step or by undo, not by somebody since."""
    about = saved.about
    if "requested" not in about:
        return ()  # a journal of before marks were kept
    back = about_step(journal, COMING_BACK, run=about["run"], step=about["step"])
    ours = {
        pin.partition("==")[0] for each in back if each.about["target"] == about["target"] for pin in each.about["back"]
    }
    for each in after:
        ours |= set(each.about.get("requested", ()))
    before, asked = set(about["before"]), set(about["requested"])
    return tuple(
        each
        for each in now.distributions
        if each.requested and each.pin in before and each.name not in asked and (each.name in ours or not after)
    )


def unmark(acting: Acting, saved: Record, found: tuple[Installed, ...]) -> None:
    """Take the marks away; killed half-way, the mark is still there and the next undo goes on with it."""
    if not found:
        return
    paths = [each.path for each in found]
    acting.journal.add(MARKS_TAKEN, run=saved.about["run"], step=saved.about["step"], paths=paths)
    for path in paths:
        _drop_line(acting, path)
        acting.disk.remove(os.path.join(path, MARK))


def _drop_line(acting: Acting, path: str) -> None:
    record = os.path.join(path, "RECORD")
    now = look_at(record)
    if now is None:
        return
    line = f"{os.path.basename(path)}/{MARK},".encode()
    kept = b"".join(each for each in now.data.splitlines(keepends=True) if not each.startswith(line))
    if kept != now.data:
        acting.disk.write(record, kept, mode=now.mode, owner=now.owner)
