"""Sequences of different lengths on a GPU: types, blocks, shared heads, masks, and what only a GPU has.

From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_ragged_kinds_gpu.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask, BlockSparseLinear, BlockSparseMatrix, attention, ragged_attention
from firstlight.kernels.backends import why_not
from firstlight.kernels.torch_private import keep_busy
from tests.kernels.gpu.att_gpu_cases import Where
from tests.kernels.gpu.ragged_gpu_cases import (
    ATTENDING,
    LENGTHS,
    agrees,
    in_double,
    off,
    offsets_of,
    products_of_jagged_tokens,
    seen_of,
    tensors,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
TRITON = [
    Where("cuda", "triton", *rest)
    for rest in ((128, 128, HALF), (64, 64, BRAIN), (128, 96, BRAIN), (64, 256, HALF), (128, 64, SINGLE))
]
SM90 = [
    Where("cuda", "sm90", block, dim, dtype)
    for block, dim, dtype in itertools.product((128, 64), (128, 64), (HALF, BRAIN))
]
AUTO = [Where("cuda", "auto", 128, 128, BRAIN), Where("cuda", "auto", 64, 64, HALF)]
SOME = (TRITON[0], SM90[1], SM90[6])
PRODUCTS = [Where("cuda", "sm90", block, 64, dtype) for block in (128, 64) for dtype in (HALF, BRAIN)] + [
    Where("cuda", "triton", 32, 64, HALF),
    Where("cuda", "auto", 64, 64, BRAIN),
]


def marked(where: Where) -> Any:
    why = why_not("sm90", 0, where.dtype) if where.backend == "sm90" and torch.cuda.is_available() else ""
    return pytest.param(where, id=str(where), marks=pytest.mark.skipif(bool(why), reason=why or "runs"))


some = pytest.mark.parametrize("where", map(marked, SOME))


@pytest.mark.parametrize("case", ATTENDING, ids=lambda case: case.__name__)
@pytest.mark.parametrize("where", map(marked, (*SM90, *TRITON, *AUTO)))
def test_case(where: Where, case: Callable[[Where], None]) -> None:
    case(where)


@pytest.mark.parametrize("where", map(marked, PRODUCTS))
def test_products_of_jagged_tokens(where: Where) -> None:
    products_of_jagged_tokens(where)


@some
def test_a_graph_with_gradients_takes_new_numbers_under_the_same_mask(where: Where) -> None:
    """Forward and backward pass in one graph; replayed over other numbers it is what is computed without one."""
    offsets = offsets_of(LENGTHS, "cuda")
    mask = BlockMask.packed(offsets, causal=True, block=where.block)
    given = tensors(where)
    grad = where.randn(*given[0].shape, seed=9)

    def both() -> tuple[Tensor, ...]:
        out = ragged_attention(*given, mask=mask, backend=where.backend)
        return out, *torch.autograd.grad(out, given, grad)

    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        both()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = both()
    for seed in (20, 30):
        with torch.no_grad():
            for number, each in enumerate(given):
                each.copy_(where.randn(*each.shape, seed=seed + number))
        graph.replay()
        torch.cuda.synchronize()
        replayed = [each.clone() for each in made]
        for one, right in zip(replayed, both(), strict=True):
            assert torch.equal(one, right)
        wanted = in_double(given, seen_of(LENGTHS, "cuda", causal="upper_left"), where.dim**-0.5)
        agrees(where, given, ragged_attention(*given, mask=mask, backend=where.backend), wanted)
        assert off(replayed[0], wanted) < 2e-2


@some
def test_streams_side_by_side_with_masks_of_their_own(where: Where) -> None:
    lengths = [LENGTHS, tuple(reversed(LENGTHS)), (sum(LENGTHS),)]
    given = [each.detach() for each in tensors(where)]
    offsets = [offsets_of(each, "cuda") for each in lengths]
    asked: dict[str, Any] = {"causal": True, "backend": where.backend}
    wanted = [ragged_attention(given[0], given[1], given[2], each.clone(), **asked) for each in offsets]
    streams = [torch.cuda.Stream() for _ in offsets]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    for _ in range(20):
        made = []
        for stream, each in zip(streams, offsets, strict=True):
            with torch.cuda.stream(stream):
                keep_busy(200_000)
                made.append(ragged_attention(given[0], given[1], given[2], each, **asked))
        torch.cuda.synchronize()
        for one, right in zip(made, wanted, strict=True):
            assert torch.equal(one, right)


@some
def test_a_hundred_runs_give_the_same_bits(where: Where) -> None:
    given = tensors(where)
    mask = BlockMask.packed(offsets_of(LENGTHS, "cuda"), causal=True, block=where.block)
    grad = where.randn(*given[0].shape, seed=9)
    first: tuple[Tensor, ...] = ()
    for _ in range(100):
        out = ragged_attention(*given, mask=mask, backend=where.backend)
        made = (out.detach(), *torch.autograd.grad(out, given, grad))
        first = first or made
        for one, right in zip(made, first, strict=True):
            assert torch.equal(one, right)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_compiled_code_takes_a_mask_and_jagged_tensors(backend: str) -> None:
    """One graph for attention over a mask made outside, and for a layer and attention over a jagged tensor."""
    torch._dynamo.reset()
    where, offsets = Where("cuda", "auto", 128, 64, BRAIN), offsets_of(tuple(each for each in LENGTHS if each), "cuda")
    given, mask = tensors(where), BlockMask.packed(offsets, causal=True)
    compiled = torch.compile(ragged_attention, backend=backend, fullgraph=True)
    agrees(where, given, compiled(*given, mask=mask), in_double(
        given, seen_of(LENGTHS, "cuda", causal="upper_left"), where.dim**-0.5
    ))  # fmt: skip
    weight = BlockSparseMatrix.from_dense(where.randn(256, 256, seed=4) / 16, block=128)
    layer = BlockSparseLinear(weight, where.randn(256, seed=5))

    def attend(x: Tensor, mask: BlockMask) -> Tensor:
        heads = layer(x).unflatten(-1, [4, 64]).transpose(1, 2)
        made: Tensor = attention(heads, heads, heads, mask).transpose(1, 2).flatten(-2)
        return x + made

    x = where.randn(sum(LENGTHS), 256, seed=6).requires_grad_()
    nested = torch.nested.nested_tensor_from_jagged(x, offsets)
    plain, made = (each(nested, mask) for each in (attend, torch.compile(attend, backend=backend, fullgraph=True)))
    assert off(made.values(), plain.values()) < 1e-2
    grad = where.randn(*x.shape, seed=7)
    [one] = torch.autograd.grad(made.values(), [x], grad)
    [right] = torch.autograd.grad(plain.values(), [x], grad)
    assert off(one, right) < 2e-2
