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
    explain_attention,
    gated_linear,
    linear,
    matmul,
    merge_attention,
    ragged_attention,
    sampled_matmul,
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
    before = ragged_attention(*given, offsets, backend="reference")
    kept = module._MASKS.get(offsets, offsets, ("", None))
    ragged_attention(*given, offsets)
    assert module._MASKS.get(offsets, offsets, ("", None)) is kept
    offsets[1] = 129
    changed = ragged_attention(*given, offsets, backend="reference")
    assert torch.equal(changed, ragged_attention(*given, offsets.clone(), backend="reference"))
    assert not torch.equal(changed, before)
    many = len(module._MASKS)
    del offsets
    gc.collect()
    assert len(module._MASKS) < many


def change_by_another_library(offsets: Tensor, wanted: Tensor) -> None:
    offsets.numpy()[:] = wanted.numpy()


def change_under_the_tensor(offsets: Tensor, wanted: Tensor) -> None:
    offsets.data = wanted


def change_in_place(offsets: Tensor, wanted: Tensor) -> None:
    offsets.copy_(wanted)


@pytest.mark.parametrize("change", [change_by_another_library, change_under_the_tensor, change_in_place])
@pytest.mark.parametrize("inference", [False, True], ids=["counting", "of inference mode"])
def test_offsets_that_changed_uncounted_are_noticed(
    change: Callable[[Tensor, Tensor], None], inference: bool,  # noqa: FBT001 pytest gives it
) -> None:  # fmt: skip
    given, other = each(Tensor.detach, tensors()), torch.tensor([0, 1, 430, 431, 495], dtype=torch.int32)
    with torch.inference_mode(mode=inference):
        offsets = OFFSETS.clone()
        first = ragged_attention(*given, offsets, causal=True)
        kept = module._MASKS.get(offsets, offsets, ("upper_left", None))
        ragged_attention(*given, offsets, causal=True)
        assert kept is not None
        assert module._MASKS.get(offsets, offsets, ("upper_left", None)) is kept
        change(offsets, other)
        changed = ragged_attention(*given, offsets, causal=True)
    assert not torch.equal(changed, first)
    torch.testing.assert_close(changed, ragged_attention(*given, other, causal=True))


def test_a_mask_made_under_torch_func_serves_later_calls() -> None:
    given, offsets = each(Tensor.detach, tensors()), OFFSETS.clone()
    q, k, v = given
    torch.func.grad(lambda each: ragged_attention(each, k, v, offsets, causal=True).sum())(q)
    assert module._MASKS.get(offsets, offsets, ("upper_left", None)) is not None
    torch.testing.assert_close(
        ragged_attention(*given, offsets, causal=True), ragged_attention(*given, OFFSETS.clone(), causal=True)
    )


@pytest.mark.parametrize(
    ("starts_q", "starts_k"), [([0, 0, 0], None), ([0], None), ([0, 5, 12], [0, 0, 0]), ([0, 0], [0, 9])]
)
def test_there_may_be_no_queries_or_no_keys_at_all(starts_q: list[int], starts_k: list[int] | None) -> None:
    """As on the one rank of many whose share of a batch is empty: backward passes have to go through."""
    starts_k = starts_q if starts_k is None else starts_k
    q = torch.randn(starts_q[-1], 4, 16, requires_grad=True)
    k, v = (torch.randn(starts_k[-1], 2, 16, requires_grad=True) for _ in range(2))
    offsets = torch.tensor(starts_q), torch.tensor(starts_k)
    out, lse = ragged_attention(q, k, v, *offsets, causal="lower_right", return_lse=True)
    assert out.shape == q.shape
    assert not out.any()
    assert lse.shape == (4, q.shape[0])
    assert bool((lse == -torch.inf).all())
    for found, given in zip(torch.autograd.grad(out.sum(), (q, k, v)), (q, k, v), strict=True):
        assert found.shape == given.shape
        assert not found.any()
    if starts_q == starts_k:
        nested = [torch.nested.nested_tensor_from_jagged(x, offsets[0]).transpose(1, 2) for x in (q, k, v)]
        assert tokens(attention(nested[0], nested[1], nested[2])).shape == q.shape
    longer = torch.tensor([0] * (len(starts_q) - 1) + [starts_q[-1] + 3])
    with pytest.raises(UnsupportedInput, match=r"q has|begin with 0"):
        ragged_attention(q, k, v, longer, offsets[1])


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


def test_jagged_results_over_two_sets_of_keys_are_put_together() -> None:
    q, k, v = tensors()
    q_nested, k_nested, v_nested = jagged((q, k, v))
    far = jagged(tensors(KEYS), KEYS)
    parts = [attention(q_nested, *kv, return_lse=True) for kv in ((k_nested, v_nested), far[1:])]
    out, lse = merge_attention(parts)
    plain = merge_attention([(tokens(one), tokens(log.transpose(1, 2))) for one, log in parts])
    assert out.shape == q_nested.shape
    torch.testing.assert_close(tokens(out), plain[0])
    torch.testing.assert_close(tokens(lse.transpose(1, 2)), plain[1])


def test_what_is_explained_of_jagged_tensors_is_what_is_computed() -> None:
    nested = jagged(each(Tensor.detach, tensors()))
    mask = BlockMask.packed(OFFSETS, causal=True)
    q, k, _ = (x.detach().transpose(0, 1)[None] for x in tensors())
    wanted = explain_attention(q, k, mask)
    assert explain_attention(*nested[:2], causal=True) == wanted
    assert explain_attention(*nested[:2], mask, v=nested[2]) == wanted


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


def test_compiled_code_takes_jagged_tensors_in_one_graph_whatever_their_lengths() -> None:
    torch.manual_seed(0)
    layer = BlockSparseLinear(BlockSparseMatrix.from_dense(torch.randn(32, 32) / 6, block=32), torch.randn(32))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def attend(x: Tensor, mask: BlockMask) -> Tensor:
        heads = layer(x).unflatten(-1, [2, 16]).transpose(1, 2)
        made: Tensor = attention(heads, heads, heads, mask).transpose(1, 2).flatten(-2)
        return x + made

    for starts in ([0, 3, 3, 140], [0, 70, 71], [0, 1, 2, 200, 201]):
        offsets = torch.tensor(starts)
        x = torch.randn(starts[-1], 32, requires_grad=True)
        out = attend(torch.nested.nested_tensor_from_jagged(x, offsets), BlockMask.packed(offsets, causal=True))
        heads = layer(x).unflatten(-1, [2, 16])
        wanted = x + ragged_attention(heads, heads, heads, offsets, causal=True).flatten(-2)
        torch.testing.assert_close(tokens(out), wanted)
        found = torch.autograd.grad(tokens(out).square().sum(), (x, *layer.parameters()))
        for one, right in zip(found, torch.autograd.grad(wanted.square().sum(), (x, *layer.parameters())), strict=True):
            torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-3)


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
        (
            plain,
            {"mask": BlockMask.causal(17)},
            r"17 queries and 17 keys, and the sequences have 495 .*BlockMask\.packed",
        ),
        (plain, {"offsets_q": OFFSETS.to("meta")}, "q is on cpu and offsets_q on meta"),
        (each(lambda x: x.to("meta"), plain), {"offsets_q": OFFSETS.to("meta")}, "offsets_q cannot be read on meta"),
        (plain, {"offsets_q": torch.tensor([0, 40, 30, 495])}, r"falls from 40 to 30 at place 2"),
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


def test_products_sum_along_numbers_and_not_along_lengths() -> None:
    weight = BlockSparseMatrix.from_dense(torch.randn(64, 32), block=32)
    turned = torch.nested.nested_tensor_from_jagged(torch.randn(495, 32), OFFSETS).transpose(1, 2)
    for call in (lambda: linear(turned, weight), lambda: gated_linear(turned, weight, weight)):
        with pytest.raises(UnsupportedInput, match=r"lengths in its last dimension.*x\.transpose\(1, 2\)"):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(UnsupportedInput, match=r"x is a nested tensor; plain.*linear"):
        matmul(weight, turned)
    with pytest.raises(UnsupportedInput, match="a is a nested tensor"):
        sampled_matmul(turned, turned, weight)


def test_plain_and_nested_tensors_do_not_meet() -> None:
    given = each(Tensor.detach, tensors())
    nested = jagged(given)
    plain = tuple(x.transpose(0, 1)[None] for x in given)
    older = torch.nested.nested_tensor([torch.randn(2, 3, 16)], layout=torch.strided)
    for k in (nested[1], older):
        with pytest.raises(UnsupportedInput, match="q is a Tensor and others are nested"):
            attention(plain[0], k, k)
    with pytest.raises(UnsupportedInput, match="k is a Tensor and others are nested"):
        attention(nested[0], plain[1], plain[2])


def test_torch_func_is_refused_with_words() -> None:
    weight = BlockSparseMatrix.from_dense(torch.randn(64, 32), block=32)
    torch.nested.nested_tensor_from_jagged(
        torch.zeros(1, 1), torch.tensor([0, 1])
    )  # torch's first cannot be made there

    def summed(x: Tensor) -> Tensor:
        return linear(torch.nested.nested_tensor_from_jagged(x, OFFSETS), weight).values().sum()

    with pytest.raises(UnsupportedInput, match=r"x is a nested tensor under torch\.func"):
        torch.func.grad(summed)(torch.randn(495, 32))
    q, k, v = each(Tensor.detach, tensors())
    with pytest.raises(UnsupportedInput, match=r"offsets_q cannot be read under torch\.func"):
        torch.vmap(lambda offsets: ragged_attention(q, k, v, offsets))(torch.stack([OFFSETS, OFFSETS]))
