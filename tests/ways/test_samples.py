"""Every type of way has a sample, so that tests over all ways leave none out."""

from __future__ import annotations

import inspect

from firstlight.ways import kinds
from firstlight.ways.way import Way
from tests.ways.samples import SAMPLES, VARIANTS


def test_every_type_of_way_has_one_sample() -> None:
    types = [
        kind for _, kind in inspect.getmembers(kinds, inspect.isclass) if issubclass(kind, Way) and kind is not Way
    ]
    assert sorted(type(way).__name__ for way in SAMPLES) == sorted(kind.__name__ for kind in types)


def test_variants_are_of_the_same_types_and_differ() -> None:
    assert {type(way) for way in VARIANTS} <= {type(way) for way in SAMPLES}
    assert len({*SAMPLES, *VARIANTS}) == len(SAMPLES) + len(VARIANTS)
