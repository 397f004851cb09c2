"""Which known names somebody may have meant: typing errors and names that hold the word, never a mere likeness."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 80  # letters of a word that is compared at all
SHORT, LONG = 4, 8  # letters: in short words another letter is another word, in long ones two slips are still one name


def nearest(word: str, names: Iterable[str], most: int = 1) -> tuple[str, ...]:
    """Names that a word plausibly stands for, best first: ('doctor',) for 'docter', () for 'repair' or 'mi300x'."""
    wanted = word.lower()
    if not wanted or len(wanted) > LONGEST:
        return ()
    ranked = [(rank, name) for name in dict.fromkeys(names) if (rank := _rank(wanted, name.lower())) is not None]
    return tuple(name for _, name in sorted(ranked, key=lambda pair: pair[0])[:most])


def _rank(word: str, name: str) -> tuple[int, int] | None:
    """(0, slips) for a slip, (1, surplus letters) for a name that holds the word or begins it; None for neither."""
    plain, known = (re.sub(r"[\W_]", "", text) for text in (word, name))
    slips = _slips(plain, known)
    if slips <= _allowed(plain, known):
        return 0, slips
    parts, inside = (set(re.split(r"[\W_]+", text)) - {""} for text in (word, name))
    begins = len(plain) >= 3 and known.startswith(plain)
    if begins or (len(known) >= SHORT and plain.startswith(known)) or (parts and parts <= inside):
        return 1, abs(len(known) - len(plain))
    return None


def _allowed(word: str, name: str) -> int:
    """How many slips two words may lie apart: none where their numbers differ, since 2080 is not a slip for 5080."""
    if sorted(filter(str.isdigit, word)) != sorted(filter(str.isdigit, name)) or word[:1] != name[:1]:
        return 0
    if len(word) == len(name) <= SHORT:
        return int(sorted(word) == sorted(name))
    return 1 if max(len(word), len(name)) < LONG else 2


def _slips(word: str, name: str) -> int:
    """Letters to add, leave out, replace or swap with their neighbour to get from one to the other."""
    before: list[int] = []
    last = list(range(len(name) + 1))
    for row, letter in enumerate(word, start=1):
        now = [row]
        for column, other in enumerate(name, start=1):
            cost = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == name[column - 2] and word[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
