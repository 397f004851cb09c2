"""Sequences of different lengths by the kernels on a GPU: each as if it had been called alone.

From the repository root: PYTHONPATH=src python -m pytest tests/kernels/gpu/test_ragged_gpu.py
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask, attention, ragged_attention
from firstlight.kernels.backends import why_not
from firstlight.kernels.torch_private import keep_busy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
LENGTHS = (1000, 1, 128, 3000, 77)
HEADS, KEY_HEADS, DIM = 8, 2, 128


def offsets_of(lengths: tuple[int, ...]) -> Tensor:
    return torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to("cuda", torch.int32)


def leaves(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator(device="cuda").manual_seed(5)

    def normal(heads: int) -> Tensor:
        made = torch.randn(tokens, heads, DIM, dtype=torch.bfloat16, device="cuda", generator=random)
        return made.requires_grad_()

    return normal(HEADS), normal(KEY_HEADS), normal(KEY_HEADS)


def one_by_one(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...]) -> Tensor:
    parts = zip(*(each.double().split(lengths) for each in (q, k, v)), strict=True)  # type: ignore[no-untyped-call]
    outs = [
        attention(*(each.transpose(0, 1)[None] for each in part), causal=True, backend="reference")[0].transpose(0, 1)
        for part in parts
    ]
    return torch.cat(outs)


@pytest.mark.parametrize("backend", ["sm90", "triton", "auto"])
def test_every_sequence_is_as_if_alone(backend: str) -> None:
    if backend == "sm90" and why_not("sm90", 0, torch.bfloat16):
        pytest.skip(why_not("sm90", 0, torch.bfloat16))
    given, offsets = leaves(sum(LENGTHS)), offsets_of(LENGTHS)
    out = ragged_attention(*given, offsets, causal=True, backend=backend)
    grad = torch.randn_like(out)
    made = (out, *torch.autograd.grad(out, given, grad))
    wanted_out = one_by_one(*given, LENGTHS)
    wanted = (wanted_out, *torch.autograd.grad(wanted_out, given, grad.double()))
    for one, right in zip(made, wanted, strict=True):
        assert float((one.double() - right).norm() / right.norm()) < 1.2e-2


def test_a_graph_takes_a_mask_and_refuses_offsets_it_has_not_seen() -> None:
    given, offsets = [each.detach() for each in leaves(sum(LENGTHS))], offsets_of(LENGTHS)
    mask = BlockMask.packed(offsets, causal=True)
    before = ragged_attention(given[0], given[1], given[2], mask=mask)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ragged_attention(given[0], given[1], given[2], mask=mask)
        with pytest.raises(UnsupportedInput, match="while a CUDA graph is captured"):
            ragged_attention(given[0], given[1], given[2], offsets, causal=True)
    graph.replay()
    assert torch.equal(out, before)


def test_offsets_that_go_free_nothing_that_is_read() -> None:
    """The mask goes with its offsets while another stream is still to read its lists, and its memory is used again."""
    given = [each.detach() for each in leaves(sum(LENGTHS))]
    wanted = ragged_attention(given[0], given[1], given[2], offsets_of(LENGTHS), causal=True)
    other = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    for _ in range(50):
        offsets = offsets_of(LENGTHS)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            keep_busy(1_000_000)
            out = ragged_attention(given[0], given[1], given[2], offsets, causal=True)
        del offsets
        for size in (1 << 10, 1 << 12, 1 << 14, 1 << 16):
            torch.full((size,), -1, dtype=torch.int32, device="cuda")
        torch.cuda.current_stream().wait_stream(other)
        assert torch.equal(out, wanted)


def test_offsets_of_inference_mode_are_compared_wherever_they_are_read() -> None:
    """They count no changes: the mask is kept, what it was made of is compared, on other streams too."""
    given = [each.detach() for each in leaves(sum(LENGTHS))]
    turned = tuple(reversed(LENGTHS))
    wanted = [
        ragged_attention(given[0], given[1], given[2], offsets_of(each), causal=True) for each in (LENGTHS, turned)
    ]
    other = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.inference_mode():
        offsets = offsets_of(LENGTHS).clone()
        for lengths, right in ((LENGTHS, wanted[0]), (turned, wanted[1])):
            offsets.copy_(offsets_of(lengths))
            assert torch.equal(ragged_attention(given[0], given[1], given[2], offsets, causal=True), right)
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                out = ragged_attention(given[0], given[1], given[2], offsets, causal=True)
            torch.cuda.current_stream().wait_stream(other)
            assert torch.equal(out, right)
