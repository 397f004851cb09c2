"""From the instructions of a Dockerfile to the image that is built: stages, ARG and ENV, the line of ancestors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.lint.branches import carried_out
from firstlight.lint.dockerfile import Instruction, Text, assignments, expand, parse_dockerfile
from firstlight.lint.images import image_named
from firstlight.lint.installs import OF_INSTALLERS
from firstlight.lint.model import Copied, EnvSet, Event, Place, Ran, Target, UserSet
from firstlight.lint.shell import Simple, simple_commands, whole_number

_MOUNTS = re.compile(r"--mount=(?!.*type=(?:cache|secret|ssh|tmpfs))")
_SHELLS = ("sh", "bash", "ash", "dash")


@dataclass(frozen=True, slots=True)
class _Stage:
    """One FROM: its name, the image or stage it is built on, and its instructions."""

    name: str
    parent: str  # an image, or the name of an earlier stage
    line: int
    instructions: tuple[Instruction, ...]
    platform: str = ""  # of FROM --platform


def read_dockerfile(text: str, file: str, *, target: str = "", given: tuple[tuple[str, str], ...] = ()) -> Target:
    """The image that `docker build` would make: of the last stage, or of `target`; `given` are the build arguments."""
    instructions = parse_dockerfile(text, file)
    arguments = dict(given)
    first = next(index for index, each in enumerate(instructions) if each.keyword == "FROM")
    outer = _outer(instructions[:first], arguments)
    stages = _stages(instructions[first:], outer)
    chosen = _chosen(stages, target, file)
    name = stages[chosen].name if len(stages) > 1 and not stages[chosen].name.isdigit() else ""
    return _target(stages, chosen, outer=outer, arguments=arguments, file=file, name=name)


def _outer(instructions: tuple[Instruction, ...], arguments: dict[str, str]) -> dict[str, str]:
    """The ARGs before the first FROM, which FROM lines may use."""
    known: dict[str, str] = {}
    for each in instructions:
        if each.keyword == "ARG":
            values = ((name, arguments.get(name, value)) for name, value in _declared(each, known))
            known.update((name, value) for name, value in values if value)
    return known


def _declared(instruction: Instruction, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What an ARG declares; without a default the value is ''."""
    for word in instruction.argument.split():
        if "=" not in word:
            yield word, ""
    for name, value in assignments(instruction.argument):
        if f"{name}=" in instruction.argument:
            yield name, expand(value, known)


def _stages(instructions: tuple[Instruction, ...], outer: dict[str, str]) -> list[_Stage]:
    found: list[_Stage] = []
    body: list[Instruction] = []
    for each in (*instructions, None):
        if each is None or each.keyword == "FROM":
            if found:
                last = found[-1]
                found[-1] = replace(last, instructions=tuple(body))
            body = []
            if each is not None:
                words = expand(each.argument, outer).split()
                named = len(words) > 2 and words[1].upper() == "AS"
                name, image = words[2] if named else str(len(found)), words[0] if words else ""
                found.append(_Stage(name, image, each.line, (), _platform(each, outer)))
        else:
            body.append(each)
    return found


def _platform(instruction: Instruction, outer: dict[str, str]) -> str:
    """linux/amd64 of FROM --platform=linux/amd64; '' where it is left to the builder ($BUILDPLATFORM)."""
    named = (flag.partition("=")[2] for flag in instruction.flags if flag.startswith("--platform="))
    return next((value for each in named if "$" not in (value := expand(each, outer))), "")


def _chosen(stages: list[_Stage], target: str, file: str) -> int:
    if not target:
        return len(stages) - 1
    for index, stage in enumerate(stages):
        if target.lower() in (stage.name.lower(), str(index)):
            return index
    names = ", ".join(stage.name for stage in stages)
    raise BadInput(f"--target {target[:60]!a}: {file} has no such stage; accepted: {names}.")


def _target(
    stages: list[_Stage], index: int, *, outer: dict[str, str], arguments: dict[str, str], file: str, name: str
) -> Target:
    """A stage with all it is built on, and the stages that it copies from."""
    lineage = [index]
    while (parent := _earlier(stages, stages[lineage[0]].parent, lineage[0])) is not None:
        lineage.insert(0, parent)
    root = stages[lineage[0]]
    image = image_named(root.parent)
    env: dict[str, str] = {"LD_LIBRARY_PATH": image.library_path} if image.library_path else {}
    events: list[Event] = []
    for each in lineage:
        events += _events(stages[each], env, outer=outer, arguments=arguments, file=file)
    copied = dict.fromkeys(
        source
        for each in lineage
        for instruction in stages[each].instructions
        if instruction.keyword in ("COPY", "RUN")
        for source in _sources(stages, instruction, each)
        if source not in lineage
    )
    others = tuple(
        _target(stages, source, outer=outer, arguments=arguments, file=file, name=stages[source].name)
        for source in copied
    )
    return Target(
        name,
        image,
        Place(file, root.line),
        tuple(events),
        others,
        starts=_starts(stages, lineage, file),
        platform=root.platform,
    )


def _starts(stages: list[_Stage], lineage: list[int], file: str) -> tuple[Ran, ...]:
    """What the container runs: the last ENTRYPOINT, then the last CMD."""
    last: dict[str, Instruction] = {}
    for each in lineage:
        last.update((one.keyword, one) for one in stages[each].instructions if one.keyword in ("ENTRYPOINT", "CMD"))
    found = (last[keyword] for keyword in ("ENTRYPOINT", "CMD") if keyword in last)
    return tuple(Ran(command, Place(file, command.line)) for each in found for command in _commands(each))


def _earlier(stages: list[_Stage], parent: str, before: int) -> int | None:
    return next((index for index in range(before) if stages[index].name.lower() == parent.lower()), None)


def _sources(stages: list[_Stage], instruction: Instruction, before: int) -> Iterator[int]:
    """The earlier stages that COPY --from=NAME or RUN --mount=from=NAME name."""
    for flag in instruction.flags:
        key, _, value = flag.removeprefix("--").partition("=")
        names = [value] if key == "from" else [part[5:] for part in value.split(",") if part.startswith("from=")]
        for name in names:
            found = _earlier(stages, name, before)
            number = whole_number(name)
            if found is None and number is not None and number < before:
                found = number
            if found is not None:
                yield found


def _events(
    stage: _Stage, env: dict[str, str], *, outer: dict[str, str], arguments: dict[str, str], file: str
) -> Iterator[Event]:
    """What a stage does, in order; `env` goes along from stage to stage, arguments do not."""
    local: dict[str, str] = {}
    declared: dict[str, int] = {}
    for each in stage.instructions:
        place = Place(file, each.line)
        known = {**local, **env}  # ENV wins over ARG
        if each.keyword == "ARG":
            for name, value in _declared(each, known):
                declared[name] = each.line
                local[name] = arguments.get(name, value or outer.get(name, ""))
                if not local[name]:
                    del local[name]
        elif each.keyword == "ENV":
            for name, written in assignments(each.argument):
                env[name] = expand(written, known)
                # ENV NAME=$NAME hands an ARG on: the ARG is the line that says the value.
                handed = declared.get(name, 0) if written in (f"${name}", f"${{{name}}}") else 0
                yield EnvSet(name, env[name], written, Place(file, handed or _line_of(each, name)))
        elif each.keyword == "USER":
            yield UserSet(expand(each.argument.strip(), known), place)
        elif each.keyword in ("COPY", "ADD"):
            words = [expand(word.strip('"[],'), known) for word in each.argument.split()] or [""]
            from_stage = any(flag.startswith("--from=") for flag in each.flags)
            text = "\n".join(line.text for body in each.heredocs for line in body)
            yield Copied(words[-1], place, tuple(words[:-1]) if from_stage else (), text)
        elif each.keyword == "RUN":
            # A RUN has the ARGs in its environment; installers read theirs, e.g. ARG PIP_EXTRA_INDEX_URL=...
            theirs = [name for name in local if name.startswith(OF_INSTALLERS) and name not in env]
            read = tuple((name, local[name]) for name in theirs)
            for ran in carried_out(_commands(each), known, expand=_expanded):
                here = Place(file, ran.line)
                yield Ran(replace(ran, assigned=(*read, *ran.assigned)), here, tuple(filter(_MOUNTS.match, each.flags)))


def _line_of(instruction: Instruction, name: str) -> int:
    """The physical line of a continued ENV on which a name stands."""
    for part in instruction.parts:
        if part.text.lstrip().startswith((f"{name}=", f"{name} ")) or f" {name}=" in part.text:
            return part.line
    return instruction.line


def _commands(instruction: Instruction) -> tuple[Simple, ...]:
    argument = instruction.argument.strip()
    if argument.startswith("["):
        try:
            words = json.loads(argument)
        except ValueError:
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            program = words[0].rpartition("/")[2] if words else ""
            if program in _SHELLS and len(words) > 2 and words[1].startswith("-") and words[1].endswith("c"):
                return simple_commands((Text(words[2], instruction.line),))
            return (Simple(tuple(words), instruction.line),)
    if instruction.heredocs:
        head = simple_commands((Text(argument.partition("<<")[0], instruction.line),))
        if head and head[-1].program not in _SHELLS:  # the heredoc is input of a program, e.g. python3 <<EOF
            said = "\n".join(line.text for body in instruction.heredocs for line in body)
            return (*head[:-1], replace(head[-1], stdin=said))
        lines = tuple(Text(line.text + "\n", line.line) for body in instruction.heredocs for line in body)
        return simple_commands(lines)
    return simple_commands(instruction.parts)


def _words(word: str, known: dict[str, str]) -> tuple[str, ...]:
    """A word with what is known put in; a variable alone that stands for several words is several."""
    expanded = expand(word, known)
    alone = re.fullmatch(r"\$\{?\w+\}?", word) is not None and expanded != word
    return tuple(expanded.split()) if alone and expanded.split()[1:] else (expanded,)


def _expanded(command: Simple, known: dict[str, str]) -> Simple:
    here = {**known, **dict(command.assigned)} if not command.words else known
    return Simple(
        tuple(each for word in command.words for each in _words(word, known)),
        command.line,
        tuple((name, expand(value, here)) for name, value in command.assigned),
        tuple(expand(word, known) for word in command.writes),
        command.ends,
        command.stdin,
        command.around,
    )
