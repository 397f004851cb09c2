"""The adversarial cases of attention, for any backend on any device; the numbers are those of the test plan.

Each takes a Where. test_attention_gpu.py runs them on a GPU by the kernels, test_att_gpu_cases.py on the processor by
the reference and the dense backend, so that a case is known to be right before a kernel fails it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels import BlockMask, CopiedInput, attention, merge_attention
from firstlight.kernels.block_attention.choose import module
from firstlight.kernels.block_attention.mask import FULL, NONE, PARTIAL
from tests.kernels.block_attention.att_cases import attended

GUARD = 1024  # elements of NaN before and behind an output: keeps it aligned
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-11}
GRADIENT = {torch.float16: 3e-3, torch.bfloat16: 2.5e-2, torch.float32: 5e-5, torch.float64: 1e-10}  # of the norm
Pair = tuple[Tensor, Tensor]
Three = tuple[Tensor, Tensor, Tensor]


class Where(NamedTuple):
    """A backend on a device with a block, a head dimension and a type."""

    device: str
    backend: str
    block: int
    dim: int
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.backend}-{self.block}-d{self.dim}-{str(self.dtype).removeprefix('torch.')}"

    def randn(self, *shape: int, seed: int = 0) -> Tensor:
        """Normal numbers, the same on every device."""
        made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        return made.to(self.device, self.dtype)

    def qkv(self, q_len: int, k_len: int, *, heads: tuple[int, int] = (4, 2), batch: int = 2) -> Three:
        return (
            self.randn(batch, heads[0], q_len, self.dim, seed=1),
            self.randn(batch, heads[1], k_len, self.dim, seed=2),
            self.randn(batch, heads[1], k_len, self.dim, seed=3),
        )

    def blocks(self, kept: Tensor, q_len: int, k_len: int) -> BlockMask:
        """Whole blocks; kept [batch or 1, heads or 1, query blocks, key blocks]."""
        given = kept.to(self.device)
        return BlockMask.from_bool(given, block_level=True, q_len=q_len, k_len=k_len, block=self.block)

    def run(self, q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, scale: float | None = None) -> Pair:
        """(out, lse), in memory that held NaN before as far as the allocator hands it out again."""
        spoiled = [torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device=q.device)]
        del spoiled
        made = attention(q, k, v, mask, scale=scale, backend=self.backend, return_lse=True)
        assert isinstance(made, tuple)
        return made


def draw(*shape: int, share: float, seed: int = 0) -> Tensor:
    """Random booleans."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < share


def leaves_of(tensors: Three) -> Three:
    """The same numbers, for which gradients are asked."""
    q, k, v = (one.detach().requires_grad_() for one in tensors)
    return q, k, v


def seen_of(mask: BlockMask) -> Tensor:
    return mask.to_bool()


def close(found: Pair, wanted: Pair, *, times: float = 1.0) -> None:
    """Out and lse are what they should be; 0 and -inf where no key is seen."""
    (out, lse), (true_out, true_lse) = found, wanted
    bound = times * TOLERANCE[out.dtype]
    empty = true_lse == -math.inf
    assert not out.isnan().any(), f"{int(out.isnan().sum())} NaN in the output"
    assert bool((lse[empty] == -math.inf).all()), "a logarithm of an empty row is not -inf"
    assert not bool(out[empty].any()), "an empty row is not 0"
    torch.testing.assert_close(out.double(), true_out, rtol=bound, atol=bound)
    torch.testing.assert_close(lse[~empty].double(), true_lse[~empty], rtol=1e-3, atol=2e-3)


def right(where: Where, q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Pair:
    """Runs and compares with float64 over every pair."""
    found = where.run(q, k, v, mask)
    close(found, attended(q, k, v, seen_of(mask)))
    return found


# ----------------------------------------------------------------------------------------------- which blocks there are


def no_blocks(where: Where) -> None:
    """1"""
    size = 2 * where.block
    q, k, v = where.qkv(size, size)
    out, lse = right(where, q, k, v, where.blocks(torch.zeros(1, 1, 2, 2, dtype=torch.bool), size, size))
    assert not out.any()
    assert bool((lse == -math.inf).all())


def some_rows_empty(where: Where) -> None:
    """2: first, last, and every other one; neighbours as they are."""
    size = 6 * where.block
    q, k, v = where.qkv(size, size)
    kept = draw(1, 4, 6, 6, share=0.5)
    kept[:, 0, 0] = False
    kept[:, 1, -1] = False
    kept[:, 2, ::2] = False
    kept[:, 3, 1::2] = False
    right(where, q, k, v, where.blocks(kept, size, size))


def every_block(where: Where) -> None:
    """3: as torch's own attention, and full lists as no mask at all."""
    size = 3 * where.block
    q, k, v = where.qkv(size, size, heads=(4, 4))
    listed = right(where, q, k, v, where.blocks(torch.ones(1, 4, 3, 3, dtype=torch.bool), size, size))
    plain = where.run(q, k, v, None)
    close(plain, (listed[0].double(), listed[1].double()), times=2.0)


def one_block_in_each_corner(where: Where) -> None:
    """5"""
    size = 4 * where.block
    q, k, v = where.qkv(size, size)
    kept = torch.zeros(1, 4, 4, 4, dtype=torch.bool)
    for head, (row, column) in enumerate(((0, 0), (0, -1), (-1, 0), (-1, -1))):
        kept[0, head, row, column] = True
    right(where, q, k, v, where.blocks(kept, size, size))


def uneven_lists(where: Where) -> None:
    """4: one long row among empty ones; lists of 0, 1, 2 and more, so that pipelines start and drain in every way."""
    rows = 12
    size = rows * where.block
    q, k, v = where.qkv(size, size, heads=(2, 1), batch=1)
    kept = torch.arange(rows)[None, :] < torch.arange(rows)[:, None]
    alone = torch.zeros(rows, rows, dtype=torch.bool)
    alone[5] = True
    right(where, q, k, v, where.blocks(torch.stack([kept, alone])[None], size, size))


# -------------------------------------------------------------------------------------------------- lengths and layouts


def ragged_lengths(where: Where) -> None:
    """9: tails of queries and of keys, more of one than of the other; lists and the diagonal."""
    for q_len, k_len in ((1, 1), (17, 300), (300, 17), (255, 257), (256, 256), (257, 255), (1000, 200)):
        q, k, v = where.qkv(q_len, k_len, heads=(2, 1), batch=1)
        rows, columns = -(-q_len // where.block), -(-k_len // where.block)
        right(where, q, k, v, where.blocks(draw(1, 2, rows, columns, share=0.7), q_len, k_len))
        for alignment in ("upper_left", "lower_right"):
            mask = BlockMask.causal(q_len, k_len, alignment=alignment, block=where.block, device=where.device)
            right(where, q, k, v, mask)


def nothing_past_the_end(where: Where) -> None:
    """9: guards of NaN around out and lse stay; every element between them is written."""
    for q_len, k_len in ((3 * where.block, 2 * where.block), (257, 190), (1, 70)):
        q, k, v = where.qkv(q_len, k_len)
        kept = draw(1, 4, -(-q_len // where.block), -(-k_len // where.block), share=0.6, seed=q_len)
        mask = where.blocks(kept, q_len, k_len)
        found, rooms = [], []
        for shape, dtype in ((q.shape, q.dtype), (q.shape[:3], torch.float32)):
            room = torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=dtype, device=where.device)
            rooms.append(room)
            found.append(room[GUARD:-GUARD].view(shape))
        out, lse = found
        module(where.backend).forward(q, k, v, mask, scale=where.dim**-0.5, out=out, lse=lse)
        for room in rooms:
            assert room[:GUARD].isnan().all(), "written before the output"
            assert room[-GUARD:].isnan().all(), "written past the output"
        close((out, lse), attended(q, k, v, seen_of(mask)))


def views_of_a_projection(where: Where) -> None:
    """10: [batch, length, heads, dim] turned without a copy, keys shared by expanding, an odd start with a warning."""
    size = 2 * where.block + 40
    q, k, v = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in where.qkv(size, size))
    mask = where.blocks(draw(1, 4, 3, 3, share=0.6), size, size)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CopiedInput)
        found = right(where, q, k, v, mask)
    assert found[0].stride() == q.stride()
    plain = where.run(q.contiguous(), k.contiguous(), v.contiguous(), mask)
    assert torch.equal(plain[0], found[0])
    assert torch.equal(plain[1], found[1])
    k, v = (one[:1, :1].expand(2, 2, -1, -1) for one in (k, v))
    right(where, q, k, v, mask)
    room = torch.empty(q.numel() + 1, dtype=where.dtype, device=where.device)
    odd = room[1:].view(q.shape).copy_(q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CopiedInput)
        right(where, odd, k, v, mask)


# ------------------------------------------------------------------------------------------------------- partial blocks


def hidden_in_parts(where: Where) -> None:
    """16: a partial block without a key, rows that are empty in one block and alive in another, the first one empty."""
    block = where.block
    size = 3 * block
    q, k, v = where.qkv(size, size, heads=(2, 2), batch=1)
    seen = torch.zeros(1, 1, size, size, dtype=torch.bool)
    seen[..., : block // 2, block + 3 : block + 5] = True  # alive in the second block alone
    seen[..., block // 2 : block, 2 * block :] = True  # alive in the third alone
    seen[..., block : 2 * block, block - 1] = True  # one key, the last of the first block
    seen[..., 2 * block :: 2, ::7] = True  # every other row of the last block of queries is empty
    made = BlockMask.from_bool(seen.to(where.device), block=block)
    right(where, q, k, v, made)
    assert made.which is not None
    assert made.bits is not None
    kinds = made.kinds.clone()
    kinds[kinds == NONE] = PARTIAL  # what has no key, called partly seen, with bits of zeros
    which = torch.where(made.kinds == NONE, made.bits.shape[0], made.which)
    bits = torch.cat([made.bits, torch.zeros_like(made.bits[:1])])
    awkward = BlockMask(kinds, which.to(torch.int32), bits, q_len=size, k_len=size, block=block)
    close(where.run(q, k, v, awkward), attended(q, k, v, seen.to(where.device)))


def large_logits(where: Where) -> None:
    """17: logits of +-1e4 in both orders of size, identical keys, the sink alone."""
    size = 3 * where.block
    q, k, v = where.qkv(size, size, heads=(2, 2), batch=1)
    mask = where.blocks(torch.ones(1, 1, 3, 3, dtype=torch.bool), size, size)
    largest = float((q.double() @ k.double().mT).abs().max())
    found = where.run(q, k, v, mask, scale=1e4 / largest)
    wanted = attended(q, k, v, seen_of(mask), scale=1e4 / largest)
    assert not found[0].isnan().any()
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=1e-4, atol=1e-1)
    rows = (found[0].double() - wanted[0]).norm(dim=-1) / wanted[0].norm(dim=-1)
    assert float(rows.median()) < 4 * TOLERANCE[where.dtype]
    same = k[:, :, :1].expand(-1, -1, size, -1).contiguous()
    right(where, q, same, v, mask)
    right(where, q, k, v, BlockMask.sink(size, keys=5, block=where.block, device=where.device))


def rising_and_falling_maxima(where: Where) -> None:
    """16: the largest logit of a row comes late, early or everywhere alike: sums have to be scaled anew, or not."""
    size = 4 * where.block
    q, _, v = where.qkv(size, size, heads=(1, 1), batch=1)
    ones = torch.ones_like(q) / where.dim**0.5
    for factors in (torch.linspace(0, 60, size), torch.linspace(60, 0, size), torch.full((size,), -60.0)):
        keys = (ones * factors[None, None, :, None].to(where.device)).to(where.dtype)
        mask = where.blocks(torch.ones(1, 1, 4, 4, dtype=torch.bool), size, size)
        close(where.run(ones.to(where.dtype) * 8, keys, v, mask), attended(ones * 8, keys, v, seen_of(mask)), times=2.0)


def above_the_diagonal(where: Where) -> None:
    """18: what causal hides stays hidden whatever the lists say, in both alignments."""
    for q_len, k_len in ((3 * where.block, 3 * where.block), (150, 290)):
        q, k, v = where.qkv(q_len, k_len)
        kept = draw(1, 4, -(-q_len // where.block), -(-k_len // where.block), share=0.7)
        mask = where.blocks(kept, q_len, k_len)
        for alignment in ("upper_left", "lower_right"):
            made = attention(q, k, v, mask, causal=alignment, backend=where.backend, return_lse=True)
            assert isinstance(made, tuple)
            shift = k_len - q_len if alignment == "lower_right" else 0
            below = torch.arange(k_len) <= torch.arange(q_len)[:, None] + shift
            close(made, attended(q, k, v, seen_of(mask) & below.to(where.device)))


def each_head_its_own(where: Where) -> None:
    """19: eight query heads of one key head under eight masks, and another for each batch."""
    size = 3 * where.block
    q, k, v = where.qkv(size, size, heads=(8, 1))
    kept = draw(2, 8, 3, 3, share=0.4)
    out, _ = right(where, q, k, v, where.blocks(kept, size, size))
    alone = where.run(q[1:, 5:6], k[1:], v[1:], where.blocks(kept[1:, 5:6], size, size))
    assert torch.equal(alone[0], out[1:, 5:6])


def full_or_partial(where: Where) -> None:
    """20: the same mask with whole blocks called partly seen: within tolerance, and bit for bit once canonical."""
    size = 2 * where.block + 30
    q, k, v = where.qkv(size, size)
    kept = draw(1, 4, 3, 3, share=0.6)
    whole = where.blocks(kept, size, size)
    bits = torch.full((1, where.block, where.block // 32), -1, dtype=torch.int32, device=where.device)
    kinds = torch.where(whole.kinds == FULL, PARTIAL, whole.kinds)
    which = torch.zeros_like(kinds, dtype=torch.int32)
    partial = BlockMask(kinds, which, bits, q_len=size, k_len=size, block=where.block)
    found, wanted = where.run(q, k, v, partial), where.run(q, k, v, whole)
    close(found, (wanted[0].double(), wanted[1].double()))
    again = where.run(q, k, v, partial.canonical())
    assert torch.equal(again[0], wanted[0])
    assert torch.equal(again[1], wanted[1])


def keys_in_another_order(where: Where) -> None:
    """21: blocks of keys permuted together with the mask change nothing but roundings."""
    size = 4 * where.block
    q, k, v = where.qkv(size, size)
    kept, order = draw(1, 4, 4, 4, share=0.6), torch.tensor([2, 0, 3, 1])
    wanted = where.run(q, k, v, where.blocks(kept, size, size))
    spots = (order[:, None] * where.block + torch.arange(where.block)).flatten().to(where.device)
    found = where.run(q, k[:, :, spots], v[:, :, spots], where.blocks(kept[..., order], size, size))
    close(found, (wanted[0].double(), wanted[1].double()))


def nan_in_a_hidden_block(where: Where) -> None:
    """12: keys and values that no list names are not read."""
    size = 3 * where.block
    q, k, v = where.qkv(size, size)
    kept = draw(1, 4, 3, 3, share=0.7)
    kept[..., 1] = False
    mask = where.blocks(kept, size, size)
    wanted = where.run(q, k, v, mask)
    k[:, :, where.block : 2 * where.block] = math.nan
    v[:, :, where.block : 2 * where.block] = math.inf
    found = where.run(q, k, v, mask)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


def parts_put_together(where: Where) -> None:
    """Two sets of key blocks, merged, are the whole."""
    size = 4 * where.block
    q, k, v = where.qkv(size, size)
    kept = draw(1, 4, 4, 4, share=0.6)
    kept[:, 0, 2] = False
    first = kept & (torch.arange(4) < 2)
    parts = [where.run(q, k, v, where.blocks(part, size, size)) for part in (first, kept & ~first)]
    close(merge_attention(parts), attended(q, k, v, seen_of(where.blocks(kept, size, size))), times=2.0)


# ------------------------------------------------------------------------------------------------------------ gradients


def gradients(where: Where) -> None:
    """22: dq, dk and dv against float64, of out and of lse; those of empty rows and unseen keys exactly 0."""
    for heads in ((4, 2), (4, 4)):
        _gradients(where, heads)


def _gradients(where: Where, heads: tuple[int, int]) -> None:
    q_len, k_len = 2 * where.block + 40, 3 * where.block
    leaves = leaves_of(where.qkv(q_len, k_len, heads=heads))
    kept = draw(2, 4, 3, 3, share=0.6)
    kept[0, 1, 1] = False
    kept[..., 2] = False
    near = BlockMask.window(q_len, k_len, left=where.block, right=where.block, block=where.block, device=where.device)
    mask = where.blocks(kept, q_len, k_len) & near
    out, lse = where.run(*leaves, mask)
    grads = (where.randn(*out.shape, seed=7), where.randn(*lse.shape, seed=8).to(lse.dtype))
    grads[1].masked_fill_(lse == -math.inf, 0.0)
    found = torch.autograd.grad((out, lse), leaves, grads)
    exact = [one.detach().double().requires_grad_() for one in leaves]
    seen = seen_of(mask)
    true_out, true_lse = _with_gradients(exact, seen)
    wanted = torch.autograd.grad((true_out, true_lse), exact, tuple(one.double() for one in grads))
    for name, got, want in zip("qkv", found, wanted, strict=True):
        assert not got.isnan().any(), f"d{name} holds NaN"
        error = float((got.double() - want).norm() / want.norm())
        assert error <= GRADIENT[where.dtype], f"d{name} is off by {error:.2e} of its norm"
    assert not found[0][0, 1, where.block : 2 * where.block].any(), "dq of rows without keys is not 0"
    assert not found[1][:, :, 2 * where.block :].any(), "dk of keys that no query sees is not 0"
    assert not found[2][:, :, 2 * where.block :].any(), "dv of keys that no query sees is not 0"


def _with_gradients(leaves: list[Tensor], seen: Tensor) -> Pair:
    q, k, v = leaves
    group = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ keys.mT) * q.shape[3] ** -0.5
    empty = ~seen.any(-1).expand(scores.shape[:3])
    scores = scores.masked_fill(~seen, -math.inf).masked_fill(empty[..., None], 0.0)
    lse = scores.logsumexp(-1)
    out = torch.exp(scores - lse[..., None]) @ values
    return out.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, 0.0)


def the_same_bits(where: Where, *, runs: int = 100) -> None:
    """23: forward and backward, every run."""
    size = 5 * where.block - 20
    leaves = leaves_of(where.qkv(size, size))
    mask = where.blocks(draw(1, 4, 5, 5, share=0.5), size, size)
    grad = where.randn(2, 4, size, where.dim, seed=9)
    first: list[Tensor] = []
    for _ in range(runs):
        out, lse = where.run(*leaves, mask)
        found = [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, grad)]
        first = first or found
        for one, other in zip(found, first, strict=True):
            assert torch.equal(one, other)


CASES: tuple[Callable[[Where], None], ...] = (
    no_blocks, some_rows_empty, every_block, one_block_in_each_corner, uneven_lists, ragged_lengths,
    nothing_past_the_end, views_of_a_projection, hidden_in_parts, large_logits, rising_and_falling_maxima,
    above_the_diagonal, each_head_its_own, full_or_partial, keys_in_another_order, nan_in_a_hidden_block,
    parts_put_together, gradients,
)  # fmt: skip
SOME = (some_rows_empty, ragged_lengths, hidden_in_parts, each_head_its_own, nan_in_a_hidden_block)
# what torch's own attention cannot promise: it reads keys that the mask hides, and its sums depend on the mask's form
NOT_BY_DENSE = (nan_in_a_hidden_block,)
