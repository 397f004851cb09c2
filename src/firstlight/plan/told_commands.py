"""The commands in what a finding says to do: a line of its own, or behind the words that say when it is for."""

from __future__ import annotations

import re
import shlex

from firstlight.frozen import dataclass
from firstlight.plan.building import Argv

_PROGRAMS = (
    r"sudo|apt-get|apt-mark|dnf|systemctl|modprobe|rmmod|nvidia-smi|nvidia-modprobe|nvidia-bug-report\.sh|ldconfig|"
    r"update-initramfs|mokutil|ln|rm|ls|find|du|echo|printf|env|sh|unset|export|uv|pip|python[\d.]*|conda|grep|reboot|"
    r"dmesg|firstlight"
)
_OPERATORS = re.compile(r"[|&<>]+")


@dataclass(frozen=True, slots=True)
class Told:
    """A line taken apart: 'with every program off the GPU: nvidia-smi --gpu-reset  # it asks nobody'."""

    words: str  # before the command; the whole line where there is none
    argv: Argv  # () for a sentence
    remark: str  # behind two spaces and #


def told_command(line: str) -> Told:
    """What a line says and the command in it; what begins with 'or' is another way, no step, and stays a sentence."""
    text, _, remark = line.partition("  # ")
    if argv := _argv(text):
        return Told("", argv, remark)
    words, _, behind = text.partition(": ")
    if not words.startswith("or ") and (argv := _argv(behind)):
        return Told(words, argv, remark)
    return Told(text, (), remark)


def _argv(text: str) -> Argv:
    """The words of a command line; one that takes a shell is given to it whole, and a sentence gives ()."""
    first = text.partition(" ")[0].rpartition("/")[2]
    if not re.fullmatch(_PROGRAMS, first) or "..." in text:
        return ()
    try:
        # Not POSIX: quotes stay, so that an operator inside of them is told from one that a shell would read.
        lexer = shlex.shlex(text, posix=False, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return ()
    if any(word[-1] in ",:;()" for word in words):
        return ()
    if re.search(r"[*?`~]|\$\(", text) or any(_OPERATORS.fullmatch(word) for word in words):
        return ("sh", "-c", text)
    return tuple(shlex.split(text))
