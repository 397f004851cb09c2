"""The adversarial cases by the Hopper kernels, and those that only they have.

The cases are those of test_adversarial_gpu.py, with the same numbers; 27 (compile cache) is in ../sm90/test_cache.py.
Plain pytest: no hypothesis.
From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_sm90.py
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, linear, matmul, sampled_matmul
from firstlight.kernels.backends import why_not
from firstlight.kernels.launch import NOTHING
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.product import Epilogue, Layout
from firstlight.kernels.sm90.again import ProductAgain
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.driver import load
from firstlight.kernels.sm90.multiply_plan import make_plan
from firstlight.kernels.sm90.problem import problem_of
from firstlight.kernels.sm90.variants import Build, multiply_variant
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
    right,
    scattered,
)
from tests.kernels.cases import repeatable as repeatable_case


def hurdle() -> str:
    """Why these cannot run here; empty: they can."""
    if not torch.cuda.is_available():
        return "needs an H100 or H200; torch sees no GPU"
    return why_not("sm90", 0, torch.float16)


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(hurdle()), reason=hurdle() or "runs")]
SM90 = Where("cuda", "sm90", torch.float16)
BLOCKS = (16, 32, 64, 128)


def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def right_tokens(w: BlockSparseMatrix, x: Tensor, out: Tensor) -> None:
    exact, magnitude = expected(w, x, layout=Layout.TOKENS, finish=PLAIN, extras=NOTHING)
    close(out, exact, magnitude)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_case(case: Callable[[Where], None]) -> None:
    case(SM90)
    if name_of(case) != "overflow_and_denormals":
        case(Where("cuda", "sm90", torch.bfloat16))


@pytest.mark.parametrize(
    ("block", "dtype", "operation", "finish"), [case for case in PAIRS if case[1] is not torch.float32]
)
def test_pairs(block: int, dtype: torch.dtype, operation: str, finish: Finish) -> None:
    pair(Where("cuda", "sm90", dtype), block=block, operation=operation, finish=finish)


@pytest.mark.parametrize("block", BLOCKS)
def test_larger_products_of_every_block_size(block: int) -> None:
    w = BlockSparseMatrix.random(
        2048, 1024 + block, block=block, density=0.2, dtype=torch.float16, device="cuda",
        generator=torch.Generator(device="cuda").manual_seed(0),
    )  # fmt: skip
    for n in (8, 16, 64, 72, 256, 300, 1024):
        right(SM90, w, n)
        right(SM90, w, n, layout=Layout.COLUMNS)
        right(SM90, w.T, n)


@pytest.mark.parametrize(("block", "layout"), list(itertools.product(BLOCKS, Layout)))
def test_what_is_not_finite_reaches_the_rows_that_store_its_column_and_no_others(block: int, layout: Layout) -> None:
    """12 and 13 inside one group of rows: some of the 128 rows store the column and some do not."""
    w = SM90.matrix(scattered(512 // block + 3, 640 // block), block=block)
    for n in (24, 300):
        x = SM90.randn(n, 640, seed=1)
        x[3, 130], x[n - 1, 5], x[7, 600] = math.inf, math.nan, -math.inf
        x = x if layout is Layout.TOKENS else x.mT.contiguous()
        found, wanted = (
            linear(x, w, backend=name) if layout is Layout.TOKENS else matmul(w, x, backend=name)
            for name in ("sm90", "reference")
        )
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.isposinf(), wanted.isposinf())
        assert torch.equal(found.isneginf(), wanted.isneginf())


@pytest.mark.parametrize(("block", "layout"), list(itertools.product(BLOCKS, Layout)))
def test_random_delays_in_every_role_change_nothing(block: int, layout: Layout) -> None:
    """28: a build in which every role waits now and then, and traps instead of waiting for ever; lists of 0 to 20."""
    mask = torch.arange(20)[None, :] < torch.arange(21)[:, None]
    for direction, n in itertools.product(("forward", "transposed"), (40, 520)):
        w = SM90.matrix(mask, block=block)
        w = w.T if direction == "transposed" else w
        rows, cols = w.shape
        x = SM90.randn(*((n, cols) if layout is Layout.TOKENS else (cols, n)), seed=1)
        wanted = linear(x, w, backend="sm90") if layout is Layout.TOKENS else matmul(w, x, backend="sm90")
        call = stressed(w, x, layout)
        for _ in range(5):
            out = torch.full_like(wanted, math.nan)
            call(w.values, x, out, None, None, (x.data_ptr(), w.values.data_ptr()))
            assert torch.equal(out, wanted)
        assert rows == out.shape[-1 if layout is Layout.TOKENS else -2]


def stressed(w: BlockSparseMatrix, x: Tensor, layout: Layout) -> ProductAgain:
    """The product by a kernel with random delays and bounded waits."""
    problem = problem_of(w.index, x, layout)
    plan = make_plan(problem, w.index)
    variant = multiply_variant(
        Build(problem.block, problem.bf16, problem.tokens, problem.turned, problem.short_rows), plan.tile
    )
    slow = Variant(variant.source, (*variant.defines, ("FIRSTLIGHT_STRESS", 1)))
    kernel = load(
        built(slow, debug=True).cubin, "multiply", device=problem.device, shared_bytes=plan.tile.shared_bytes
    )  # fmt: skip
    return ProductAgain(replace(plan, kernel=kernel), w.index, Epilogue())


def test_a_hundred_runs_give_the_same_bits_while_another_stream_is_busy() -> None:
    other = stream()
    noise = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(other):
        for _ in range(200):
            noise = (noise @ noise).clamp_(-1, 1)
    repeatable_case(SM90)
    other.synchronize()


@pytest.mark.parametrize("block", [16, 128])
def test_more_than_2_31_values(block: int) -> None:
    """11: the last stored blocks lie beyond the reach of a 32-bit element offset."""
    side = math.isqrt(2**31 // block**2) + 2
    block_rows, block_cols = side, side
    values = torch.randn(block_rows * block_cols, block, block, dtype=torch.float16, device="cuda")
    assert values.numel() > 2**31
    crow = torch.arange(0, values.shape[0] + 1, block_cols, dtype=torch.int32, device="cuda")
    col = torch.arange(block_cols, dtype=torch.int32, device="cuda").repeat(block_rows)
    shape = (block_rows * block, block_cols * block)
    w = BlockSparseMatrix.from_parts(values, crow, col, shape, validate=False)
    x = SM90.randn(16, shape[1], seed=1)
    out = linear(x, w, backend="sm90")
    last = values[-block_cols:].permute(1, 0, 2).reshape(block, -1).double()
    close(out[:, -block:], x.double() @ last.T, x.double().abs() @ last.abs().T)
    y = SM90.randn(16, shape[0], seed=2)
    turned = linear(y, w.T, backend="sm90")
    column = values.view(block_rows, block_cols, block, block)[:, -1].reshape(-1, block).double()
    close(turned[:, -block:], y.double() @ column, y.double().abs() @ column.abs())
    sampled = sampled_matmul(y.mT, x, w, backend="sm90").values
    exact = y[:, -block:].double().T @ x[:, -block:].double()
    close(sampled[-1], exact, y[:, -block:].double().abs().T @ x[:, -block:].double().abs())


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((16, 128), Layout)))
def test_more_than_2_31_outputs(block: int, layout: Layout) -> None:
    n = 2**24 + 16
    w = SM90.matrix(torch.ones(128 // block, 128 // block, dtype=torch.bool), block=block)
    dense = w.to_dense().double()
    if layout is Layout.TOKENS:
        x = torch.randn(n, 128, dtype=torch.float16, device="cuda")
        out, tail = linear(x, w, backend="sm90"), x[-64:].double()
        close(out[-64:], tail @ dense.T, tail.abs() @ dense.abs().T)
    else:
        x = torch.randn(128, n, dtype=torch.float16, device="cuda")
        out, tail = matmul(w, x, backend="sm90"), x[:, -64:].double()
        close(out[:, -64:], dense @ tail, dense.abs() @ tail.abs())
    assert out.numel() > 2**31


@pytest.mark.parametrize("block", [32, 128])
def test_a_graph_replays_a_thousand_times_with_changed_values_and_inputs(block: int) -> None:
    mask = scattered(6, 160)
    mask[2] = True  # a row that is cut
    w, x = SM90.matrix(mask, block=block), SM90.randn(48, 160 * block, seed=1)
    bias = SM90.randn(6 * block, seed=2)
    linear(x, w, bias, activation="relu", backend="sm90")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = linear(x, w, bias, activation="relu", backend="sm90")
    for turn in range(1000):
        if turn % 250 == 0:
            x.copy_(SM90.randn(*x.shape, seed=turn))
            w.values.copy_(SM90.randn(*w.values.shape, seed=turn + 1))
            out.fill_(float("nan"))
        graph.replay()
        if turn % 250 in (0, 249):
            assert torch.equal(out, linear(x, w, bias, activation="relu", backend="sm90"))


def test_a_training_step_can_be_captured() -> None:
    layer = BlockSparseLinear(SM90.matrix(scattered(6, 8)), SM90.randn(192), backend="sm90")
    x = SM90.randn(48, 256, seed=1).requires_grad_()
    grad = SM90.randn(48, 192, seed=2)
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
    warm, x, grad = SM90.matrix(scattered(8, 8)), SM90.randn(40, 256, seed=1), SM90.randn(40, 256, seed=2)
    torch.autograd.backward(linear(x.requires_grad_(), warm.requires_grad_(), backend="sm90"), grad)
    fresh = SM90.matrix(~scattered(8, 8))
    crow, col, values = fresh.pattern.crow.clone(), fresh.pattern.col.clone(), fresh.values.clone()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        w = BlockSparseMatrix.from_parts(values, crow, col, fresh.shape, validate=False).requires_grad_()
        torch.autograd.backward(linear(x, w, backend="sm90"), grad)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    right_tokens(w, x.detach(), linear(x, w, backend="sm90").detach())


def test_streams_at_once_do_not_take_each_others_work() -> None:
    """25: each stream its own input, rows that are cut, the transposed index made on one stream and used on all."""
    mask = scattered(8, 160)
    mask[1] = True
    w = SM90.matrix(mask)
    inputs = [SM90.randn(64, w.shape[turn // 2 % 2 == 0], seed=turn) for turn in range(32)]
    torch.cuda.synchronize()
    streams = [stream() for _ in range(4)]
    outputs: list[Tensor] = []
    for turn, x in enumerate(inputs):
        with torch.cuda.stream(streams[turn % 4]):
            outputs.append(linear(x, w.T if turn // 2 % 2 else w, backend="sm90"))
    torch.cuda.synchronize()
    for turn, (x, out) in enumerate(zip(inputs, outputs, strict=True)):
        right_tokens(w.T if turn // 2 % 2 else w, x, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices_with_the_other_one_current() -> None:
    w = SM90.matrix(scattered(4, 4)).to(device="cuda:1")
    x = SM90.randn(24, 128, seed=1).to("cuda:1")
    out = linear(x, w, backend="sm90")
    assert out.device == torch.device("cuda:1")
    right_tokens(w, x, out)


def test_compiled_whole_by_inductor() -> None:
    torch._dynamo.reset()
    layer = BlockSparseLinear(SM90.matrix(scattered(6, 8)), SM90.randn(192), activation="gelu", backend="sm90")
    compiled = torch.compile(layer, fullgraph=True)
    for turn in range(3):
        x = SM90.randn(48, 256, seed=turn).requires_grad_()
        grad = SM90.randn(48, 192, seed=9)
        plain, found = layer(x), compiled(x)
        torch.testing.assert_close(found, plain, rtol=2e-3, atol=2e-3)
        wanted = torch.autograd.grad(plain, (x, layer.values), grad)
        for one, other in zip(torch.autograd.grad(found, (x, layer.values), grad), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-2)


def test_autocast_and_inference_mode() -> None:
    w = SM90.matrix(scattered(6, 8)).to(dtype=torch.float32)
    x = SM90.randn(48, 256, seed=1).float()
    plain = linear(x.half(), w.to(dtype=torch.float16), backend="sm90")
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.equal(linear(x, w, backend="sm90"), plain)
    with torch.inference_mode():
        inside = SM90.matrix(scattered(6, 8))
        assert torch.equal(linear(x.half(), inside, backend="sm90"), plain)


def test_an_output_between_guards_in_the_batched_layout() -> None:
    for n in (37, 40, 64):
        w = SM90.matrix(scattered(3, 4), shape=(75, 101))
        x = SM90.randn(3, 101, n, seed=1)
        out = guarded(SM90, w, x, layout=Layout.COLUMNS)
        for each, result in zip(x, out, strict=True):
            exact, magnitude = expected(w, each, layout=Layout.COLUMNS, finish=PLAIN, extras=NOTHING)
            close(result, exact, magnitude)
