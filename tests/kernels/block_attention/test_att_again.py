"""The second call of a kind takes what the first one found: the results, the checks and the layouts stay the same."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask, CopiedInput, attention
from firstlight.kernels.block_attention import again, choose
from firstlight.kernels.block_attention.triton import calls
from tests.kernels.block_attention.att_cases import Causal, assert_attends, attended, both, qkv

LENGTH = 140


def mask_of_blocks() -> BlockMask:
    kept = torch.tensor([[True, False, True], [True, True, False], [False, True, True]])[None, None]
    return BlockMask.from_bool(kept, block_level=True, q_len=LENGTH, k_len=LENGTH, block=64)


def windowed() -> BlockMask:
    return BlockMask.window(LENGTH, left=30, right=5, block=64)


def wanting() -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v that want gradients."""
    q, k, v = qkv(LENGTH, LENGTH)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends chosen from now on: one for each call that goes the long way."""
    seen: list[str] = []
    asked = choose.answered

    def noted(name: str, question: choose.Question) -> object:
        seen.append(name)
        return asked(name, question)

    monkeypatch.setattr(choose, "answered", noted)
    return seen


@pytest.mark.parametrize("causal", ["upper_left", "lower_right", False])
@pytest.mark.parametrize("backend", ["auto", "dense", "reference"])
def test_later_calls_choose_nothing_and_give_the_same(
    backend: str, causal: Causal, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, masks = qkv(LENGTH, LENGTH), (mask_of_blocks(), windowed(), None)
    choose.forget_choices()
    first = [both(*given, mask, causal=causal, backend=backend) for mask in masks]
    seen = long_ways(monkeypatch)
    for mask, (out, lse) in zip(masks, first, strict=True):
        later = both(*given, mask, causal=causal, backend=backend)
        assert torch.equal(later[0], out)
        assert torch.equal(later[1], lse)
        assert later[0].stride() == out.stride()
    assert seen == []


def test_a_mask_changed_in_place_is_chosen_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    given, mask = qkv(LENGTH, LENGTH), mask_of_blocks()
    both(*given, mask, backend="reference")
    seen = long_ways(monkeypatch)
    mask.kinds.zero_()
    out, lse = both(*given, mask, backend="reference")
    assert seen == ["reference"]
    assert torch.equal(out, torch.zeros_like(out))
    assert bool((lse == -torch.inf).all())


def test_what_was_forgotten_is_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    given, mask = qkv(LENGTH, LENGTH), mask_of_blocks()
    both(*given, mask)
    choose.forget_choices()
    seen = long_ways(monkeypatch)
    both(*given, mask)
    assert seen == ["auto"]


def test_a_call_that_resembles_a_good_one_is_refused_as_ever() -> None:
    (q, k, v), mask = qkv(LENGTH, LENGTH), mask_of_blocks()
    for _ in range(2):
        attention(q, k, v, mask, causal=True, scale=1.0, backend="reference")
    for changed, said in (
        ({"scale": True}, "scale is True"),
        ({"scale": [1.0]}, r"scale is \[1.0\]"),
        ({"causal": 1}, "causal is 1"),
        ({"backend": ["reference"]}, r"backend is \['reference'\]"),
        ({"backend": "sm90"}, "on the processor"),
        ({"dropout_p": 0.5}, "dropout_p is 0.5"),
        ({"mask": q}, "mask is a Tensor"),
    ):
        with pytest.raises(UnsupportedInput, match=said):
            attention(**({"q": q, "k": k, "v": v, "mask": mask, "causal": True, "scale": 1.0} | changed))  # type: ignore[call-overload]
    for wrong in (v.half(), v[:, :, 1:], v[..., 1:], v[0], v.to("meta")):
        with pytest.raises(UnsupportedInput):
            attention(q, k, wrong, mask, causal=True, scale=1.0, backend="reference")


def test_a_tensor_that_starts_elsewhere_is_copied_with_the_warning() -> None:
    (q, k, v), mask = qkv(LENGTH, LENGTH), mask_of_blocks()
    wanted = both(q, k, v, mask, backend="reference")
    shifted = torch.cat([q.flatten()[:1], q.flatten()])[1:].view(q.shape)
    with pytest.warns(CopiedInput, match="first element"):
        found = both(shifted, k, v, mask, backend="reference")
    assert torch.equal(found[0], wanted[0])


def test_outputs_lie_as_q_does() -> None:
    q, k, v = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in qkv(LENGTH, LENGTH))
    mask = mask_of_blocks()
    for _ in range(2):
        out = attention(q, k, v, mask, backend="reference")
        assert out.stride() == q.stride()
        assert_attends(both(q, k, v, mask, backend="reference"), attended(q, k, v, mask.to_bool()))


def test_inference_mode_gives_inference_tensors_and_later_calls_ordinary_ones() -> None:
    given, mask = qkv(LENGTH, LENGTH), mask_of_blocks()
    for _ in range(2):
        with torch.inference_mode():
            assert attention(*given, mask, backend="reference").is_inference()
        assert not attention(*given, mask, backend="reference").is_inference()


def test_what_is_kept_holds_no_mask() -> None:
    given, mask = wanting(), mask_of_blocks()
    gc.disable()
    try:
        for _ in range(2):
            torch.autograd.backward(attention(*given, mask, causal=True, backend="reference").sum())
            torch.autograd.backward(attention(*given, mask, backend="reference").sum())
        gone = weakref.ref(mask)
        del mask
        assert gone() is None
    finally:
        gc.enable()


def test_calls_without_a_mask_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MOST_CALLS", 4)
    for length in range(1, 12):
        both(*qkv(length, length), backend="reference")
        assert len(again._UNMASKED) <= 4


@pytest.mark.parametrize("times", [1, 2])
def test_gradients_of_later_calls_and_their_derivatives(times: int) -> None:
    q, k, v = (one.double().requires_grad_() for one in qkv(70, 70, batch=1, heads=(1, 1), dim=4))
    mask = BlockMask.window(70, left=10, block=64)

    def called(*given: Tensor) -> Tensor:
        q, k, v = given
        for _ in range(times - 1):
            attention(q, k, v, mask, backend="reference")
        return attention(q, k, v, mask, backend="reference")

    assert torch.autograd.gradcheck(called, (q, k, v), fast_mode=True)
    assert torch.autograd.gradgradcheck(called, (q, k, v), fast_mode=True)


def test_a_mask_changed_between_the_passes_is_complained_of() -> None:
    given, mask = wanting(), mask_of_blocks()
    for _ in range(2):
        out = attention(*given, mask, backend="reference")
    mask.kinds.fill_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(out.sum())


def test_gradients_go_to_those_who_want_them_and_once_unless_kept() -> None:
    q, k, v = qkv(LENGTH, LENGTH)
    k.requires_grad_()
    for _ in range(2):
        out = attention(q, k, v, mask_of_blocks(), backend="reference")
        torch.autograd.backward(out.sum())
        assert k.grad is not None
        assert q.grad is None
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.backward(out.sum())


def test_a_tangent_of_a_gradient_is_not_dropped() -> None:
    given, mask = wanting(), mask_of_blocks()
    out = attention(*given, mask, backend="reference")
    with forward_ad.dual_level():
        grad = forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out))  # type: ignore[no-untyped-call]
        with pytest.raises(NotImplementedError, match="jvp"):
            torch.autograd.backward(out, grad)


def test_launches_are_kept_by_their_key_until_another_tile_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, made = mask_of_blocks(), []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [calls.kept_with(mask, "one", make) for _ in range(3)] == [1, 1, 1]
    assert calls.kept_with(mask, "another", make) == 2
    monkeypatch.setattr(calls, "_taken", calls._taken + 1)
    assert calls.kept_with(mask, "one", make) == 3
    mask.kinds.zero_()
    assert calls.kept_with(mask, "one", make) == 4
