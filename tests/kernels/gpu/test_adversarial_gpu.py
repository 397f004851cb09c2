"""The adversarial cases by the Triton kernel on a GPU, and those that only a GPU has.

number -> test: 1-7, 9, 12-15, 21, 22, 26, 28, 29 -> test_case; 8 -> ../test_adversarial.py (the checks are the same);
10 -> test_memory_order...; 11 -> test_more_than_2_31_...; 23 -> test_a_hundred_runs...; 24 -> test_a_graph...;
25 -> test_two_streams..., test_two_devices..., test_compiled..., test_autocast_and...; 30 -> test_pairs.
16-20 are attention's; 27 and the rest of 28 are the sm90 kernels'.
Plain pytest: no hypothesis. From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, CopiedInput, explain_choice, linear, matmul, sampled_matmul
from firstlight.kernels.choose import SPARSE
from firstlight.kernels.launch import NOTHING
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.product import Layout
from tests.kernels.cases import (
    CASES,
    PAIRS,
    PLAIN,
    Finish,
    Where,
    close,
    expected,
    guarded,
    name_of,
    pair,
    repeatable,
    right,
    scattered,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
GPU = Where("cuda", "triton", torch.float16)


def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def right_tokens(w: BlockSparseMatrix, x: Tensor, out: Tensor) -> None:
    exact, magnitude = expected(w, x, layout=Layout.TOKENS, finish=PLAIN, extras=NOTHING)
    close(out, exact, magnitude)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_case(case: Callable[[Where], None]) -> None:
    case(GPU)


@pytest.mark.parametrize(("block", "dtype", "operation", "finish"), PAIRS)
def test_pairs(block: int, dtype: torch.dtype, operation: str, finish: Finish) -> None:
    pair(Where("cuda", "triton", dtype), block=block, operation=operation, finish=finish)


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_larger_products_of_every_block_size(block: int) -> None:
    w = BlockSparseMatrix.random(
        2048, 1024 + block, block=block, density=0.2, dtype=torch.float16, device="cuda",
        generator=torch.Generator(device="cuda").manual_seed(0),
    )  # fmt: skip
    for n in (16, 300):
        right(GPU, w, n)
        right(GPU, w, n, layout=Layout.COLUMNS)
        right(GPU, w.T, n)


def test_memory_order_is_put_right_with_a_warning() -> None:
    w = GPU.matrix(scattered(3, 4))
    x = GPU.randn(20, 128, seed=1)
    plain = linear(x, w, backend="triton")
    with pytest.warns(CopiedInput, match="^x is copied"):
        assert torch.equal(linear(x.mT.contiguous().mT, w, backend="triton"), plain)
    room = torch.zeros(20 * 128 + 1, dtype=torch.float16, device="cuda")
    room[1:] = x.reshape(-1)
    with pytest.warns(CopiedInput, match="16 bytes"):
        assert torch.equal(linear(room[1:].view(20, 128), w, backend="triton"), plain)


def test_a_hundred_runs_give_the_same_bits_while_another_stream_is_busy() -> None:
    other = stream()
    noise = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(other):
        for _ in range(200):
            noise = (noise @ noise).clamp_(-1, 1)
    repeatable(GPU)
    other.synchronize()


def test_more_than_2_31_values() -> None:
    """11: the last stored blocks lie beyond the reach of a 32-bit element offset."""
    block_rows, block_cols, block = 362, 364, 128
    values = torch.randn(block_rows * block_cols, block, block, dtype=torch.float16, device="cuda")
    assert values.numel() > 2**31
    crow = torch.arange(0, values.shape[0] + 1, block_cols, dtype=torch.int32, device="cuda")
    col = torch.arange(block_cols, dtype=torch.int32, device="cuda").repeat(block_rows)
    shape = (block_rows * block, block_cols * block)
    for dtype in (torch.int32, torch.int64):
        w = BlockSparseMatrix.from_parts(values, crow.to(dtype), col.to(dtype), shape, validate=False)
        x = GPU.randn(16, shape[1], seed=1)
        out = linear(x, w, backend="triton")
        last = values[-block_cols:].permute(1, 0, 2).reshape(block, -1).double()
        close(out[:, -block:], x.double() @ last.T, x.double().abs() @ last.abs().T)
    y = GPU.randn(16, shape[0], seed=2)
    turned = linear(y, w.T, backend="triton")
    column = values.view(block_rows, block_cols, block, block)[:, -1].reshape(-1, block).double()
    close(turned[:, -block:], y.double() @ column, y.double().abs() @ column.abs())
    sampled = sampled_matmul(y.mT, x, w, backend="triton").values
    exact = y[:, -block:].double().T @ x[:, -block:].double()
    close(sampled[-1], exact, y[:, -block:].double().abs().T @ x[:, -block:].double().abs())


@pytest.mark.parametrize("layout", list(Layout))
def test_more_than_2_31_outputs(layout: Layout) -> None:
    n = 2**24 + 16
    w = GPU.matrix(torch.ones(1, 1, dtype=torch.bool), block=128)
    dense = w.to_dense().double()
    if layout is Layout.TOKENS:
        x = torch.randn(n, 128, dtype=torch.float16, device="cuda")
        out, tail = linear(x, w, backend="triton"), x[-64:].double()
        close(out[-64:], tail @ dense.T, tail.abs() @ dense.abs().T)
    else:
        x = torch.randn(128, n, dtype=torch.float16, device="cuda")
        out, tail = matmul(w, x, backend="triton"), x[:, -64:].double()
        close(out[:, -64:], dense @ tail, dense.abs() @ tail.abs())
    assert out.numel() > 2**31


@pytest.mark.parametrize("backend", ["triton", "dense"])
def test_a_graph_replays_a_thousand_times_with_changed_values_and_inputs(backend: str) -> None:
    w, x = GPU.matrix(scattered(6, 8)), GPU.randn(48, 256, seed=1)
    bias = GPU.randn(192, seed=2)
    linear(x, w, bias, activation="relu", backend=backend)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = linear(x, w, bias, activation="relu", backend=backend)
    for turn in range(1000):
        if turn % 250 == 0:
            x.copy_(GPU.randn(48, 256, seed=turn))
            w.values.copy_(GPU.randn(*w.values.shape, seed=turn + 1))
            out.fill_(float("nan"))
        graph.replay()
        if turn % 250 in (0, 249):
            assert torch.equal(out, linear(x, w, bias, activation="relu", backend=backend))


def test_a_training_step_can_be_captured() -> None:
    layer = BlockSparseLinear(GPU.matrix(scattered(6, 8)), GPU.randn(192), backend="triton")
    x = GPU.randn(48, 256, seed=1).requires_grad_()
    grad = GPU.randn(48, 192, seed=2)
    aside = stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            torch.autograd.backward(layer(x), grad)
    torch.cuda.current_stream().wait_stream(aside)
    layer.zero_grad(set_to_none=True)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.autograd.backward(layer(x), grad)
    graph.replay()
    assert layer.values.grad is not None
    found = layer.values.grad.clone()
    layer.zero_grad(set_to_none=True)
    torch.autograd.backward(layer(x), grad)
    assert torch.equal(found, layer.values.grad)


def test_a_new_pattern_is_multiplied_forward_and_backward_without_the_host_waiting() -> None:
    warm, x, grad = GPU.matrix(scattered(8, 8)), GPU.randn(40, 256, seed=1), GPU.randn(40, 256, seed=2)
    torch.autograd.backward(linear(x.requires_grad_(), warm.requires_grad_(), backend="triton"), grad)
    fresh = GPU.matrix(~scattered(8, 8))
    crow, col, values = fresh.pattern.crow.clone(), fresh.pattern.col.clone(), fresh.values.clone()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        w = BlockSparseMatrix.from_parts(values, crow, col, fresh.shape, validate=False).requires_grad_()
        torch.autograd.backward(linear(x, w, backend="triton"), grad)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    right_tokens(w, x.detach(), linear(x, w, backend="triton").detach())


def test_two_streams_at_once() -> None:
    """25: each stream its own input; the index of the transpose is made on one and used on both."""
    w = GPU.matrix(scattered(8, 8))
    inputs = [GPU.randn(64, 256, seed=turn) for turn in range(8)]
    torch.cuda.synchronize()
    streams = [stream(), stream()]
    outputs: list[Tensor] = []
    for turn, x in enumerate(inputs):
        with torch.cuda.stream(streams[turn % 2]):
            outputs.append(linear(x, w.T if turn % 4 > 1 else w, backend="triton"))
    torch.cuda.synchronize()
    for turn, (x, out) in enumerate(zip(inputs, outputs, strict=True)):
        right_tokens(w.T if turn % 4 > 1 else w, x, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices_with_the_other_one_current() -> None:
    w = GPU.matrix(scattered(4, 4)).to(device="cuda:1")
    x = GPU.randn(24, 128, seed=1).to("cuda:1")
    out = linear(x, w, backend="triton")
    assert out.device == torch.device("cuda:1")
    right_tokens(w, x, out)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_whole_by_inductor(mode: str) -> None:
    torch._dynamo.reset()
    layer = BlockSparseLinear(GPU.matrix(scattered(6, 8)), GPU.randn(192), activation="gelu", backend="triton")
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for turn in range(4):
        x = GPU.randn(48, 256, seed=turn).requires_grad_()
        grad = GPU.randn(48, 192, seed=9)
        plain = layer(x)
        wanted = torch.autograd.grad(plain, (x, layer.values), grad)
        found = compiled(x)
        torch.testing.assert_close(found, plain, rtol=2e-3, atol=2e-3)
        gradients = torch.autograd.grad(found, (x, layer.values), grad)
        for one, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-2)


def test_autocast_and_inference_mode() -> None:
    w = GPU.matrix(scattered(6, 8)).to(dtype=torch.float32)
    x = GPU.randn(48, 256, seed=1).float()
    with torch.autocast("cuda", dtype=torch.float16):
        out = linear(x, w, backend="triton")
    assert out.dtype == torch.float16
    assert torch.equal(out, linear(x.half(), w.to(dtype=torch.float16), backend="triton"))
    plain = linear(x.half(), w.to(dtype=torch.float16), backend="triton")
    with torch.inference_mode():
        inside = GPU.matrix(scattered(6, 8))
        assert torch.equal(linear(x.half(), inside, backend="triton"), plain)


def test_an_output_between_guards_in_the_batched_layout() -> None:
    w = GPU.matrix(scattered(3, 4), shape=(75, 101))
    x = GPU.randn(3, 101, 37, seed=1)
    out = guarded(GPU, w, x, layout=Layout.COLUMNS)
    for each, result in zip(x, out, strict=True):
        exact, magnitude = expected(w, each, layout=Layout.COLUMNS, finish=PLAIN, extras=NOTHING)
        close(result, exact, magnitude)


def test_auto_says_what_it_takes_and_computes_the_same() -> None:
    for density, accepted in ((0.02, SPARSE), (1.0, ("dense",))):
        w = BlockSparseMatrix.random(2048, 2048, block=128, density=density, dtype=torch.float16, device="cuda")
        w.keep_dense()  # without it `dense` makes a copy for each call, and sparse kernels win up to density 1
        x = GPU.randn(256, 2048)
        choice = explain_choice(w, 256)
        assert choice.backend in accepted, choice.why
        right_tokens(w, x, linear(x, w))
