"""Small attention calls by Triton's interpreter, in a process of its own: kernels read TRITON_INTERPRET when defined.

    TRITON_INTERPRET=1 python att_triton_cases.py

Prints one JSON object per case: its name and what is wrong with it, empty when nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import torch
import torch.utils.deterministic
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels.block_attention import triton as backend
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.block_attention.triton.calls import problem_of, strides_of, take_tile
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile
from tests.kernels.block_attention.att_triton_exact import Call, compared, exact, packed
from tests.kernels.triton_backend.interpreted_cases import let_loop_bounds_be_arrays

ROUNDING = {torch.float16: 2.0**-11, torch.float32: 2.0**-22}
Draw = Callable[[int, int], Tensor]  # of an element mask [Sq, Sk]
Results = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """One forward and one backward pass; masks: their draws, [batch or 1][head or 1]."""

    lengths: tuple[int, int]
    masks: tuple[tuple[Draw, ...], ...]
    block: int = 64
    head_dim: int = 16
    heads: tuple[int, int] = (1, 1)
    batch: int = 1
    dtype: torch.dtype = torch.float16
    scale: float = 0.25
    grad_lse: bool = False
    nothing_full: bool = False
    change: Callable[[Call], Call] = lambda call: call
    tile: Tile | None = None


def full(q_len: int, k_len: int) -> Tensor:
    return torch.ones(q_len, k_len, dtype=torch.bool)


def nothing(q_len: int, k_len: int) -> Tensor:
    return ~full(q_len, k_len)


def causal(q_len: int, k_len: int) -> Tensor:
    return full(q_len, k_len).tril()


def window(q_len: int, k_len: int) -> Tensor:
    return full(q_len, k_len).tril().triu(-40)


def scattered(q_len: int, k_len: int) -> Tensor:
    """Half of the elements, some rows and keys without any, and one block of 64 x 64 seen whole."""
    made = torch.rand(q_len, k_len) < 0.5
    made[:64, :64] = True
    made[::7], made[:, 5::9] = False, False
    return made


def one_block(q_len: int, k_len: int) -> Tensor:
    made = nothing(q_len, k_len)
    made[64:, :64] = True
    return made


def first_block_dark(q_len: int, k_len: int) -> Tensor:
    """Some rows see nothing of their first listed block, others nothing of their last."""
    made = full(q_len, k_len)
    made[: q_len // 2, :64], made[q_len // 2 :, 64:] = False, False
    return made


def drawn(case: Case) -> tuple[Call, BlockMask]:
    q_len, k_len = case.lengths
    q, grad = (torch.randn(case.batch, case.heads[0], q_len, case.head_dim).to(case.dtype) for _ in range(2))
    k, v = (torch.randn(case.batch, case.heads[1], k_len, case.head_dim).to(case.dtype) for _ in range(2))
    seen = torch.stack([torch.stack([draw(q_len, k_len) for draw in row]) for row in case.masks])
    grad_lse = torch.randn(q.shape[:3]) if case.grad_lse else None
    call = case.change(Call(q, k, v, grad, grad_lse, seen, case.scale))
    return call, packed(seen, case.block, nothing_full=case.nothing_full)


def room_for(q: Tensor) -> tuple[Tensor, Tensor]:
    """(all of the memory, out in q's order of dimensions inside of it), all NaN."""
    strides = q.stride()
    order = sorted(range(3), key=lambda place: -strides[place])
    whole = torch.full((*(q.shape[place] + 1 for place in order), q.shape[3] + 16), torch.nan, dtype=q.dtype)
    inside = whole[tuple(slice(0, q.shape[place]) for place in order)][..., 16:]
    return whole, inside.permute(*(order.index(place) for place in range(3)), 3)


def run(call: Call, mask: BlockMask) -> Results:
    whole, out = room_for(call.q)
    lse = torch.full(call.q.shape[:3], torch.nan)
    given = (call.q, call.k, call.v)
    backend.forward(*given, mask, scale=call.scale, out=out, lse=lse)
    written = int((~whole.isnan()).sum())
    assert written <= out.numel(), f"{written - out.numel()} elements were written outside of out"
    dq, dk, dv = backend.backward(Upstream(call.grad, call.grad_lse), Forward(*given, out, lse), mask, scale=call.scale)
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def what_is_wrong(case: Case) -> str:
    call, mask = drawn(case)
    if case.tile is not None:
        take_tiles(call, mask, case.tile)
    found = run(call, mask)
    if case.tile is not None:
        take_tiles(call, mask, None)
    right = exact(call, ROUNDING[case.dtype])
    return "; ".join(filter(None, (compared(name, tensor, right) for name, tensor in found.items())))


def take_tiles(call: Call, mask: BlockMask, tile: Tile | None) -> None:
    """Lets the call's kernels take this tile; the problem is that of contiguous operands."""
    problem = problem_of(mask, (call.q, call.k), strides_of((call.q, call.k)), scale=call.scale)
    for which in Pass:
        for aligned in (False, True):
            take_tile(which, problem._replace(aligned=aligned), tile)


def spread(call: Call) -> Call:
    """[batch, length, heads, dim] in memory, keys shared by all batches, v not aligned, a gradient of ones."""
    q = call.q.transpose(1, 2).contiguous().transpose(1, 2)
    k = call.k[:1].expand(call.k.shape)
    v = torch.cat([call.v.flatten()[:1], call.v.flatten()])[1:].view(call.v.shape)
    return call._replace(q=q, k=k, v=v, grad=torch.ones((), dtype=q.dtype).expand(q.shape))


def columns_first(call: Call) -> Call:
    """Heads whose last dimension is not contiguous."""
    return call._replace(q=call.q.mT.contiguous().mT, v=call.v.mT.contiguous().mT)


def loud(call: Call) -> Call:
    """Logits up to about 1e4, of both signs, and keys that are all the same in the first block."""
    k = call.k.clone()
    k[:, :, :64] = k[:, :, :1]
    return call._replace(q=call.q * 50, k=k * 20)


def low(call: Call) -> Call:
    """Logits far below 0: exp(-lse) is infinite."""
    return call._replace(q=call.q.abs() * 20 + 1, k=-call.k.abs() * 20 - 1)


def cases() -> Iterator[tuple[str, Case]]:
    yield "full", Case((128, 128), ((full,),), head_dim=64)
    yield "causal, ragged", Case((150, 150), ((causal,),), grad_lse=True)
    yield "window, more queries than keys", Case((150, 100), ((window,),))
    yield "random, more keys than queries", Case((70, 190), ((scattered,),), head_dim=96, grad_lse=True)
    yield "nothing seen", Case((70, 70), ((nothing,),), grad_lse=True)
    yield "one block", Case((128, 128), ((one_block,),))
    yield "one query", Case((1, 130), ((full,),))
    yield "one key", Case((65, 1), ((full,),))
    groups = ((scattered, one_block, nothing, causal),)
    yield "a mask for each head of a group", Case((100, 100), groups, heads=(4, 2), batch=2)
    yield "a mask for each batch", Case((100, 80), ((causal,), (scattered,)), heads=(2, 1), batch=2)
    yield "a mask for each", Case((70, 70), ((causal, full), (nothing, scattered)), heads=(2, 2), batch=2)
    yield "blocks of 128", Case((200, 260), ((scattered,),), block=128, head_dim=128)
    yield "blocks of 128, causal", Case((256, 256), ((causal,),), block=128, head_dim=64, grad_lse=True)
    yield "first block dark", Case((64, 150), ((first_block_dark,),))
    yield "first block dark, logits up to 1e4", Case((64, 128), ((first_block_dark,),), change=loud, scale=1.0)
    yield "logits up to 1e4", Case((70, 130), ((scattered,),), change=loud, scale=1.0, head_dim=32)
    yield "logits down to -1e4", Case((70, 130), ((scattered,),), change=low)
    yield "float32", Case((70, 130), ((scattered,),), dtype=torch.float32, head_dim=32, grad_lse=True)
    yield "negative scale", Case((70, 130), ((scattered,),), scale=-0.5)
    yield "scale 0", Case((70, 130), ((scattered,),), scale=0.0)
    yield "dark and whole blocks written as partial", Case((128, 100), ((one_block,),), nothing_full=True)
    small = Tile(32, 16, 4, 2)
    yield "several tiles in a block", Case((70, 100), ((scattered,),), tile=small)
    yield "several tiles in a block, other way", Case((100, 70), ((scattered,),), tile=Tile(16, 32, 4, 2))
    yield "other layouts", Case((70, 70), ((scattered,),), heads=(2, 2), batch=2, change=spread)
    yield "last dimension not contiguous", Case((70, 70), ((causal,),), change=columns_first)
    yield "head dimension 20", Case((64, 70), ((causal,),), head_dim=20)


def unused_keys_are_not_read() -> str:
    """NaN in keys and values that no list names reaches nothing."""
    case = Case((128, 128), ((one_block,),))
    call, mask = drawn(case)
    clean = run(call, mask)
    k, v, q = call.k.clone(), call.v.clone(), call.q.clone()
    k[:, :, 64:], v[:, :, 64:], q[:, :, :64] = torch.nan, torch.nan, torch.nan
    found = run(call._replace(q=q, k=k, v=v), mask)
    return ", ".join(name for name, tensor in found.items() if not torch.equal(tensor, clean[name]))


def every_run_gives_the_same_bits() -> str:
    call, mask = drawn(Case((130, 100), ((scattered, causal),), heads=(2, 1), grad_lse=True))
    first, second = run(call, mask), run(call, mask)
    return ", ".join(name for name, tensor in second.items() if not torch.equal(tensor, first[name]))


def one_mask_serves_calls_of_other_layouts_and_scales_in_turn() -> str:
    """What is kept for one of them is not taken for another."""
    call, mask = drawn(Case((70, 64), ((scattered,),), heads=(2, 2), batch=2, grad_lse=True))
    shifted = torch.cat([call.grad.flatten()[:1], call.grad.flatten()])[1:].view(call.grad.shape)
    turns = (
        call, spread(call), call._replace(grad_lse=None), call._replace(scale=-0.5), call._replace(grad=shifted),
        columns_first(call), call,
    )  # fmt: skip
    found = []
    for number, turn in enumerate(turns):
        right = exact(turn, ROUNDING[torch.float16])
        found += [(number, compared(name, tensor, right)) for name, tensor in run(turn, mask).items()]
    return "; ".join(f"turn {number}: {wrong}" for number, wrong in found if wrong)


def whole_blocks_written_as_partial_give_the_same_bits() -> str:
    call, mask = drawn(Case((128, 128), ((one_block,),)))
    first, second = run(call, mask), run(call, packed(call.seen, 64, nothing_full=True))
    return ", ".join(name for name, tensor in second.items() if not torch.equal(tensor, first[name]))


def rows_without_a_sum_contribute_nothing() -> str:
    """Rows whose lse is -inf, whatever the mask says of them and torch.logaddexp sends back to them."""
    call, mask = drawn(Case((70, 64), ((full,),)))
    found = run(call, mask)
    dark = call.seen.clone()
    dark[:, :, 3:9] = False
    out, lse = found["out"].clone(), found["lse"].clone()
    out[:, :, 3:9], lse[:, :, 3:9] = 0.0, -torch.inf
    sent = torch.zeros_like(lse)
    sent[:, :, 3:9] = torch.nan
    made = backend.backward(
        Upstream(call.grad, sent), Forward(call.q, call.k, call.v, out, lse), mask, scale=call.scale
    )
    right = exact(call._replace(seen=dark), ROUNDING[torch.float16])
    return "; ".join(
        compared(name, tensor, right) for name, tensor in zip(("dq", "dk", "dv"), made, strict=True)
    ).strip("; ")


OTHERS = (
    unused_keys_are_not_read,
    every_run_gives_the_same_bits,
    one_mask_serves_calls_of_other_layouts_and_scales_in_turn,
    whole_blocks_written_as_partial_give_the_same_bits,
    rows_without_a_sum_contribute_nothing,
)


def main() -> None:
    let_loop_bounds_be_arrays()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True)
    # NaN in what backward makes room for
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined] # a property
    for name, case in cases():
        print(json.dumps({"name": name, "wrong": what_is_wrong(case)}), flush=True)
    for other in OTHERS:
        print(json.dumps({"name": other.__name__, "wrong": other()}), flush=True)


if __name__ == "__main__":
    main()
