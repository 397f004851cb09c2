"""The commands that are never denied, whatever is broken: nobody is locked out by a torn policy or a missing parser."""

from __future__ import annotations

import re
import shlex

from firstlight.guard.syntax import INSTALL

REMOVE = "firstlight emit agents --remove"
# Letters of words and quotes, and nothing by which a shell would do more than start one program.
_PLAIN = re.compile(r"[\w \-./'\"]+", re.ASCII)


def is_way_out(kind: str, texts: tuple[str, ...]) -> bool:
    """Whether an action is, word for word, the removal of the hooks or the repair that a deny prints."""
    if kind == "shell":
        if texts == (INSTALL,):  # its quotes keep >= from being a redirection: to the letter, not word by word
            return True
        if len(texts) != 1 or not _PLAIN.fullmatch(texts[0]):
            return False
        try:
            words = shlex.split(texts[0])
        except ValueError:
            return False
    elif kind == "words":
        words = list(texts)
    else:
        return False
    remove = shlex.split(REMOVE)
    return words in (remove, [".venv/bin/firstlight", *remove[1:]], shlex.split(INSTALL))
