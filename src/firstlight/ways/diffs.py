"""File changes as unified diffs, and the texts of files that a plan may change."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.ways.step import FileChange

NOTHING = "/dev/null"


@dataclass(frozen=True, slots=True)
class FileText:
    """A file as it is now, read before planning, e.g. ~/.bashrc; a plan itself reads nothing."""

    path: str
    text: str


def unified_diff(change: FileChange) -> str:
    """The change as `diff -u` writes it: new files come from /dev/null, removed ones go there; '' where none is."""
    if change.links_to:
        return f"--- {NOTHING}\n+++ {change.path}\n+link to {change.links_to}\n"
    after = "" if change.removes else change.after
    if change.before == after and not change.removes:
        return ""
    import difflib  # where a file is shown alone: every start of doctor comes by here

    lines = difflib.unified_diff(
        change.before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        fromfile=change.path if change.before or change.unread else NOTHING,
        tofile=NOTHING if change.removes else change.path,
    )
    return "".join(_ended(line) for line in lines)


def _ended(line: str) -> str:
    """A last line without a newline carries the mark that patch knows."""
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
