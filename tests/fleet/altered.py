"""Recordings that fit their schema and hold what no machine would say: seeded, so that a failure can be repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).parents[1] / "machines"
_LETTERS = ("", "\x00", "\xb2", "\xff", "\u0663", "\ud800", "-", "-1", ":", ",", "(", "=", "\n", " ", "\x1b[2J")
PIECES = (*_LETTERS, "9" * 30, "9" * 5000, "[" * 2000, "{}", "1e999", "nan", "null", "../..")
NUMBERS = (-1, 0, 1, 10**12, 10**30, 0.5, 1e300)


def altered(name: str, seed: int) -> str:
    """The recording of a machine with one to six of its leaves changed; texts stay texts and numbers numbers."""
    chance = random.Random(f"{name} {seed}")
    document = json.loads((MACHINES / name / "machine.json").read_text())
    leaves = list(_leaves(document))
    for _ in range(chance.choice((1, 2, 6))):
        holder, key = chance.choice(leaves)
        holder[key] = _other(holder[key], chance)
    return json.dumps(document)


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of every text and number below the answers; what the recording says of itself is left."""
    for part in ("env", "paths", "absent", "commands", "children"):
        yield from _below(value.get(part))


def _below(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        if isinstance(each, (dict, list)):
            yield from _below(each)
        elif isinstance(each, (str, int, float)) and not isinstance(each, bool):
            yield value, key


def _other(value: Any, chance: random.Random) -> Any:
    if not isinstance(value, str):
        return chance.choice(NUMBERS if isinstance(value, float) else NUMBERS[:5])
    if chance.random() < 0.2:
        return chance.choice(PIECES)
    at = chance.randrange(len(value) + 1)
    return value[:at] + chance.choice(PIECES) + value[at + chance.choice((0, 1, 5, 1000)) :]
