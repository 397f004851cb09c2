"""One call of a shell followed to what it runs in the end: through env, sudo, xargs, sh -c, python -m and the like."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import partial

from firstlight.guard import interpreters, wrappers
from firstlight.guard.call import HOLE, SOMEWHERE, Call, Unreadable
from firstlight.guard.place import Place, program_file
from firstlight.guard.programs import (
    COMMANDS_IN_VARIABLES,
    CONTAINERS,
    EVAL_FLAGS,
    PLAIN,
    RUNNERS,
    SHELLS,
    WRAPPERS,
    compiler,
    is_followed,
    is_python,
)
from firstlight.guard.steps import is_tool, leaf, scan
from firstlight.guard.walk import Shell

MOST_WORDS = 20_000
_ANYBODYS = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 folders that anybody can write to


def calls_of(text: str, place: Place) -> Shell:
    """The shell that has read a text: its calls, and what it could not see."""
    shell = Shell(place, run)
    shell.read(text, "")
    return shell


def calls_of_words(words: tuple[str, ...], place: Place) -> Shell:
    """The same for one command that is given as words."""
    shell = Shell(place, run)
    run(shell, Call(words, cwds=(place.cwd,)))
    return shell


def run(shell: Shell, call: Call) -> str:
    """Follow one call; what it prints."""
    if len(call.words) > MOST_WORDS:
        raise Unreadable(f"a command of {len(call.words)} words; {MOST_WORDS} are read at most")
    first = call.words[0]
    if shell.depth > 40:
        raise Unreadable("commands inside of commands, more than 40 deep")
    if first in shell.functions:
        return _function(shell, call)
    if first in shell.aliases:
        return shell.read(f"{shell.aliases[first]} {shlex.join(call.words[1:])}", f"alias {first}", call.stdin)
    name = program_name(shell, call)
    shell.depth += 1
    try:
        _variables(shell, call)
        return _followed(shell, call, name)
    finally:
        shell.depth -= 1


def program_name(shell: Shell, call: Call) -> str:
    """The name of the program that a call starts, links followed: pip for ./tool that is one; a hole if unknown."""
    word = call.words[0]
    base = word.rsplit("/", 1)[-1]
    if HOLE in base:
        return HOLE
    for cwd in call.cwds:
        if (named := shell.renamed.get(os.path.normpath(os.path.join(cwd, word)))) is not None:
            return named
    if is_followed(base) or base in PLAIN or HOLE in word:
        return base
    real = os.path.basename(program_file(word, call.cwds, shell.place.env))
    return real if is_followed(real) else base


def _followed(shell: Shell, call: Call, name: str) -> str:
    if name == HOLE:
        shell.hide("a program whose name only the running shell knows")
        return HOLE
    if name in ("eval", "trap", "source", ".", "alias", "set", "cd", "pushd", "read", "mapfile", "readarray"):
        return _builtin(shell, call, name)
    if name == "env":
        return wrappers.env(shell, call)
    if name in WRAPPERS:
        return wrappers.wrapper(shell, call, name)
    if name in ("su", "runuser", "script"):
        return wrappers.dash_c(shell, call, name)
    if name in ("xargs", "parallel"):
        return wrappers.xargs(shell, call)
    if name == "find":
        return wrappers.find(shell, call)
    if name in SHELLS:
        return interpreters.shell_text(shell, call)
    if is_python(name):
        return interpreters.python(shell, call)
    if name in EVAL_FLAGS and (code := interpreters.code_given(call, EVAL_FLAGS[name])) is not None:
        leaf(shell, call, name)
        return interpreters.run_code(shell, code, name)
    if name == "ssh":
        return wrappers.ssh(shell, call)
    if name == "firstlight" and (folder := _brings_another(shell, call)):
        shell.hide(f"firstlight, which this PATH may bring from {folder}")
    if name in RUNNERS:
        from firstlight.guard import runners

        return runners.follow(shell, call, name)
    if name in ("make", "gmake", "npm", "yarn", "pnpm", "bun", "npx", "uv", "uvx", "conda", "mamba", "micromamba",
                "pixi", "poetry", "pdm", "pipenv", "hatch", "rye", "firstlight"):  # fmt: skip
        leaf(shell, call, name)
        from firstlight.guard import project_files  # most actions do not need it

        project_files.follow(shell, call, name, run)
        return HOLE
    if name in CONTAINERS:
        return wrappers.contained(shell, call)
    if name in PLAIN or is_tool(name) or compiler(name):
        return leaf(shell, call, name)
    interpreters.script(shell, call)
    said = leaf(shell, call, name)
    scan(shell, call, name)
    return said


def _variables(shell: Shell, call: Call) -> None:
    """Commands that a call puts into variables, which another program runs later."""
    for name, value in call.sets:
        if name == "BASH_ENV" and value:
            shell.aside(partial(interpreters.script_text, shell, value, f"BASH_ENV={value}"))
        elif name in COMMANDS_IN_VARIABLES and value.strip(f"{HOLE} "):
            shell.aside(partial(shell.read, value, name))


def _brings_another(shell: Shell, call: Call) -> str:
    """The folder in a PATH of the text itself from which another firstlight may come; '' where there is none."""
    if call.words[0] != "firstlight":
        return ""
    usual = shell.place.env.get("PATH", "").split(":")
    values = [value for name, value in call.sets if name == "PATH"] or list(shell.variables.get("PATH", ()))
    for folder in (each for value in values for each in value.split(":") if each not in usual and HOLE not in each):
        inside = folder.startswith(f"{shell.place.root}/")
        there = program_file("firstlight", call.cwds, {"PATH": folder}) if os.path.isabs(folder) else ""
        if not os.path.isabs(folder) or (folder.startswith(_ANYBODYS) and not inside):
            return folder or "the folder at hand"
        if there and there not in shell.place.own and folder != os.path.join(shell.place.root, ".venv/bin"):
            return folder
    return ""


def _function(shell: Shell, call: Call) -> str:
    body = shell.functions[call.words[0]]
    kept = dict(shell.variables)
    interpreters.positional(shell, call.words[1:])
    if shell.depth > 30:
        raise Unreadable("a function that calls itself")
    shell.depth += 1
    try:
        return shell.statement(body, call.stdin)
    finally:
        shell.depth -= 1
        for name in ("@", "*", *map(str, range(1, 10))):
            shell.variables.pop(name, None)
            if name in kept:
                shell.variables[name] = kept[name]


def _builtin(shell: Shell, call: Call, name: str) -> str:
    rest = call.words[1:]
    if name == "eval":
        shell.calls.append(replace(call, words=("eval",), writes=()))
        return shell.read(" ".join(rest), "eval") if rest else ""
    if name == "trap":
        return shell.read(rest[0], "trap") if len(rest) > 1 and rest[0] not in ("-", "-p", "-l", "") else ""
    if name in ("source", "."):
        leaf(shell, call, name)
        return interpreters.script_text(shell, rest[0], f"{name} {rest[0]}", rest[1:]) if rest else ""
    if name == "alias":
        for word in rest:
            alias, equals, text = word.partition("=")
            if equals:
                shell.aliases[alias] = text
        return ""
    if name == "set":
        if "--" in rest:
            interpreters.positional(shell, rest[rest.index("--") + 1 :])
        return ""
    if name in ("read", "mapfile", "readarray"):
        from firstlight.guard.reading import read_into  # most actions do not need it

        for variable, values in read_into(call, name, shell.value("IFS")):
            shell.give(variable, values)
        return ""
    _cd(shell, [word for word in rest if not word.startswith("-")] or [shell.place.env.get("HOME", "/")])
    return ""


def _cd(shell: Shell, where: list[str]) -> None:
    if HOLE in where[0] or where[0] == "-":
        shell.cwds = tuple(dict.fromkeys((*shell.cwds, shell.place.root, SOMEWHERE)))
        return
    there = tuple(os.path.normpath(os.path.join(cwd, os.path.expanduser(where[0]))) for cwd in shell.cwds)
    sure = all(os.path.isdir(path) or (shell.after_another and path in shell.folders) for path in there)
    shell.cwds = tuple(dict.fromkeys(there if sure else (*there, *shell.cwds)))[:6]
