"""The words that every room uses have one meaning each: a class of that name stands in one file."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "firstlight"
# What travels between rooms, and names that once meant several things.
WORDS = (
    "Diagnosis", "Facts", "Finding", "How", "Kind", "Known", "Machine", "Option", "Outcome", "Plan", "Question",
    "Rule", "Seen", "Severity", "Step", "Unknown", "Way", "Wiring", "World",
)  # fmt: skip
USABLE_ALONE = "kernels"  # imports no room, and has its own words


def test_a_word_of_the_house_is_the_name_of_one_class() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        if path.relative_to(SRC).parts[0] != USABLE_ALONE:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path.relative_to(SRC).as_posix())
    assert {"Finding", "Way", "Step", "Facts"} <= set(places)
    assert {word: places[word] for word in WORDS if len(places[word]) > 1} == {}
