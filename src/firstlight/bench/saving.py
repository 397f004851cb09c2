"""Write a result file: whole or not at all, and known to be possible before minutes are spent on measuring."""

from __future__ import annotations

import contextlib
import os
import tempfile

from firstlight.bench.results import RunResult, to_text
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular
from firstlight.secrets import masked

_MOST_READ = 64 << 20


@dataclass(frozen=True, slots=True)
class Form:
    """What is written, and how one of it is known again: how it begins, and what is always in it."""

    words: str
    start: bytes
    mark: bytes = b""


RUN = Form("a run that firstlight measured", b"{", b'"firstlight.bench/')
DOCUMENT = Form("a document that firstlight wrote", b"{", b'"schema": "firstlight.')
PAGE = Form("a page that firstlight wrote", b"<!doctype html", b'class="firstlight-data"')
JUNIT = Form("a JUnit file that firstlight wrote", b"<?xml", b'<testsuites name="firstlight')
METRICS = Form("a metrics file that firstlight wrote", b"# TYPE firstlight_")
PYTEST_BENCHMARK = Form("a pytest-benchmark file that firstlight wrote", b"{", b'"tool": "firstlight ')
ENTRIES = Form("a list for github-action-benchmark that firstlight wrote", b"[", b", firstlight ")
PROGRAM = Form("a program that firstlight wrote", b"#!/usr/bin/env python3\n", b"firstlight/cli/standalone.py")
REPORT = Form("a report of Nsight Compute", b"")  # who calls asks for the ending .ncu-rep


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The file beside a result that holds the finished cases until the result is there: 'run.json.part'."""

    path: str

    def keep(self, so_far: RunResult) -> None:
        """Write what there is; a full disk ends no measurement."""
        with contextlib.suppress(BadInput):
            save(self.path, to_text(so_far))

    def forget(self) -> None:
        """The result itself is there now."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def unfinished(path: str) -> Unfinished:
    """Where finished cases wait: 'run.json.part' for 'run.json'."""
    return Unfinished(f"{path}.part")


def writable(path: str, form: Form, *, option: str = "--out") -> None:
    """Refuse a path that could not be written later, or where another thing is than what is written now.

    `option` is what the user typed it behind, e.g. '--html'.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise BadInput(f"{option} {path}: there is no folder {folder}; make it, or name another file")
    if os.path.isdir(path):
        raise BadInput(f"{option} {path}: is a folder; name a file")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise BadInput(f"{option} {path}: cannot be written here; name a file you can write")
    if os.path.isfile(path) and not _may_be_replaced(path, form):
        raise BadInput(f"{option} {path}: is there already, and is not {form.words}; name another file")


def _may_be_replaced(path: str, form: Form) -> bool:
    """Whether nothing is in the file, or what we write there: who measures again replaces a run, nobody's notes."""
    try:
        with open_regular(path) as file:
            held = file.read(_MOST_READ)
    except OSError:
        return False
    return not held or (held.startswith(form.start) and form.mark in held)


def is_plain(path: str) -> bool:
    """Whether a file can stand beside this one: not where there is no path, nor beside /dev/stdout or a named pipe."""
    return bool(path) and (os.path.isfile(path) or not os.path.exists(path))


def save(path: str, text: str, *, option: str = "--out") -> None:
    """Write the text beside the file and put it in its place."""
    folder = os.path.dirname(os.path.abspath(path))
    text = text if text.lstrip().startswith("<") else masked(text)  # pages are masked where their text is escaped
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # /dev/stdout, a named pipe
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        handle, temporary = tempfile.mkstemp(prefix=".firstlight-", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise BadInput(f"{option} {path}: {why}; the result is lost") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
