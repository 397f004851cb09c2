"""Times every backend of one case on a GPU: CUDA events around single calls, the L2 cache overwritten before each.

The stream is kept busy while the host gets ahead, so that a backend with more launches is not charged for the host.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from firstlight.kernels.backends import BY_NAME
from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.choice.cases import BACKWARD, SAMPLE, TURNED, AttentionCase, Case, ProductCase
from firstlight.kernels.choice.drawn import DENSE_ATTENTION_WORK, Masked
from firstlight.kernels.functions import linear, matmul, sampled_matmul
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.torch_private import keep_busy

FLUSH_BYTES = 96 << 20  # more than any L2 here
REPEATS, LONG_REPEATS, LONG_US = 7, 3, 3000.0
MOST_SLEEP_S = 2e-3
MASK_BYTES = 1 << 31
DEVICE = "cuda"  # the current one
COPY = "copy"  # the dense copy of a product's matrix, beside `dense` with a copy that is kept
FIRST = "new "  # before a backend's name: what a new pattern costs it once, on the host's clock
NEW_EVERY = 3  # products of which that is measured too
Call = Callable[[], object]


class Stopwatch:
    """Times calls on one GPU, e.g. 83.2 us."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=DEVICE)
        self._cycles_per_s = 2.0e9

    def us(self, call: Call) -> float:
        """The median of some calls, after two that are not counted; infinite for one that runs out of memory."""
        try:
            return self._us(call)
        except torch.OutOfMemoryError:
            return math.inf

    def _us(self, call: Call) -> float:
        call()
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        host_s = time.perf_counter() - began
        torch.cuda.synchronize()
        first = self._once(call, host_s)
        repeats = LONG_REPEATS if first > LONG_US else REPEATS
        return statistics.median([self._once(call, host_s) for _ in range(repeats)])

    def _once(self, call: Call, host_s: float) -> float:
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._flush.zero_()
        busy_s = min(1.5 * host_s + 30e-6, MOST_SLEEP_S)
        keep_busy(int(busy_s * self._cycles_per_s))
        start.record()
        call()
        end.record()
        end.synchronize()
        return 1e3 * float(start.elapsed_time(end))


def product_times(case: ProductCase, watch: Stopwatch, *, backends: tuple[str, ...], seed: int) -> dict[str, float]:
    """Microseconds by backend, of the dense copy, and of what each one prepares for a new pattern."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    matrix = random_matrix(case, generator)
    found: dict[str, float] = {}
    torch.backends.cuda.matmul.allow_tf32 = case.dtype == "tf32"
    with torch.no_grad():
        calls = dict(product_calls(case, matrix, generator, backends))
        if seed % NEW_EVERY == 0:
            found |= _new_pattern_us(case, generator, calls)
        if case.operation != SAMPLE:
            found[COPY] = watch.us(matrix.to_dense)
            matrix.keep_dense()
        found |= {backend: watch.us(call) for backend, call in calls.items()}
    return _rounded(found)


def _new_pattern_us(case: ProductCase, generator: torch.Generator, known: dict[str, Call]) -> dict[str, float]:
    """What a new pattern of a shape that is known costs each backend once."""
    found = {}
    for backend, call in known.items():
        call()  # kernels and plans
        [(_, fresh)] = product_calls(case, random_matrix(case, generator), generator, (backend,))
        found[FIRST + backend] = _wall_us(fresh) - _wall_us(fresh)
    return found


def _wall_us(call: Call) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - began)


def random_matrix(case: ProductCase, generator: torch.Generator) -> BlockSparseMatrix:
    """A matrix with as many blocks as the case has."""
    return BlockSparseMatrix.random(
        case.rows, case.cols, block=case.block, density=case.density, dtype=torch_dtype(case), device=DEVICE,
        generator=generator,
    )  # fmt: skip


def torch_dtype(case: Case) -> torch.dtype:
    """The type of a case's tensors."""
    found: torch.dtype = torch.float32 if case.dtype == "tf32" else getattr(torch, case.dtype)
    return found


def product_calls(
    case: ProductCase, matrix: BlockSparseMatrix, generator: torch.Generator, backends: tuple[str, ...]
) -> Iterator[tuple[str, Call]]:
    """One call for each backend, with operands of their own."""
    dtype = torch_dtype(case)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, device=DEVICE, generator=generator)

    for backend in backends:
        yield backend, _product_call(case, matrix, made, backend)


def _product_call(case: ProductCase, matrix: BlockSparseMatrix, made: Callable[..., Tensor], backend: str) -> Call:
    tokens = case.layout == "tokens"
    if case.operation == SAMPLE:
        a = made(case.tokens, case.rows) if tokens else made(case.rows, case.tokens)
        b = made(case.tokens, case.cols) if tokens else made(case.cols, case.tokens)
        left, right = (a.mT, b) if tokens else (a, b.mT)
        return lambda: sampled_matmul(left, right, matrix, backend=backend)
    w = matrix.T if case.operation == TURNED else matrix
    rows, cols = w.shape
    bias = made(rows) if case.extras else None
    activation = None if case.activation == "none" else case.activation
    if tokens:
        x = made(case.tokens, cols)
        return lambda: linear(x, w, bias, activation=activation, backend=backend)
    columns = made(cols, case.tokens)
    return lambda: matmul(w, columns, bias=bias, activation=activation, backend=backend)


def attention_times(
    drawn: Masked, watch: Stopwatch, *, backends: tuple[str, ...], seed: int
) -> tuple[AttentionCase, dict[str, float]]:
    """The case with what its mask keeps, and microseconds by backend; backends that cannot run it are left out."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    mask = mask_of(drawn, generator)
    case = told_by_mask(drawn.case, mask)
    q, k, v = inputs_of(case, generator)
    found: dict[str, float] = {}
    for backend in backends:
        if attention_hurdle(case, backend):
            continue
        call: Call = attention_call(case, (q, k, v), mask, backend)
        if case.operation == BACKWARD:
            call = _backward_of(attention_call(case, (q, k, v), mask, backend), q, k, v)
        elif mask is not None:
            fresh = attention_call(case, (q, k, v), mask_of(drawn, generator), backend)
            call()
            found[FIRST + backend] = _wall_us(fresh) - _wall_us(fresh)
        found[backend] = watch.us(call)
    return case, _rounded(found)


def told_by_mask(case: AttentionCase, mask: BlockMask | None) -> AttentionCase:
    """The case with the lists of its mask."""
    if mask is None:
        return case._replace(cut=int(case.shape != "full"))
    lists = mask.kinds.shape[0] * mask.kinds.shape[1]
    return case._replace(lists=lists, kept=mask.most, cut=int(mask.bits is not None))


def attention_hurdle(case: AttentionCase, backend: str) -> str:
    """What keeps a backend from a case, e.g. 'head dim 96'; empty: nothing."""
    arch = BY_NAME.get(backend)
    if arch is not None and (case.head_dim not in arch.head_dims or torch_dtype(case) not in arch.dtypes):
        return f"head dim {case.head_dim}, {case.dtype}"
    if backend == "dense" and case.shape == "listed":
        places = case.q_len * case.k_len
        work = 2 * case.batch * case.heads * places * case.head_dim
        if 2 * case.lists * places > MASK_BYTES or work > DENSE_ATTENTION_WORK:
            return "its mask as a tensor is large"
    return ""


def inputs_of(case: AttentionCase, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of a case; they want gradients for the backward pass."""
    dtype = torch_dtype(case)

    def made(heads: int, length: int) -> Tensor:
        return torch.randn(case.batch, heads, length, case.head_dim, dtype=dtype, device=DEVICE, generator=generator)

    found = (
        made(case.heads, case.q_len), made(case.kv_heads, case.k_len), made(case.kv_heads, case.k_len)
    )  # fmt: skip
    if case.operation == BACKWARD:
        for one in found:
            one.requires_grad_()
    return found


def attention_call(
    case: AttentionCase, inputs: tuple[Tensor, Tensor, Tensor], mask: BlockMask | None, backend: str
) -> Callable[[], Tensor]:
    """The forward pass of one backend."""
    q, k, v = inputs
    causal = case.shape if case.shape in ("upper_left", "lower_right") else False
    return lambda: attention(q, k, v, mask, causal=causal, backend=backend)


def _backward_of(forward: Callable[[], Tensor], *leaves: Tensor) -> Call:
    out = forward()
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def mask_of(drawn: Masked, generator: torch.Generator) -> BlockMask | None:
    """The mask of a case; None for a plain shape."""
    case, share = drawn.case, drawn.share
    lengths, block = (case.q_len, case.k_len), case.block
    if drawn.mask == "plain":
        return None
    if drawn.mask in ("window", "sink_window"):
        left = max(1, round(share * case.k_len))
        made = BlockMask.window(*lengths, left=left, alignment="lower_right", block=block, device=DEVICE)
        if drawn.mask == "sink_window":
            made = BlockMask.causal(*lengths, alignment="lower_right", block=block, device=DEVICE) & (
                made | BlockMask.sink(*lengths, keys=min(128, case.k_len), block=block, device=DEVICE)
            )
        return made
    if drawn.mask == "documents":
        each = max(1, round(share * case.k_len))
        ids = torch.arange(case.k_len, device=DEVICE) // each
        return BlockMask.document(ids[-case.q_len :], ids, block=block)
    blocks = (-(-case.q_len // block), -(-case.k_len // block))
    lists = (case.batch, case.heads) if drawn.mask == "by_head" else (1, 1)
    allowed = torch.rand(*lists, *blocks, device=DEVICE, generator=generator) < share
    return BlockMask.from_bool(allowed, block_level=True, q_len=case.q_len, k_len=case.k_len, block=block)


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(time_us, 2) for name, time_us in found.items() if time_us < math.inf}
