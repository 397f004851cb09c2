"""Whether a call of git leaves the hooks out: --no-verify, -n in a bundle, core.hooksPath, variables that say so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.guard.call import Call
from firstlight.guard.protect import git_folder

_VERIFIES = {"commit", "push", "merge", "am", "cherry-pick", "rebase", "pull", "revert"}
_COMMIT_VALUED = "mFCct"  # the letters of git commit behind which the rest of a word, or the next word, is a value
_HOOKS_PATH = re.compile(r"core\.hookspath\b", re.I)


def leaves_hooks_out(call: Call) -> str:
    """The words by which git is told to leave the hooks out, e.g. -n; '' where it is not."""
    words = list(call.words[1:])
    _, rest = git_folder(words)
    before, verb = words[: len(words) - len(rest)], rest[0] if rest else ""
    told = [word for word in before if _HOOKS_PATH.search(word)]
    told += [
        f"{name}={value}" for name, value in call.sets if name.startswith("GIT_CONFIG") and _HOOKS_PATH.search(value)
    ]
    told += [f"SKIP={value}" for name, value in call.sets if name == "SKIP" and "firstlight" in value]
    if verb in _VERIFIES:
        told += [word for word in rest[1:] if len(word) > 8 and "--no-verify".startswith(word)]
    if verb == "commit":
        told += _no_verify_letters(rest[1:])
    return told[0] if told else ""


def _no_verify_letters(words: list[str]) -> Iterator[str]:
    """Words with the letter n of git commit among their flags: -n, -anm."""
    value = False
    for word in words:
        if value or not re.fullmatch(r"-[A-Za-z].*", word, re.S):
            value = False
            continue
        flags = re.split(f"[{_COMMIT_VALUED}Su]", word[1:], maxsplit=1)[0]
        value = len(flags) < len(word) - 1 and word[-1] in _COMMIT_VALUED and len(flags) == len(word) - 2
        if "n" in flags:
            yield word
