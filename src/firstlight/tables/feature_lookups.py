"""The features of torch that `verify` has a row for."""

from __future__ import annotations

import os

from firstlight.tables.feature_rows import Feature
from firstlight.tables.reading import read_rows

_FOLDER = os.path.join(os.path.dirname(__file__), "data")


def features(folder: str = _FOLDER) -> tuple[Feature, ...]:
    """Every feature in the order of the table, e.g. fbgemm first."""
    return tuple(row for row in read_rows(folder, "features") if isinstance(row, Feature))
