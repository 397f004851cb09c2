"""Where the backend keeps what it built and the logs of what it could not build."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from firstlight.errors import NotOurs
from firstlight.owned import open_ours, our_folder


def cache_folder() -> Path:
    """The folder of the built kernels, e.g. ~/.cache/firstlight/kernels/sm90."""
    base = os.environ.get("FIRSTLIGHT_CACHE_DIR") or ""
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "firstlight")
    return Path(base) / "kernels" / "sm90"


def our_cache_folder() -> Path:
    """The same, made where it is missing; OSError where another user owns it or can write there."""
    try:
        with our_folder(os.path.abspath(cache_folder()), make=0o755) as folder:
            return Path(folder.path)
    except NotOurs as error:
        raise PermissionError(str(error)) from error


def private(path: str, flags: int) -> int:
    """Opens a new file for its owner alone, whatever the umask."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def keep_log(name: str, text: str) -> str:
    """Writes the log of a failed build and returns its path, e.g. .../sm90/failed/multiply.txt; a temporary file
    where the cache folder cannot be written, and a sentence where nothing can."""
    try:
        with our_folder(str(our_cache_folder() / "failed"), make=0o755) as folder:
            path = f"{folder.path}/{name}.txt"
            flags = os.O_WRONLY | os.O_CREAT
            with os.fdopen(open_ours(folder, f"{name}.txt", flags), "w", encoding="utf-8") as file:
                file.truncate()
                file.write(text)
    except (OSError, NotOurs):
        try:
            handle, written = tempfile.mkstemp(prefix=f"firstlight-{name}-", suffix=".txt")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            return "nowhere: no folder can be written"
        return written
    return path
