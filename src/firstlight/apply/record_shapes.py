"""What each kind of record holds: a line that is chained well and says something else is bad input, not a bug.

Fields that a later version adds are let through. A kind of record that is not known here is refused: it may say that
something was done, and undo would pass it over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from firstlight.apply.stored_steps import steps_from_json
from firstlight.errors import BadInput

_BACKUP = re.compile(r"\d{4,9}-[0-9a-f]{12}")
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
_MOST = 1 << 62

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    """Text that can be printed: a lone half of a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _said(value: Any) -> bool:
    """What a program or a file system gave us, whatever letters it has."""
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _status(value: Any) -> bool:
    return type(value) is int and abs(value) < _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _path(value: Any) -> bool:
    """An absolute path without a detour, and not the root."""
    return (
        isinstance(value, str)
        and value.startswith("/")
        and value.strip("/") != ""
        and "\0" not in value
        and os.path.normpath(value) == value
    )


def _paths(value: Any) -> bool:
    return isinstance(value, list) and all(map(_path, value))


def _mode(value: Any) -> bool:
    return _count(value) and value <= 0o7777


def _owner(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (0, 2) and all(_count(each) and each < 2**32 - 1 for each in value)


def _backup(value: Any) -> bool:
    return value == "" or (isinstance(value, str) and _BACKUP.fullmatch(value) is not None)


def _digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _set_of(value: Any) -> bool:
    return value in ("packages", "distributions")


_OF_STEP: dict[str, Check] = {"step": _text}
_ENDED: dict[str, Check] = {**_OF_STEP, "seconds": _number, "saw": _text}
# kind of record -> its fields beside `run`; those after "?" may be missing
_SHAPES: dict[str, dict[str, Check]] = {
    "run-begun": {"digest": _text, "option": _text, "title": _text, "steps": _list},
    "run-done": {},
    "undo-begun": {},
    "run-undone": {},
    "step-begun": {**_OF_STEP, "?there": _texts, "?folders": _paths},
    "step-done": _ENDED,
    "step-skipped": _ENDED,
    "step-failed": {**_OF_STEP, "argv": _texts, "status": _status, "tail": _texts},
    "step-undone": _OF_STEP,
    "command-started": {**_OF_STEP, "argv": _texts, "process": _count, "start": _text},
    "command-ended": {**_OF_STEP, "argv": _texts, "status": _status},
    "recovery-started": {**_OF_STEP, "argv": _texts, "process": _count, "start": _text},
    "recovery-ended": {**_OF_STEP, "argv": _texts, "status": _status},
    "set-saved": {
        **_OF_STEP, "of": _set_of, "target": _text, "before": _texts, "?manual": _texts, "?requested": _texts,
    },
    "set-settled": {**_OF_STEP, "target": _text, "after": _texts, "?manual": _texts, "?requested": _texts},
    "set-coming-back": {**_OF_STEP, "target": _text, "back": _texts},
    "file-saved": {
        **_OF_STEP, "path": _path, "backup": _backup, "mode": _mode, "owner": _owner, "folders": _paths,
        "digest": _digest, "written": _digest, "?link": _text,
    },
    "folder-moved-aside": {**_OF_STEP, "path": _path, "to": _path},
    "file-changed": {**_OF_STEP, "path": _path, "?written": _digest},
    "set-unknown": {**_OF_STEP, "target": _text, "reason": _said},
    "marks-taken-away": {**_OF_STEP, "paths": _texts},
    "debris-moved-back": {**_OF_STEP, "path": _said, "real": _said, "paths": _texts},
    "debris-taken-away": {**_OF_STEP, "paths": _texts, "why": _said},
}  # fmt: skip
EVENTS = frozenset(_SHAPES)


class Shapes:
    """Reads records in order and says what is wrong with one; knows the runs and steps that were begun."""

    def __init__(self) -> None:
        self._steps: list[frozenset[str]] = []  # of each run, by its number less one

    def fault_of(self, event: str, about: Mapping[str, Any], written_in: int) -> str:
        """What is wrong with a record, in words; "" where nothing is."""
        if event not in _SHAPES:
            return f"{event!a} is not a record that this firstlight knows; a later one may have written it"
        run, step = about.get("run", -1), about.get("step", "")
        if not _count(run) or not isinstance(step, str):
            return f"{event} does not say which run or step it is about"
        shape = _SHAPES[event]
        for name, check in shape.items():
            field = name.removeprefix("?")
            if (field in about or field == name) and not check(about.get(field)):
                return f"{event} has no usable {field!r}"
        if event == "run-begun":
            return self._begun(about, written_in)
        if not 1 <= run <= len(self._steps):
            return f"{event} is about run {run}, which was not begun"
        if "step" in shape and step not in self._steps[run - 1]:
            return f"{event} is about a step that run {run} does not have"
        return _beyond(about) if event == "file-saved" else ""

    def _begun(self, about: Mapping[str, Any], written_in: int) -> str:
        if about["run"] != len(self._steps) + 1:
            return f"run {about['run']} is begun after run {len(self._steps)}"
        try:
            steps = steps_from_json(about["steps"], written_in=written_in)
        except BadInput as error:
            return f"run {about['run']}: {error}"
        self._steps.append(frozenset(step.id for step in steps))
        return "" if len(self._steps[-1]) == len(steps) else f"run {about['run']} has two steps of one name"


def _beyond(about: Mapping[str, Any]) -> str:
    """What a saved file says that cannot be so: folders that it does not lie in, an original without an owner."""
    if any(not about["path"].startswith(f"{folder}/") for folder in about["folders"]):
        return "file-saved names folders that the file does not lie in"
    return "file-saved has an original and no owner" if about["backup"] and not about["owner"] else ""
