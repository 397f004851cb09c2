"""Choosing blocks by scores on a GPU, and lists of many blocks: bit for bit what the processor gives.

From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_att_lists_gpu.py
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockMask
from firstlight.kernels.block_attention.lists import lists_of, turned_lists_of

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


def chosen(scores: Tensor, k: int) -> BlockMask:
    rows, columns = scores.shape[2:]
    return BlockMask.top_k(scores, k, q_len=rows * 64, k_len=columns * 64, block=64)


def some_scores(columns: int) -> tuple[Tensor, ...]:
    """Few and many equal ones, NaN, infinities, zeros of both signs, another layout."""
    generator = torch.Generator().manual_seed(columns)
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 6e-8, 1.0, -1.0])
    normal = torch.randn(2, 3, 5, columns, generator=generator)
    drawn = special[torch.randint(0, len(special), normal.shape, generator=generator)]
    return normal, (normal * 3).round(), drawn, torch.where(normal > 0, normal, drawn), normal.transpose(0, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 2, 63, 64, 65, 1000, 1713, 4097, 8193])
def test_blocks_chosen_on_the_gpu_are_those_of_the_processor(columns: int, dtype: torch.dtype) -> None:
    for scores in some_scores(columns):
        given = scores.to(dtype)
        there = given.cuda() if given.is_contiguous() else given.transpose(0, 1).cuda().transpose(0, 1)
        for k in (0, 1, 64, columns, 10_000):
            here, found = chosen(given, k), chosen(there, k)
            assert torch.equal(here.kinds, found.kinds.cpu())
            assert here.most == found.most


def test_lists_of_a_long_sequence_are_those_of_the_processor() -> None:
    there = chosen(torch.rand(1, 7, 1713, 1713, device="cuda"), 64)
    here = there.to("cpu")
    for make in (lists_of, turned_lists_of):
        wanted, found = make(here), make(there)
        end = int(wanted.starts[-1])
        assert end == 7 * 1713 * 64
        assert torch.equal(wanted.starts, found.starts.cpu())
        assert torch.equal(wanted.order, found.order.cpu())
        assert torch.equal(wanted.columns[:end], found.columns[:end].cpu())
        assert torch.equal(wanted.masks[:end], found.masks[:end].cpu())


def test_a_captured_choice_follows_the_scores() -> None:
    scores = torch.rand(1, 2, 40, 300, device="cuda")
    lists_of(chosen(scores, 9))  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mask = chosen(scores, 9)
        columns = lists_of(mask).columns
    scores.copy_(torch.rand_like(scores))
    graph.replay()
    wanted = chosen(scores.cpu(), 9)
    assert torch.equal(mask.kinds.cpu(), wanted.kinds)
    assert torch.equal(columns.cpu(), lists_of(wanted).columns)
