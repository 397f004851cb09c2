"""Cases of sequences of different lengths, for any backend on any device, against float64.

test_ragged_kinds_gpu.py runs them on a GPU by the kernels, test_ragged_gpu_cases.py on the processor by the reference
and the dense backend, so that a case is known to be right before a kernel fails it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from firstlight.kernels import (
    BlockMask,
    BlockSparseMatrix,
    attention,
    gated_linear,
    linear,
    ragged_attention,
)
from tests.kernels.gpu.att_gpu_cases import GRADIENT, Three, Where

LENGTHS = (200, 1, 0, 128, 513, 70)
KEY_LENGTHS = (130, 300, 40, 128, 64, 257)
GROUPS = ((4, 4), (4, 2), (6, 1))  # heads, and of keys


def offsets_of(lengths: tuple[int, ...], device: str) -> Tensor:
    """Where each begins and the last one ends."""
    return pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(device, torch.int32)


def tensors(where: Where, heads: tuple[int, int] = (4, 2), keys: tuple[int, ...] = LENGTHS) -> Three:
    """q, k and v, for which gradients are asked."""
    q = where.randn(sum(LENGTHS), heads[0], where.dim, seed=1)
    k, v = (where.randn(sum(keys), heads[1], where.dim, seed=seed) for seed in (2, 3))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def in_double(given: Three, seen: Tensor, scale: float) -> Tensor:
    """[tokens, heads, head dim] by the definition, in float64; seen: [all queries, all keys]."""
    q, k, v = (each.transpose(0, 1).double() for each in given)
    k, v = (each.repeat_interleave(len(q) // len(each), 0) for each in (k, v))
    scores = ((q @ k.mT) * scale).masked_fill(~seen, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)  # of a query that sees nothing: zeros
    return (weights @ v).transpose(0, 1)


def seen_of(
    keys: tuple[int, ...], device: str, *, causal: str = "", left: int | None = None, own: Any = None
) -> Tensor:
    """From the words alone, one sequence at a time; own: a function of both lengths in place of causal and left."""
    seen = torch.zeros(sum(LENGTHS), sum(keys), dtype=torch.bool, device=device)
    starts = (pairwise(offsets_of(each, "cpu").tolist()) for each in (LENGTHS, keys))
    for number, ((first, end), (first_k, end_k)) in enumerate(zip(*starts, strict=True)):
        rows, columns = (torch.arange(most, device=device) for most in (end - first, end_k - first_k))
        behind = rows[:, None] - columns[None, :]
        if causal == "lower_right":
            behind = behind + (end_k - first_k) - (end - first)
        part = torch.ones_like(behind, dtype=torch.bool)
        if causal:
            part &= behind >= 0
        if left is not None:
            part &= behind <= left
        seen[first:end, first_k:end_k] = part if own is None else own(number, behind)
    return seen


def off(one: Tensor, right: Tensor) -> float:
    """The norm of the difference over the norm."""
    one, right = one.detach().double(), right.detach().double()
    return float((one - right).norm() / right.norm())


def agrees(where: Where, given: Three, made: Tensor, wanted: Tensor) -> None:
    """Output and gradients, by the norm of what is off over the norm; of nothing: nothing."""
    grad = where.randn(*made.shape, seed=9)
    found = (made, *torch.autograd.grad(made, given, grad))
    right = (wanted, *torch.autograd.grad(wanted, given, grad.double(), retain_graph=True))
    for name, one, other in zip(("out", "dq", "dk", "dv"), found, right, strict=True):
        far = off(one, other)
        assert far <= GRADIENT[where.dtype], (str(where), name, far)


def each_group_of_heads(where: Where) -> None:
    """Causal, as many keys as queries: heads of their own, two and six on one of keys."""
    offsets, seen = offsets_of(LENGTHS, where.device), seen_of(LENGTHS, where.device, causal="upper_left")
    mask = BlockMask.packed(offsets, causal=True, block=where.block)
    for heads in GROUPS:
        given = tensors(where, heads)
        wanted = in_double(given, seen, where.dim**-0.5)
        agrees(where, given, ragged_attention(*given, mask=mask, backend=where.backend), wanted)


def other_numbers_of_keys(where: Where) -> None:
    """Both alignments, and none; a query without keys gives zeros."""
    offsets, offsets_k = offsets_of(LENGTHS, where.device), offsets_of(KEY_LENGTHS, where.device)
    given = tensors(where, keys=KEY_LENGTHS)
    for causal in ("", "upper_left", "lower_right"):
        asked = causal or False
        mask = BlockMask.packed(offsets, offsets_k, causal=asked, block=where.block)
        wanted = in_double(given, seen_of(KEY_LENGTHS, where.device, causal=causal), where.dim**-0.5)
        agrees(where, given, ragged_attention(*given, mask=mask, backend=where.backend), wanted)
        made = ragged_attention(*given, offsets, offsets_k, causal=asked, backend=where.backend)
        agrees(where, given, made, wanted)


def a_window_and_a_scale(where: Where) -> None:
    """left counts within each sequence."""
    given, offsets = tensors(where), offsets_of(LENGTHS, where.device)
    mask = BlockMask.packed(offsets, causal=True, left=33, block=where.block)
    wanted = in_double(given, seen_of(LENGTHS, where.device, causal="upper_left", left=33), 0.3)
    agrees(where, given, ragged_attention(*given, mask=mask, scale=0.3, backend=where.backend), wanted)


def each_sequence_by_its_own_mask(where: Where) -> None:
    """Windows of different widths, one causal, one whole."""
    given, offsets = tensors(where), offsets_of(LENGTHS, where.device)
    lefts = {0: 20, 4: 100}
    masks: list[BlockMask | None] = [None] * len(LENGTHS)
    for number, left in lefts.items():
        masks[number] = BlockMask.window(LENGTHS[number], left=left, block=where.block, device=where.device)
    masks[5] = BlockMask.causal(LENGTHS[5], block=where.block, device=where.device)

    def own(number: int, behind: Tensor) -> Tensor:
        if number in lefts:
            return (behind >= 0) & (behind <= lefts[number])
        return behind >= 0 if number == 5 else torch.ones_like(behind, dtype=torch.bool)

    mask = BlockMask.packed(offsets, masks=masks, block=where.block)
    wanted = in_double(given, seen_of(LENGTHS, where.device, own=own), where.dim**-0.5)
    agrees(where, given, ragged_attention(*given, mask=mask, backend=where.backend), wanted)


def sums_of_each_row(where: Where) -> None:
    """lse, [heads, tokens], against float64."""
    given, offsets = tensors(where, (4, 4)), offsets_of(LENGTHS, where.device)
    q, k = (each.detach().transpose(0, 1).double() for each in given[:2])
    seen = seen_of(LENGTHS, where.device, causal="upper_left")
    right = ((q @ k.mT) * where.dim**-0.5).masked_fill(~seen, -torch.inf).logsumexp(-1)
    mask = BlockMask.packed(offsets, causal=True, block=where.block)
    _, lse = ragged_attention(*given, mask=mask, return_lse=True, backend=where.backend)
    torch.testing.assert_close(lse.double(), right, atol=GRADIENT[where.dtype], rtol=GRADIENT[where.dtype])


def jagged_tensors(where: Where) -> None:
    """Nested tensors [batch, heads, lengths, head dim], forward and gradients, are the tokens as they lie."""
    lengths = tuple(each for each in LENGTHS if each)
    given, offsets = tensors(where), offsets_of(lengths, where.device)
    nested = [torch.nested.nested_tensor_from_jagged(each, offsets).transpose(1, 2) for each in given]
    out = attention(nested[0], nested[1], nested[2], causal=True, backend=where.backend)
    wanted = in_double(given, seen_of(LENGTHS, where.device, causal="upper_left"), where.dim**-0.5)
    agrees(where, given, out.transpose(1, 2).values(), wanted)


def what_one_sequence_holds_changes_no_other(where: Where) -> None:
    """Bit for bit, though sequences lie in the same blocks."""
    given, offsets = tensors(where), offsets_of(LENGTHS, where.device)
    mask = BlockMask.packed(offsets, causal=True, block=where.block)
    plain = [each.detach().clone() for each in given]
    before = ragged_attention(plain[0], plain[1], plain[2], mask=mask, backend=where.backend)
    for each in plain:
        each[201:329] = 60.0
    after = ragged_attention(plain[0], plain[1], plain[2], mask=mask, backend=where.backend)
    assert torch.equal(before[:201], after[:201])
    assert torch.equal(before[329:], after[329:])


def products_of_jagged_tokens(where: Where) -> None:
    """linear, with an activation, and gated_linear of jagged x against float64, with gradients."""
    offsets = offsets_of(tuple(each for each in LENGTHS if each), where.device)
    rows, cols = 3 * where.block, 2 * where.block
    x = where.randn(sum(LENGTHS), cols, seed=4).requires_grad_()
    nested = torch.nested.nested_tensor_from_jagged(x, offsets)
    dense = [where.randn(rows, cols, seed=seed) * cols**-0.5 for seed in (5, 6)]
    for one in dense:
        one[: where.block, where.block :] = 0.0
    weights = [BlockSparseMatrix.from_dense(one, block=where.block).requires_grad_() for one in dense]
    plain = [one.double() for one in dense]
    right = [x.double() @ one.mT for one in plain]
    for made, wanted in (
        (linear(nested, weights[0], backend=where.backend), right[0]),
        (linear(nested, weights[0], activation="silu", backend=where.backend), torch.nn.functional.silu(right[0])),
        (gated_linear(nested, weights[0], weights[1], backend=where.backend),
         torch.nn.functional.silu(right[0]) * right[1]),
    ):  # fmt: skip
        out = made.values()
        grad = where.randn(*out.shape, seed=8)
        [dx] = torch.autograd.grad(out, [x], grad, retain_graph=True)
        [dx_right] = torch.autograd.grad(wanted, [x], grad.double(), retain_graph=True)
        for one, other in ((out, wanted), (dx, dx_right)):
            assert (
                float((one.detach().double() - other.detach()).norm() / other.detach().norm()) <= GRADIENT[where.dtype]
            )


ATTENDING = (
    each_group_of_heads, other_numbers_of_keys, a_window_and_a_scale, each_sequence_by_its_own_mask, sums_of_each_row,
    jagged_tensors, what_one_sequence_holds_changes_no_other,
)  # fmt: skip
