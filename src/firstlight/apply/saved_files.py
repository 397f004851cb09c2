"""Files before they are changed: kept beside the journal, put back byte for byte."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace

from firstlight.apply.disk import Disk
from firstlight.apply.journal import Journal, Record
from firstlight.errors import CouldNotAct
from firstlight.plan.step import FileChange

SAVED, CHANGED = "file-saved", "file-changed"


class SavedFiles:
    """Changes files of one run and can put back what was there."""

    def __init__(self, folder: str, *, disk: Disk, journal: Journal) -> None:
        self.folder, self.disk, self.journal = folder, disk, journal

    def change(self, change: FileChange, *, run: int, step: str) -> None:
        """Keep the file, then put the new text in place; doing it twice keeps the first original."""
        if change.links_to:
            self._link(change, run=run, step=step)
            return
        # A link (dotfiles kept elsewhere) stays a link: what it points to is changed.
        change = replace(change, path=os.path.realpath(change.path))
        wanted = b"" if change.removes else change.after.encode("utf-8", "surrogateescape")
        now = read_if_there(change.path)
        if is_as_planned(change, now):
            return
        if not self._was_saved(change.path, run=run):
            expected = change.before.encode("utf-8", "surrogateescape") if change.before else None
            if now != expected and not (now == b"" and expected is None):
                raise CouldNotAct(
                    f"{change.path} is not what the plan was made for: somebody changed it since. Nothing was written. "
                    "Run the same command again to plan anew."
                )
            self._save(change.path, now, wanted, run=run, step=step)
        if change.removes:
            self.disk.remove(change.path)
        else:
            self.disk.make_folders(os.path.dirname(change.path))
            mode, owner = _mode_and_owner(change.path, change.mode)
            self.disk.write(change.path, wanted, mode=mode, owner=owner)
        self.journal.add(CHANGED, run=run, step=step, path=change.path)

    def _link(self, change: FileChange, *, run: int, step: str) -> None:
        """Make a link where nothing is; what it replaces is never kept, because nothing may be there."""
        if _link_at(change.path) == change.links_to:
            return
        if os.path.lexists(change.path):
            raise CouldNotAct(
                f"{change.path} is there, and the plan was made for a machine where it is not. Nothing was written. "
                "Run the same command again to plan anew."
            )
        if not self._was_saved(change.path, run=run):
            self.journal.add(
                SAVED, run=run, step=step, path=change.path, backup="", mode=0, owner=[],
                folders=self._missing_folders(change.path), digest="", written="", link=change.links_to,
            )  # fmt: skip
        self.disk.make_folders(os.path.dirname(change.path))
        self.disk.link(change.path, change.links_to)
        self.journal.add(CHANGED, run=run, step=step, path=change.path)

    def keep(self, path: str, *, run: int, step: str) -> None:
        """Keep a file that a command is about to change by itself; what it writes is learned by `settle`."""
        path = os.path.realpath(path)
        if not self._was_saved(path, run=run):
            self._save(path, read_if_there(path), None, run=run, step=step)

    def settle(self, path: str, *, run: int, step: str) -> None:
        """Learn what the commands made of a file that was kept: anything else found later is somebody's own."""
        path = os.path.realpath(path)
        self.journal.add(CHANGED, run=run, step=step, path=path, written=digest(read_if_there(path) or b""))

    def _was_saved(self, path: str, *, run: int) -> bool:
        return any(
            record.event == SAVED and record.about["run"] == run and record.about["path"] == path
            for record in self.journal.records
        )

    def _save(self, path: str, now: bytes | None, wanted: bytes | None, *, run: int, step: str) -> None:
        folders = self._missing_folders(path)
        backup = ""
        mode, owner = _mode_and_owner(path, 0)
        if now is not None:
            backup = f"{run:04d}-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
            self.disk.make_folders(self.folder, mode=0o700)
            self.disk.write(f"{self.folder}/{backup}", now, mode=0o600)
        self.journal.add(
            SAVED, run=run, step=step, path=path, backup=backup, mode=mode, owner=list(owner or ()), folders=folders,
            digest=digest(now or b""), written="" if wanted is None else digest(wanted),
        )  # fmt: skip

    def _missing_folders(self, path: str) -> list[str]:
        missing: list[str] = []
        folder = os.path.dirname(path)
        while not os.path.isdir(folder):
            missing.insert(0, folder)
            folder = os.path.dirname(folder)
        return missing

    def restore(self, record: Record) -> None:
        """Put back what `record` (file-saved) kept; refuses where somebody changed the file since."""
        about = record.about
        if about.get("link"):
            self._remove_link(about["path"], about["link"], folders=about["folders"])
            return
        path, now = about["path"], read_if_there(about["path"])
        if about["backup"]:
            before = read_if_there(f"{self.folder}/{about['backup']}")
            if before is None or digest(before) != about["digest"]:
                raise CouldNotAct(f"{self.folder}/{about['backup']}, the original of {path}, is gone or damaged.")
            self.disk.remove_unfinished(path)
            if now != before:
                self._refuse_if_foreign(path, now, self._written(record))
                self.disk.make_folders(os.path.dirname(path))
                self.disk.write(path, before, mode=about["mode"], owner=(about["owner"][0], about["owner"][1]))
        elif now is not None:
            self._refuse_if_foreign(path, now, self._written(record))
            self.disk.remove(path)
        else:
            self.disk.remove(path)  # an unfinished write may still lie there
        for folder in reversed(about["folders"]):
            self.disk.remove_folder(folder)

    def _remove_link(self, path: str, leads_to: str, *, folders: list[str]) -> None:
        if os.path.lexists(path) and _link_at(path) != leads_to:
            raise CouldNotAct(
                f"{path} is no longer the link that firstlight made; undo would lose what is there now. Move it away "
                f"(mv {path} {path}.mine) and run undo again."
            )
        self.disk.remove(path)
        for folder in reversed(folders):
            self.disk.remove_folder(folder)

    def _written(self, record: Record) -> str:
        """The digest of what we made of the file; "" where a command was writing it and never ended."""
        about = record.about
        for later in reversed(self.journal.records):
            if later.event == CHANGED and all(later.about[key] == about[key] for key in ("run", "path")):
                return str(later.about.get("written") or about["written"])
        return str(about["written"])

    def _refuse_if_foreign(self, path: str, now: bytes | None, written: str) -> None:
        if now is not None and written and digest(now) != written:
            raise CouldNotAct(
                f"{path} was changed after firstlight wrote it; undo would lose that. Move your version away "
                f"(mv {path} {path}.mine) and run undo again, or keep it and answer for it yourself."
            )


def is_as_planned(change: FileChange, now: bytes | None) -> bool:
    """Whether the file already is what the change makes of it."""
    return now is None if change.removes else now == change.after.encode("utf-8", "surrogateescape")


def _link_at(path: str) -> str:
    """Where a link leads, as it is written; "" where there is no link."""
    return os.readlink(path) if os.path.islink(path) else ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_if_there(path: str) -> bytes | None:
    """The bytes of a file, None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CouldNotAct(f"{path} could not be read: {error.strerror}. Nothing was changed.") from error


def _mode_and_owner(path: str, default: int) -> tuple[int, tuple[int, int] | None]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return default, None
    return stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
