"""The tables that ship with us are read unchecked at a start; here every field of every row is looked at."""

from __future__ import annotations

import pickle

import pytest

from firstlight.tables.reading import SHIPPED, checked_rows, read_rows
from firstlight.tables.subjects import SUBJECTS


@pytest.mark.parametrize("subject", [subject.name for subject in SUBJECTS])
def test_every_row_that_is_shipped_is_good_and_reads_the_same_unchecked(subject: str) -> None:
    checked = checked_rows(SHIPPED, subject)
    assert checked
    assert read_rows(SHIPPED, subject) == checked


def test_a_row_whose_fields_were_not_asked_for_is_a_row_like_any_other() -> None:
    read_rows.cache_clear()
    first, second = read_rows(SHIPPED, "driver_branches")[:2]
    assert first != second
    assert pickle.loads(pickle.dumps(second)) == second
    assert hash(first) == hash(checked_rows(SHIPPED, "driver_branches")[0])
    assert not hasattr(first, "wheel")
    with pytest.raises(AttributeError, match="DriverBranch has no field 'wheel'"):
        _ = first.wheel  # type: ignore[attr-defined]
