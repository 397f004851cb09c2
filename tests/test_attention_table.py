"""The tables and the picture of attention: absent before it was measured, refused without evidence. Data is made up."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attention_results import DENSITIES, made_up, record, written
from tools.attention_picture import ticks
from tools.attention_table import NOT_YET, PICTURE, front_rows, more_part, picture_part, table_part
from tools.make_readme import ATTENTION, filled_attention

SVG = "{http://www.w3.org/2000/svg}"


def test_before_it_was_measured_the_first_page_is_silent_and_the_page_says_so(tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    assert (front_rows(absent), picture_part(absent)) == ("", "")
    assert (table_part(absent), more_part(absent)) == (NOT_YET, "Not measured yet.\n")
    assert "no time of theirs was taken" in NOT_YET


def test_the_page_and_the_picture_are_current() -> None:
    assert filled_attention(ATTENTION.read_text()) == ATTENTION.read_text(), "run: python -m tools.generate readme"
    drawn = picture_part()
    assert not drawn or PICTURE.read_text() == drawn, "run: python -m tools.generate readme"


def test_a_row_shows_both_regimes_the_others_and_the_limit(tmp_path: Path) -> None:
    text = table_part(written(tmp_path, made_up()))
    assert text.startswith("**Measured on H200 only** (MADE UP, driver 0.0, torch 0.0, 2026-11-15)")
    assert "cuBLAS reached 745 TFLOP/s (fp16) and a copy 4,230 GB/s in the same run" in text
    assert "| 12.70 ms, sustained 13.20 (1.07x ours) | 18.19 ms (1.49x ours) | 1.07x | tensor, 9.13 ms | 75% |" in text
    assert "| 2.90 ms, 470 (1380 MHz, 694 W) |" in text
    assert "| bf16 | 11.89 ms | 555 (0.98 of fp16 D128) | 10.70 ms, 700 | - | - |" in text
    assert "| backward, density 0.5 |" in text
    assert "../images/attention-density.svg" in text


def test_the_first_page_shows_few_rows(tmp_path: Path) -> None:
    assert front_rows(written(tmp_path, made_up())) == (
        "| `attention`, B16 H96 S4096 D128, fp16, forward, causal | 12.23 ms | "
        "cuDNN: 12.70 ms (1.07x ours), FlexAttention: 18.19 ms (1.49x ours) |\n"
    )


def test_every_other_part_that_was_measured_is_shown(tmp_path: Path) -> None:
    text = more_part(written(tmp_path, made_up()), lists=tmp_path / "none.json")
    assert "| banded | b8-h32:8-s1000-d128 | 0.310 | 7.715 ms | 530 | cudnn, 0.300 ms | tensor |" in text
    assert "| density 0.5 | lists from booleans | 0.050 ms | 0.4% | no |" in text
    assert "of 30 calls of 100 us and more 97 % took at most 3 % longer, the worst 1.041 times as long" in text
    assert "20 to `sm90`, 3 to `triton`, 10 to `dense`." in text
    assert "| attention | 21.5 us |" in text


def test_a_part_that_was_not_reached_is_left_out(tmp_path: Path) -> None:
    found = made_up()
    for name in ("sweep", "held_out", "lists", "auto", "overheads", "rates", "backward"):
        del found["parts"][name]
    path = written(tmp_path, found)
    assert "attention-density.svg" not in table_part(path)
    assert picture_part(path) == ""
    assert more_part(path, lists=tmp_path / "none.json").startswith("The limit is the larger of two times")


Spoil = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda found: found.update(commit=None), "names no commit"),
        (lambda found: found.update(dry=True), "is of a dry run"),
        (lambda found: found["parts"].update(table=[], backward=[]), "holds no rows"),
        (lambda found: found["parts"]["table"][0].update(verdict="failed", reason="wrong"), "is failed: wrong"),
        (lambda found: found["records"].pop(), "backward, density 0.5 holds no figures"),
        (lambda found: found["records"][1]["figures"][0]["passes"][0].update(samples_s=[]), "holds no samples"),
        (lambda found: found["records"][0]["figures"][0].update(telemetry=None), "dense causal holds no clocks"),
        (
            lambda found: found["parts"]["table"][0]["burst"].update(samples_ms=[1.0] * 10),
            "of 10 samples; 15 are wanted",
        ),
    ],
)
def test_a_file_without_evidence_is_refused(tmp_path: Path, spoil: Spoil, reason: str) -> None:
    found = made_up()
    spoil(found)
    with pytest.raises(SystemExit, match=re.escape(reason)):
        table_part(written(tmp_path, found))


# ------------------------------------------------------------------------------------------------------------ picture


def test_the_picture_shows_every_measured_point_and_names_every_line(tmp_path: Path) -> None:
    root = ElementTree.fromstring(picture_part(written(tmp_path, made_up())))
    dots = [each.get("class") for each in root.iter(f"{SVG}circle")]
    assert dots.count("ours") == dots.count("flex") == len(DENSITIES)
    words = [each.text or "" for each in root.iter(f"{SVG}text")]
    for name in ("firstlight", "FlexAttention", "cuDNN, full", "cuDNN, causal", "the limit", "a fifth of cuDNN causal"):
        assert any(word.startswith(name) for word in words), name
    assert (
        "B16 H96 S4096 D128, fp16, lists of 128 x 128 blocks; MADE UP, torch 0.0, 2026-11-15; medians of bursts"
        in words
    )


def test_the_picture_keeps_inside_and_its_names_do_not_touch(tmp_path: Path) -> None:
    root = ElementTree.fromstring(picture_part(written(tmp_path, made_up())))
    _, _, width, height = (float(number) for number in (root.get("viewBox") or "").split())
    for each in root.iter(f"{SVG}polyline"):
        for pair in (each.get("points") or "").split():
            x, y = (float(number) for number in pair.split(","))
            assert 0 < x < width
            assert 0 < y < height
    lines = [float(each.get("y") or 0) for each in root.iter(f"{SVG}text") if each.get("class") in LOOKS]
    apart = [high - low for low, high in zip(sorted(lines), sorted(lines)[1:], strict=False)]
    assert min(apart) > 14


LOOKS = ("ours", "flex", "dense", "limit", "wish")


def test_the_picture_has_colours_for_a_dark_page_and_paints_its_own_ground(tmp_path: Path) -> None:
    text = picture_part(written(tmp_path, made_up()))
    assert "prefers-color-scheme: dark" in text
    assert '<rect class="paper"' in text


def test_a_line_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    found = made_up()
    for row in found["parts"]["sweep"]:
        row["flex_ms"] = None
        row.pop("cudnn_causal_ms", None)
    text = picture_part(written(tmp_path, found))
    assert "FlexAttention" not in text
    assert "cuDNN, causal" not in text
    assert "cuDNN, full" in text


def test_ticks_are_round_numbers() -> None:
    assert ticks(1.3, 34.0) == [2, 3, 5, 10, 20, 30]
    assert ticks(0.029, 1.0) == pytest.approx([0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1])


def by_both(samples: int = 30) -> dict[str, Any]:
    """A made-up file in which Triton's gradients were timed beside the Hopper kernel's."""
    found = made_up()
    [row] = found["parts"]["backward"]
    later = {"ms": 50.0, "tflops": 320.0, "sm_mhz": None, "power_w": None, "samples_ms": [50.0]}
    row |= {
        "computed_by": "sm90", "triton_ms": 47.5, "triton_tflops": 345.0, "cool_triton_ms": 45.0, "times_triton": 4.0,
        "cool_triton_tflops": 370.0, "triton_sustained": later, "flex_ms": 57.0, "times_flex": 4.8,
        "triton_burst": {"ms": 47.5, "samples_ms": [47.5] * samples},
    }  # fmt: skip
    found["records"].append(record(f"{row['id']}/backward triton"))
    return found


def test_a_backward_pass_by_triton_beside_ours_is_a_row_of_its_own(tmp_path: Path) -> None:
    lines = [line for line in table_part(written(tmp_path, by_both())).splitlines() if line.startswith("| backward")]
    assert lines[0].startswith("| backward, density 0.5 (by `sm90`) |")
    assert "57.00 ms (4.80x ours)" in lines[0]
    assert lines[1].startswith(
        "| backward, density 0.5 (by `triton`) | 47.50 ms | 345 | 45.00 ms, 370 | 50.00 ms, 320 | - |"
    )
    assert "57.00 ms (1.20x ours)" in lines[1]


def test_the_figure_of_triton_needs_its_samples_and_its_record_too(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is the median of 3 samples"):
        table_part(written(tmp_path, by_both(samples=3)))
    found = by_both()
    found["records"].pop()
    with pytest.raises(SystemExit):
        table_part(written(tmp_path, found))


def test_a_file_from_before_the_hopper_kernel_computed_gradients_is_read_as_it_is(tmp_path: Path) -> None:
    found = made_up()
    found["parts"]["backward"][0]["computed_by"] = "triton"
    lines = [line for line in table_part(written(tmp_path, found)).splitlines() if line.startswith("| backward")]
    assert len(lines) == 1
    assert lines[0].startswith("| backward, density 0.5 (by `triton`) |")
