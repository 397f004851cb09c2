"""Read a Dockerfile: instructions with their lines, continuations, comments, heredocs and the escape directive."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

KEYWORDS = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
LONGEST_VALUE = 1 << 16
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S.*?)\s*")
_HEREDOC = re.compile(r"""<<(?P<dash>-?)(?P<quote>["']?)(?P<word>[A-Za-z_][\w.]*)(?P=quote)""")
_FLAG = re.compile(r"--[A-Za-z][\w-]*(?:=(?:\"[^\"]*\"|'[^']*'|\S)*)?\s*")
_WITH_HEREDOC = ("RUN", "COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Text:
    """Some text and the line it begins on, e.g. the third line of a RUN: ('pip install torch', 12)."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: RUN on line 10, its flags ('--mount=type=cache,...'), its text by lines, its heredocs."""

    keyword: str
    line: int
    flags: tuple[str, ...]
    parts: tuple[Text, ...]  # the physical lines of the argument, joined they are the logical line
    heredocs: tuple[tuple[Text, ...], ...] = ()  # the bodies, line by line

    @property
    def argument(self) -> str:
        return "".join(part.text for part in self.parts)


def parse_dockerfile(text: str, name: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile; what is not one raises BadInput naming the line."""
    lines = text.removeprefix("\ufeff").splitlines()
    escape = _escape(lines)
    found: list[Instruction] = []
    index = 0
    while index < len(lines):
        stripped = lines[index].strip()
        if not stripped or stripped.startswith("#"):
            index += 1
            continue
        start = index
        parts, index = _logical(lines, start, escape)
        instruction = _instruction(parts, name)
        if instruction.keyword in _WITH_HEREDOC:
            heredocs, index = _heredocs(lines, index, instruction)
            instruction = Instruction(
                instruction.keyword, instruction.line, instruction.flags, instruction.parts, heredocs
            )
        found.append(instruction)
    if not any(each.keyword == "FROM" for each in found):
        raise BadInput(f"{name}: no FROM line; accepted: a Dockerfile. Give one, or say what it is with --kind.")
    return tuple(found)


def _escape(lines: list[str]) -> str:
    """The escape character: a backslash, or what `# escape=` in the first lines says."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match.group(1).lower() == "escape":
            return match.group(2)
    return "\\"


def _logical(lines: list[str], index: int, escape: str) -> tuple[list[Text], int]:
    """One logical line in its parts and the index behind it; comments and blank lines inside it do not end it."""
    parts: list[Text] = []
    while index < len(lines):
        line = lines[index]
        stripped = line.strip()
        inside = bool(parts)
        index += 1
        if inside and (not stripped or stripped.startswith("#")):
            continue
        trimmed = line.rstrip()
        if trimmed.endswith(escape):
            parts.append(Text(trimmed[: -len(escape)], index))
            continue
        parts.append(Text(line, index))
        break
    return parts, index


def _instruction(parts: list[Text], name: str) -> Instruction:
    keyword, rest = (*parts[0].text.split(None, 1), "", "")[:2]
    keyword = keyword.upper()
    if keyword not in KEYWORDS:
        shown = ascii(keyword[:30])
        raise BadInput(
            f"{name}:{parts[0].line}: {shown} is not an instruction of a Dockerfile; accepted: FROM, RUN, ENV and the "
            "like. Give a Dockerfile, or say what it is with --kind."
        )
    flags: list[str] = []
    remaining = [Text(rest, parts[0].line), *parts[1:]]
    # Flags may be spread over continued lines: RUN --mount=... \ <newline> --mount=... \ <newline> pip install.
    for index, part in enumerate(remaining):
        body = part.text.lstrip() if index else part.text
        while (match := _FLAG.match(body)) is not None:
            flags.append(match.group().strip())
            body = body[match.end() :]
        remaining[index] = Text(body if body != part.text.lstrip() else part.text, part.line)
        if body.strip():
            break
    if keyword == "FROM" and not any(part.text.strip() for part in remaining):
        raise BadInput(f"{name}:{parts[0].line}: FROM names no image; accepted: e.g. FROM python:3.12-slim. Name one.")
    _refuse_comment(keyword, " ".join(part.text for part in remaining), f"{name}:{parts[0].line}")
    return Instruction(keyword, parts[0].line, tuple(flags), tuple(remaining))


def _refuse_comment(keyword: str, argument: str, where: str) -> None:
    """FROM and ENV with a comment behind them, on which the build ends."""
    words = list(_words(argument))
    pairs = keyword == "ENV" and words and "=" in words[0]
    if (keyword == "FROM" or pairs) and any(word.startswith("#") for word in words[1:]):
        ends = "FROM requires either one or three arguments" if keyword == "FROM" else 'can\'t find = in "#"'
        raise BadInput(
            f"{where}: a comment behind {keyword}, on which the build ends ({ends}); accepted: comments on lines of "
            "their own. Put it above."
        )


def _heredocs(lines: list[str], index: int, instruction: Instruction) -> tuple[tuple[tuple[Text, ...], ...], int]:
    bodies: list[tuple[Text, ...]] = []
    for match in _HEREDOC.finditer(instruction.argument):
        body: list[Text] = []
        while index < len(lines):
            line = lines[index].lstrip("\t") if match["dash"] else lines[index]
            index += 1
            if line == match["word"]:
                break
            body.append(Text(line, index))
        bodies.append(tuple(body))
    return tuple(bodies), index


_VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?::?(?P<how>[-+])(?P<word>(?:\$\{[^}]*\}|[^}])*))?\})")


def expand(text: str, known: dict[str, str], escape: str = "\\") -> str:
    """Text with its variables put in: '${CUDA:-12.4}' is 12.4 where CUDA is not set; unknown ones stay as written."""

    def value(match: re.Match[str]) -> str:
        if match.start() and text[match.start() - 1] == escape:
            return match.group()
        name = match["plain"] or match["name"]
        if match["how"] == "-":
            return known.get(name) or expand(match["word"], known, escape)
        if match["how"] == "+":
            return expand(match["word"], known, escape) if known.get(name) else ""
        return known.get(name, match.group())

    expanded = _VARIABLE.sub(value, text)
    # ENV A=$A$A, sixty lines of it, would fill the memory.
    return expanded if len(expanded) <= LONGEST_VALUE else text


def assignments(argument: str) -> Iterator[tuple[str, str]]:
    """The NAME and value pairs of an ENV, ARG or LABEL: ENV A=1 B="two words"; also the old form ENV A 1."""
    words = list(_words(argument.strip()))
    if words and "=" not in words[0]:
        name, _, value = argument.strip().partition(" ")
        yield name, _unquoted(value.strip())
        return
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield name, _unquoted(value)


def _words(text: str) -> Iterator[str]:
    """Words apart at blanks that are neither quoted nor escaped; quotes stay."""
    word, quote, index = "", "", 0
    while index < len(text):
        char = text[index]
        if char == "\\" and quote != "'" and index + 1 < len(text):
            word += text[index : index + 2]
            index += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char.isspace():
            if word:
                yield word
            word, index = "", index + 1
            continue
        word += char
        index += 1
    if word:
        yield word


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value.replace('"', "").replace("'", "")) if value else value
