"""Which backend is taken, by rule and by measurement, and what is said about it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight.errors import BadInput
from firstlight.kernels.block_attention import choose, rows
from firstlight.kernels.block_attention.choose import Question, backward_of, by_rows, by_rule
from firstlight.kernels.block_attention.functions import explain_attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.rows import Row, nearest, times_at
from firstlight.kernels.block_attention.seen import seen_by
from tests.kernels.block_attention.att_cases import qkv

LISTED = Question(
    device=0, dtype=torch.float16, head_dim=128, shape="listed", block=128, share=0.1, lengths=(4096, 4096), lists=1
)
ROW = Row(
    shape="listed", block=128, dtype="float16", head_dim=128, q_len=4096, k_len=4096,
    us=(("dense", ((1.0, 200.0),)), ("triton", ((0.1, 60.0), (0.5, 260.0))), ("sm90", ((0.1, 30.0), (0.5, 120.0)))),
)  # fmt: skip
NO_HURDLES = {"dense": "", "triton": "", "sm90": ""}


@pytest.mark.parametrize(
    ("changed", "backend", "said"),
    [
        ({"shape": "full", "share": 1.0}, "dense", "torch knows full attention by name"),
        ({"shape": "upper_left", "share": 0.5}, "dense", "torch knows causal attention by name"),
        ({}, "triton", "0.100 of the blocks are at most 0.3 (the careful rule for a GPU that was not measured)"),
        ({"share": 0.31}, "dense", "0.310 of the blocks are above 0.3"),
        ({"share": 0.5, "shape": "lower_right"}, "dense", "torch knows causal attention by name"),
        ({"share": 0.3, "shape": "lower_right", "dtype": torch.float32}, "triton", "at most 0.3"),
        ({"share": 0.3, "shape": "lower_right", "lengths": (4096, 100)}, "triton", "at most 0.3"),
        ({"share": 0.9, "lists": 1536}, "triton", "the mask as a tensor for torch would take 48.0 GiB, more than 2"),
        ({"shape": "full", "share": 1.0, "lists": 1536}, "dense", "by name"),
    ],
)  # fmt: skip
def test_the_careful_rule(changed: dict[str, object], backend: str, said: str) -> None:
    choice = by_rule(LISTED._replace(**changed), "")  # type: ignore[arg-type]
    assert choice.backend == backend
    assert said in choice.why


def test_where_the_sparse_kernel_cannot_run_dense_is_taken_and_says_so() -> None:
    choice = by_rule(LISTED, "triton is not installed")
    assert (choice.backend, choice.why) == ("dense", "triton is not installed")


@pytest.mark.parametrize(
    ("mask", "backend", "said"),
    [
        (None, "dense", "on the processor; torch knows full attention by name"),
        (BlockMask.causal(512, block=64), "dense", "torch knows causal attention by name"),
        (BlockMask.sink(512, keys=64, block=64), "reference", "on the processor, 0.125 of the blocks are at most 0.15"),
        (BlockMask.sink(512, keys=256, block=64), "dense", "0.500 of the blocks are above 0.15"),
    ],
)
def test_on_the_processor(mask: BlockMask | None, backend: str, said: str) -> None:
    q, k, _ = qkv(512, 512)
    choice = explain_attention(q, k, mask)
    assert choice.backend == backend
    assert said in choice.why


def test_the_explanation_is_of_the_dtype_that_autocast_makes_and_of_the_scale() -> None:
    q, k, _ = qkv(512, 512)
    mask = BlockMask.from_bool(torch.rand(512, 512) < 0.5)
    choose.forget_choices()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        explain_attention(q, k, mask)
    explain_attention(q.bfloat16(), k.bfloat16(), mask)
    assert choose._auto.cache_info().currsize == 1
    explain_attention(q.bfloat16(), k.bfloat16(), mask, scale=-1.0)
    assert choose._auto.cache_info().currsize == 2


def test_a_mask_too_large_for_torch_goes_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    choose.forget_choices()
    monkeypatch.setattr(choose, "MASK_BYTES", 1000)
    q, k, _ = qkv(512, 512)
    choice = explain_attention(q, k, BlockMask.sink(512, keys=256, block=64))
    assert choice.backend == "reference"
    assert "the mask as a tensor for torch would take" in choice.why
    choose.forget_choices()


def test_a_named_backend_is_taken_as_named() -> None:
    q, k, _ = qkv(70, 70)
    assert explain_attention(q, k, causal="lower_right", backend="reference").why == "it was asked for"


def test_head_dims_that_the_portable_kernels_do_not_take() -> None:
    assert "head dims of 16 to 256, not 320" in choose.why_not_triton(LISTED._replace(head_dim=320, device=-1))
    assert "not 8" in choose.why_not_triton(LISTED._replace(head_dim=8, device=-1))
    assert choose.why_not_triton(LISTED._replace(head_dim=96, device=-1)) == ""


@pytest.mark.parametrize(
    ("forward", "backward"),
    [("reference", "reference"), ("dense", "reference"), ("triton", "triton")],
)
def test_who_computes_the_gradients_on_the_processor(forward: str, backward: str) -> None:
    assert backward_of(forward, LISTED._replace(device=-1)) == backward


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Question]]:
    """A GPU whose rows name sm90, with triton and nothing in sm90's way; the questions that were asked of sm90."""
    asked: list[Question] = []

    def why_not(question: Question) -> str:
        asked.append(question)
        return "" if question.head_dim in (64, 128) else f"the head dimension is {question.head_dim}"

    monkeypatch.setattr(choose, "_why_not_sm90", why_not)
    monkeypatch.setattr(choose, "why_no_triton_here", lambda device, dtype: "")
    monkeypatch.setattr(choose, "_rows_of", lambda question: (ROW,))
    choose.forget_choices()
    yield asked
    choose.forget_choices()


@pytest.mark.parametrize(
    ("asked", "forward", "backward"),
    [
        ("auto", "sm90", "sm90"),
        ("sm90", "sm90", "sm90"),
        ("auto", "triton", "triton"),
        ("triton", "triton", "triton"),
        ("auto", "dense", "sm90"),
        ("dense", "dense", "triton"),
        ("reference", "reference", "reference"),
    ],
)
def test_who_computes_the_gradients_on_a_gpu_where_sm90_was_measured(
    hopper: list[Question], asked: str, forward: str, backward: str
) -> None:
    assert backward_of(forward, LISTED, asked=asked) == backward


@pytest.mark.parametrize(
    "changed",
    [{"block": 64}, {"positive": False}, {"head_dim": 96}],
    ids=["blocks of 64", "a scale of 0 or less", "a head dimension that sm90 does not take"],
)
def test_gradients_behind_torch_that_sm90_has_no_kernel_for_are_tritons(
    hopper: list[Question], changed: dict[str, Any]
) -> None:
    assert backward_of("dense", LISTED._replace(**changed)) == "triton"


def test_gradients_behind_torch_are_tritons_where_sm90_was_not_measured(
    hopper: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows_here in ((), (dataclasses.replace(ROW, us=ROW.us[:2]),)):
        choose.forget_choices()
        monkeypatch.setattr(choose, "_rows_of", lambda question, found=rows_here: found)
        assert backward_of("dense", LISTED) == "triton"
    assert hopper == []  # it is not even looked for
    assert backward_of("sm90", LISTED, asked="sm90") == "sm90"


def test_without_triton_sm90s_gradients_are_the_references(
    hopper: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "why_no_triton_here", lambda device, dtype: "triton is not installed")
    assert {backward_of(name, LISTED) for name in ("sm90", "dense")} == {"reference"}


def test_who_computes_gradients_behind_torch_is_found_once_until_choices_are_forgotten(hopper: list[Question]) -> None:
    for _ in range(3):
        backward_of("dense", LISTED)
    assert len(hopper) == 1
    choose.forget_choices()
    backward_of("dense", LISTED)
    assert len(hopper) == 2


def test_the_block_of_sm90s_gradients_is_the_one_that_its_kernel_is_built_for() -> None:
    from firstlight.kernels.sm90.attention_variants import GRADIENT_BLOCK

    assert choose.SM90_GRADIENT_BLOCK == GRADIENT_BLOCK


@pytest.mark.parametrize(
    ("share", "hurdles", "backend"),
    [
        (0.1, NO_HURDLES, "sm90"),
        (0.1, {**NO_HURDLES, "sm90": "compute capability is 8.0"}, "triton"),
        (0.45, {"dense": "", "triton": ""}, "dense"),
        (0.9, NO_HURDLES, "dense"),  # beyond what was measured no time is guessed
        (0.01, NO_HURDLES, "sm90"),
    ],
)
def test_measured_rows_replace_the_rule(share: float, hurdles: dict[str, str], backend: str) -> None:
    choice = by_rows((ROW,), LISTED._replace(share=share), hurdles)
    assert choice is not None
    assert choice.backend == backend
    assert "measured at 4096 x 4096" in choice.why


def test_rows_do_not_talk_auto_into_a_huge_mask_tensor() -> None:
    choice = by_rows((ROW,), LISTED._replace(share=0.45, lists=1536), {"dense": "", "triton": ""})
    assert choice is not None
    assert choice.backend == "triton"


def test_rows_of_another_kind_or_far_away_do_not_count() -> None:
    assert by_rows((ROW,), LISTED._replace(head_dim=64), NO_HURDLES) is None
    assert by_rows((ROW,), LISTED._replace(lengths=(64, 64)), NO_HURDLES) is None
    assert by_rows((), LISTED, NO_HURDLES) is None
    assert by_rows((ROW,), LISTED._replace(dtype=torch.bfloat16), NO_HURDLES) is not None  # at the same rate


def test_the_nearest_lengths_are_taken_and_times_lie_between_the_measured_ones() -> None:
    longer = Row("listed", 128, "float16", 128, 8192, 8192, ROW.us)
    wanted = Row("listed", 128, "float16", 128, 7000, 7000, ())
    assert nearest((ROW, longer), wanted) is longer
    times = times_at(ROW, 0.3)
    assert times["dense"] == 200.0
    assert times["triton"] == pytest.approx(160.0)
    assert times["sm90"] == pytest.approx(75.0)


def test_a_causal_mask_shorter_than_the_measured_one_goes_by_its_row() -> None:
    row = Row("upper_left", 128, "float32", 32, 512, 512, (("dense", ((0.625, 9.0),)), ("sm90", ((0.625, 5.0),))))
    for length in (300, 512, 700):
        q, k, _ = qkv(length, length)
        asked = [choose.question_of(q, seen_by(q, k, BlockMask.causal(length), ""))]
        asked += [choose.question_of(q, seen_by(q, k, None, "upper_left"))]
        assert asked[0] == asked[1]
        choice = by_rows((row,), asked[0], NO_HURDLES)
        assert choice is not None
        assert choice.backend == "sm90"


def test_rows_are_read_from_the_shipped_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "shape": "upper_left", "block": 128, "dtype": "float16", "head_dim": 128, "q_len": 4096, "k_len": 4096,
        "us": {"dense": [[1.0, 12740.0]], "sm90": [[1.0, 11890.0]]},
    }  # fmt: skip
    path = tmp_path / "attention.json"
    path.write_text(json.dumps({"schema": rows.SCHEMA, "machines": [{"gpu": "NVIDIA H200", "rows": [row]}]}))
    monkeypatch.setattr(rows, "SHIPPED", path)
    choose.forget_choices()
    assert rows.rows_for("NVIDIA A100") == ()
    found = rows.rows_for("NVIDIA H200")
    choice = by_rows(found, LISTED._replace(shape="upper_left", share=0.5), NO_HURDLES)
    assert choice is not None
    assert choice.backend == "sm90"
    choose.forget_choices()


def test_the_file_that_ships_is_well_formed() -> None:
    if rows.SHIPPED.exists():  # it comes with the first measurements
        assert rows.parsed(rows.SHIPPED.read_text(), "attention.json")


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "other/1"}', '{"schema": "firstlight.attention/1"}'])
def test_a_broken_file_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"^here"):
        rows.parsed(text, "here.json")
