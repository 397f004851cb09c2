"""Logs of other things than GPUs, from a seed; their lines were written before any row of `explain` was read.

python -m benchmarks.quiet_logs 2 > quiet.log     2 MB of them
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.usage import print_usage

_LINES = Path(__file__).with_name("quiet_logs.json")
_BETWEEN = {
    "d": (1, 9), "n": (10, 999), "N": (10**4, 10**9), "pid": (300, 99999), "port": (1024, 65535), "hour": (10, 23),
    "sixty": (10, 59), "date": (10, 30), "byte": (1, 254),
}  # fmt: skip
_MADE_OF = {
    "clock": "{hour}:{sixty}:{sixty}", "day": "{date}", "ts": "2026-11-{date}T{clock}", "sys": "Nov {date} {clock}",
    "host": "{word}-{d}.example", "ip": "10.{byte}.{byte}.{byte}", "ver": "{d}.{n}.{d}", "dmesg": "{pid}.{N}",
    "uuid": "{hex8}-{hex4}-4{hex3}-8{hex3}-{hex12}",
}  # fmt: skip


def quiet_log(size_bytes: int, *, seed: int) -> Iterator[bytes]:
    """Blocks of about 64 kB until there are that many bytes; neighbours are mostly of one kind, as in a real log."""
    chance = random.Random(seed)
    stored = json.loads(_LINES.read_text())
    slots = _Slots(chance, {name: words.split() for name, words in stored["slots"].items()})
    kinds: list[list[str]] = list(stored["lines"].values())
    left = size_bytes
    while left > 0:
        block = "".join(_stretch(chance.choice(kinds), slots) for _ in range(24)).encode()
        yield block
        left -= len(block)


def known_anywhere() -> list[str]:
    """The lines that a row knows wherever they are printed, e.g. of a library that is not there."""
    stored = json.loads(_LINES.read_text())
    slots = _Slots(random.Random(0), {name: words.split() for name, words in stored["slots"].items()})
    return [line.format_map(slots) for line in stored["known_anywhere"]]


def _stretch(lines: list[str], slots: _Slots) -> str:
    return "".join(slots.chance.choice(lines).format_map(slots) + "\n" for _ in range(slots.chance.randint(4, 30)))


class _Slots(dict[str, str]):
    """What is put for {word}, {ip} and the like: another value each time it is asked for."""

    def __init__(self, chance: random.Random, words: dict[str, list[str]]) -> None:
        self.chance = chance
        self._words = words

    def __missing__(self, name: str) -> str:
        chance = self.chance
        if name in self._words:
            return chance.choice(self._words[name])
        if name.startswith("hex"):
            return f"{chance.getrandbits(4 * int(name[3:])):0{name[3:]}x}"
        if name in ("Word", "WORD"):
            return self["word"].capitalize() if name == "Word" else self["word"].upper()
        if name in _BETWEEN:
            return str(chance.randint(*_BETWEEN[name]))
        return _MADE_OF[name].format_map(self)


if __name__ == "__main__":
    print_usage(__doc__, least=1)
    for piece in quiet_log(int(float(sys.argv[1]) * 1e6), seed=1):
        sys.stdout.buffer.write(piece)
