"""Where the backend keeps what it built and the logs of what it could not build."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """The folder of the built kernels, e.g. ~/.cache/firstlight/kernels/sm90."""
    base = os.environ.get("FIRSTLIGHT_CACHE_DIR") or ""
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "firstlight")
    return Path(base) / "kernels" / "sm90"


def keep_log(name: str, text: str) -> str:
    """Writes the log of a failed build and returns its path, e.g. .../sm90/failed/multiply.txt; a temporary file
    where the cache folder cannot be written, and a sentence where nothing can."""
    try:
        folder = cache_folder() / "failed"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.txt"
        path.write_text(text, encoding="utf-8")
    except OSError:
        try:
            handle, written = tempfile.mkstemp(prefix=f"firstlight-{name}-", suffix=".txt")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            return "nowhere: no folder can be written"
        return written
    return str(path)
