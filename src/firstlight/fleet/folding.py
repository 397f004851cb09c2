"""Lists of hosts as people write them: node[01-03,07], gpu-a."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def folded(names: Iterable[str]) -> str:
    """The names in one text: ("node01", "node02", "node07", "login") is "login,node[01-02,07]"."""
    alone: list[str] = []
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None or len(match.group(2)) > 9:
            alone.append(name)
        else:
            before, digits, after = match.groups()
            groups.setdefault((before, after, len(digits)), []).append(int(digits))
    written = [_written(key, sorted(set(numbers))) for key, numbers in groups.items()]
    return ",".join(sorted([*alone, *written]))


def _written(key: tuple[str, str, int], numbers: list[int]) -> str:
    before, after, digits = key
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{digits}d}{after}"
    ranges = ",".join(
        f"{first:0{digits}d}" if first == last else f"{first:0{digits}d}-{last:0{digits}d}"
        for first, last in _ranges(numbers)
    )
    return f"{before}[{ranges}]{after}"


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
