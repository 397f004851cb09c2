"""Attention by the kernels on a GPU: the adversarial cases, and those that only a GPU has.

number -> test: 1-5, 9, 10, 12, 16-22 -> test_case (att_gpu_cases.py says which is which); 11 -> test_more_than_2_31...;
23 -> test_a_hundred_runs...; 24 -> test_a_graph...; 25 -> test_streams..., test_two_devices..., test_compiled...,
test_autocast_and...; 28 -> test_random_delays...
Plain pytest: no hypothesis.
From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_attention_gpu.py
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask, attention
from firstlight.kernels.backends import why_not
from firstlight.kernels.block_attention.lists import lists_of, turned_lists_of
from tests.kernels.block_attention.att_cases import attended
from tests.kernels.gpu.att_gpu_cases import (
    CASES,
    GRADIENT,
    SOME,
    Three,
    Where,
    close,
    draw,
    gradients,
    leaves_of,
    the_same_bits,
)

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
TRITON = [
    Where("cuda", "triton", *rest)
    for rest in ((128, 128, HALF), (64, 64, BRAIN), (128, 96, BRAIN), (64, 256, HALF), (128, 64, SINGLE))
]
SM90 = [
    Where("cuda", "sm90", block, dim, dtype)
    for block, dim, dtype in itertools.product((128, 64), (128, 64), (HALF, BRAIN))
]
SPARSE = (TRITON[0], TRITON[1], SM90[0], SM90[6])


def hurdle(backend: str) -> str:
    """Why a backend cannot run here; empty: it can."""
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU; torch sees none"
    return why_not("sm90", 0, HALF) if backend == "sm90" else ""


def marked(where: Where) -> Any:
    why = hurdle(where.backend)
    return pytest.param(where, id=str(where), marks=pytest.mark.skipif(bool(why), reason=why or "runs"))


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(hurdle("triton")), reason=hurdle("triton") or "runs"),
]
everywhere = pytest.mark.parametrize("where", [marked(where) for where in (*TRITON[:2], *SM90)])
on_some = pytest.mark.parametrize("where", [marked(where) for where in SPARSE])


def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def problem(where: Where, *, length: int = 0, seed: int = 0) -> tuple[Three, BlockMask]:
    """q, k, v and lists for four heads, a little longer than five blocks."""
    length = length or 5 * where.block + 24
    blocks = -(-length // where.block)
    q, k, v = where.qkv(length, length)
    return (q + seed, k, v), where.blocks(draw(1, 4, blocks, blocks, share=0.5, seed=seed), length, length)


@everywhere
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Callable[[Where], None], where: Where) -> None:
    case(where)


@pytest.mark.parametrize("where", [marked(where) for where in TRITON[2:]])
@pytest.mark.parametrize("case", [*SOME, gradients], ids=lambda case: case.__name__)
def test_case_with_another_head_dimension(case: Callable[[Where], None], where: Where) -> None:
    """Fewer cases: every head dimension is compiled anew, several times."""
    case(where)


@everywhere
def test_both_kernels_agree(where: Where) -> None:
    (q, k, v), mask = problem(where, length=1000)
    found = where.run(q, k, v, mask)
    for other in ("triton", "dense"):
        wanted = where._replace(backend=other).run(q, k, v, mask)
        close(found, (wanted[0].double(), wanted[1].double()), times=2.0)


@on_some
def test_a_larger_shape_with_a_list_for_each_head(where: Where) -> None:
    q, k, v = where.qkv(2048, 2048, heads=(16, 4), batch=4)
    blocks = 2048 // where.block
    mask = where.blocks(draw(4, 16, blocks, blocks, share=0.2), 2048, 2048)
    out, lse = where.run(q, k, v, mask)
    for batch, head in ((0, 0), (1, 7), (3, 15)):
        one = slice(head // 4, head // 4 + 1)
        exact = attended(
            q[batch : batch + 1, head : head + 1], k[batch : batch + 1, one], v[batch : batch + 1, one],
            mask.to_bool()[batch : batch + 1, head : head + 1],
        )  # fmt: skip
        close((out[batch : batch + 1, head : head + 1], lse[batch : batch + 1, head : head + 1]), exact)
    assert bool(out.isfinite().all())


@on_some
def test_a_hundred_runs_give_the_same_bits_while_another_stream_is_busy(where: Where) -> None:
    other = stream()
    noise = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(other):
        for _ in range(200):
            noise = (noise @ noise).clamp_(-1, 1)
    the_same_bits(where)
    other.synchronize()


@on_some
def test_a_graph_replays_a_thousand_times_with_changed_inputs(where: Where) -> None:
    (q, k, v), mask = problem(where)
    where.run(q, k, v, mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, mask, backend=where.backend)
    assert isinstance(out, Tensor)
    for turn in range(1000):
        if turn % 250 == 0:
            for place, one in enumerate((q, k, v)):
                one.copy_(where.randn(*one.shape, seed=turn + place))
            out.fill_(math.nan)
        graph.replay()
        if turn % 250 in (0, 249):
            assert torch.equal(out, where.run(q, k, v, mask)[0])


@on_some
def test_a_training_step_can_be_captured(where: Where) -> None:
    (q, k, v), mask = problem(where)
    leaves = leaves_of((q, k, v))
    grad = where.randn(*q.shape, seed=4)

    def step() -> tuple[Tensor, ...]:
        out = attention(*leaves, mask=mask, backend=where.backend)
        assert isinstance(out, Tensor)
        return torch.autograd.grad(out, leaves, grad)

    aside = stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    for one, other in zip(found, step(), strict=True):
        assert torch.equal(one, other)


@on_some
def test_lists_are_made_and_used_without_the_host_waiting(where: Where) -> None:
    (q, k, v), mask = problem(where)
    leaves = leaves_of((q, k, v))
    grad = where.randn(*q.shape, seed=4)
    torch.autograd.grad(where.run(*leaves, mask)[0], leaves, grad)
    kept = (mask.kinds != 0).roll(1, 3).contiguous()
    scores = where.randn(*kept.shape, seed=5)
    length = q.shape[2]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made = [
            BlockMask.from_bool(kept, block_level=True, q_len=length, k_len=length, block=where.block, count=False),
            BlockMask.top_k(scores, 2, q_len=length, k_len=length, block=where.block),
            BlockMask.window(length, left=where.block, block=where.block, device="cuda"),
        ]
        made.append(made[0] & BlockMask.causal(length, block=where.block, device="cuda"))
        for each in made:
            lists_of(each)
            turned_lists_of(each)
            out = attention(*leaves, mask=each, backend=where.backend)
            assert isinstance(out, Tensor)
            torch.autograd.grad(out, leaves, grad)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for each in made:
        close(where.run(q, k, v, each), attended(q.detach(), k.detach(), v.detach(), each.to_bool()))


@pytest.mark.parametrize("block", [64, 128])
def test_lists_of_the_gpu_are_those_of_the_processor(block: int) -> None:
    for share in (0.0, 0.01, 0.3, 1.0):
        kept = draw(2, 3, 37, 41, share=share)
        seen = draw(1, 1, 37 * block, 41 * block, share=0.5)
        for count in (True, False):
            here = BlockMask.from_bool(
                kept, block_level=True, q_len=37 * block, k_len=41 * block, block=block, count=count
            )
            for mask in (here, here & BlockMask.from_bool(seen, block=block)) if block == 64 else (here,):
                there = mask.to("cuda")
                for make in (lists_of, turned_lists_of):
                    wanted, found = make(mask), make(there)
                    end = int(wanted.starts[-1])
                    assert torch.equal(wanted.starts, found.starts.cpu())
                    assert torch.equal(wanted.order, found.order.cpu())
                    assert torch.equal(wanted.columns[:end], found.columns[:end].cpu())
                    assert torch.equal(wanted.masks[:end], found.masks[:end].cpu())


@on_some
def test_streams_at_once_do_not_take_each_others_work(where: Where) -> None:
    inputs = [problem(where, seed=turn) for turn in range(16)]
    torch.cuda.synchronize()
    streams = [stream() for _ in range(4)]
    outputs = []
    for turn, (tensors, mask) in enumerate(inputs):
        with torch.cuda.stream(streams[turn % 4]):
            outputs.append(attention(*tensors, mask, backend=where.backend, return_lse=True))
    shared = inputs[0][1]
    for turn in range(4):  # lists made on one stream, used on another
        with torch.cuda.stream(streams[turn]):
            outputs.append(attention(*inputs[turn][0], shared, backend=where.backend, return_lse=True))
    torch.cuda.synchronize()
    inputs += [(inputs[turn][0], shared) for turn in range(4)]
    for (tensors, mask), found in zip(inputs, outputs, strict=True):
        wanted = where.run(*tensors, mask)
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(found[1], wanted[1])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@on_some
def test_two_devices_with_the_other_one_current(where: Where) -> None:
    (q, k, v), mask = problem(where)
    found = where.run(q.to("cuda:1"), k.to("cuda:1"), v.to("cuda:1"), mask.to("cuda:1"))
    assert found[0].device == torch.device("cuda:1")
    assert torch.equal(found[0].cpu(), where.run(q, k, v, mask)[0].cpu())


@on_some
def test_compiled_whole_by_inductor(where: Where) -> None:
    torch._dynamo.reset()
    (q, k, v), mask = problem(where)
    leaves = leaves_of((q, k, v))
    grad = where.randn(*q.shape, seed=4)

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = attention(q * 1.0, k, v, mask, causal=True, backend=where.backend)
        assert isinstance(out, Tensor)
        return out * 2.0

    compiled = torch.compile(layer, fullgraph=True)
    for _ in range(2):
        plain, found = layer(*leaves), compiled(*leaves)
        assert torch.equal(plain, found)
        wanted = torch.autograd.grad(plain, leaves, grad)
        for one, other in zip(torch.autograd.grad(found, leaves, grad), wanted, strict=True):
            assert torch.equal(one, other)


@on_some
def test_autocast_and_inference_mode(where: Where) -> None:
    (q, k, v), mask = problem(where)
    plain = where.run(q, k, v, mask)[0]
    with torch.autocast("cuda", dtype=where.dtype):
        assert torch.equal(where.run(q.float(), k.float(), v.float(), mask)[0], plain)
    with torch.inference_mode():
        inside = where.blocks((mask.kinds != 0).cpu(), q.shape[2], k.shape[2])
        assert torch.equal(where.run(q, k, v, inside)[0], plain)


@on_some
def test_a_mask_changed_in_place_is_noticed(where: Where) -> None:
    """29"""
    (q, k, v), mask = problem(where)
    before = where.run(q, k, v, mask)[0]
    mask.kinds.copy_(mask.kinds.roll(1, 3))
    after = where.run(q, k, v, mask)
    assert not torch.equal(before, after[0])
    close(after, attended(q, k, v, mask.to_bool()))


@on_some
def test_more_than_2_31_elements(where: Where) -> None:
    """11: the last heads lie beyond the reach of a 32-bit element offset."""
    length = 8 * where.block
    heads = 2**31 // (length * where.dim) + 2
    q, k, v = (torch.randn(1, heads, length, where.dim, dtype=where.dtype, device="cuda") for _ in range(3))
    assert q.numel() > 2**31
    blocks = draw(1, 1, 8, 8, share=0.3)
    blocks[..., 2, :] = False
    mask = where.blocks(blocks, length, length)
    out, lse = where.run(q, k, v, mask)
    for head in (0, heads - 1):
        one = slice(head, head + 1)
        close((out[:, one], lse[:, one]), attended(q[:, one], k[:, one], v[:, one], mask.to_bool()))


@pytest.mark.parametrize("where", [marked(where) for where in SM90])
def test_random_delays_in_every_role_change_nothing(where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    """28: a build in which every role waits now and then, and traps instead of waiting for ever; lists of 0 to 12."""
    from firstlight.kernels.sm90 import attention as hopper
    from firstlight.kernels.sm90.attention_variants import AttentionBuild
    from firstlight.kernels.sm90.cache import built
    from firstlight.kernels.sm90.compile import Variant
    from firstlight.kernels.sm90.driver import load

    length = 12 * where.block
    q, k, v = where.qkv(length, length)
    kept = (torch.arange(12)[None, :] < torch.arange(12)[:, None])[None, None].expand(1, 4, 12, 12).contiguous()
    kept[:, 1] = kept[:, 1].flip(0)
    mask = where.blocks(kept, length, length)
    wanted = where.run(q, k, v, mask)
    build = AttentionBuild(where.block, where.dim, where.dtype is BRAIN)
    slow = Variant(build.variant.source, (*build.variant.defines, ("FIRSTLIGHT_STRESS", 1)))
    kernel = load(built(slow, debug=True).cubin, "attention", device=0, shared_bytes=build.shared_bytes)
    monkeypatch.setattr(hopper, "_kernel", lambda build, device: kernel)
    for _ in range(5):
        out, lse = where.run(q, k, v, mask)
        assert torch.equal(out, wanted[0])
        assert torch.equal(lse, wanted[1])


def noting_gradients(monkeypatch: pytest.MonkeyPatch, *, once: bool) -> list[object]:
    """The builds of the Hopper kernels for gradients that are asked for from now on; once: in one pass, or in two."""
    from firstlight.kernels.sm90 import gradient, gradient_once
    from firstlight.kernels.sm90.driver import Kernel

    loaded: list[object] = []

    def noting(load: Callable[[Any, int], Kernel]) -> Callable[[Any, int], Kernel]:
        def noted(build: object, device: int) -> Kernel:
            loaded.append(build)
            return load(build, device)

        return noted

    for module in (gradient, gradient_once):
        monkeypatch.setattr(module, "_kernel", noting(module._kernel))
    monkeypatch.setattr(gradient_once, "takes", lambda *given: once)
    return loaded


def builds_of(where: Where, *, once: bool) -> set[object]:
    from firstlight.kernels.sm90.attention_variants import GradientBuild, OnceBuild

    if once:
        return {OnceBuild(where.dtype is BRAIN)}
    return {GradientBuild(by_key, where.dim, where.dtype is BRAIN) for by_key in (False, True)}


ONCE_OR_TWICE = [
    pytest.param(*marked(where).values, once, marks=marked(where).marks, id=f"{where}-{'one pass' if once else 'two'}")
    for where in SM90
    for once in (False, True)
    if where.block == 128 and (where.dim == 128 or not once)
]


@pytest.mark.parametrize(("where", "once"), ONCE_OR_TWICE)
def test_gradients_by_the_hopper_kernel(where: Where, *, once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = noting_gradients(monkeypatch, once=once)
    gradients(where)
    assert set(loaded) == builds_of(where, once=once)
    test_a_training_step_can_be_captured(where)


@pytest.mark.parametrize(("where", "once"), ONCE_OR_TWICE)
@pytest.mark.parametrize("forward", ["sm90", "dense"])
def test_auto_takes_the_hopper_kernel_for_gradients(
    where: Where, *, once: bool, forward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its own output, and behind torch's, whose lse is used too, on a GPU on which sm90 was measured."""
    from firstlight.kernels.block_attention import choose
    from firstlight.kernels.choice.answer import Choice, same

    answered = choose.answered
    monkeypatch.setattr(
        choose,
        "answered",
        lambda name, question: same(Choice(forward, "a test")) if name == "auto" else answered(name, question),
    )
    monkeypatch.setattr(choose, "_gradients", lambda question: "sm90")
    length = 8 * where.block
    q, k, v = (given.requires_grad_() for given in where.qkv(length, length, heads=(4, 4)))
    kept = draw(1, 4, 8, 8, share=0.3)
    kept[..., 0] = True  # a row without keys has a lse of -inf
    mask = where.blocks(kept, length, length)
    loaded = noting_gradients(monkeypatch, once=once)
    made = attention(q, k, v, mask, return_lse=True)
    upstream = [torch.randn_like(one) for one in made]
    found = torch.autograd.grad(made, (q, k, v), upstream)
    assert set(loaded) == builds_of(where, once=once)
    before = len(loaded)
    by_triton = attention(q, k, v, mask, return_lse=True, backend="triton")
    wanted = torch.autograd.grad(by_triton, (q, k, v), upstream)
    assert len(loaded) == before, "backend='triton' keeps Triton's"
    for one, other in zip(found, wanted, strict=True):
        apart = float((one.double() - other.double()).norm() / other.double().norm())
        assert apart <= 2 * GRADIENT[where.dtype]


@pytest.mark.parametrize(("where", "once"), ONCE_OR_TWICE)
def test_random_delays_in_every_role_change_no_gradient(
    where: Where, *, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """28 for the gradients: a list for each of four heads, rows of 0 to 12 blocks; a hundred runs as they are first."""
    from firstlight.kernels.sm90 import gradient, gradient_once
    from firstlight.kernels.sm90.cache import built
    from firstlight.kernels.sm90.compile import Variant
    from firstlight.kernels.sm90.driver import Kernel, load

    monkeypatch.setattr(gradient_once, "takes", lambda *given: once)
    length = 12 * where.block
    q, k, v = (given.requires_grad_() for given in where.qkv(length, length, heads=(4, 4)))
    kept = (torch.arange(12)[None, :] < torch.arange(12)[:, None])[None, None].expand(1, 4, 12, 12).contiguous()
    kept[:, 1] = kept[:, 1].flip(0)
    mask = where.blocks(kept, length, length)
    out = attention(q, k, v, mask, backend="sm90")
    upstream = torch.randn_like(out)
    wanted = torch.autograd.grad(out, (q, k, v), upstream, retain_graph=True)
    for _ in range(100):
        found = torch.autograd.grad(out, (q, k, v), upstream, retain_graph=True)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))

    slowed = set()

    def slow(build: Any, device: int) -> Kernel:
        slowed.add(build)
        variant = Variant(build.variant.source, (*build.variant.defines, ("FIRSTLIGHT_STRESS", 1)))
        return load(built(variant, debug=True).cubin, variant.source, device=device, shared_bytes=build.shared_bytes)

    for module in (gradient, gradient_once):
        monkeypatch.setattr(module, "_kernel", slow)
    for _ in range(5):
        found = torch.autograd.grad(out, (q, k, v), upstream, retain_graph=True)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert slowed == builds_of(where, once=once)


def test_hopper_refuses_what_it_cannot_do_and_says_what_to_do() -> None:
    if why := hurdle("sm90"):
        pytest.skip(why)
    (q, k, v), mask = problem(Where("cuda", "triton", 128, 96, HALF))
    with pytest.raises(Exception, match="96") as raised:
        attention(q, k, v, mask, backend="sm90")
    assert "auto" in str(raised.value)
