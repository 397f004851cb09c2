"""The table of sequences of different lengths: who is ahead, what new offsets cost, and what was not reached."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ragged.cases import CASES

from tests.contest_results import row, silent, timed, written
from tools.contests import OURS, read
from tools.ragged_table import FLASH4, IN_ORDER, NEW, PADDED, RESULTS, TORCH, missing, ragged_part

ROOT = Path(__file__).parents[1]
FORWARD = {
    OURS: timed(1.0, 2.0), NEW: timed(4.0, 6.0), PADDED: timed(2.0, 3.0), TORCH: timed(3.0, 5.0),
    FLASH4: timed(1.5, 2.2), IN_ORDER: silent("it is a matter of the backward pass"),
}  # fmt: skip
BACKWARD = {
    OURS: timed(4.0, 4.0), NEW: silent("it is a matter of the forward pass"), PADDED: timed(6.0, 6.0),
    TORCH: timed(8.0, 8.0), FLASH4: timed(2.0, 3.0), IN_ORDER: timed(5.0, 5.0),
}  # fmt: skip


def test_a_row_shows_every_way_and_who_is_ahead(tmp_path: Path) -> None:
    text = ragged_part(written(tmp_path, row("short", FORWARD), row("short", BACKWARD, backward=True)))
    assert (
        "| short | 2 | 100 to 300 | 67 % | forward | 1.00 / 2.00 | 4.00 / 3.00 | 2.00 / 1.50 | 3.00 / 2.50 | "
        "1.50 / 1.10 | - | ours |"
    ) in text
    assert (
        "| backward | 4.00 / 4.00 | - | 1.50 / 1.50 | 2.00 / 2.00 | 0.50 / 0.75 | 1.25 / 1.25 | FlashAttention-4 |"
    ) in text
    assert "Not measured" not in text


def test_the_words_say_who_is_behind_and_what_new_offsets_cost(tmp_path: Path) -> None:
    text = ragged_part(written(tmp_path, row("short", FORWARD), row("short", BACKWARD, backward=True)))
    assert "**Forward**, FlashAttention-4 is slower in `short`, the one that it takes (1.10 to 1.50 times our" in text
    assert "in its default mode is faster in `short`, the one that it takes (0.50 to 0.75 of our time)." in text
    assert "Its deterministic mode is slower in `short`, the one that it takes (1.25 times our time)." in text
    assert "**New offsets in every call** take 3.00 to 4.00 times the time of a forward pass" in text
    assert "making the mask costs 3.0 to 4.0 ms" in text
    assert "it is ahead in 1 of these 1 rows" in text
    assert "ours takes 1.50 to 2.00 times as long padded, torch's cuDNN kernel 2.00 to 3.00 times ours without." in text


def test_what_was_not_reached_is_named(tmp_path: Path) -> None:
    rows = [row("short", FORWARD), row("short", BACKWARD, backward=True), row("even", FORWARD, lengths=[7, 7])]
    text = ragged_part(written(tmp_path, *rows))
    assert "Not measured, as the run's time was up before it: the backward pass of `even`." in text
    assert "| even | 2 | 7 |" in text


def test_the_measured_file_lacks_what_the_page_says_and_no_more() -> None:
    rows = read(RESULTS).rows
    there = {one.row["case"] for one in rows}
    lacking = [case for case in CASES if case.id not in there]
    assert missing(rows) == [f"the {case.id.partition('/')[0]} pass of `{case.name}`" for case in lacking]
    for one in rows:
        assert one.fastest() == tuple(one.row["fastest"].values()), one.row["case"]


def test_what_pages_say_in_words_is_in_the_file() -> None:
    found = read(RESULTS)
    forward, backward = found.way(backward=False), found.way(backward=True)
    assert all(one.fastest_of((OURS, FLASH4)) == (FLASH4, FLASH4) for one in backward)
    ratios = [one.ratio(FLASH4) for one in forward]
    assert min(min(one.burst_ms, one.sustained_ms) for one in ratios) > 0.98  # level
    assert max(one.burst_ms for one in ratios) > 1.1  # or ahead
    assert all(one.ratio(NEW).sustained_ms > 2 for one in forward)
    log, library = (" ".join((ROOT / name).read_text().split()) for name in ("CHANGELOG.md", "docs/kernels/library.md"))
    assert "it is level with FlashAttention-4's or ahead forward, and behind it backward" in log
    assert "with new offsets in every call a call takes several times as long" in log
    assert "[gradients of sequences of different lengths]" in library
    assert "beside it | at least as fast | behind in every batch |" in library
