"""The commands of a whole script, line by line: heredocs are taken out, what a launcher starts is read as itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.lint.dockerfile import Text, expand
from firstlight.lint.model import EnvSet, Event, Place, Ran, Syntax
from firstlight.lint.shell import Simple, simple_commands

_HEREDOC = re.compile(r"""(?<!<)<<(?P<dash>-?)\s*(?P<quote>["']?)\\?(?P<word>[A-Za-z_][\w.]*)(?P=quote)""")
_LAUNCHERS = ("srun", "mpirun", "mpiexec", "timeout", "nohup", "xvfb-run", "stdbuf", "numactl", "source", "eval")
_SHELLS = ("sh", "bash", "ash", "dash")
# Options of launchers whose value is a word of its own; a number after any option is its value too.
_VALUES = ("-p", "-w", "-J", "-A", "-t", "-o", "-e", "-x", "-C", "-q", "--partition", "--container-image", "--gres",
           "--container-mounts", "--container-name", "--container-workdir", "--mpi", "--account", "--qos", "--nodelist",
           "--output", "--host", "--hostfile", "-H", "-k", "-s", "--with", "--extra", "--group", "--python", "--env",
           "--export")  # fmt: skip
_RUNNERS = {("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("pixi", "run"), ("conda", "run"),
            ("micromamba", "run"), ("mamba", "run")}  # fmt: skip


def script_commands(lines: tuple[Text, ...]) -> tuple[Simple, ...]:
    """The simple commands of a script; the text of a heredoc is input of a program, and no command."""
    kept: list[Text] = []
    until = ""
    for line in lines:
        if until:
            until = "" if line.text.strip() == until else until
            continue
        kept.append(Text(_HEREDOC.sub("", line.text), line.line))
        if (match := _HEREDOC.search(line.text)) is not None and not line.text.lstrip().startswith("#"):
            until = match["word"]
    return simple_commands(tuple(kept))


def script_events(lines: tuple[Text, ...], file: str, syntax: Syntax, known: dict[str, str]) -> Iterator[Event]:
    """What a script does, in order: its commands with the variables put in, and what it exports; `known` goes along."""
    for command in script_commands(lines):
        place = Place(file, command.line, syntax)
        ran = replace(command, words=tuple(expand(word, known) for word in command.words))
        for name, value in command.assigned if not command.words else ():
            known[name] = expand(value, known)
        if ran.program in ("export", "declare"):
            for word in ran.words[1:]:
                name, equals, value = word.partition("=")
                if equals:
                    known[name] = value
                    yield EnvSet(name, value, value, place)
        yield from (Ran(each, place) for each in (ran, *started_by(ran)) if each.words)


def started_by(command: Simple, depth: int = 0) -> Iterator[Simple]:
    """What a launcher runs: `srun -n 8 python train.py` starts python; `bash -c "pip install x"` the commands in it."""
    words = command.words
    if depth > 4 or len(words) < 2:
        return
    if command.program in _SHELLS and re.fullmatch(r"-[a-z]*c", words[1]) and len(words) > 2:
        inner = simple_commands((Text(words[2], command.line),))
    elif command.program in _LAUNCHERS or words[:2] in _RUNNERS:
        inner = (replace(command, words=_behind_options(words[2 if words[:2] in _RUNNERS else 1 :])),)
    else:
        return
    for each in inner:
        if each.words:
            yield each
            yield from started_by(each, depth + 1)


def _behind_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind a launcher's options: a value belongs to the option before it where it starts no program."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        bare = "=" not in words[index] and index + 1 < len(words)
        valued = bare and (words[index] in _VALUES or re.fullmatch(r"\d[\w:.,]*", words[index + 1]))
        index += 2 if valued else 1
    return words[index:]
