"""Sequences of different lengths in one call: each is as if it had been called alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import (
    BlockMask,
    BlockSparseLinear,
    BlockSparseMatrix,
    GatedBlockSparseLinear,
    attention,
    gated_linear,
    linear,
    ragged_attention,
)
from firstlight.kernels import ragged as module

LENGTHS = (130, 1, 300, 64)
Three = tuple[Tensor, Tensor, Tensor]
OFFSETS = torch.tensor([0, 130, 131, 431, 495], dtype=torch.int32)
KEYS = torch.tensor([0, 200, 201, 490, 700])


def tensors(offsets_k: Tensor = OFFSETS) -> Three:
    random = torch.Generator().manual_seed(7)

    def normal(offsets: Tensor, heads: int) -> Tensor:
        return torch.randn(int(offsets[-1]), heads, 16, dtype=torch.float64, generator=random).requires_grad_()

    return normal(OFFSETS, 4), normal(offsets_k, 2), normal(offsets_k, 2)


def each(change: Callable[[Tensor], Tensor], given: Three) -> Three:
    q, k, v = given
    return change(q), change(k), change(v)


def alone(tensor: Tensor, first: int, end: int) -> Tensor:
    """[1, heads, tokens, head dim] of one sequence."""
    return tensor[first:end].transpose(0, 1)[None]


def one_by_one(given: Three, offsets_k: Tensor = OFFSETS, **asked: Any) -> tuple[Tensor, Tensor]:
    outs, sums = [], []
    pairs = (zip(some[:-1].tolist(), some[1:].tolist(), strict=True) for some in (OFFSETS, offsets_k))
    for (first_q, end_q), (first_k, end_k) in zip(*pairs, strict=True):
        q, k, v = alone(given[0], first_q, end_q), alone(given[1], first_k, end_k), alone(given[2], first_k, end_k)
        out, lse = attention(q, k, v, return_lse=True, backend="reference", **asked)
        outs.append(out[0].transpose(0, 1))
        sums.append(lse[0])
    return torch.cat(outs), torch.cat(sums, 1)


@pytest.mark.parametrize("backend", ["auto", "dense", "reference"])
@pytest.mark.parametrize("causal", [False, True, "lower_right"])
@pytest.mark.parametrize("offsets_k", [None, KEYS], ids=["as many keys", "more keys"])
def test_every_sequence_is_as_if_alone(backend: str, causal: Any, offsets_k: Tensor | None) -> None:
    given = tensors(OFFSETS if offsets_k is None else offsets_k)
    wanted, wanted_lse = one_by_one(given, OFFSETS if offsets_k is None else offsets_k, causal=causal)
    out, lse = ragged_attention(*given, OFFSETS, offsets_k, causal=causal, return_lse=True, backend=backend)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(lse, wanted_lse)
    grad = torch.randn_like(out)
    for one, other in zip(torch.autograd.grad(out, given, grad), torch.autograd.grad(wanted, given, grad), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(ragged_attention(*given, OFFSETS, offsets_k, causal=causal, backend=backend), wanted)


def test_a_window_and_a_scale_count_within_the_sequence() -> None:
    given = tensors()
    windows = [BlockMask.window(length, left=20) for length in LENGTHS]
    whole = BlockMask.packed(OFFSETS, masks=windows)
    out = ragged_attention(*given, OFFSETS, causal=True, left=20, scale=0.3)
    torch.testing.assert_close(out, ragged_attention(*given, mask=whole, scale=0.3))
    first = attention(*each(lambda tensor: alone(tensor, 0, 130), given), windows[0], scale=0.3)
    torch.testing.assert_close(out[:130], first[0].transpose(0, 1))


def test_what_one_sequence_holds_changes_no_other() -> None:
    given = each(lambda tensor: tensor.detach().clone(), tensors())
    before = ragged_attention(*given, OFFSETS, causal=True, backend="reference")
    for tensor in given:
        tensor[131:431] = 1e4
    after = ragged_attention(*given, OFFSETS, causal=True, backend="reference")
    assert torch.equal(before[:131], after[:131])
    assert torch.equal(before[431:], after[431:])


def test_the_mask_is_kept_while_the_offsets_are_the_same() -> None:
    given, offsets = tensors(), OFFSETS.clone()
    ragged_attention(*given, offsets)
    kept = module._MASKS.get(offsets, offsets, ("", None))
    ragged_attention(*given, offsets)
    assert module._MASKS.get(offsets, offsets, ("", None)) is kept
    offsets[1] = 129
    changed = ragged_attention(*given, offsets, backend="reference")
    assert torch.equal(changed, ragged_attention(*given, offsets.clone(), backend="reference"))
    many = len(module._MASKS)
    del offsets
    gc.collect()
    assert len(module._MASKS) < many


def jagged(given: Three, offsets_k: Tensor = OFFSETS) -> Three:
    made = torch.nested.nested_tensor_from_jagged
    q, k, v = made(given[0], OFFSETS), made(given[1], offsets_k), made(given[2], offsets_k)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def tokens(nested: Tensor) -> Tensor:
    found: Tensor = nested.values() if nested.dim() == 3 else nested.transpose(1, 2).values()
    return found


@pytest.mark.parametrize("offsets_k", [OFFSETS, KEYS.int()], ids=["as many keys", "more keys"])
def test_jagged_tensors_bring_their_offsets(offsets_k: Tensor) -> None:
    given = tensors(offsets_k)
    nested = jagged(given, offsets_k)
    wanted, wanted_lse = ragged_attention(*given, OFFSETS, offsets_k, causal=True, return_lse=True)
    out, lse = attention(*nested, causal=True, return_lse=True)
    assert out.shape == nested[0].shape
    torch.testing.assert_close(tokens(out), wanted)
    torch.testing.assert_close(tokens(lse.transpose(1, 2)), wanted_lse.mT)
    grad = torch.randn_like(wanted)
    made = torch.autograd.grad(tokens(out), given, grad)
    for one, other in zip(made, torch.autograd.grad(wanted, given, grad), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(tokens(out + nested[0]), wanted + given[0])


def test_jagged_tensors_with_a_mask_of_all_tokens() -> None:
    given = tensors()
    mask = BlockMask.packed(OFFSETS, causal=True, left=9)
    out = attention(*jagged(given), mask)
    torch.testing.assert_close(tokens(out), ragged_attention(*given, OFFSETS, causal=True, left=9))


def test_it_is_torchs_own_attention_of_jagged_tensors() -> None:
    q, k, v = each(lambda tensor: tensor.detach().float(), tensors())
    nested = jagged((q[:, :2].contiguous(), k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(*nested)
    pairs = zip(attention(*nested).unbind(), wanted.unbind(), strict=True)
    for one, right in pairs:
        torch.testing.assert_close(one, right, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_products_take_jagged_tokens_as_they_lie(activation: str | None) -> None:
    weight = BlockSparseMatrix.from_dense(torch.randn(64, 32), block=32).requires_grad_()
    x = torch.randn(int(OFFSETS[-1]), 32, requires_grad=True)
    nested = torch.nested.nested_tensor_from_jagged(x, OFFSETS)
    bias = torch.randn(64)
    made = linear(nested, weight, bias, activation=activation)
    wanted = linear(x, weight, bias, activation=activation)
    assert made.shape[1] == nested.shape[1]
    torch.testing.assert_close(tokens(made), wanted)
    leaves = (x, weight.values)
    for one, other in zip(
        torch.autograd.grad(tokens(made).sum(), leaves), torch.autograd.grad(wanted.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_gated_products_and_layers_do_too() -> None:
    first, gate = (BlockSparseMatrix.from_dense(torch.randn(64, 32), block=32) for _ in range(2))
    x = torch.randn(int(OFFSETS[-1]), 32)
    nested = torch.nested.nested_tensor_from_jagged(x, OFFSETS)
    torch.testing.assert_close(tokens(gated_linear(nested, first, gate)), gated_linear(x, first, gate))
    layers = [BlockSparseLinear(weight, torch.randn(64)) for weight in (first, gate)]
    for layer in (layers[0], GatedBlockSparseLinear(*layers)):
        torch.testing.assert_close(tokens(layer(nested)), layer(x))


def test_compiled_code_takes_a_mask_made_outside() -> None:
    given = each(Tensor.detach, tensors())
    mask = BlockMask.packed(OFFSETS, causal=True)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made: Tensor = ragged_attention(q, k, v, mask=mask)
        return made

    torch.testing.assert_close(attend(*given), ragged_attention(*given, OFFSETS, causal=True))


def refused() -> list[tuple[Three, dict[str, Any], str]]:
    plain = each(Tensor.detach, tensors())
    nested = jagged(plain)
    other = torch.nested.nested_tensor_from_jagged(plain[2], torch.tensor([0, 1, 2, 3, 495])).transpose(1, 2)
    mask = BlockMask.packed(OFFSETS)
    return [
        (plain, {}, "neither offsets_q nor mask is given"),
        (plain, {"offsets_q": OFFSETS[:-1]}, "q has 495 tokens and its offsets end at 431"),
        (plain, {"offsets_q": OFFSETS, "offsets_k": KEYS}, "k has 495 tokens and its offsets end at 700"),
        (plain, {"offsets_q": OFFSETS, "mask": mask}, "mask is given, and offsets"),
        (plain, {"mask": mask, "causal": True}, "mask is given, and offsets"),
        (plain, {"offsets_q": [0, 495]}, "offsets_q is a list"),
        (
            each(lambda tensor: tensor[None], plain),
            {"offsets_q": OFFSETS},
            r"q has shape \[1, 495, 4, 16\]; \[tokens, heads",
        ),
        ((nested[0], *plain[1:]), {}, "k is a Tensor.* and others are nested"),
        (nested, {"offsets_q": OFFSETS}, "Leave offsets out"),
        (each(lambda tensor: tensor.transpose(1, 2), nested), {}, r"lengths in dimension 1.*\.transpose\(1, 2\)"),
        ((*nested[:2], other), {}, "k and v have other lengths"),
    ]


@pytest.mark.parametrize("number", range(len(refused())))
def test_what_is_not_taken_is_said_with_what_is(number: int) -> None:
    given, asked, words = refused()[number]
    with pytest.raises(UnsupportedInput, match=words):
        ragged_attention(*given, **asked)


def test_nested_tensors_of_other_forms_are_refused() -> None:
    weight = BlockSparseMatrix.from_dense(torch.randn(64, 32), block=32)
    older = torch.nested.nested_tensor([torch.randn(3, 32), torch.randn(2, 32)], layout=torch.strided)
    with pytest.raises(UnsupportedInput, match=r"x is a nested tensor of layout torch\.strided; torch\.jagged"):
        linear(older, weight)
    with pytest.raises(UnsupportedInput, match=r"q is a nested tensor of layout torch\.strided"):
        attention(older, older, older)
    starts, lengths = torch.tensor([0, 1]), torch.tensor([3, 4])
    holes = torch.nested.narrow(torch.randn(2, 6, 32), 1, starts, lengths, layout=torch.jagged)
    with pytest.raises(UnsupportedInput, match=r"x leaves tokens out.*x\.contiguous\(\)"):
        linear(holes, weight)
    assert tokens(linear(holes.contiguous(), weight)).shape == (7, 64)
