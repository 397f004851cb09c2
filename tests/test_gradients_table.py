"""The table of gradients in one pass and two says what was measured, and which way is taken."""

from __future__ import annotations

import json
from pathlib import Path

from tools.gradients_table import RESULTS, gradients_part


def test_the_way_that_is_taken_was_not_the_slower_one() -> None:
    for row in json.loads(RESULTS.read_text())["times"]:
        taken, other = (row["one"], row["two"]) if row["taken"] == "one" else (row["two"], row["one"])
        assert taken["burst_ms"] <= other["burst_ms"], row["case"]


def test_rows_show_both_ways_and_no_figure_of_another_process(tmp_path: Path) -> None:
    found = json.loads(RESULTS.read_text())
    row = {
        "case": "made up", "shape": [1, 2, 300], "density": 0.5, "tflop": 4.0, "taken": "one",
        "one": {"burst_ms": 2.0, "sustained_ms": 4.0}, "two": {"burst_ms": 3.0, "sustained_ms": 5.0},
    }  # fmt: skip
    path = tmp_path / "made_up.json"
    path.write_text(json.dumps({**found, "times": [row]}))
    text = gradients_part(path)
    assert "| made up | B1 H2 S300 | 0.500 | 3.00 / 5.00 | 2.00 / 4.00 | 1.50 / 1.25 | 2000 / 1000 | one pass |" in text
    assert "FlashAttention" not in gradients_part()
