"""The tables of attention beside its rivals name who is ahead, are refused without evidence, and bear out our words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contest_results import row, silent, timed, written
from tools.contests import OURS, read
from tools.rivals_table import PAGE, RESULTS, front_rows, leads, rivals_part

ROOT = Path(__file__).parents[1]
NO_SUCH = silent("it has no such mask by name")


def test_a_row_shows_the_others_as_times_ours_and_names_who_is_ahead(tmp_path: Path) -> None:
    contenders = {
        OURS: timed(2.0, 4.0), "flash4": timed(1.8, 4.4), "flash4 deterministic": timed(2.5, 5.0),
        "cudnn dense": NO_SUCH,
    }  # fmt: skip
    text = rivals_part(written(tmp_path, row("sink", contenders, backward=True)))
    assert "| FlashAttention-4 | FlashAttention-4, deterministic | ahead |" in text
    assert "| sink | B1 H2 S4096 | 0.500 | 2.00 / 4.00 | 0.90 / 1.10 | 1.25 / 1.25 | FlashAttention-4 / ours |" in text
    assert "cuDNN, dense |" not in text  # a column of dashes alone
    assert "half of them within 4.0 %, the worst 4 %" in text
    assert "On one MADE UP (driver 0.0, torch 0.0, commit abc, 2026-11-19)" in text


def test_the_verdict_says_plainly_where_ours_is_behind(tmp_path: Path) -> None:
    slow = {OURS: timed(2.0, 4.0), "flash4": timed(1.8, 3.9)}
    rows = [row(f"lists {number}", slow, backward=True) for number in range(4)]
    rows += [row("window", {OURS: timed(1.0, 1.0), "flash4": timed(1.5, 1.25)}, backward=True)]
    text = rivals_part(written(tmp_path, *rows))
    assert "**Backward, ours is ahead in 1 of 5 rows (`window`) and behind in the others.**" in text
    assert (
        "adds dq in any order, is faster in 4 of 5 rows (0.90 to 0.97 of our time) and slower in `window` "
        "(1.25 to 1.50 times our time)."
    ) in text
    assert "Forward" not in text
    none = rivals_part(written(tmp_path, *rows[:4]))
    assert "**Backward, ours is ahead in 0 of 4 rows and behind in the others.**" in none


def test_who_is_faster_in_one_figure_alone_is_neither_faster_nor_slower(tmp_path: Path) -> None:
    even = {OURS: timed(2.0, 4.0), "flash4": timed(1.9, 4.2)}
    rows = [row("causal", even), row("causal", even, shape=[1, 2, 8192])]
    text = rivals_part(written(tmp_path, *rows))
    assert "is faster in one figure and slower in the other in all 2 rows that it takes (0.95 to 1.05 times our" in text
    assert "**Forward, ours is ahead in 0 of 2 rows and behind in the others.**" in text
    rows.append(row("full", {OURS: timed(1.0, 1.0), "flash4": timed(3.0, 3.0)}))
    named = rivals_part(written(tmp_path, *rows))
    assert "slower in `full` (3.00 times our time)" in named
    assert "in `causal` at 4096 and `causal` at 8192 (0.95 to 1.05" in named


def test_every_dash_has_its_reason(tmp_path: Path) -> None:
    takes, does_not = ({OURS: timed(1.0, 1.0), "cudnn dense": found} for found in (timed(2.0, 2.0), NO_SUCH))
    text = rivals_part(written(tmp_path, row("a", takes), row("b", does_not)))
    assert "| b | B1 H2 S4096 | 0.500 | 1.00 / 1.00 | - | ours |" in text
    assert "A dash: who has no such kernel. cuDNN, dense: it has no such mask by name." in text


def test_the_first_page_shows_a_forward_pass_and_where_the_rest_is(tmp_path: Path) -> None:
    contenders = {OURS: timed(2.0, 3.0), "flash4": timed(2.5, 3.5), "cudnn dense": timed(3.0, 4.0)}
    shown = row("causal", contenders, shape=[4, 32, 8192])
    path = written(tmp_path, shown, {**shown, "backward": True}, row("causal", contenders))
    assert front_rows(path) == (
        "| `attention`, B4 H32 S8192 D128, bf16, forward, causal | 2.00 ms | FlashAttention-4: 2.50 ms (1.25x ours), "
        f"cuDNN: 3.00 ms (1.50x ours); [other masks, and backward]({PAGE}) |\n"
    )


Spoil = Callable[[dict[str, Any]], object]


def flash4_of(found: dict[str, Any]) -> dict[str, Any]:
    contender: dict[str, Any] = found["rows"][0]["contenders"]["flash4"]
    return contender


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda found: found.update(commit="not told"), "names no commit"),
        (lambda found: found.update(rows=[]), "holds no rows"),
        (lambda found: flash4_of(found).update(error={}), "flash4 was not held against float64"),
        (lambda found: flash4_of(found)["samples"]["burst_ms"].pop(), "flash4 holds fewer than two samples"),
        (lambda found: flash4_of(found)["samples"].update(clock_mhz=[1700, None]), "flash4 holds no clocks"),
        (lambda found: flash4_of(found)["samples"].update(clock_mhz=[]), "flash4 holds no clocks"),
        (lambda found: found["rows"][0]["contenders"].pop(OURS), "has no time of ours"),
    ],
)
def test_a_file_without_evidence_is_refused(tmp_path: Path, spoil: Spoil, reason: str) -> None:
    path = written(tmp_path, row("causal", {OURS: timed(1.0, 1.0), "flash4": timed(1.0, 1.0)}))
    found = json.loads(path.read_text())
    spoil(found)
    path.write_text(json.dumps(found))
    with pytest.raises(SystemExit, match=re.escape(reason)):
        rivals_part(path)


# -------------------------------------------------------------------------------------------- what pages say in words


def behind(rival: str) -> tuple[list[str], list[str]]:
    """Backward masks in which that rival is faster than ours in both figures, and all that it takes."""
    rows = [one for one in read(RESULTS).way(backward=True) if rival in one.times]
    faster = [one for one in rows if one.fastest_of((OURS, rival)) == (rival, rival)]
    return [one.name for one in faster], [one.name for one in rows]


def test_the_measured_file_names_as_fastest_who_was() -> None:
    found = read(RESULTS)
    for one in found.rows:
        assert one.fastest() == tuple(one.row["fastest"].values()), one.row["case"]


def test_forward_ours_is_ahead_under_every_mask_as_the_pages_say() -> None:
    forward = read(RESULTS).way(backward=False)
    assert len(leads(forward)) == len(forward) == 11
    page, log = words("docs/kernels/attention.md"), words("CHANGELOG.md")
    assert (
        "FlashAttention-4 and cuDNN are slower than ours forward under every mask they were [measured beside]" in page
    )
    assert "ahead of FlashAttention-4 and cuDNN forward under every mask they were measured beside" in log


def test_backward_ours_is_behind_under_most_masks_and_the_pages_say_so() -> None:
    faster, taken = behind("flash4")
    assert len(taken) / 2 < len(faster) < len(taken)
    assert set(taken) - set(faster) == {"window and sink", "lists 0.09"}
    page, log, library = (
        words(name) for name in ("docs/kernels/attention.md", "CHANGELOG.md", "docs/kernels/library.md")
    )
    assert "**backward FlashAttention-4 is faster under most of them**" in page
    assert "behind FlashAttention-4's default mode backward under most" in log
    assert "| behind in most masks; ahead in a window with a sink and where few blocks are kept |" in library


def test_the_first_page_claims_nothing_of_backward_passes() -> None:
    readme = (ROOT / "README.md").read_text()
    lines = [line for line in readme.splitlines() if "FlashAttention-4" in line]
    assert lines == front_rows().splitlines()
    assert len(lines) == 1
    assert len(readme.splitlines()) < 120


def words(name: str) -> str:
    """A page with its line ends as spaces."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())
