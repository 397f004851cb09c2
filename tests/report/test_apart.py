"""Marks of a chart keep their distance, stay near their place and inside the chart."""

from __future__ import annotations

from itertools import combinations

import pytest

from firstlight.report.html.apart import Area, apart, lanes
from firstlight.report.html.markup import prose
from firstlight.report.html.scales import fitted, text_width

AREA = Area(0, 0, 400, 300)


@pytest.mark.parametrize(
    "spots",
    [
        [complex(50, 50)] * 40,
        [complex(0, 0)] * 20,  # a corner: half the ways out lead out of the chart
        [complex(50 + 0.3 * place, 50) for place in range(60)],
    ],
    ids=["one spot", "a corner", "a row"],
)
def test_no_mark_lies_on_another_and_none_leaves_the_chart(spots: list[complex]) -> None:
    shown = apart(spots, gap=10, area=AREA)
    assert min(abs(a - b) for a, b in combinations(shown, 2)) >= 10 - 1e-6
    assert all(AREA.holds(spot) for spot in shown)
    assert max(abs(now - true) for now, true in zip(shown, spots, strict=True)) < 80


def test_marks_that_have_room_stay_where_they_belong() -> None:
    spots = [complex(20 * place, 100) for place in range(10)]
    assert apart(spots, gap=10, area=AREA) == tuple(spots)


def test_marks_of_one_row_that_touch_go_to_lanes_of_their_own() -> None:
    assert lanes([10, 12, 14, 40], gap=9) == (0, 1, -1, 0)


def test_a_long_label_is_cut_so_that_it_fits() -> None:
    cut = fitted("a-family-of-somebody's-own", 100)
    assert cut.endswith("...")
    assert text_width(cut) <= 100
    assert fitted("gemm", 100) == "gemm"


def test_commands_in_a_sentence_are_set_as_code_and_the_rest_is_escaped() -> None:
    assert prose("see `a < b`, or <c>") == "see <code>a &lt; b</code>, or &lt;c&gt;"
