"""LD_LIBRARY_PATH in start-up files: the lines that set it, taken apart and put together without a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.frozen import dataclass

_ASSIGNMENT = re.compile(
    r"(?P<lead>\s*(?:export\s+)?)(?P<name>[A-Za-z_]\w*)=(?P<quote>[\"']?)(?P<value>[^\"';&|\s]*)(?P=quote)"
    r"(?P<tail>\s*(?:#.*)?)"
)
_SELF = re.compile(r"\$LD_LIBRARY_PATH|\$\{LD_LIBRARY_PATH(?::?[-+][^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Edited:
    """A text without the folders, and the lines as they stood before."""

    text: str
    lines_taken_out: tuple[str, ...]


def without_folders(text: str, folders: tuple[str, ...]) -> Edited:
    """The text with the folders taken out of LD_LIBRARY_PATH; a line that then only repeats the variable goes.

    Variables that the same file sets before are followed: $CUDA_HOME/compat is recognised. Only a line that is one
    plain assignment is touched.
    """
    known: dict[str, str] = {}
    kept: list[str] = []
    taken: list[str] = []
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        match = _ASSIGNMENT.fullmatch(body)
        if match is None:
            kept.append(line)
            continue
        if match["name"] != "LD_LIBRARY_PATH":
            known[match["name"]] = _followed(match["value"], known)
            kept.append(line)
            continue
        elements = tuple(_elements(match["value"]))
        left = [each for each in elements if not _is_one_of(each, folders, known)]
        if len(left) == len(elements):
            kept.append(line)
            continue
        taken.append(body)
        if any(each and not _SELF.fullmatch(each) for each in left):
            value = _joined(left, elements[-1])
            rebuilt = f"{match['lead']}LD_LIBRARY_PATH={match['quote']}{value}{match['quote']}{match['tail']}"
            kept.append(rebuilt + line[len(body) :])
    return Edited("".join(kept), tuple(taken))


def _elements(value: str) -> Iterator[str]:
    """The parts between colons; a colon inside ${...} does not part."""
    depth, start = 0, 0
    for place, character in enumerate(value):
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
        elif character == ":" and depth == 0:
            yield value[start:place]
            start = place + 1
    yield value[start:]


def _glue(element: str) -> str:
    """What hangs on a folder: ${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} of /a${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}."""
    match = _SELF.search(element)
    return element[match.start() :] if match is not None and match.start() > 0 else ""


def _joined(left: list[str], last: str) -> str:
    """The remaining elements; what hung on the last one hangs on the new last one."""
    return ":".join(left) + (_glue(last) if left[-1] != last else "")


def _is_one_of(element: str, folders: tuple[str, ...], known: dict[str, str]) -> bool:
    folder = element.removesuffix(_glue(element)) if _glue(element) else element
    return _followed(folder, known).rstrip("/") in folders


def _followed(text: str, known: dict[str, str]) -> str:
    return _REFERENCE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
