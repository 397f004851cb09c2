"""What attention.py calls and how it is checked: ours, torch's attention by backend, FlexAttention, and gradients.

Every result is held against float64 before it is timed: three heads, some hundred of their queries, all of their keys.
The memory of the outputs held NaN before the call, and all of the output has to be finite.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from benchmarks.attention.work import Inputs, Problem, rows_seen, useful_flops
from benchmarks.matmul.products import UNIT, Entry, Kit
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from firstlight.bench.case import Case, Place, Prepared
from firstlight.bench.cases.data import holding, poison, spread
from firstlight.bench.operator_counts import Work
from firstlight.kernels.block_attention.bits import FULL
from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask

NORM_BOUND = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-5}
GRADIENT_BOUND = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5}
LSE_BOUND = 1e-3
CHECKED_HEADS, CHECKED_ROWS, CHECKED_ENDS = 3, 192, 64
SDPA = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
BACKWARD_FLOPS = 2.5  # of the forward pass: five products instead of two
Call = Callable[[], Any]
Attend = Callable[[Tensor, Tensor, Tensor], Any]


# ------------------------------------------------------------------------------------------------------------ entries


def ours(kit: Kit, problem: Problem, inputs: Inputs, *, backend: str, role: str = "ours") -> Entry:
    """Our attention; the work counted is what the mask leaves."""
    with_lse = backend not in ("dense", "auto")  # torch's own is another path with it, and that is not what is timed

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return attention(q, k, v, inputs.mask, backend=backend, return_lse=with_lse)

    call = holding(partial(attention, inputs.q, inputs.k, inputs.v, inputs.mask, backend=backend), [])
    check = partial(forward_error, problem, inputs, attend)
    return Entry(case_of(problem, role, kit.place, flops=useful_flops(problem, inputs.mask)), (call,), check)


def sdpa(kit: Kit, problem: Problem, inputs: Inputs, *, kernel: str, seen: Tensor | None = None) -> Entry:
    """torch's attention by one of its kernels: causal or full by name, or with the mask as a tensor (`seen`)."""
    causal = problem.mask == "causal"
    grouped = problem.sizes.heads != problem.sizes.kv_heads

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        with sdpa_kernel(SDPA[kernel]):
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=seen, is_causal=causal and seen is None, enable_gqa=grouped
            )

    flops = useful_flops(problem, inputs.mask)
    case = case_of(problem, kernel if seen is None else f"{kernel} with a mask", kit.place, flops=flops)
    call = holding(partial(attend, inputs.q, inputs.k, inputs.v), [])
    return Entry(case, (call,), partial(forward_error, problem, inputs, attend))


def flex(kit: Kit, problem: Problem, inputs: Inputs) -> Entry:
    """FlexAttention on the same mask, compiled on a GPU."""
    attend = flex_attend(problem, inputs.mask)
    call = holding(partial(attend, inputs.q, inputs.k, inputs.v), [])
    case = case_of(problem, "flex", kit.place, flops=useful_flops(problem, inputs.mask))
    return Entry(case, (call,), partial(forward_error, problem, inputs, attend))


def backward(kit: Kit, problem: Problem, inputs: Inputs, *, role: str) -> Entry:
    """The backward pass alone, of a forward pass made once; role: ours, triton, flex or cudnn (full)."""
    attend: Attend = {
        "ours": lambda q, k, v: attention(q, k, v, inputs.mask, backend=kit.backend),
        "triton": lambda q, k, v: attention(q, k, v, inputs.mask, backend="triton"),
        "flex": lambda q, k, v: flex_attend(problem, inputs.mask)(q, k, v),
        "cudnn": _dense,
    }[role]
    whole = problem.sizes.seq**2 * problem.sizes.heads * problem.sizes.batch * 4 * problem.sizes.head_dim
    flops = whole if role == "cudnn" else useful_flops(problem, inputs.mask)
    case = case_of(problem, f"backward {role}", kit.place, flops=int(BACKWARD_FLOPS * flops))
    mask = BlockMask.full(problem.sizes.seq, device=inputs.q.device) if role == "cudnn" else inputs.mask
    graph: list[tuple[Tensor, tuple[Tensor, ...], Tensor]] = []

    def gradients() -> tuple[Tensor, ...]:
        if not graph:
            graph.append(_forward(inputs, attend))
        out, leaves, grad = graph[0]
        return torch.autograd.grad(out, leaves, grad, retain_graph=True)

    call = holding(gradients, [])
    return Entry(case, (call,), partial(gradient_error, inputs, mask, gradients, graph))


def _forward(inputs: Inputs, attend: Attend) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    with torch.enable_grad():
        leaves = tuple(one.detach().requires_grad_() for one in (inputs.q, inputs.k, inputs.v))
        out = attend(*leaves)
    random = torch.Generator(device=out.device).manual_seed(7)
    return out, leaves, torch.randn(out.shape, dtype=out.dtype, device=out.device, generator=random)


def _dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    kernel = SDPBackend.CUDNN_ATTENTION if q.is_cuda else SDPBackend.MATH
    with sdpa_kernel(kernel):
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])


def flex_attend(problem: Problem, mask: BlockMask) -> Attend:
    """FlexAttention with this mask: compiled on a GPU, as it is on the processor."""
    options: Any = None if problem.block == 128 else {"BLOCK_M": problem.block, "BLOCK_N": problem.block}
    grouped = problem.sizes.heads != problem.sizes.kv_heads
    if mask.kinds.is_cuda:
        return partial(
            _compiled_flex(), block_mask=flex_mask(problem, mask), enable_gqa=grouped, kernel_options=options
        )
    from torch.nn.attention.flex_attention import flex_attention

    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    return partial(flex_attention, block_mask=flex_mask(problem, mask), enable_gqa=grouped)


@lru_cache(maxsize=1)
def _compiled_flex() -> Any:
    from torch._dynamo import config as dynamo
    from torch._functorch import config as functorch
    from torch.nn.attention.flex_attention import flex_attention

    dynamo.recompile_limit = 256  # every shape is compiled for itself
    functorch.donated_buffer = False  # a backward pass is run many times for one forward pass
    return torch.compile(flex_attention, dynamic=False)


def flex_mask(problem: Problem, mask: BlockMask) -> Any:
    """The mask in the form that suits FlexAttention best: causal as a function, whole blocks as such, else our bits."""
    from torch.nn.attention.flex_attention import BlockMask as FlexMask
    from torch.nn.attention.flex_attention import create_block_mask

    seq, block = problem.sizes.seq, problem.block
    if problem.mask == "causal":
        return create_block_mask(
            lambda b, h, q, k: q >= k, None, None, seq, seq, device=str(mask.device), BLOCK_SIZE=block
        )
    if mask.which is not None or seq % block:
        return mask.to_flex()
    whole = mask.kinds == FULL
    indices = torch.argsort(whole.to(torch.uint8), dim=3, descending=True, stable=True).to(torch.int32)
    count = whole.sum(3, dtype=torch.int32)
    # what is not compiled looks at mask_mod alone and not at the lists; compiled, a mask_mod would only cost registers
    mod = None if mask.kinds.is_cuda else mask.to_flex().mask_mod
    none = torch.zeros_like(count), torch.zeros_like(indices)
    lengths = (seq, seq)
    return FlexMask.from_kv_blocks(*none, count, indices, BLOCK_SIZE=block, mask_mod=mod, seq_lengths=lengths)


def case_of(problem: Problem, role: str, place: Place, *, flops: int) -> Case:
    """What is timed, as the bench's figures take it; bytes: q, k, v and the output once."""
    sizes = problem.sizes
    moved = 2 * sizes.batch * sizes.seq * sizes.head_dim * 2 * (sizes.heads + sizes.kv_heads)
    return Case(
        id=f"{problem.id}/{role}", family="attention", params=(("role", role),), dtype=problem.dtype,
        work=Work(flops, flops, moved, "kept-4sqd", "min-rw"), peak=problem.dtype, prepare=prepared_already,
        set_bytes=moved, tolerance=1.0, devices=(place.device.partition(":")[0],),
    )  # fmt: skip


def prepared_already(place: Place, sets: int) -> Prepared:
    raise AssertionError("attention.py prepares its calls itself")


# ------------------------------------------------------------------------------------------------------------- checks


def forward_error(problem: Problem, inputs: Inputs, attend: Attend) -> float:
    """The largest error over its bound, up to 1 is right: norm of a head, each element, each logarithm.

    An element may be off by its own rounding, that of the weights, and as much again: 4 units of sum p |v|.
    """
    q, k, v = inputs.q, inputs.k, inputs.v
    spoil(q, torch.empty(q.shape[:3], dtype=torch.float32, device=q.device))
    made = attend(q, k, v)
    out, lse = made if isinstance(made, tuple) else (made, None)
    if out.shape != q.shape or not bool(out.isfinite().all()):
        return math.inf
    worst = 0.0
    for batch, head in heads_to_check(problem):
        rows = rows_to_check(problem.sizes.seq, q.device)
        exact, size, log = exact_rows(inputs, batch, head, rows)
        got = out[batch, head, rows].double()
        bound = 4 * UNIT[q.dtype] * size + 2.0**-14
        norm = float((got - exact).norm() / exact.norm().clamp(min=1e-30)) / NORM_BOUND[q.dtype]
        worst = max(worst, norm, float(((got - exact).abs() / bound).max()))
        if lse is not None:
            apart = torch.where(
                log == -math.inf, lse[batch, head, rows] != -math.inf, (lse[batch, head, rows] - log).abs()
            )
            worst = max(worst, float(apart.max()) / LSE_BOUND)
    return math.inf if worst != worst else worst


def exact_rows(inputs: Inputs, batch: int, head: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Output, sum of p |v| and logarithm in float64 for some queries of one head."""
    q, k, v = inputs.q, inputs.k, inputs.v
    shared = head // (q.shape[1] // k.shape[1])
    keys, values = k[batch, shared].double(), v[batch, shared].double()
    scores = (q[batch, head, rows].double() @ keys.T) / math.sqrt(q.shape[3])
    scores.masked_fill_(~rows_seen(inputs.mask, batch, head, rows), -math.inf)
    log = scores.logsumexp(1)
    weights = (scores - torch.where(log == -math.inf, 0.0, log)[:, None]).exp()
    return weights @ values, weights @ values.abs(), log


def gradient_error(
    inputs: Inputs, mask: BlockMask, gradients: Callable[[], tuple[Tensor, ...]], graph: list[Any]
) -> float:
    """The largest error of dq, dk and dv of two key heads against float64, over its bound."""
    spoil(inputs.q, inputs.k, inputs.v)
    found = gradients()
    if not all(bool(one.isfinite().all()) for one in found):
        return math.inf
    grad, worst = graph[0][2], 0.0
    group = inputs.q.shape[1] // inputs.k.shape[1]
    rows = torch.arange(inputs.q.shape[2], device=inputs.q.device)
    for batch, shared in {(0, 0), (inputs.k.shape[0] - 1, inputs.k.shape[1] - 1)}:
        heads = range(shared * group, (shared + 1) * group)
        k, v = (one[batch, shared].double().requires_grad_() for one in (inputs.k, inputs.v))
        with torch.enable_grad():
            queries = [inputs.q[batch, head].double().requires_grad_() for head in heads]
            total = torch.zeros((), dtype=torch.float64, device=k.device)
            for head, q in zip(heads, queries, strict=True):
                scores = (q @ k.T) / math.sqrt(q.shape[1])
                scores = scores.masked_fill(~rows_seen(mask, batch, head, rows), -math.inf)
                total = total + ((scores.softmax(1) @ v) * grad[batch, head].double()).sum()
        *wanted_q, wanted_k, wanted_v = torch.autograd.grad(total, (*queries, k, v))
        pairs = [(found[0][batch, head], want) for head, want in zip(heads, wanted_q, strict=True)]
        pairs += [(found[1][batch, shared], wanted_k), (found[2][batch, shared], wanted_v)]
        bound = GRADIENT_BOUND[inputs.q.dtype]
        worst = max(worst, *(float((got.double() - want).norm() / want.norm()) / bound for got, want in pairs))
    return math.inf if worst != worst else worst


def spoil(*like: Tensor) -> None:
    """Fills memory of these sizes with NaN and gives it back: the allocator hands it to the next that asks."""
    spoiled = [torch.empty_like(one) for one in like]
    for one in spoiled:
        poison(one)


def heads_to_check(problem: Problem) -> list[tuple[int, int]]:
    """(batch, head): the first, one in the middle, the last."""
    whole = problem.sizes.batch * problem.sizes.heads
    picked = {round(place * (whole - 1) / (CHECKED_HEADS - 1)) for place in range(CHECKED_HEADS)}
    return [divmod(each, problem.sizes.heads) for each in sorted(picked)]


def rows_to_check(seq: int, device: torch.device) -> Tensor:
    """The first and last queries and some spread between them."""
    place = Place(str(device), 0, 0, (0, 0))
    ends = torch.arange(seq, device=device)
    ends = ends if seq <= 2 * CHECKED_ENDS else torch.cat([ends[:CHECKED_ENDS], ends[-CHECKED_ENDS:]])
    picked: Tensor = torch.unique(torch.cat([spread(seq, place, count=CHECKED_ROWS), ends]))
    return picked
