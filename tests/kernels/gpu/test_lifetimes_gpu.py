"""What we allocate lives until every stream and graph that reads it is through: dropped, evicted and overwritten here.

A stream is held up by a spin of bounded length; what it will read is dropped meanwhile, and the memory that is free
then is taken and filled with numbers that no list may hold.
From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_lifetimes_gpu.py
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, captured, linear
from firstlight.kernels.block_attention.seen import _kept_plain_mask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
# cycles, 0.2 s on an H200: the host drops and fills long before it ends. Under compute-sanitizer it is slower:
# LIFETIME_SPINS=15 python -m pytest ...
SPIN = 400_000_000 * int(os.environ.get("LIFETIME_SPINS", "1"))
GARBAGE = 0x3F3F3F3F  # an entry that no list has
BACKENDS = ["triton", "sm90"]
Work = Callable[[], Tensor]


def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def spin() -> None:
    torch.cuda._sleep(SPIN)  # type: ignore[no-untyped-call]


def take_free_memory() -> list[Tensor]:
    """Fills what the allocator has free, in pieces of the sizes that lists have, on the current stream."""
    taken = []
    for size in (64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, 262144):
        taken += [torch.full((size,), GARBAGE, dtype=torch.int32, device="cuda") for _ in range(24)]
    taken += [torch.full((1 << 21,), GARBAGE, dtype=torch.int32, device="cuda") for _ in range(4)]  # a dense copy's
    return taken


def qkv(length: int, seed: int = 0, heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shape = (1, heads, length, 128)
    q, k, v = (torch.randn(shape, device="cuda", generator=generator).half() for _ in range(3))
    return q, k, v


def matrix(block: int = 128, seed: int = 0, density: float = 0.2) -> BlockSparseMatrix:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return BlockSparseMatrix.random(
        2048, 2048, block=block, density=density, dtype=torch.float16, device="cuda", generator=generator
    )


def held_up(work: Work, drop: Callable[[], object], again: Work) -> tuple[Tensor, Tensor]:
    """What work gives on a held-up stream while what it reads is dropped and the memory filled; and what is right."""
    right = again()
    torch.cuda.synchronize()
    side = stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        spin()
        found = work()
    drop()
    gc.collect()
    taken = take_free_memory()
    assert not side.query(), "the host was too slow: the stream was through before the memory was filled"
    torch.cuda.synchronize()
    del taken
    return found, right


@pytest.mark.parametrize("causal", [False, True, "lower_right"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fifth_shape_does_not_take_the_lists_that_another_stream_reads(backend: str, causal: bool | str) -> None:  # noqa: FBT001
    q, k, v = qkv(2048)
    kept = k[:, :, :1920], v[:, :, :1920]
    others = [qkv(length, heads=1) for length in (256, 384, 512, 640, 768)]
    for each in others:
        attention(*each, causal=causal, backend=backend)  # compiled before the clock runs
    _kept_plain_mask.cache_clear()

    def evict() -> None:
        for each in others:
            attention(*each, causal=causal, backend=backend)
        assert _kept_plain_mask.cache_info().currsize == 4

    def call() -> Tensor:
        return attention(q, *kept, causal=causal, backend=backend)

    found, right = held_up(call, evict, call)
    assert torch.equal(found, right)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_that_goes_leaves_its_lists_to_the_stream_that_reads_them(backend: str) -> None:
    q, k, v = qkv(2048)
    masks = [BlockMask.window(2048, left=300, device="cuda")]

    def call() -> Tensor:
        return attention(q, k, v, masks[0], backend=backend)

    found, right = held_up(call, masks.clear, call)
    assert torch.equal(found, right)


@pytest.mark.parametrize("backend", [*BACKENDS, "dense"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("block", [128, 64, 32])
def test_a_pattern_that_goes_leaves_its_lists_to_the_stream_that_reads_them(
    block: int, turned: object, backend: str
) -> None:
    x = torch.randn(512, 2048, device="cuda").half()
    kept = [matrix(block)]
    values = kept[0].values  # the caller's own: it sees to these itself
    if backend == "dense":
        kept[0].keep_dense()

    def call() -> Tensor:
        return linear(x, kept[0].T if turned else kept[0], backend=backend)

    found, right = held_up(call, kept.clear, call)
    assert torch.equal(found, right)
    assert values.numel()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_on_a_second_stream_read_what_the_first_made(backend: str) -> None:
    x, kept = torch.randn(512, 2048, device="cuda").half().requires_grad_(), [matrix(64)]
    values = kept[0].values.detach().requires_grad_()  # the caller's own, like x

    def call() -> Tensor:
        out = linear(x, kept[0].with_values(values), backend=backend)
        found = torch.autograd.grad((out.float() / 64).square().sum(), (values, x))
        return torch.cat([one.flatten() for one in found])

    found, right = held_up(call, kept.clear, call)
    assert torch.equal(found, right)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lists_made_on_a_held_up_stream_are_waited_for(backend: str) -> None:
    q, k, v = qkv(1024)
    x, w, twin = torch.randn(256, 2048, device="cuda").half(), matrix(64), matrix(64)
    mask, same = (BlockMask.window(1024, left=200, device="cuda") for _ in range(2))
    right = attention(q, k, v, same, backend=backend), linear(x, twin.T, backend=backend)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream()):
        spin()
        attention(q, k, v, mask, backend=backend)
        linear(x, w.T, backend=backend)
    with torch.cuda.stream(stream()):
        found = attention(q, k, v, mask, backend=backend), linear(x, w.T, backend=backend)
    torch.cuda.synchronize()
    assert torch.equal(found[0], right[0])
    assert torch.equal(found[1], right[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_holds_what_it_reads_when_pattern_and_mask_are_gone(backend: str) -> None:
    (q, k, v), x = qkv(1024), torch.randn(256, 2048, device="cuda").half()
    kept: list[tuple[BlockSparseMatrix, BlockMask]] = [(matrix(64), BlockMask.window(1024, left=200, device="cuda"))]
    values = kept[0][0].values

    def calls() -> tuple[Tensor, Tensor, Tensor]:
        w, mask = kept[0]
        seen = attention(q, k, v, mask, backend=backend)
        return linear(x, w, backend=backend), seen, attention(q, k, v, causal=True, backend=backend)

    right = calls()
    torch.cuda.synchronize()
    captured.drop_gone()
    before = captured.held_tensors()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = calls()
    assert captured.held_tensors() > before
    kept.clear()
    for length in (256, 384, 512, 640, 768):
        attention(*qkv(length, heads=1), causal=True, backend=backend)
    gc.collect()
    taken = take_free_memory()
    for one in found:
        one.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(found, right, strict=True):
        assert torch.equal(one, other)
    assert values.numel()
    del graph, taken
    gc.collect()
    torch.cuda.synchronize()
    for _ in range(100):  # the driver lets go on a thread of its own
        captured.drop_gone()
        if captured.held_tensors() <= before:
            break
        threading.Event().wait(0.05)
    assert captured.held_tensors() <= before, "what a graph held outlives it"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_capture_begun_by_hand_waits_for_lists_that_are_still_made(backend: str) -> None:
    (q, k, v), x = qkv(1024), torch.randn(256, 2048, device="cuda").half()
    w, twin = matrix(64), matrix(64)
    mask, same = (BlockMask.window(1024, left=200, device="cuda") for _ in range(2))
    right = attention(q, k, v, same, backend=backend), linear(x, twin.T, backend=backend)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream()):  # compiled and warm; the lists of `mask` and of w.T are still to be made
        spin()
        attention(q, k, v, mask, backend=backend)
        linear(x, w.T, backend=backend)
    graph, side = torch.cuda.CUDAGraph(), stream()
    with torch.cuda.stream(side):
        graph.capture_begin()
        found = attention(q, k, v, mask, backend=backend), linear(x, w.T, backend=backend)
        graph.capture_end()
    with torch.cuda.stream(stream()):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found[0], right[0])
    assert torch.equal(found[1], right[1])


@pytest.mark.parametrize("backend", [*BACKENDS, "auto", "dense"])
@pytest.mark.parametrize("tokens", [8, 64, 4096])
def test_the_first_cuda_work_of_a_thread_may_be_a_product(backend: str, tokens: int) -> None:
    w = matrix(128)
    x = torch.randn(tokens, 2048, device="cuda").half()
    right = linear(x, w, backend=backend)
    fresh = torch.randn(tokens, 2048, device="cuda").half(), x.clone()  # addresses that no map was made for
    found: list[Tensor | BaseException] = []

    def work() -> None:
        try:
            found.extend(linear(each, w, backend=backend) for each in (fresh[1], x))
        except BaseException as error:  # noqa: BLE001 told below
            found.append(error)

    torch.cuda.synchronize()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert len(found) == 2, found
    for one in found:
        assert isinstance(one, Tensor), one
        torch.testing.assert_close(one, right, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_cuda_work_of_a_thread_may_be_attention(backend: str) -> None:
    q, k, v = qkv(1024)
    right = attention(q, k, v, causal=True, backend=backend)
    fresh = q.clone(), k.clone(), v.clone()
    torch.cuda.synchronize()
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(attention(*fresh, causal=True, backend=backend)))
    thread.start()
    thread.join()
    assert torch.equal(found[0], right)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("backend", ["dense", "auto"])
def test_a_fused_step_is_seen_by_the_evaluation_after_it(backend: str, optimizer: type[torch.optim.Optimizer]) -> None:
    w = matrix(128, density=0.9)
    w = w.with_values(torch.nn.Parameter(w.values.float() / 8))
    x = torch.randn(64, 2048, device="cuda")
    steps = optimizer([w.values], lr=0.05, fused=True)  # type: ignore[call-arg]
    for _ in range(3):
        with torch.no_grad():
            found, right = linear(x, w, backend=backend), x.double() @ w.to_dense().double().T
        assert float((found - right).norm() / right.norm()) < 2e-3
        linear(x, w, backend=backend).square().mean().backward()  # type: ignore[no-untyped-call]
        steps.step()
        steps.zero_grad()


def test_values_changed_by_a_replayed_graph_are_seen() -> None:
    w, x = matrix(128, density=0.9), torch.randn(64, 2048, device="cuda").half()
    linear(x, w, backend="dense")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        w.values.mul_(-0.5)
    for _ in range(3):
        graph.replay()
        right = x.float() @ w.to_dense().float().T
        torch.testing.assert_close(linear(x, w, backend="dense").float(), right, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize("block", [128, 64])
@pytest.mark.parametrize("head_dim", [128, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_row_of_sm90_depends_on_its_own_row_alone(dtype: torch.dtype, head_dim: int, block: int) -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    q, k, v = (torch.randn(2, 4, 2048, head_dim, device="cuda", generator=generator).to(dtype) for _ in range(3))
    mask = BlockMask.causal(2048, block=block, device="cuda")
    q = q * 2  # maxima grow from tile to tile, by less than what has a row scaled anew
    right = attention(q, k, v, mask, backend="sm90", return_lse=True)
    for number in (float("nan"), float("inf"), 50.0, 0.0):
        changed = q.clone()
        changed[:, :, 5::16] = number
        others = torch.ones(2048, dtype=torch.bool, device="cuda")
        others[5::16] = False
        found = attention(changed, k, v, mask, backend="sm90", return_lse=True)
        assert torch.equal(found[0][:, :, others], right[0][:, :, others]), number
        assert torch.equal(found[1][:, :, others], right[1][:, :, others]), number


@pytest.mark.parametrize("backend", ["auto", "triton", "sm90", "dense", "reference"])
@pytest.mark.parametrize("wanted", [False, True])
def test_no_batch_no_head_and_no_query_give_empty_results(backend: str, wanted: object) -> None:
    for batch, length in ((0, 256), (1, 0), (0, 0)):
        q = torch.randn(batch, 4, length, 128, device="cuda").half().requires_grad_(bool(wanted))
        k = torch.randn(batch, 4, 256, 128, device="cuda").half()
        for mask in (None, BlockMask.window(length, 256, left=100, device="cuda")) if length else (None,):
            for _ in range(2):
                out, lse = attention(q, k, k, mask, backend=backend, return_lse=True)
                assert out.shape == q.shape
                assert lse.shape == q.shape[:3]
                if wanted:
                    assert torch.autograd.grad(out.sum(), q)[0].shape == q.shape
                assert attention(q, k, k, mask, backend=backend).shape == q.shape


def test_values_that_do_not_fit_are_refused_before_a_kernel_reads_past_them() -> None:
    w, x = matrix(128), torch.randn(64, 2048, device="cuda").half()
    for backend in BACKENDS:
        linear(x, w, backend=backend)
        given = w.values
        for other in (given[:-1].contiguous(), given[:, :64, :64].contiguous(), given.new_empty(0, 128, 128)):
            w.values = other
            with pytest.raises(ValueError, match="values has shape"):
                linear(x, w, backend=backend)
        w.values = given
        linear(x, w, backend=backend)
