"""Answers as they are written in the file at hand: ENV and RUN of a Dockerfile, keys of a compose file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from firstlight.lint.model import Place, Syntax
from firstlight.lint.written_kinds import BY_KIND, UNDER, Writes, in_manifest, pip_line
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import (
    AskPerson,
    ChangeImage,
    InstallWheels,
    Scope,
    SetVariables,
    StartContainer,
    UseImage,
    Variable,
    Why,
)
from firstlight.ways.way import Chain, Way, chain
from firstlight.ways.words import words_of

_PLAIN = re.compile(r"[\w@%+=:,./${}-]+")
_KEYS = {"--gpus": "gpus", "--shm-size": "shm_size", "--ipc": "ipc"}  # an argument of `docker run` -> a service's key


def ask(what: str, why: Why = Why.DECISION, *, title: str = "") -> Chain:
    """An answer that only a person can give; `title` says it in full where 70 characters are too few."""
    return chain(AskPerson("edit-by-hand", why, of=(what,)), title=title)


def variables_in(place: Place, *variables: Variable) -> Way:
    """Variables of the image, set by a line of its Dockerfile; in a compose file those of the service."""
    if place.syntax is not Syntax.DOCKERFILE:
        return SetVariables(variables, Scope.PROGRAM)
    return ChangeImage(f"ENV {' '.join(map(_assigned, variables))}")


def says(answer: Chain, syntax: Syntax) -> str:
    """What is done, in words: the title, else what the ways are called."""
    if answer.title:
        return answer.title
    if syntax in _WITH_DOCKERFILE and all(isinstance(way, ChangeImage) for way in answer.ways):
        return "write in the Dockerfile"
    under = {UNDER.get(syntax, {}).get(type(way), "") for way in answer.ways}
    if len(under) == 1 and "" not in under and lines_of(answer, syntax):
        return under.pop() if syntax is not Syntax.KUBERNETES else in_manifest(under.pop(), lines_of(answer, syntax))
    return ", then ".join(words_asked(way) if isinstance(way, AskPerson) else words_of(way) for way in answer.ways)


def lines_of(answer: Chain, syntax: Syntax) -> tuple[str, ...]:
    """The lines to paste, each exactly as the file takes it; () where words have to do.

    An install under a title is for a command that the file has already, by whatever tool: the title names the release.
    So does it name another count of GPUs.
    """
    write = _WRITES.get(syntax, {})
    ways = (way for way in answer.ways if not (answer.title and _is_in_title(way)))
    return tuple(line for way in ways if type(way) in write for line in write[type(way)](way))


def _is_in_title(way: Way) -> bool:
    return isinstance(way, InstallWheels) or (isinstance(way, StartContainer) and not way.gives_gpus)


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else '"' + value.replace('"', '\\"') + '"'


def _assigned(variable: Variable) -> str:
    return f"{variable.name}={_quoted(variable.value)}"


def _keys(way: StartContainer) -> Iterator[str]:
    """--gpus=all as `gpus: all`; one that names its fields, --gpus=driver=nvidia,count=all, as a reservation."""
    for argument in way.arguments:
        name, _, value = argument.partition("=")
        if name == "--gpus" and "=" in value:
            fields = dict(each.split("=") for each in value.split(","))
            fields["capabilities"] = f"[{fields['capabilities']}]"
            device = ", ".join(f"{key}: {each}" for key, each in fields.items())
            yield f"deploy: {{resources: {{reservations: {{devices: [{{{device}}}]}}}}}}"
        else:
            yield f"{_KEYS[name]}: {value}"


def _inline(way: ChangeImage) -> Iterator[str]:
    """A line of the Dockerfile that a service may hold, which FROM opens."""
    if way.line.startswith("FROM "):
        yield from ("build:", "  dockerfile_inline: |")
    yield f"    {way.line}"


_BOTH: Writes = {
    AskPerson: lambda way: map(shlex.join, way.commands),
    InstallWheels: lambda way: iter((f"RUN {pip_line(way)}",)),
}
_IN_DOCKERFILE: Writes = {
    **_BOTH,
    ChangeImage: lambda way: iter((way.line,)),
    UseImage: lambda way: iter((f"FROM {way.image}",)),
    SetVariables: lambda way: map(_assigned, way.variables),
}
_IN_COMPOSE: Writes = {
    **_BOTH,
    ChangeImage: _inline,
    UseImage: lambda way: iter((f"image: {way.image}",)),
    SetVariables: lambda way: (f"{each.name}: {_quoted(each.value)}" for each in way.variables),
    StartContainer: _keys,
}
_WITH_DOCKERFILE = (Syntax.DOCKERFILE, Syntax.COMPOSE)
# A kind that is not here, a lock file, gets words alone.
_WRITES: dict[Syntax, Writes] = {Syntax.DOCKERFILE: _IN_DOCKERFILE, Syntax.COMPOSE: _IN_COMPOSE}
_WRITES.update((syntax, {AskPerson: _BOTH[AskPerson], **write}) for syntax, write in BY_KIND.items())
