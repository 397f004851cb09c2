"""Files before they are changed: kept beside the journal, put back byte for byte."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace

from firstlight.apply.disk import Disk, missing_folders
from firstlight.apply.journal import Journal, Record
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass
from firstlight.opening import open_regular, require_regular
from firstlight.owned import our_folder, read_ours, way_to
from firstlight.ways.step import FileChange

SAVED, CHANGED = "file-saved", "file-changed"
_PUT_A_FILE = "Nothing was changed. Move away what is there, or put a file there, and run the same command again."


@dataclass(frozen=True, slots=True)
class FileNow:
    """A file as it is, all from one opening: no other can be put in its place between the look and the read."""

    data: bytes
    mode: int
    owner: tuple[int, int]


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
        found = look_at(change.path)
        now = None if found is None else found.data
        if is_as_planned(change, now):
            return
        if not self._was_saved(change.path, run=run):
            expected = change.before.encode("utf-8", "surrogateescape") if change.before else None
            if now != expected and not (now == b"" and expected is None):
                raise CouldNotAct(
                    f"{change.path} is not what the plan was made for: somebody changed it since. Nothing was written. "
                    "Run the same command again for a new plan."
                )
            self._save(change.path, found, wanted, run=run, step=step)
        if change.removes:
            self.disk.remove(change.path)
        else:
            self.disk.make_folders(os.path.dirname(change.path))
            mode, owner = (change.mode, None) if found is None else (found.mode, found.owner)
            self.disk.write(change.path, wanted, mode=mode, owner=owner)
        # A second step of the run may edit the same file: undo compares with what was written last.
        self.journal.add(CHANGED, run=run, step=step, path=change.path, written=digest(wanted))

    def _link(self, change: FileChange, *, run: int, step: str) -> None:
        """Make a link where nothing is; what it replaces is never kept, because nothing may be there."""
        real = f"{os.path.realpath(os.path.dirname(change.path)).rstrip('/')}/{os.path.basename(change.path)}"
        change = replace(change, path=real)
        if _link_at(change.path) == change.links_to:
            return
        if os.path.lexists(change.path):
            raise CouldNotAct(
                f"{change.path} is there, and the plan was made for a machine where it is not. Nothing was written. "
                "Run the same command again for a new plan."
            )
        if not self._was_saved(change.path, run=run):
            self.journal.add(
                SAVED, run=run, step=step, path=change.path, backup="", mode=0, owner=[], digest="", written="",
                folders=list(missing_folders(os.path.dirname(change.path))), link=change.links_to,
            )  # fmt: skip
        self.disk.make_folders(os.path.dirname(change.path))
        self.disk.link(change.path, change.links_to)
        self.journal.add(CHANGED, run=run, step=step, path=change.path)

    def keep(self, path: str, *, run: int, step: str) -> None:
        """Keep a file that a command is about to change by itself; what it writes is learned by `settle`."""
        path = os.path.realpath(path)
        if not self._was_saved(path, run=run):
            self._save(path, look_at(path), None, run=run, step=step)

    def settle(self, path: str, *, run: int, step: str) -> None:
        """Learn what the commands made of a file that was kept: anything else found later is somebody's own."""
        path = os.path.realpath(path)
        self.journal.add(CHANGED, run=run, step=step, path=path, written=digest(read_if_there(path) or b""))

    def _was_saved(self, path: str, *, run: int) -> bool:
        return any(
            record.event == SAVED and record.about["run"] == run and record.about["path"] == path
            for record in self.journal.records
        )

    def _save(self, path: str, now: FileNow | None, wanted: bytes | None, *, run: int, step: str) -> None:
        folders = list(missing_folders(os.path.dirname(path)))
        backup, mode, owner = "", 0, list[int]()
        if now is not None:
            backup, mode, owner = (
                f"{run:04d}-{hashlib.sha256(path.encode()).hexdigest()[:12]}",
                now.mode,
                list(now.owner),
            )
            self.disk.make_folders(self.folder, mode=0o700)
            with our_folder(self.folder) as originals:
                self.disk.write(f"{originals.path}/{backup}", now.data, mode=0o600)
        self.journal.add(
            SAVED, run=run, step=step, path=path, backup=backup, mode=mode, owner=owner, folders=folders,
            digest=digest(b"" if now is None else now.data), written="" if wanted is None else digest(wanted),
        )  # fmt: skip

    def _original(self, backup: str) -> bytes | None:
        try:
            with our_folder(self.folder) as originals:
                return read_ours(originals, backup)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CouldNotAct(f"{self.folder}/{backup} could not be read: {error.strerror}.") from error

    def restore(self, record: Record) -> None:
        """Put back what `record` (file-saved) kept; refuses where somebody changed the file since."""
        about = record.about
        if about.get("link"):
            self._remove_link(about["path"], about["link"], folders=about["folders"])
            return
        path, found = about["path"], look_at(about["path"])
        now = None if found is None else found.data
        if about["backup"]:
            before = self._original(about["backup"])
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
    """The bytes of a file, links followed; None where there is none."""
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CouldNotAct(f"{path} could not be read: {error.strerror}. {_PUT_A_FILE}") from error


def look_at(path: str) -> FileNow | None:
    """A file with its mode and owner, None where there is none; a FIFO, a folder or a link is refused."""
    try:
        with way_to(os.path.dirname(os.path.abspath(path))) as folder:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(os.path.basename(path), flags, dir_fd=folder.handle)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            require_regular(found, path)
            return FileNow(file.read(), stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CouldNotAct(f"{path} could not be read: {error.strerror}. {_PUT_A_FILE}") from error
