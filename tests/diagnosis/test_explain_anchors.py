"""Anchors are found by their words: the same places as by a search for each, wherever blocks and words are cut."""

from __future__ import annotations

import itertools
import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis import explain_anchors
from firstlight.diagnosis.explain_anchors import MOST_WORDS, SMALL_BYTES, Anchors
from firstlight.diagnosis.explain_match import anchors

EVERY = anchors()


def _one_by_one(text: bytes, start: int, limit: int) -> list[tuple[int, bytes]]:
    return sorted(explain_anchors._places(text, EVERY, start, limit))


def test_words_find_what_a_search_for_each_finds() -> None:
    luck = random.Random(7)
    words = [luck.choice(EVERY) if luck.random() < 0.05 else b"step 12 loss 2.31 ok " for _ in range(20_000)]
    text = b"".join(words) + b"\n"
    for start, limit in ((0, len(text)), (1000, len(text) - 1000)):
        assert Anchors(EVERY).within(text, start=start, limit=limit) == _one_by_one(text, start, limit)


def test_anchors_without_a_word_begin_in_few_ways() -> None:
    """Each beginning is a pass over every log; a code that begins otherwise is better told with a word beside it."""
    wordless = [each for each in EVERY if not re.search(rb"[A-Za-z_]{3,}", each)]
    beginnings = explain_anchors._numbers(EVERY)
    assert sorted(itertools.chain.from_iterable(beginnings.values())) == sorted(wordless)
    assert len(beginnings) <= 8


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EVERY), st.binary(max_size=3), st.integers(0, 9000)), min_size=1, max_size=8))
def test_an_anchor_inside_other_words_and_across_pieces_is_found(parts: list[tuple[bytes, bytes, int]]) -> None:
    text = b"".join(glued + anchor + glued + b"x" * gap for anchor, glued, gap in parts).ljust(SMALL_BYTES + 1, b".")
    wanted = Anchors(EVERY)
    middle = len(text) // 2
    found = wanted.within(text, start=0, limit=middle) + wanted.within(text, start=middle, limit=len(text))
    # a search per half begins anew after a hit that lies across the middle
    assert found == _one_by_one(text, 0, middle) + _one_by_one(text, middle, len(text))


def test_a_log_of_ever_new_words_takes_no_more_memory_and_is_still_searched() -> None:
    wanted = Anchors(EVERY)
    letters = b"abcdefghijklmnopqrstuvwx"
    for first in letters[:8]:
        words = (bytes([first, *each]) for each in itertools.islice(itertools.product(letters, repeat=4), 60_000))
        text = b" ".join(words) + b" libcudss.so.0: cannot open shared object file "
        found = wanted.within(text, start=0, limit=len(text))
        assert found == _one_by_one(text, 0, len(text))
        assert found
    assert len(wanted._met) <= MOST_WORDS + 60_000
    assert wanted._parts.keys() <= wanted._met
