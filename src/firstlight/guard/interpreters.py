"""Shells and interpreters: text behind -c, scripts, modules, what is piped into them."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from firstlight.guard.call import HOLE, SEP, Call, Unreadable, fields, known
from firstlight.guard.programs import SHELLS, is_followed, is_python
from firstlight.guard.steps import again, leaf, scan
from firstlight.guard.walk import Shell


def positional(shell: Shell, words: tuple[str, ...]) -> None:
    shell.variables["@"] = shell.variables["*"] = (SEP.join(words),)
    for number in range(1, 10):
        shell.variables[str(number)] = (words[number - 1] if number <= len(words) else "",)


def shell_text(shell: Shell, call: Call) -> str:
    words = list(call.words[1:])
    for path in (*(value for name, value in call.sets if name == "ENV"), *shell.variables.get("ENV", ())):
        if shell.file(path) is not None or "/" in path:  # else it is somebody's own ENV=production
            shell.aside(partial(script_text, shell, path, f"ENV={path}"))
    if call.words[0].rsplit("/", 1)[-1] == "busybox":
        return again(shell, call, tuple(words), "busybox")
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        word = words.pop(0)
        if word in ("-o", "-O", "+o", "+O", "--rcfile", "--init-file"):
            words = words[1:]
        elif not word.startswith("--") and "c" in word[1:]:
            if not words:
                raise Unreadable(f"{call.words[0]} -c without a text")
            text, arguments = words[0], words[2:]
            return shell.aside(partial(_with_arguments, shell, arguments, text, call.stdin))
        elif not word.startswith("--") and "s" in word[1:]:
            words = []
        elif word in ("--version", "--help"):
            return ""
    if words and words[0] not in ("-", "/dev/stdin"):
        return shell.aside(lambda: script_text(shell, words[0], f"{call.words[0]} {words[0]}", tuple(words[1:])))
    if call.stdin is None:
        return leaf(shell, call, "sh")
    return shell.aside(lambda: shell.read(call.stdin or "", f"text piped into {call.words[0]}"))


def _with_arguments(shell: Shell, words: list[str], text: str, stdin: str | None) -> str:
    positional(shell, tuple(words))
    return shell.read(text, "sh -c", stdin)


def script_text(shell: Shell, path: str, through: str, arguments: tuple[str, ...] = ()) -> str:
    """Follow a script; one that cannot be read is text that cannot be seen."""
    text = shell.file(path) if known(path) else None
    if text is None:
        shell.hide(through.replace(HOLE, "?"))
        return HOLE
    positional(shell, arguments)
    return shell.read(text, through)


def script(shell: Shell, call: Call) -> None:
    """A program that is a script of the project is followed; one that the text itself makes has to be readable."""
    word = call.words[0]
    if "/" not in word or not known(word):
        return
    paths = [os.path.normpath(os.path.join(cwd, word)) for cwd in call.cwds]
    made = [path for path in paths if path in shell.written]
    text = shell.file(word)
    if text is None:
        if made:
            shell.hide(f"{word}, which this text itself makes")
        return
    first = text.split("\n", 1)[0]
    program = (
        os.path.basename(fields(first[2:].replace("env ", ""))[0])
        if first.startswith("#!") and first[2:].strip()
        else ""
    )
    if program in SHELLS or (not program and (word.endswith(".sh") or made)):
        shell.aside(lambda: script_text(shell, word, word, call.words[1:]))
    elif is_python(program) and made:
        run_code(shell, text, "python")


def python(shell: Shell, call: Call) -> str:
    words = list(call.words[1:])
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        flags = word[1:] if not word.startswith("--") else ""
        letters = flags.split("X", 1)[0].split("W", 1)[0]
        if "c" in letters:
            code = letters.split("c", 1)[1] or (words[0] if words else HOLE)
            leaf(shell, call, "python")
            return run_code(shell, code if code.strip(HOLE) else HOLE, "python -c")
        if "m" in letters:
            module = flags.split("m", 1)[1] or (words.pop(0) if words else HOLE)
            return _module(shell, call, module, tuple(words))
        if flags in ("W", "X") and words:
            words.pop(0)
    if not words or words[0] in ("-", "/dev/stdin"):
        leaf(shell, call, "python")
        return run_code(shell, call.stdin, "text piped into python") if call.stdin is not None else HOLE
    script = words[0]
    base = os.path.basename(script)
    if is_followed(base) or HOLE in base:
        return again(shell, call, tuple(words), "python")
    if any(os.path.normpath(os.path.join(cwd, script)) in shell.written for cwd in call.cwds):
        run_code(shell, shell.file(script) or HOLE, f"python {script}")
    return leaf(shell, call, "python")


def _module(shell: Shell, call: Call, module: str, words: tuple[str, ...]) -> str:
    root = module.split(".", maxsplit=1)[0]
    if HOLE in module:
        shell.hide("python -m with a module that only the running shell knows")
    if root in ("pip", "uv", "conda", "pipx", "pipenv", "poetry", "pdm", "firstlight", "easy_install", "mamba"):
        return again(shell, call, (root, *words), f"python -m {root}")
    if root == "piptools" and words[:1] == ("sync",):
        return again(shell, call, ("pip-sync", *words[1:]), "python -m piptools")
    if root in ("runpy", "cProfile", "trace", "pdb", "timeit", "code"):
        scan(shell, replace(call, words=("python", *words)), "python")
    return leaf(shell, call, "python")


def run_code(shell: Shell, code: str, through: str) -> str:
    """Code of another language: what it hands to a shell is followed, what cannot be seen is said."""
    from firstlight.guard import inline  # ast is not needed for most actions

    for found in inline.found_in(code, python=through.startswith(("python", "text piped into python"))):
        if found.words:
            again(shell, Call(found.words, cwds=shell.cwds, trail=(*shell.trail, through), contained=shell.contained),
                  found.words, through)  # fmt: skip
        elif found.text:
            shell.read(found.text, through)
        elif found.mentions:
            shell.calls.append(Call(("mentions", *found.mentions), cwds=shell.cwds, trail=(*shell.trail, through)))
        else:
            shell.hide(f"{through}: {found.hidden}")
    return HOLE


def code_given(call: Call, options: tuple[str, ...]) -> str | None:
    """The code that an interpreter gets on its command line, or by a pipe where it names no script."""
    code = option_value(call.words[1:], options)
    names_none = all(word.startswith("-") for word in call.words[1:])
    return call.stdin if code is None and names_none else code


def option_value(words: tuple[str, ...], options: tuple[str, ...]) -> str | None:
    for at, word in enumerate(words):
        if word in options:
            return words[at + 1] if at + 1 < len(words) else HOLE
        for option in options:
            if option.startswith("--") and word.startswith(f"{option}="):
                return word[len(option) + 1 :]
            if len(option) == 2 and word.startswith("-") and not word.startswith("--") and word.endswith(option[1]):
                return words[at + 1] if at + 1 < len(words) else HOLE
    return None
