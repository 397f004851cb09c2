"""Whether a command is one that the policy lists: the same words, and after them none that lead elsewhere."""

from __future__ import annotations

import re

from firstlight.guard.call import HOLE, SOMEWHERE, Call
from firstlight.guard.place import Place, really
from firstlight.guard.programs import STEERING

# Whole words, bundles such as -sk too: behind -s, -k and -w make takes more letters, and -sf/tmp/x.mk is another file.
_MAKE_FLAG = re.compile(
    r"-[kBsw]+(?:j\d*)?|-j\d*|--jobs(?:=\d+)?|--silent|--quiet|--keep-going|--always-make|--no-print-directory"
    r"|--print-directory|-O(?:none|line|target|recurse)?|--output-sync(?:=(?:none|line|target|recurse))?"
)
_TAKES_A_NUMBER = re.compile(r"-[kBsw]*j|--jobs")


def is_entry(words: tuple[str, ...], entry: tuple[str, ...]) -> bool:
    """Whether a command is this entry of the list."""
    if entry[0] not in ("make", "gmake"):
        return words[: len(entry)] == entry
    if words[:1] != entry[:1]:
        return False
    rest = list(words[1:])
    for word in entry[1:]:
        if word not in rest:
            return False
        rest.remove(word)
    for before, word in zip(("", *rest), rest, strict=False):
        number = word.isdigit() and _TAKES_A_NUMBER.fullmatch(before)
        if HOLE in word or not (number or _MAKE_FLAG.fullmatch(word) or _is_setting(word)):
            return False
    return True


def elsewhere(call: Call, place: Place) -> str:
    """The folder that a call may run in and that is not the project's own; '' where it runs there."""
    folders = [cwd for cwd in call.cwds or (place.cwd,) if really(cwd) != really(place.root)]
    return "" if not folders else "a folder that only the running shell knows" if SOMEWHERE in folders else folders[0]


def _is_setting(word: str) -> bool:
    name, equals, value = word.partition("=")
    return (
        bool(equals)
        and name.isidentifier()
        and not STEERING.fullmatch(name)
        and not any(each in value for each in "$`;|&<>()\n")
    )
