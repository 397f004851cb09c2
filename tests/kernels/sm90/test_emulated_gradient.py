"""gradient.cu itself, run thread by thread in the emulator behind its real arguments, and faults planted into it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.sm90 import gradient_once
from firstlight.kernels.sm90.gradient import backward
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.driver import EmulatingDriver
from tests.kernels.sm90.emulator.faults import NUMBERS, Change, Planted, assert_noticed
from tests.kernels.sm90.emulator.machine import emulated_gpu
from tests.kernels.sm90.emulator.products import randn
from tests.kernels.sm90.emulator.run import EmulatedFault

pytestmark = needs_compiler
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 2e-2}  # of the largest element


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatingDriver]:
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=2) as made:
        yield made


@pytest.fixture(autouse=True)
def in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """gradient.cu everywhere; test_emulated_gradient_once.py has the one pass."""
    monkeypatch.setattr(gradient_once, "takes", lambda *given: False)


def exact(given: tuple[Tensor, Tensor, Tensor], seen: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Output and logarithms of the sums, differentiable; 0 and -inf for a row that sees no key."""
    q, k, v = given
    scores = (scale * q @ k.mT).masked_fill(~seen, -math.inf)
    lse = scores.logsumexp(-1)
    shares = torch.where(seen, (scores - lse.unsqueeze(-1)).exp(), 0.0)
    return shares @ v, lse


def differentiated(
    mask: BlockMask, *, heads: int = 2, group: int = 1, head_dim: int = 128, dtype: torch.dtype = torch.float16,
    with_lse: bool = False,
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """(made, wanted) of dq, dk and dv on random numbers, wanted in float64; heads: of queries."""
    q = randn(1, heads, mask.q_len, head_dim, seed=1, dtype=dtype)
    k, v = (randn(1, heads // group, mask.k_len, head_dim, seed=seed, dtype=dtype) for seed in (2, 3))
    grad = randn(*q.shape, seed=4, dtype=dtype)
    seen = mask.to_bool().expand(1, heads, mask.q_len, mask.k_len)
    doubles = [each.double().requires_grad_() for each in (q, k, v)]
    scale = head_dim**-0.5
    all_k, all_v = (each.repeat_interleave(group, 1) for each in doubles[1:])
    out, lse = exact((doubles[0], all_k, all_v), seen, scale)
    grad_lse = torch.where(lse.isinf(), 0.0, randn(*q.shape[:3], seed=5, dtype=torch.float32)) if with_lse else None
    wanted = [grad.double()] if grad_lse is None else [grad.double(), grad_lse.double()]
    outputs = [out] if grad_lse is None else [out, lse.masked_fill(lse.isinf(), 0.0)]
    exact_grads = torch.autograd.grad(outputs, doubles, wanted)
    made = Forward(q, k, v, out.detach().to(dtype), lse.detach().float())
    found = backward(Upstream(grad, grad_lse), made, mask, scale=scale)
    return list(zip(found, exact_grads, strict=True))


def off(pairs: list[tuple[Tensor, Tensor]], tolerance: float) -> list[float]:
    """The largest error of each, over the largest element; NaN where there is one."""
    errors = [float((made.double() - wanted).abs().max() / wanted.abs().max()) for made, wanted in pairs]
    return [error for error in errors if not error <= tolerance]


@pytest.mark.parametrize("head_dim", [128, 64])
@pytest.mark.parametrize(
    "mask",
    [
        BlockMask.causal(300, 300, block=128),
        BlockMask.causal(130, 330, block=128, alignment="lower_right"),
        BlockMask.window(330, 200, left=70, right=3, block=128),
        BlockMask.full(256, 128, block=128),
    ],
    ids=["causal", "lower right", "window, rows that see nothing", "full"],
)
def test_partial_blocks_and_ragged_lengths(gpu: EmulatingDriver, mask: BlockMask, head_dim: int) -> None:
    assert off(differentiated(mask, head_dim=head_dim), TOLERANCE[torch.float16]) == []


@pytest.mark.parametrize("head_dim", [128, 64])
def test_bfloat16_and_the_gradient_of_the_logarithms(gpu: EmulatingDriver, head_dim: int) -> None:
    mask = BlockMask.causal(200, 200, block=128)
    pairs = differentiated(mask, head_dim=head_dim, dtype=torch.bfloat16, with_lse=head_dim == 128)
    assert off(pairs, TOLERANCE[torch.bfloat16]) == []


def test_another_list_for_every_head_some_of_them_empty(gpu: EmulatingDriver) -> None:
    chosen = torch.rand(1, 3, 4, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    chosen[0, 1] = False
    chosen[0, 2, :, 1:] = False
    mask = BlockMask.from_bool(chosen, block_level=True, q_len=512, k_len=384, block=128)
    pairs = differentiated(mask, heads=3, head_dim=64)
    assert off(pairs, TOLERANCE[torch.float16]) == []
    assert all(bool((made[0, 1] == 0).all()) for made, _ in pairs)
    again = differentiated(mask, heads=3, head_dim=64)
    assert all(torch.equal(one, other) for (one, _), (other, _) in zip(pairs, again, strict=True)), f"seed {gpu.seed}"


@pytest.mark.parametrize(("head_dim", "group"), [(128, 2), (64, 4)])
def test_heads_that_share_keys_each_with_its_list(gpu: EmulatingDriver, head_dim: int, group: int) -> None:
    chosen = torch.rand(1, 4, 3, 3, generator=torch.Generator().manual_seed(group)) < 0.5
    chosen[0, 1] = False
    mask = BlockMask.from_bool(chosen, block_level=True, q_len=300, k_len=384, block=128)
    assert off(differentiated(mask, heads=4, group=group, head_dim=head_dim), TOLERANCE[torch.float16]) == []
    causal = BlockMask.causal(300, 300, block=128)  # one list for all
    assert off(differentiated(causal, heads=4, group=group, head_dim=head_dim), TOLERANCE[torch.float16]) == []


_RELEASE = "    at.release();\n    if (k == 0) at.leave_seat();\n"
_WAIT = "    wgmma_wait<EARLY>();  // the scores are there, and with them all that was begun before\n"
_LAST = "    wgmma_wait<KEYSIDE>();  // now t\n"
PLANTED = (
    Planted("a stage is released too early", (Change("gradient.cu", _WAIT, _RELEASE + _WAIT),),
            (NUMBERS, "nothing can go on", "one more arrival")),
    Planted("scores are read before they are there", (Change("gradient.cu", _WAIT, ""),),
            (NUMBERS, "accumulators were written")),
    Planted("the second product is read before it is there",
            (Change("gradient.cu", _LAST, "    wgmma_wait<KEYSIDE + 1>();\n"),),
            (NUMBERS, "accumulators were written")),
    Planted("a seat is left while its results are on their way",
            (Change("gradient.cu", "      stores_read<0>();\n", ""),), (NUMBERS,)),
    Planted("results are written where a warp still reads",
            (Change("gradient.cu", "  wgmma_wait<0>();\n  at.release();\n", "  at.release();\n"),),
            (NUMBERS, "accumulators were", "nothing can go on")),
    Planted("the sums of the columns are not waited for",
            (Change("gradient.cu", "STAGE_BYTES + (KEYSIDE ? 2 * VECTOR_BYTES : 0)", "STAGE_BYTES"),),
            (NUMBERS, "bytes")),
)  # fmt: skip


def seen_in(planted: Planted) -> str:
    try:
        pairs = differentiated(BlockMask.causal(640, 640, block=128), heads=2, head_dim=64)
    except EmulatedFault as fault:
        return str(fault)
    return NUMBERS if off(pairs, TOLERANCE[torch.float16]) else ""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_it_is_noticed_that(tmp_path: Path, planted: Planted) -> None:
    assert_noticed(planted, tmp_path, seen_in)


@pytest.mark.parametrize(("head_dim", "seed"), list(itertools.product((128, 64), range(3))))
def test_without_a_fault_it_is_right_under_other_seeds(gpu: EmulatingDriver, head_dim: int, seed: int) -> None:
    gpu.seed = 100 * seed
    assert off(differentiated(BlockMask.causal(640, 640, block=128), head_dim=head_dim), 3e-3) == []
