"""What was done, written down before and after each change: one JSON object a line, appended and synced.

A line that was cut off by a crash is dropped on reading; it describes a change that had not begun. Lines carry a
number and the digest of the line before, so that a journal that somebody edited or mixed with another is noticed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from firstlight.apply.disk import Disk
from firstlight.apply.record_shapes import EVENTS, Shapes
from firstlight.errors import BadInput, CouldNotAct, NotBegun, NotOurs
from firstlight.frozen import dataclass
from firstlight.owned import open_ours, our_folder, read_ours

FORMAT = 2  # of what is written; 1 held the commands of `undo` as text
BESIDE = ("originals", "logs")  # folders beside the journal
_BEGIN_ANEW = "Put the original back, or move the journal away to start over (undo is lost then)."
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_TO_OPEN = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some of your quota",
    errno.EROFS: "That file system is read-only; remount it",
    errno.EACCES: "Become a user that may write there (sudo)",
    errno.EPERM: "Become a user that may write there (sudo)",
}
FORMATS = (1, FORMAT)  # a journal goes on after firstlight was upgraded, so that one file may have both


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the journal, e.g. number 3, step-begun, {"step": "02-install-cuda-compat-13-0"}."""

    number: int
    at: str  # 2026-11-15T02:38:25Z
    event: str
    about: Mapping[str, Any]
    before: str  # digest of the line before, "" for the first
    format: int = FORMAT


class Journal:
    """An open journal; holds what was read and appends to it."""

    def __init__(self, path: str, *, disk: Disk, now: Any) -> None:
        self.path, self._disk, self._now = path, disk, now
        self.folder = os.path.dirname(path)  # with every link resolved, once it is open
        self.records: list[Record] = []
        self._last = ""
        self._descriptor = -1

    def open(self) -> None:
        """Read what is there, cut a torn last line off, and be ready to append."""
        disk = self._disk
        disk.passing(f"{self.path}: mkdir")
        with _being_opened(self.path), ours_alone(), our_folder(os.path.dirname(self.path), make=0o700) as folder:
            for each in folder.made:
                disk.sync_folder(os.path.dirname(each))
            self._descriptor = open_ours(folder, os.path.basename(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self.folder = folder.path
            for name in BESIDE:  # before anything is changed, not when the first of them is needed
                with suppress(FileNotFoundError), our_folder(f"{folder.path}/{name}"):
                    pass
        whole = self._read()
        self.records, self._last, end = parse(whole, self.path)
        if end < len(whole):
            disk.passing(f"{self.path}: cut torn line")
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)

    def _read(self) -> bytes:
        pieces = []
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while piece := os.read(self._descriptor, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def add(self, event: str, **about: Any) -> Record:
        """Append one record; when this returns it is on the disk."""
        assert event in EVENTS, f"{event!r} could not be read back"
        record = Record(len(self.records) + 1, self._now(), event, about, self._last)
        line = _line(record)
        self._disk.append(self._descriptor, line, name=f"journal {event}")
        self.records.append(record)
        self._last = _digest(line)
        return record

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_journal(path: str) -> tuple[Record, ...]:
    """What a journal holds, without opening it for writing; () where there is none yet."""
    try:
        with ours_alone(), our_folder(os.path.dirname(path)) as folder:
            whole = read_ours(folder, os.path.basename(path))
    except FileNotFoundError:
        return ()
    except OSError as error:
        if error.errno in _NO_FOLDER:
            raise _no_folder(path, error) from error
        denied = isinstance(error, PermissionError)
        advice = "Run as the user that ran apply before (sudo)." if denied else "Set FIRSTLIGHT_STATE_DIR to a folder."
        raise CouldNotAct(f"{path} could not be read: {error.strerror}. {advice}") from error
    return tuple(parse(whole, path)[0])


@contextmanager
def _being_opened(path: str) -> Iterator[None]:
    """Says of a journal that cannot be opened what to do; a path that can be no folder is bad input."""
    try:
        yield
    except OSError as error:
        if error.errno in (*_NO_FOLDER, errno.ENOENT):  # below /proc no folder can be made
            raise _no_folder(path, error) from error
        advice = _TO_OPEN.get(error.errno or 0, "Put that right")
        raise NotBegun(
            f"{path} could not be written: {error.strerror}. Nothing was changed. {advice}, then run the same command "
            "again; where nothing was applied yet, you can set FIRSTLIGHT_STATE_DIR to another folder instead."
        ) from error


def _no_folder(path: str, error: OSError) -> BadInput:
    return BadInput(f"{path}: {error.strerror}. Set FIRSTLIGHT_STATE_DIR to a folder of your own.")


@contextmanager
def ours_alone() -> Iterator[None]:
    """Says of a journal that is not ours what to do: what it holds is acted on with this user's rights."""
    try:
        yield
    except NotOurs as error:
        do = error.do or "look who put it there, and move it away"
        raise NotOurs(
            f"{error}. What is written there is carried out with your rights, so that the journal, its folder and all "
            "folders above must belong to you or root and be closed to others; nothing was read or changed. "
            f"{do[0].upper()}{do[1:]}. Set FIRSTLIGHT_STATE_DIR to a folder of your own only to start over: what "
            "was done before cannot be undone then.",
            do=error.do,
        ) from None


def _line(record: Record) -> bytes:
    document = {
        "format": FORMAT,
        "number": record.number,
        "at": record.at,
        "event": record.event,
        "about": record.about,
        "before": record.before,
    }
    return json.dumps(document, ensure_ascii=True, sort_keys=True).encode() + b"\n"


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def parse(whole: bytes, path: str, *, advice: str = _BEGIN_ANEW) -> tuple[list[Record], str, int]:
    """The records of a journal, the digest of its last line, and where the whole lines end.

    `advice` is what to do about one that is damaged; it begins anew where it is this machine's own.
    """
    records: list[Record] = []
    shapes = Shapes()
    last, end = "", 0
    while (stop := whole.find(b"\n", end)) >= 0:
        line = whole[end : stop + 1]
        record = _record(line, number=len(records) + 1, path=path, advice=advice)
        if record.before != last:
            raise BadInput(
                f"{path}, line {record.number}: the line before it is not the one it was written after. Was the "
                f"journal edited? {advice}"
            )
        if fault := shapes.fault_of(record.event, record.about, record.format):
            raise BadInput(f"{path}, line {record.number}: {fault}. {advice}")
        records.append(record)
        last, end = _digest(line), stop + 1
    return records, last, end


def _record(line: bytes, *, number: int, path: str, advice: str) -> Record:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not _is_a_line(document, number):
        raise BadInput(
            f"{path}, line {number}: not a line of a firstlight journal of format {' or '.join(map(str, FORMATS))}. "
            f"If another firstlight wrote it, use that one. {advice}"
        )
    return Record(**document)


def _is_a_line(document: dict[str, Any], number: int) -> bool:
    texts = [document.get(name) for name in ("at", "event", "before")]
    return (
        set(document) == {"format", "number", "at", "event", "about", "before"}
        and type(document["format"]) is int
        and document["format"] in FORMATS
        and type(document["number"]) is int
        and document["number"] == number
        and isinstance(document["about"], dict)
        and all(isinstance(text, str) and text.isprintable() for text in texts)
    )
