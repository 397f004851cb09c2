"""The steps that all followers share: on to the words inside of a call, or down as a call of its own."""

from __future__ import annotations

import os
from dataclasses import replace

from firstlight.guard import prints
from firstlight.guard.call import HOLE, Call, known
from firstlight.guard.place import really
from firstlight.guard.programs import MANAGERS, SHELLS, WRAPPERS, compiler, is_followed, is_pip, is_python
from firstlight.guard.walk import Shell


def again(shell: Shell, call: Call, words: tuple[str, ...], through: str) -> str:
    """Follow the words inside of a call."""
    if not words:
        return ""
    before, shell.trail = shell.trail, (*call.trail, through)
    try:
        return shell.run(shell, replace(call, words=words, writes=(), trail=shell.trail))
    finally:
        shell.trail = before


def leaf(shell: Shell, call: Call, name: str) -> str:
    shell.calls.append(replace(call, words=(name, *call.words[1:]) if is_tool(name) else call.words))
    _remember(shell, call, name)
    return prints.printed(shell, call, name)


def is_tool(name: str) -> bool:
    return is_pip(name) or name in MANAGERS


def scan(shell: Shell, call: Call, through: str) -> None:
    """A program that may run its words: the first of them that is a program of ours to follow is followed."""
    for at, word in enumerate(call.words[1:], start=1):
        base = word.rsplit("/", 1)[-1]
        if base and (is_pip(base) or is_python(base) or base in SHELLS or base in MANAGERS
                     or base in WRAPPERS or base in ("env", "xargs", "make", "npm")
                     or compiler(base) or base in ("rm", "tee")):  # fmt: skip
            again(shell, call, call.words[at:], through)
            return


def _link(shell: Shell, call: Call, operands: list[str], *, by_name: bool) -> None:
    """New names of files: a target by name counts from the folder of the link, any other from where ln runs."""
    for cwd in call.cwds:
        last = operands[-1] if len(operands) > 1 else "."
        for source in operands[:-1] or operands:
            for link in (last, os.path.join(last, os.path.basename(source.rstrip("/")))):
                path = os.path.normpath(os.path.join(cwd, link))
                target = os.path.normpath(os.path.join(os.path.dirname(path) if by_name else cwd, source))
                if known(path) and known(target) and path != target:
                    shell.links[path] = target


def _remember(shell: Shell, call: Call, name: str) -> None:
    """New names of programs and files, and files that a call makes without a redirection."""
    operands = [word for word in call.words[1:] if not word.startswith("-")]
    flags = "".join(word for word in call.words[1:] if word.startswith("-"))
    if operands and (name == "ln" or (name == "cp" and ("l" in flags or "s" in flags))):
        _link(shell, call, operands, by_name="s" in flags)
    if name in ("ln", "cp", "mv", "install") and len(operands) >= 2 and known(operands[-1]):
        source = operands[0].rsplit("/", 1)[-1]
        real = os.path.basename(really(os.path.join(call.cwds[0], operands[0]))) if known(operands[0]) else HOLE
        for target in (operands[-1], os.path.join(operands[-1], source)):
            for cwd in call.cwds:
                path = os.path.normpath(os.path.join(cwd, target))
                if is_followed(source) or is_followed(real) or HOLE in source:
                    shell.renamed[path] = source if is_followed(source) or HOLE in source else real
                if name != "ln":
                    shell.written[path] = shell.file(operands[0]) if known(operands[0]) else None
    made = prints.downloads(call, name)
    if name in ("mkdir", "git"):
        if operands[:1] == ["clone"]:
            made = (*made, *operands[2:])
        folders = operands if name == "mkdir" else made if operands[:1] == ["clone"] else ()
        shell.folders |= {os.path.normpath(os.path.join(cwd, each)) for cwd in call.cwds for each in folders}
    if name == "tee":
        made = tuple(operands)
    for target in made:
        for cwd in call.cwds:
            shell.written[os.path.normpath(os.path.join(cwd, target))] = (
                call.stdin if name == "tee" and call.stdin and HOLE not in call.stdin else None
            )
