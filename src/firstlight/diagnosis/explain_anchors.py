"""Find several hundred fixed strings in a log by its words: a text of megabytes has few that were not in it before.

Every anchor is made of words, e.g. libcudss, so, cannot, open. A log is cut into its words, and only those that it did
not have before are compared with the words of the anchors. An anchor is searched where all of its words are.
Anchors are in small letters, and so is what is compared with them: people and programs write one message in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from firstlight.frozen import dataclass

SMALL_BYTES = 1 << 12  # below this each string is searched by itself: cutting a text into words takes longer
PIECE_BYTES = 1 << 13  # the fewer words a piece has, the fewer anchors it can hold
BEGINNING_BYTES = 6  # of an anchor that has no word: each is a pass over the log
MOST_WORDS = 1 << 18  # kept in memory; a log of random letters begins anew after so many
_LETTERS = bytes(bytes([byte]).lower()[0] if re.match(rb"[A-Za-z_]", bytes([byte])) else 32 for byte in range(256))
_RUN = re.compile(rb"[A-Za-z_]{3,}")  # shorter ones are parts of too many words
_WHOLE = re.compile(rb"(?<=[^A-Za-z_])[A-Za-z_]+(?=[^A-Za-z_])")  # a word that ends within the anchor on both sides


@dataclass(frozen=True, slots=True)
class _Words:
    """What a text must have to hold an anchor: words, and words with these parts in them, of which `key` is one."""

    anchor: bytes
    key: bytes
    parts: frozenset[bytes]
    whole: frozenset[bytes]


class Anchors:
    """The strings that are looked for in one log, and the words of it that were met so far."""

    def __init__(self, anchors: tuple[bytes, ...]) -> None:
        self._anchors = anchors
        self._longest = max(map(len, anchors), default=0)
        self._met: set[bytes] = set()
        self._parts: dict[bytes, frozenset[bytes]] = {}  # a word of the log -> the parts of anchors that are in it

    def within(self, buffer: bytes, *, start: int, limit: int) -> list[tuple[int, bytes]]:
        """Where anchors begin in buffer[start:limit], in order; one that begins there may end behind it."""
        buffer = buffer.lower()
        if limit - start < SMALL_BYTES:
            return sorted(_places(buffer, self._anchors, start, limit))
        pieces = [(first, min(limit, first + PIECE_BYTES)) for first in range(start, limit, PIECE_BYTES)]
        words = [set(buffer[first : last + self._longest].translate(_LETTERS).split()) for first, last in pieces]
        self._learn(set().union(*words))
        hits = [*_places(buffer, _numbers_in(buffer, self._anchors, start, limit + self._longest), start, limit)]
        for (first, last), mine in zip(pieces, words, strict=True):
            hits += _places(buffer, self._possible(mine), first, last)
        return sorted(hits)

    def _learn(self, words: set[bytes]) -> None:
        if len(self._met) > MOST_WORDS:
            self._met.clear()
            self._parts.clear()
        new = words - self._met
        self._met |= new
        together = b" %b " % b" ".join(new)
        for part in _parts(self._anchors):
            at = together.find(part)
            while at >= 0:
                end = together.index(b" ", at)
                word = together[together.rindex(b" ", 0, at + 1) + 1 : end]
                self._parts[word] = self._parts.get(word, frozenset()) | {part}
                at = together.find(part, end)

    def _possible(self, words: set[bytes]) -> Iterable[bytes]:
        """The anchors of which every word is there."""
        parts = frozenset().union(*(self._parts[word] for word in words & self._parts.keys()))
        by_key = _by_key(self._anchors)
        for part in parts & by_key.keys():
            yield from (each.anchor for each in by_key[part] if each.parts <= parts and each.whole <= words)


def _numbers_in(buffer: bytes, anchors: tuple[bytes, ...], start: int, stop: int) -> Iterable[bytes]:
    """The anchors without a word, e.g. 3221225477, of which the beginning is there: numbers share few of those."""
    for beginning, numbers in _numbers(anchors).items():
        if buffer.find(beginning, start, stop) >= 0:
            yield from numbers


def _places(buffer: bytes, anchors: Iterable[bytes], start: int, limit: int) -> list[tuple[int, bytes]]:
    hits = []
    for anchor in anchors:
        stop = min(len(buffer), limit + len(anchor) - 1)
        at = buffer.find(anchor, start, stop)
        while at >= 0:
            hits.append((at, anchor))
            at = buffer.find(anchor, at + len(anchor), stop)
    return hits


@cache
def _words(anchors: tuple[bytes, ...]) -> tuple[_Words, ...]:
    found = []
    for anchor in anchors:
        whole = frozenset(_WHOLE.findall(anchor))
        runs = frozenset(_RUN.findall(anchor))
        key = max(sorted(runs), key=len, default=b"")
        found.append(_Words(anchor, key, runs - whole | runs & {key}, whole))
    return tuple(found)


@cache
def _parts(anchors: tuple[bytes, ...]) -> frozenset[bytes]:
    return frozenset(part for each in _words(anchors) for part in each.parts)


@cache
def _numbers(anchors: tuple[bytes, ...]) -> dict[bytes, tuple[bytes, ...]]:
    found: dict[bytes, tuple[bytes, ...]] = {}
    for each in (words.anchor for words in _words(anchors) if not words.key):
        found[each[:BEGINNING_BYTES]] = (*found.get(each[:BEGINNING_BYTES], ()), each)
    return found


@cache
def _by_key(anchors: tuple[bytes, ...]) -> dict[bytes, tuple[_Words, ...]]:
    found: dict[bytes, tuple[_Words, ...]] = {}
    for each in _words(anchors):
        found[each.key] = (*found.get(each.key, ()), each)
    return found
