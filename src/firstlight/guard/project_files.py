"""Commands that lie in files of the project: Makefile targets, package.json scripts, and what uv,
conda and npx run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.guard.call import Call, Unreadable, known
from firstlight.guard.makefile import NAMES, Makefile, parse_makefile, recipes

if TYPE_CHECKING:
    from firstlight.guard.walk import Shell

Run = Callable[["Shell", Call], str]
_NODE = ("npm", "yarn", "pnpm", "bun")
_MAKE_VALUED = {
    "-C",
    "-f",
    "-I",
    "-o",
    "-W",
    "-O",
    "--directory",
    "--file",
    "--makefile",
    "--include-dir",
    "--old-file",
}
_RUN_VALUED = {
    "--with", "--with-requirements", "--with-editable", "--python", "-p", "--extra", "--group", "--env-file",
    "--package",
    "--from", "--project", "--directory", "--index-url", "--index", "-n", "--name", "--prefix", "--cwd", "-e",
    "--manifest-path",
    "--environment",
}  # fmt: skip


def follow(shell: Shell, call: Call, name: str, run: Run) -> None:
    """Follow what lies behind a call of make, npm, uv run and the like."""
    if name in ("make", "gmake"):
        _make(shell, call)
    elif name in _NODE:
        _node(shell, call, name, run)
    elif name in ("npx", "uvx"):
        _rest(shell, call, call.words[1:], run, name)
    else:
        _runner(shell, call, name, run)


def _runner(shell: Shell, call: Call, name: str, run: Run) -> None:
    words = list(call.words[1:])
    if name == "firstlight" and words[:1] != ["run"]:
        return  # firstlight guard -- CMD runs nothing
    for at, word in enumerate(words):
        if word in ("run", "exec", "shell", "--") or (word == "tool" and words[at + 1 : at + 2] == ["run"]):
            start = at + (2 if word == "tool" else 1)
            _rest(shell, call, tuple(words[start:]), run, f"{name} {word}")
            return
        if not word.startswith("-"):
            return


def _rest(shell: Shell, call: Call, words: tuple[str, ...], run: Run, through: str) -> None:
    """The command after the options of a runner."""
    rest = list(words)
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        rest = rest[2 if rest[0] in _RUN_VALUED else 1 :]
    if rest:
        # a name of a package's own program may be a program of ours that runs its words
        run(shell, replace(call, words=tuple(rest), writes=(), trail=(*call.trail, through)))


def _make(shell: Shell, call: Call) -> None:
    words, targets, folder, file, given = list(call.words[1:]), [], "", "", {}
    while words:
        word = words.pop(0)
        if word in _MAKE_VALUED:
            value = words.pop(0) if words else ""
            folder = os.path.join(folder, value) if word in ("-C", "--directory") else folder
            file = value if word in ("-f", "--file", "--makefile") else file
        elif word.startswith(("--directory=", "-C")) and word != "-C":
            folder = os.path.join(folder, word.partition("=")[2] if "=" in word else word[2:])
        elif word.startswith(("--file=", "--makefile=")) or (word.startswith("-f") and len(word) > 2):
            file = word.partition("=")[2] if "=" in word else word[2:]
        elif word.startswith("--eval"):
            raise Unreadable("make --eval, which brings rules of its own")
        elif word in (
            "-n",
            "--dry-run",
            "--just-print",
            "--recon",
            "-q",
            "--question",
            "--version",
            "-v",
            "-h",
            "--help",
        ):
            return
        elif "=" in word and not word.startswith("-"):
            given[word.partition("=")[0].rstrip(":?+")] = word.partition("=")[2]
        elif not word.startswith("-"):
            targets.append(word)
    _make_in(shell, call, targets, where=(folder, file), given=given)


def _make_in(shell: Shell, call: Call, targets: list[str], *, where: tuple[str, str], given: dict[str, str]) -> None:
    folder, file = where
    kept = shell.cwds
    if folder:
        shell.cwds = tuple(os.path.normpath(os.path.join(cwd, folder)) for cwd in shell.cwds)
    try:
        for name in (file,) if file else NAMES:
            if not known(name) or (text := shell.file(name)) is None:
                continue
            made = parse_makefile(text, given, shell.place.env, shell.file)
            _recipes(shell, made, targets)
            return
        if file or any(not known(target) for target in targets):
            shell.hide(f"make with a file or target that cannot be read: {file or targets[0]}")
    finally:
        shell.cwds = kept


def _recipes(shell: Shell, made: Makefile, targets: list[str]) -> None:
    for text in made.at_once:
        shell.aside(lambda text=text: shell.read(text, "make $(shell)"))  # type: ignore[misc]
    for target, line in recipes(made, targets):
        shell.aside(lambda line=line, target=target: shell.read(line, f"make {target}"))  # type: ignore[misc]


def _node(shell: Shell, call: Call, name: str, run: Run) -> None:
    words = [word for word in call.words[1:] if not word.startswith("-")]
    if not words:
        return
    if words[0] in ("exec", "dlx", "x") and len(words) > 1:
        _rest(shell, call, tuple(words[1:]), run, f"{name} {words[0]}")
        return
    scripts = _scripts(shell)
    if words[0] in ("run", "run-script", "rum", "urn") and len(words) > 1:
        wanted = [words[1]]
    elif words[0] in ("test", "t", "tst", "start", "stop", "restart"):
        wanted = ["test" if words[0] in ("t", "tst") else words[0]]
    elif words[0] in ("install", "i", "ci", "add"):
        wanted = ["install", "prepare"]
    else:
        wanted = [words[0]] if name != "npm" else []
    if any(not known(each) for each in wanted):
        shell.hide(f"a script of package.json whose name only the running shell knows ({name})")
    for each in wanted:
        for script in (f"pre{each}", each, f"post{each}"):
            if (text := scripts.get(script)) is not None:
                shell.aside(lambda text=text, script=script: shell.read(text, f"package.json: {script}"))  # type: ignore[misc]


def _scripts(shell: Shell) -> dict[str, str]:
    text = shell.file("package.json")
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("package.json, which is not JSON") from None
    scripts = found.get("scripts", {}) if isinstance(found, dict) else {}
    if not isinstance(scripts, dict):
        return {}
    return {str(key): value for key, value in scripts.items() if isinstance(value, str)}
