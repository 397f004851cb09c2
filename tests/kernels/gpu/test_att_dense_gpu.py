"""Attention by torch's own kernels on a GPU: the flash, memory-efficient and plain ones, their sums and gradients.

Plain pytest. From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_att_dense_gpu.py
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask, explain_attention
from tests.kernels.block_attention.att_cases import alone, assert_attends, attended, both, diagonal, qkv, scattered

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
BOUND = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 4e-3, torch.float64: 1e-9}  # float32 may be tf32
DTYPES = list(BOUND)


def on_gpu(*lengths: int, dim: int = 64, dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv(*lengths, dim=dim, dtype=dtype)
    return q.cuda(), k.cuda(), v.cuda()


def listed(q_len: int, k_len: int, block: int) -> BlockMask:
    blocks = scattered(2, 4, -(-q_len // block), -(-k_len // block))
    made = BlockMask.from_bool(blocks, block_level=True, q_len=q_len, k_len=k_len, block=block)
    return made.to("cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [64, 40, 20])
def test_lists_of_every_query_head(dtype: torch.dtype, dim: int) -> None:
    given, mask = on_gpu(300, 260, dim=dim, dtype=dtype), listed(300, 260, 64)
    found = both(*given, mask, backend="dense")
    assert_attends(found, attended(*given, mask.to_bool()), bound=BOUND[dtype])
    torch.testing.assert_close(alone(*given, mask, backend="dense"), found[0], rtol=BOUND[dtype], atol=BOUND[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alignment", ["upper_left", "lower_right"])
@pytest.mark.parametrize("lengths", [(256, 256), (100, 300), (300, 100), (1, 257)])
def test_causal_of_both_alignments(dtype: torch.dtype, alignment: str, lengths: tuple[int, int]) -> None:
    given = on_gpu(*lengths, dtype=dtype)
    wanted, bound = attended(*given, diagonal(*lengths, alignment).cuda()), BOUND[dtype]
    assert_attends(both(*given, causal=alignment, backend="dense"), wanted, bound=bound)
    found = alone(*given, causal=alignment, backend="dense")
    torch.testing.assert_close(found.double(), wanted[0], rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [-0.2, 0.0])
def test_a_scale_of_zero_or_less(dtype: torch.dtype, scale: float) -> None:
    given = on_gpu(130, 130, dtype=dtype)
    wanted = attended(*given, diagonal(130, 130, "upper_left").cuda(), scale)
    assert_attends(both(*given, causal=True, scale=scale, backend="dense"), wanted, bound=BOUND[dtype])


@pytest.mark.parametrize("told", ["lists", "lower_right"])
@pytest.mark.parametrize("asked", ["out", "both"])
def test_gradients(told: str, asked: str) -> None:
    q, k, v = (one.requires_grad_() for one in on_gpu(200, 260))
    mask = listed(200, 260, 64) if told == "lists" else None
    seen = diagonal(200, 260, "lower_right").cuda()[None, None] if mask is None else mask.to_bool()
    alive, upstream = seen.any(-1), torch.randn_like(q)
    causal = told if mask is None else False
    if asked == "both":
        out, lse = both(q, k, v, mask, causal=causal, backend="dense")
        total = (out * upstream).sum() + torch.where(alive, lse, 0.0).sum()
    else:
        total = (alone(q, k, v, mask, causal=causal, backend="dense") * upstream).sum()
    found = torch.autograd.grad(total, (q, k, v))
    true, sums = attended(q, k, v, seen | ~alive[..., None])
    truth = (true * upstream * alive[..., None]).sum() + ((sums * alive).sum() if asked == "both" else 0.0)
    for one, other in zip(found, torch.autograd.grad(truth, (q, k, v)), strict=True):
        assert (one.double() - other.double()).norm() <= 4e-3 * other.double().norm()


def test_queries_without_keys_never_give_nan() -> None:
    q, k, v = (one.requires_grad_() for one in on_gpu(300, 100))
    mask = BlockMask.window(300, 100, left=20, block=64, device="cuda")  # from query 120 on there is no key
    out, lse = both(q, k, v, mask, backend="dense")
    assert not out[:, :, 120:].any()
    assert bool((lse[:, :, 120:] == -torch.inf).all())
    for grad in torch.autograd.grad(alone(q, k, v, mask, backend="dense").sum(), (q, k, v)):
        assert bool(grad.isfinite().all())
        assert grad.shape[2] == 100 or not grad[:, :, 120:].any()


@pytest.mark.parametrize("asked", ["out", "both"])
def test_views_of_a_projection_in_a_captured_graph(asked: str) -> None:
    q, k, v = torch.randn(3, 2, 256, 4, 64, device="cuda", dtype=torch.float16).transpose(2, 3).unbind(0)
    mask = BlockMask.causal(256, device="cuda") & BlockMask.window(256, left=100, device="cuda")

    def run() -> Tensor:
        return alone(q, k, v, mask, backend="dense") if asked == "out" else both(q, k, v, mask, backend="dense")[0]

    before = run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    q.mul_(0.5)
    graph.replay()
    assert torch.equal(captured, run())
    assert not torch.equal(captured, before)


def test_auto_says_what_it_takes() -> None:
    q, k, _ = on_gpu(1024, 1024, dim=128)
    assert explain_attention(q, k, causal=True).why
    assert explain_attention(q, k, BlockMask.sink(1024, keys=64, device="cuda")).backend in ("triton", "sm90")
