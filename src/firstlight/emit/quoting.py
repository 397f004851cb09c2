"""Text that came from outside, as it has to be written in each target language; what one cannot carry is refused.

Every function returns Quoted, and `emit.rendering` writes nothing else into a template: a value that nobody quoted is
a bug that stops the emitter instead of a hole in what it writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from firstlight.errors import BadInput


class Quoted(str):
    """Text that is safe as it stands in the language it was quoted for."""

    __slots__ = ()


def sh(text: str) -> Quoted:
    """One word of a POSIX shell: it's becomes 'it'"'"'s'; line breaks stay inside the quotes."""
    return Quoted(shlex.quote(_carried(text, "a shell script")))


def sh_words(words: Iterable[str]) -> Quoted:
    """Words of a command line, each quoted: torch==2.9.0 --index-url https://..."""
    return Quoted(" ".join(sh(word) for word in words))


def comment(text: str) -> Quoted:
    """One line of a comment, in every language here whose comments end with the line; what would end it is spelled."""
    _carried(text, "a comment")
    return Quoted("".join(letter if letter.isprintable() else _spelled(letter) for letter in text))


def yaml_text(text: str) -> Quoted:
    """A double-quoted YAML scalar in ASCII: colons, quotes, line breaks and anchors mean nothing in it."""
    _carried(text, "YAML")
    return Quoted('"' + "".join(_in_yaml(letter) for letter in text) + '"')


def ansible_text(text: str) -> Quoted:
    """A YAML scalar in which Ansible looks for no {{ variables }}."""
    return Quoted(f"!unsafe {yaml_text(text)}")


def json_text(text: str) -> Quoted:
    """A JSON string in ASCII, with its quotes."""
    import json

    return Quoted(json.dumps(_carried(text, "JSON")))


def devcontainer_text(text: str) -> Quoted:
    """A JSON string of devcontainer.json, whose reader replaces ${...} in every string and has no way to keep it."""
    if "${" in text:
        raise BadInput(f"{_shown(text)}: devcontainer.json replaces ${{...}} in every text. Give it without.")
    return json_text(text)


def dockerfile_text(text: str) -> Quoted:
    """A double-quoted value of ENV, LABEL, ARG or WORKDIR: no variable in it is replaced; line breaks are refused."""
    _one_line(text, "a Dockerfile")
    return Quoted('"' + re.sub(r'(["\\$])', r"\\\1", text) + '"')


def dockerfile_exec(words: Iterable[str]) -> Quoted:
    """The exec form of CMD, ENTRYPOINT and RUN: ["firstlight", "verify"]; no shell reads it."""
    import json

    return Quoted(json.dumps([_carried(word, "a Dockerfile") for word in words]))


def absolute_path(text: str, *, what: str) -> str:
    """A folder for files that are made once and read on many machines: absolute, one line, nothing to expand."""
    if odd := next((letter for letter in text if not letter.isprintable()), ""):
        raise BadInput(f"{what} {_shown(text)}: a path cannot hold {_spelled(odd)} here; accepted is e.g. /workspace.")
    parts = text.split("/")
    if not text.startswith("/") or text.startswith("//") or ".." in parts or len(text) > 200:
        raise BadInput(f"{what} {_shown(text)}: accepted is an absolute path without .., e.g. /workspace.")
    # They end a path where paths are listed (PATH, LD_LIBRARY_PATH, mounts), or cannot be quoted in every target.
    if found := sorted(set(text) & set(":,;\"'\\$`*?[]{}<>|&!#%")):
        raise BadInput(f"{what} {_shown(text)}: {' '.join(found)} cannot be in it; accepted is e.g. /workspace.")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def _carried(text: str, where: str) -> str:
    """The text, where files can carry it: no NUL, and nothing that is no text, as bytes that are no UTF-8."""
    if "\0" in text:
        raise BadInput(f"{_shown(text)}: {where} cannot hold a NUL. Give it without.")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise BadInput(f"{_shown(text)}: it is not UTF-8, and {where} is written in it. Give it in UTF-8.")
    return text


def _one_line(text: str, where: str) -> str:
    _carried(text, where)
    if odd := next((letter for letter in text if not letter.isprintable()), ""):
        raise BadInput(f"{_shown(text)}: {where} cannot hold {_spelled(odd)} here. Give one line of printable text.")
    return text


def _in_yaml(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if " " <= letter <= "~" else _spelled(letter)


def _spelled(letter: str) -> str:
    """\\n, \\x85, \\u2028, \\U0001f600: as YAML, Python and readers spell it."""
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(letter)
    if letter in known:
        return known[letter]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")
