"""Which backend is taken, by rule and by measurement, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from firstlight.kernels.block_attention import choose
from firstlight.kernels.block_attention.choose import Question, backward_of, by_models, by_rule
from firstlight.kernels.block_attention.functions import explain_attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import seen_by
from firstlight.kernels.choice.answer import Choice
from firstlight.kernels.choice.models import Models
from tests.kernels.block_attention.att_cases import qkv
from tests.kernels.choice.measured import H100, H200, shipped_machine

LISTED = Question(
    device=0, dtype=torch.float16, head_dim=128, shape="listed", block=128, share=0.1, lengths=(4096, 4096), lists=1,
    heads=(2, 16, 16),
)  # fmt: skip
NO_HURDLES = {"dense": "", "triton": "", "sm90": ""}


@pytest.mark.parametrize(
    ("changed", "backend", "said"),
    [
        ({"shape": "full", "share": 1.0}, "dense", "torch knows full attention by name"),
        ({"shape": "upper_left", "share": 0.5}, "dense", "torch knows causal attention by name"),
        ({}, "triton", "up to 0.100 of the blocks, at most 0.3 (the careful rule for a GPU that was not measured)"),
        ({"share": 0.31}, "dense", "up to 0.310 of the blocks, more than 0.3"),
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
        (
            BlockMask.sink(512, keys=64, block=64),
            "reference",
            "on the processor, up to 0.125 of the blocks, at most 0.15",
        ),
        (BlockMask.sink(512, keys=256, block=64), "dense", "up to 0.500 of the blocks, more than 0.15"),
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


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(H200, shipped_machine())


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, models: Models) -> Iterator[list[Question]]:
    """A measured Hopper with triton and nothing in sm90's way; the questions that were asked of sm90."""
    asked: list[Question] = []

    def why_not(name: str, question: Question) -> str:
        asked.append(question)
        return "" if question.head_dim in (64, 128) else f"the head dimension is {question.head_dim}"

    monkeypatch.setattr(choose, "_why_not_arch", why_not)
    monkeypatch.setattr(choose, "why_no_triton_here", lambda device, dtype: "")
    monkeypatch.setattr(choose, "_models", lambda question: models)
    choose.forget_choices()
    yield asked
    choose.forget_choices()


@pytest.mark.parametrize(
    ("asked", "forward", "backward"),
    [
        ("auto", "sm90", "sm90"),
        ("sm90", "sm90", "sm90"),
        ("auto", "triton", "sm90"),
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
    [{"positive": False}, {"head_dim": 96}],
    ids=["a scale of 0 or less", "a head dimension that sm90 does not take"],
)
def test_gradients_behind_torch_that_sm90_has_no_kernel_for_are_tritons(
    hopper: list[Question], changed: dict[str, Any]
) -> None:
    assert backward_of("dense", LISTED._replace(**changed)) == "triton"


def test_gradients_are_tritons_on_a_gpu_that_nothing_is_known_of(
    hopper: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "_models", lambda question: "it was not measured")
    assert {backward_of(name, LISTED) for name in ("dense", "triton", "sm90")} == {"triton"}
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


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("lists of each head at 0.5", {"share": 0.5, "lists": 64, "heads": (2, 32, 32), "lengths": (8192, 8192)}),
        ("a 3-D window of a video", {"share": 0.24, "heads": (1, 24, 24), "lengths": (11700, 11700), "is_cut": True}),
        ("a window at 65536", {"share": 0.0176, "heads": (1, 8, 8), "lengths": (65536, 65536), "is_cut": True}),
        ("head dim 64", {"share": 0.3, "head_dim": 64, "heads": (4, 48, 48)}),
        ("a prefill tail in a window", {"share": 0.23, "lengths": (2048, 18432), "heads": (1, 32, 8), "is_cut": True}),
        ("a window of 200 at 900", {"share": 0.31, "lengths": (900, 900), "heads": (2, 16, 16), "is_cut": True}),
    ],
)  # fmt: skip
def test_what_sm90_was_measured_to_be_fastest_at_goes_to_it(models: Models, what: str, changed: dict[str, Any]) -> None:
    choice = settled(models, **changed)
    assert choice.backend == "sm90", what
    assert "rows measured on NVIDIA H200, half of which it meets within" in choice.why


def settled(models: Models, hurdles: dict[str, str] = NO_HURDLES, **changed: Any) -> Choice:
    found = by_models(models, LISTED._replace(**changed), hurdles)
    assert found is not None
    return found.settled


def test_a_kernel_with_a_hurdle_is_not_taken(models: Models) -> None:
    choice = settled(models, {**NO_HURDLES, "sm90": "compute capability is 8.0"})
    assert choice.backend == "triton"
    assert "sm90" not in choice.why


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("shape", ["full", "listed", "upper_left", "lower_right"])
@pytest.mark.parametrize(("heads", "lengths"), [((0, 4, 4), (256, 256)), ((1, 4, 4), (0, 256)), ((0, 0, 0), (0, 0))])
def test_an_empty_call_is_chosen_for_too(models: Models, shape: str, heads: Any, lengths: Any, recorded: Any) -> None:
    choice = settled(models, shape=shape, heads=heads, lengths=lengths, recorded=recorded)
    assert choice.backend in NO_HURDLES


def test_decoding_one_query_over_all_keys_is_torchs(models: Models) -> None:
    asked: dict[str, Any] = {"shape": "full", "share": 1.0, "lengths": (1, 8192), "heads": (32, 32, 8)}
    assert settled(models, **asked).backend == "dense"


def test_a_huge_mask_tensor_is_not_made_for_dense(models: Models) -> None:
    choice = settled(models, share=0.95, lists=1536, heads=(16, 96, 96))
    assert choice.backend != "dense"
    assert "dense" not in choice.why


def test_with_gradients_both_passes_count(models: Models) -> None:
    alone, both = (settled(models, recorded=recorded).why for recorded in (False, True))
    times = [float(why.split("sm90 ")[1].split(" us")[0]) for why in (alone, both)]
    assert times[1] > 2 * times[0]


def test_borrowed_rows_say_so(models: Models) -> None:
    choice = settled(Models(H100, shipped_machine()))
    assert choice.backend == "sm90"
    assert "borrowed rows of NVIDIA H200, scaled to NVIDIA H100 80GB HBM3" in choice.why


def test_what_was_not_measured_at_all_goes_by_the_rule(models: Models) -> None:
    assert by_models(models, LISTED._replace(precision="float64"), NO_HURDLES) is None


def test_a_causal_mask_and_causal_by_name_are_one_question() -> None:
    for length in (300, 512, 700):
        q, k, _ = qkv(length, length)
        asked = [choose.question_of(q, seen_by(q, k, BlockMask.causal(length), ""))]
        asked += [choose.question_of(q, seen_by(q, k, None, "upper_left"))]
        assert asked[0] == asked[1]


def test_the_first_two_calls_with_a_mask_are_new_and_calls_without_one_never(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, _ = qkv(256, 256)
    seen = seen_by(q, k, BlockMask.window(256, left=64, block=64), "")
    assert [seen.is_new() for _ in range(4)] == [True, True, False, False]
    assert not seen_by(q, k, None, "upper_left").is_new()


def test_a_call_that_is_not_settled_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstlight.kernels.block_attention.functions import attention
    from firstlight.kernels.choice.answer import Answer

    taken: list[str] = []
    found = Answer(Choice("dense", "the fastest"), Choice("reference", "nothing to prepare"))
    behind = choose.backward_of

    def noted(backend: str, question: Question, *, asked: str = "auto") -> str:
        taken.append(backend)
        return behind(backend, question, asked=asked)

    monkeypatch.setattr(choose, "answered", lambda name, question: found)
    monkeypatch.setattr(choose, "backward_of", noted)
    q, k, v = qkv(256, 256)
    mask = BlockMask.window(256, left=64, block=64)
    outs = [attention(q, k, v, mask) for _ in range(5)]
    assert taken == ["reference", "reference", "dense"]  # the fourth and fifth take what the third left
    for out in outs[1:]:
        torch.testing.assert_close(out, outs[0], rtol=1e-4, atol=1e-5)
