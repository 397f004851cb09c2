"""Gradients against finite differences in float64, of first and second order, from out and from lse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.merge import merge_attention
from tests.kernels.block_attention.att_cases import Causal, alone, attended, both, qkv, scattered

BACKENDS = ["reference", "dense"]


def doubles(q_len: int = 70, k_len: int = 80, heads: tuple[int, int] = (4, 2)) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (one.requires_grad_() for one in qkv(q_len, k_len, heads=heads, batch=1, dim=4, dtype=torch.float64))
    return q, k, v


def masks() -> dict[str, BlockMask | None]:
    scattered_blocks = scattered(1, 4, 2, 2, share=0.6)
    return {
        "none": None,
        "lists": BlockMask.from_bool(scattered_blocks, block_level=True, q_len=70, k_len=80, block=64),
        "window": BlockMask.window(70, 80, left=9, right=3, block=64),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["none", "lists", "window"])
@pytest.mark.parametrize("causal", [False, "lower_right"])
def test_out_and_lse(backend: str, name: str, causal: Causal) -> None:
    mask = masks()[name]

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = both(q, k, v, mask, causal=causal, backend=backend)
        return out, torch.where(lse == -torch.inf, 0.0, lse)

    assert torch.autograd.gradcheck(run, doubles(), fast_mode=True)


@pytest.mark.parametrize("name", ["none", "lists", "window"])
def test_out_alone_by_torch(name: str) -> None:
    mask = masks()[name]
    assert torch.autograd.gradcheck(lambda q, k, v: alone(q, k, v, mask, backend="dense"), doubles(), fast_mode=True)


@pytest.mark.parametrize("name", ["none", "lists"])
@pytest.mark.parametrize("part", [0, 1])
def test_second_derivatives(name: str, part: int) -> None:
    mask = masks()[name]

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = both(q, k, v, mask, causal=True, backend="reference")[part]
        return torch.where(made == -torch.inf, 0.0, made)

    assert torch.autograd.gradgradcheck(run, doubles(20, 30) if mask is None else doubles(), fast_mode=True)


def test_second_derivatives_of_both_outputs_at_once() -> None:
    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return both(q, k, v, causal="lower_right", backend="reference")

    assert torch.autograd.gradgradcheck(run, doubles(20, 30), fast_mode=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_changed_before_the_backward_pass_is_not_used_for_it(backend: str) -> None:
    q, k, v = doubles()
    mask = BlockMask.window(70, 80, left=9, block=64)
    out, _ = both(q, k, v, mask, backend=backend)
    mask.kinds.fill_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out.sum(), [q, k, v])


def test_a_mask_changed_before_the_second_derivative_is_not_used_for_it() -> None:
    q, k, v = doubles()
    mask = BlockMask.window(70, 80, left=9, block=64)
    [first] = torch.autograd.grad(alone(q, k, v, mask, backend="reference").sin().sum(), [q], create_graph=True)
    assert mask.bits is not None
    mask.bits.fill_(-1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(first.sum(), [q])


def test_a_mask_of_inference_tensors_serves_a_backward_pass() -> None:
    q, k, v = doubles()
    with torch.inference_mode():
        kinds = torch.full((1, 1, 2, 2), 2, dtype=torch.uint8)
    mask = BlockMask(kinds, q_len=70, k_len=80, block=64)
    assert not mask.counts_changes
    [found] = torch.autograd.grad(alone(q, k, v, mask, backend="reference").sin().sum(), [q])
    [wanted] = torch.autograd.grad(alone(q, k, v, backend="reference").sin().sum(), [q])
    torch.testing.assert_close(found, wanted)


def test_third_derivatives_are_refused() -> None:
    q, k, v = doubles(20, 30)
    [first] = torch.autograd.grad(alone(q, k, v, backend="reference").sin().sum(), [q], create_graph=True)
    [second] = torch.autograd.grad(first.sin().sum(), [q], create_graph=True)
    with pytest.raises(UnsupportedInput, match="first and second ones are accepted"):
        torch.autograd.grad(second.sum(), [q])


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_without_keys_give_gradients_of_exactly_zero(backend: str) -> None:
    mask = BlockMask.window(100, 50, left=10, alignment="upper_left", block=64)  # from query 61 on there is no key
    q, k, v = (one.requires_grad_() for one in qkv(100, 50))
    out, lse = both(q, k, v, mask, backend=backend)
    weight = torch.ones_like(out)
    weight[:, :, 61:] = torch.nan  # whatever comes back to them
    grads = torch.autograd.grad([out, lse], (q, k, v), [weight, weight[..., 0]])
    assert not grads[0][:, :, 61:].any()
    assert all(bool(grad.isfinite().all()) for grad in grads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_torchs_own_gradients_are_zero_there_too(backend: str) -> None:
    mask = BlockMask.window(100, 50, left=10, block=64)
    q, k, v = (one.requires_grad_() for one in qkv(100, 50))
    grads = torch.autograd.grad(alone(q, k, v, mask, backend=backend).square().sum(), (q, k, v))
    assert not grads[0][:, :, 61:].any()
    assert all(bool(grad.isfinite().all()) for grad in grads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_grouped_heads_with_lists_of_their_own(backend: str) -> None:
    mask = BlockMask.from_bool(scattered(2, 6, 3, 3, share=0.5), block_level=True, q_len=140, k_len=130, block=64)
    seen = mask.to_bool()
    q, k, v = (one.requires_grad_() for one in qkv(140, 130, heads=(6, 2), dtype=torch.float64))
    upstream = torch.randn_like(q)
    found = torch.autograd.grad((both(q, k, v, mask, backend=backend)[0] * upstream).sum(), (q, k, v))
    alive = seen.any(-1)[..., None]
    seen = seen | ~alive  # so that the truth has no 0 / 0 to differentiate
    wanted = torch.autograd.grad((attended(q, k, v, seen)[0] * upstream * alive).sum(), (q, k, v))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_only_the_gradients_asked_for_come_back() -> None:
    q, k, v = qkv(70, 70)
    k.requires_grad_()
    torch.autograd.backward(both(q, k, v, backend="reference")[0].sum())
    assert k.grad is not None
    assert q.grad is None
    assert not alone(*qkv(70, 70), backend="reference").requires_grad
    with torch.no_grad():
        assert not alone(q, k, v, backend="reference").requires_grad


def test_the_gradient_of_lse_alone() -> None:
    q, k, v = doubles()
    lse = both(q, k, v, backend="reference")[1]
    dq, dk, dv = torch.autograd.grad(lse.sum(), (q, k, v), allow_unused=True)
    scores = 0.5 * q @ k.repeat_interleave(2, 1).mT
    torch.testing.assert_close(dq, 0.5 * scores.softmax(-1) @ k.repeat_interleave(2, 1))
    assert dk.any()
    assert not dv.any()


def test_gradients_pass_through_a_merge_and_stay_finite() -> None:
    q, k, v = (one.requires_grad_() for one in qkv(90, 130, batch=1, dim=4, dtype=torch.float64))
    left = BlockMask.window(90, 64, left=20, block=64)

    def run(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        parts = [both(a, b[:, :, :64], c[:, :, :64], left), both(a[:, :, :], b[:, :, 64:], c[:, :, 64:])]
        return merge_attention(parts)

    assert torch.autograd.gradcheck(run, (q, k, v), fast_mode=True)
    empty = both(q, k[:, :, :64], v[:, :, :64], left)
    out, lse = merge_attention([empty, empty])
    grads = torch.autograd.grad(out.sum() + torch.where(lse == -torch.inf, 0.0, lse).sum(), (q, k, v))
    assert all(bool(grad.isfinite().all()) for grad in grads)


@pytest.mark.parametrize("backend", ["reference", "dense", "auto"])
def test_torch_func_grad_agrees_with_autograd(backend: str) -> None:
    q, k, v = doubles()
    mask = masks()["lists"]
    found = torch.func.grad(lambda a: alone(a, k.detach(), v.detach(), mask, backend=backend).sin().sum())(q.detach())
    [wanted] = torch.autograd.grad(alone(q, k, v, mask, backend=backend).sin().sum(), [q])
    torch.testing.assert_close(found, wanted)


def test_vmap_is_refused_with_the_way_out() -> None:
    q, k, v = (torch.randn(3, 1, 2, 20, 8) for _ in range(3))
    with pytest.raises(UnsupportedInput, match="part of the batch"):
        torch.func.vmap(alone)(q, k, v)


def test_torch_func_refuses_derivatives_of_gradients() -> None:
    q, k, v = (one.detach() for one in doubles(20, 30))

    def run(a: Tensor) -> Tensor:
        return alone(a, k, v, backend="reference").sin().sum()

    with pytest.raises(UnsupportedInput, match="create_graph=True"):
        torch.func.grad(lambda a: torch.func.grad(run)(a).sum())(q)


def test_a_forward_mode_tangent_is_refused() -> None:
    q, k, v = qkv(20, 30)
    with pytest.raises(UnsupportedInput, match="forward-mode derivative"):
        torch.func.jvp(lambda a: alone(a, k, v), (q,), (torch.ones_like(q),))
