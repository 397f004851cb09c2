"""Files that name folders for ldconfig: a folder taken out, and nothing else."""

from __future__ import annotations

import re

# Folders stand apart by blanks, colons or commas, some with a kind behind: /usr/lib/x=libc6.
_SEPARATORS = r"[ \t:,]"


def without_conf_folders(text: str, folders: tuple[str, ...]) -> str:
    """The text without the folders; a line that named nothing else goes with its comment."""
    kept = []
    for line in text.split("\n"):
        names, mark, comment = line.partition("#")
        words = [word for word in re.split(_SEPARATORS, names.strip("\r")) if word]
        left = [word for word in words if word.partition("=")[0].rstrip("/") not in folders]
        if words[:1] in (["include"], ["hwcap"]) or len(left) == len(words):
            kept.append(line)
        elif left:
            end = "\r" if line.endswith("\r") and not mark else ""
            kept.append(f"{' '.join(left)}{f'  {mark}{comment}' if mark else ''}{end}")
    return "\n".join(kept)
