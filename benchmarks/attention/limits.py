"""What an attention call cannot be faster than: the roofline, from rates of the same run.

HBM     q, the output, the key and value blocks that any list names, logarithms and lists, once each, at a copy's rate
tensor  the products of the listed blocks, masked elements of a block included, at the rate cuBLAS has on random data

The exponentials are no part of it: on Hopper they run beside the products.
"""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.attention.calls import prepared_already
from benchmarks.attention.work import Problem, State
from benchmarks.matmul.products import DTYPES, Entry, Kit, record_of, seconds_of
from benchmarks.matmul.sm90.watch import Manner, take_turns

from firstlight.bench.case import Case
from firstlight.bench.cases.data import holding
from firstlight.bench.operator_counts import Work
from firstlight.frozen import dataclass
from firstlight.kernels.block_attention.bits import NONE
from firstlight.kernels.block_attention.mask import BlockMask

ELEMENT = 2
LIST_ENTRY = 8  # bytes: column and row of bits
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one call has to move and to multiply."""

    hbm_bytes: int
    issued_flops: int


def traffic_of(problem: Problem, mask: BlockMask) -> Traffic:
    """From the mask's blocks; the host waits."""
    sizes, block = problem.sizes, problem.block
    used = mask.kinds != NONE
    copies = sizes.batch * sizes.heads // (used.shape[0] * used.shape[1])
    listed = int(used.sum()) * copies
    keys = used.any(2).expand(sizes.batch, sizes.heads, -1)
    keys = keys.reshape(sizes.batch, sizes.kv_heads, -1, used.shape[3]).any(2)
    wide = ELEMENT * sizes.head_dim
    read_keys = min(int(keys.sum()) * block, sizes.batch * sizes.kv_heads * sizes.seq)
    queries = sizes.batch * sizes.heads * sizes.seq
    moved = 2 * queries * wide + 2 * read_keys * wide + 4 * queries + LIST_ENTRY * int(used.sum())
    return Traffic(moved, 4 * listed * block * block * sizes.head_dim)


def limit_of(traffic: Traffic, *, tensor: float, copy: float) -> tuple[float, str]:
    """Seconds that no call with this traffic beats, and what sets them: HBM or tensor."""
    found = {"HBM": traffic.hbm_bytes / copy, "tensor": traffic.issued_flops / tensor}
    name = max(found, key=lambda each: found[each])
    return found[name], name


def limited(row: Row, problem: Problem, mask: BlockMask, seconds: float | None, state: State) -> None:
    """Adds the limit and how much of it was reached to a row; nothing where the rates are not known."""
    traffic = traffic_of(problem, mask)
    row["hbm_bytes"], row["issued_flops"] = traffic.hbm_bytes, traffic.issued_flops
    if state.copy is None or problem.dtype not in state.cublas:
        return
    limit_s, name = limit_of(traffic, tensor=state.cublas[problem.dtype], copy=state.copy)
    row["limit"], row["limit_ms"] = name, round(1e3 * limit_s, 5)
    if seconds:
        row["of_limit"] = round(limit_s / seconds, 4)


def rates(state: State) -> Row:
    """cuBLAS on random data in both types and one large copy: what limits are computed from."""
    kit = state.kit
    entries = {dtype: _product(kit, dtype, state.scene.square) for dtype in ("fp16", "bf16")}
    copy, moved = _copy(kit, state.scene.copied)
    results = take_turns(kit, [*entries.values(), copy], passes=3 if kit.timer.has_launches else 1, manner=Manner.BURST)
    state.found["records"] += [record_of(result) for result in results.values()]
    row: Row = {}
    for dtype, entry in entries.items():
        if seconds := seconds_of(results[entry.case.id]):
            state.cublas[dtype] = entry.case.work.flops / seconds
            row[f"cublas_{dtype}_tflops"] = round(state.cublas[dtype] / 1e12, 1)
    if seconds := seconds_of(results[copy.case.id]):
        state.copy = moved / seconds
        row["copy_gbps"] = round(state.copy / 1e9, 1)
    row["product"], row["copied_bytes"] = f"{state.scene.square} cubed", moved
    return row


def _product(kit: Kit, dtype: str, side: int) -> Entry:
    a, b = (torch.randn(side, side, device=kit.place.device).to(DTYPES[dtype]) for _ in range(2))
    case = _case(kit, f"cublas/{dtype}/{side}", dtype, flops=2 * side**3, moved=3 * ELEMENT * side**2)
    return Entry(case, (holding(lambda: a @ b, []),), lambda: 0.0)


def _copy(kit: Kit, elements: int) -> tuple[Entry, int]:
    source = torch.randn(elements, device=kit.place.device).to(torch.float16)
    target = torch.empty_like(source)
    moved = 2 * ELEMENT * elements
    case = _case(kit, f"copy/fp16/{elements}", "fp16", flops=0, moved=moved)
    return Entry(case, (lambda: target.copy_(source),), lambda: 0.0), moved


def _case(kit: Kit, name: str, dtype: str, *, flops: int, moved: int) -> Case:
    return Case(
        id=name, family="kernels", params=(), dtype=dtype, work=Work(flops, flops, moved, "gemm-2mnk", "min-rw"),
        peak=dtype, prepare=prepared_already, set_bytes=moved, tolerance=1.0,
        devices=(kit.place.device.partition(":")[0],),
    )  # fmt: skip
