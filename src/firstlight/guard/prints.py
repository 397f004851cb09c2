"""What a program prints, where its words alone say it, and what it downloads; a hole for all else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from firstlight.guard.call import HOLE, Call
from firstlight.guard.expand import ansi
from firstlight.guard.programs import EVAL_SAFE

if TYPE_CHECKING:
    from firstlight.guard.walk import Shell

_FORMAT = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?([sbqdi%])")
_SILENT = {"cd", "true", ":", "export", "set", "unset", "rm", "mkdir", "touch", "cp", "mv", "ln", "chmod", "sleep"}


def printed(shell: Shell, call: Call, name: str) -> str:
    """The text on stdout, e.g. 'a b' and a line end for echo a b."""
    words = list(call.words[1:])
    if name == "echo":
        return _echo(words)
    if name == "printf":
        return _printf(words)
    if name in ("cat", "tee"):
        return _cat(shell, words if name == "cat" else [], call.stdin)
    if name in ("which", "type") and words:
        return f"{words[-1]}\n"
    if name == "pwd":
        return f"{call.cwds[0]}\n"
    if (
        name in _SILENT
        or name in EVAL_SAFE
        or (name in ("conda", "micromamba", "mamba") and words[:1] == ["shell.bash"])
    ):
        return ""
    return HOLE


def _echo(words: list[str]) -> str:
    """What echo prints; with a backslash both readings, since bash keeps it and dash does not."""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        words.pop(0)
    text = " ".join(words)
    other = ansi(text)
    return f"{text}\n" if other == text else f"{text}\n{other}\n"


def _printf(words: list[str]) -> str:
    if words[:1] == ["--"]:
        words = words[1:]
    if not words or words[0] == "-v":
        return HOLE if words else ""
    text, given = ansi(words[0]), list(words[1:])
    once = len(_FORMAT.findall(text))
    said = ""
    while True:
        said += _FORMAT.sub(lambda found: "%" if found[1] == "%" else (given.pop(0) if given else ""), text)
        if not given or not once or len(said) > 100_000:
            return HOLE if "%" in text.replace("%%", "") and not once else said


def _cat(shell: Shell, words: list[str], stdin: str | None) -> str:
    files = [word for word in words if not word.startswith("-") or word == "-"]
    if not files:
        return stdin if stdin is not None else HOLE
    texts = [stdin if path == "-" else shell.file(path) for path in files if HOLE not in path]
    if len(texts) < len(files) or any(text is None for text in texts):
        return HOLE
    return "".join(text or "" for text in texts)


def downloads(call: Call, name: str) -> tuple[str, ...]:
    """Files that a download makes: ('x.sh',) for wget https://host/x.sh."""
    if name not in ("curl", "wget", "git", "aria2c"):
        return ()
    words = call.words[1:]
    made = [
        words[at + 1]
        for at, word in enumerate(words[:-1])
        if word in ("-o", "-O", "--output", "--output-document", "-P")
    ]
    made += [word.partition("=")[2] for word in words if word.startswith(("--output=", "--output-document="))]
    made += [word.split("?")[0].rstrip("/").rsplit("/", 1)[-1] for word in words if "://" in word]
    return tuple(path for path in made if path and HOLE not in path)
