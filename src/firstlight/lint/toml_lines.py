"""A TOML file as values, and the line on which a key or a string of it stands."""

from __future__ import annotations

import bisect
import re
from typing import Any

from firstlight.errors import BadInput
from firstlight.toml import parse_toml

_HEADER = re.compile(r"^\s*\[\[?\s*(?P<name>[^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*(?P<name>(?:"[^"]*"|'[^']*'|[\w.-]|\s*\.\s*)+?)\s*=""")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")


def toml_values(text: str, file: str, kind: str) -> dict[str, Any]:
    """The tables of a file; what does not parse is bad input that names the line."""
    try:
        values: dict[str, Any] = parse_toml(text)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) if isinstance(error, ValueError) else "nested too deeply"
        raise BadInput(f"{file}: not TOML: {why}. Give one that parses.") from None
    return values


class TomlLines:
    """Where things stand in the text of a TOML file; the header's line, else 1, where a key is not found."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.headers: list[tuple[int, tuple[str, ...]]] = []
        self._keys: dict[tuple[str, ...], int] = {}  # header and key, with all that lies above
        above: tuple[str, ...] = ()
        for number, line in enumerate(self.lines, 1):
            if (header := _HEADER.match(line)) is not None:
                above = _path(header["name"])
                self.headers.append((number, above))
                self._add((), above, number)
            elif (key := _KEY.match(line)) is not None:
                self._add(above, _path(key["name"]), number)

    def _add(self, above: tuple[str, ...], parts: tuple[str, ...], line: int) -> None:
        for length in range(1, len(parts) + 1):
            self._keys.setdefault((*above, *parts[:length]), line)

    def key(self, table: tuple[str, ...], key: str) -> int:
        """The line of a key of a table: `torch = "2.5.1"` below [tool.poetry.dependencies], or [that.torch] itself."""
        return self._keys.get((*table, key)) or self._keys.get(table, 1)

    def string(self, table: tuple[str, ...], key: str, value: str) -> int:
        """The line of a string in an array of a table: "torch==2.5.1" in `dependencies` of [project]."""
        start = self.key(table, key)
        ends = bisect.bisect(self.headers, start, key=lambda each: each[0])
        end = self.headers[ends][0] if ends < len(self.headers) else len(self.lines) + 1
        quoted = (f'"{value}"', f"'{value}'", '"' + value.replace('"', '\\"') + '"')
        for number in range(start, end):
            line = self.lines[number - 1]
            if quoted[0] in line or quoted[1] in line or quoted[2] in line:
                return number
        return start

    def blocks(self, *path: str) -> list[int]:
        """The lines of the headers [[path]], in order: those of the packages of uv.lock."""
        return [number for number, header in self.headers if header == path and "[[" in self.lines[number - 1]]


def _path(name: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in _PART.finditer(name))
