"""Records as JSON values and back: what the rooms share of it."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.errors import BadFactsFile, BadInput
from firstlight.frozen import dataclass
from firstlight.records import Reading, decode, encode


@dataclass(frozen=True, slots=True)
class Sample:
    """One of each shape."""

    argv: tuple[tuple[str, ...], ...]
    params: tuple[tuple[str, int], ...]
    span: tuple[float, float]
    share: float | None = None


SAMPLE = Sample((("a", "b"), ("c", "d")), (("m", 1), ("n", 2)), (0.5, 1.0))
DOCUMENT = {"argv": [["a", "b"], ["c", "d"]], "params": {"m": 1, "n": 2}, "span": [0.5, 1.0], "share": None}


def test_pairs_are_an_object_and_tuples_of_words_are_lists() -> None:
    assert encode(SAMPLE) == DOCUMENT
    assert decode(Sample, DOCUMENT, "it") == SAMPLE


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"span": [1, 10**400]}, r"it.span\[1\]: .* is not a measurement"),
        ({"span": [1, float("inf")]}, r"it.span\[1\]: expected a number, found inf"),
        ({"span": [1.0]}, "it.span: expected 2 items, found 1"),
        ({"params": {"m": True}}, "it.params.m: expected a whole number, found True"),
        ({"argv": [["a", 1]]}, r"it.argv\[0\]\[1\]: expected text, found 1"),
        ({"more": 1}, "it: 'more' is not a field here"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadFactsFile, match=said):
        decode(Sample, {**DOCUMENT, **changed}, "it")


def test_a_reading_says_whether_fields_may_be_missing_or_not_known() -> None:
    less = {name: each for name, each in DOCUMENT.items() if name != "share"}
    with pytest.raises(BadFactsFile, match="share: missing"):
        decode(Sample, less, "it")
    free = Reading(BadInput, exact=False, defaults=True)
    assert decode(Sample, {**less, "more": 1}, "it", free) == SAMPLE
    assert (
        decode(Sample, less, "it", Reading(later=frozenset({("Sample", "argv")}), exact=False, defaults=True)) == SAMPLE
    )
