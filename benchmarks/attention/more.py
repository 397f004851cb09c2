"""Two parts of attention.py: time to build lists, and processor time of one call."""

from __future__ import annotations

from functools import partial
from statistics import median

import torch
from benchmarks.attention.calls import flex_attend, ours
from benchmarks.attention.limits import Row
from benchmarks.attention.parts import free, ms, ratio, say, turns
from benchmarks.attention.work import Problem, State, inputs_of, table_problems
from benchmarks.call_times import Call, call_times
from benchmarks.matmul.products import DTYPES, seconds_of
from benchmarks.matmul.sm90.watch import Manner, take_turns
from torch.nn import functional

from firstlight.bench.timers import Shot
from firstlight.kernels.block_attention.bits import NONE
from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.lists import lists_of, turned_lists_of
from firstlight.kernels.block_attention.mask import BlockMask

LISTED = ("3.3 of 32 blocks a row", "density 0.5", "64x64 top")  # rows of the table whose lists are built
BUILDS = 15


# -------------------------------------------------------------------------------------------------------------- lists


def lists(state: State) -> list[Row]:
    """From booleans or scores on the device to lists, as a share of the attention that they are for."""
    rows: list[Row] = []
    kit = state.kit
    for problem in table_problems(state.scene):
        if not problem.name.startswith(LISTED) or not state.budget.allows(f"lists {problem.name}"):
            continue
        inputs = inputs_of(problem, kit.place.device)
        entry = ours(kit, problem, inputs, backend=kit.backend)
        [result] = take_turns(kit, [entry], passes=turns(state, 2), manner=Manner.BRIEF, pause_s=0.05).values()
        seconds = seconds_of(result)
        for name, build in builders(problem, inputs.mask).items():
            row: Row = {"name": problem.name, "what": name, "attention_ms": ms(seconds), **_built(state, build)}
            row["of_the_run"] = ratio(row["device_ms"], row["attention_ms"])
            rows.append(row)
            say(row)
        free(state)
    return rows


def builders(problem: Problem, mask: BlockMask) -> dict[str, Call]:
    """What a caller does when the mask is new with every call; each makes a mask of its own."""
    kept = mask.kinds != NONE
    seq, block = problem.sizes.seq, problem.block
    scores = torch.rand(kept.shape, device=kept.device)
    k = max(1, round(mask.density * kept.shape[3]))

    def from_booleans() -> BlockMask:
        return BlockMask.from_bool(kept, block_level=True, q_len=seq, k_len=seq, block=block, count=False)

    def from_scores() -> BlockMask:
        return BlockMask.top_k(scores, k, q_len=seq, k_len=seq, block=block)

    return {
        "lists from booleans": lambda: lists_of(from_booleans()),
        "lists and turned lists from booleans": lambda: (
            lists_of(made := from_booleans()),
            turned_lists_of(made),
        ),
        "top-k and lists from scores": lambda: lists_of(from_scores()),
    }


def _built(state: State, build: Call) -> Row:
    timer = state.kit.timer
    for _ in range(3):
        build()
    series = [timer.series((Shot(build, 1),)) for _ in range(BUILDS)]
    host = [timer.host(build) for _ in range(BUILDS)]
    return {
        "device_ms": ms(median(each.seconds[0] for each in series)), "waited_for_ms": ms(median(host)),
        "launches_hidden": all(each.hidden for each in series), "waits_for_the_device": _waits(state, build),
        "samples_ms": [ms(each.seconds[0]) for each in series],
    }  # fmt: skip


def _waits(state: State, build: Call) -> str:
    """What torch says of a call that waits for the device; 'no' where none does."""
    if not state.kit.timer.has_launches:
        return "not asked on a processor"
    torch.cuda.set_sync_debug_mode("error")
    try:
        build()
    except RuntimeError as error:
        return str(error)[:200]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


# ---------------------------------------------------------------------------------------------------------- overheads


def overheads(state: State) -> Row:
    """Microseconds of the processor for one call on a small input."""
    found = call_times(overhead_calls(state), on_gpu=state.kit.timer.has_launches)
    return {"shape": f"{state.scene.overhead.id}, fp16", **found}


def overhead_calls(state: State) -> dict[str, Call]:
    """What a user calls, by name, and torch's own beside it."""
    sizes, backend = state.scene.overhead, state.kit.backend
    problem = Problem("one call", sizes, "random", 0.5, block=64, lists="one")
    made = inputs_of(problem, state.kit.place.device)
    q, k, v, mask = made.q, made.k, made.v, made.mask
    qg, kg, vg = (one.clone().requires_grad_() for one in (q, k, v))
    grad = torch.randn(q.shape, device=q.device).to(DTYPES[problem.dtype])

    def backward() -> None:
        qg.grad = kg.grad = vg.grad = None
        torch.autograd.backward(attention(qg, kg, vg, mask, backend=backend), grad)

    calls: dict[str, Call] = {
        "scaled_dot_product_attention, causal": lambda: functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        "attention": lambda: attention(q, k, v, mask, backend=backend),
        "attention, auto": lambda: attention(q, k, v, mask),
        "attention, causal, auto": lambda: attention(q, k, v, causal=True),
        "attention, with lse": lambda: attention(q, k, v, mask, backend=backend, return_lse=True),
        "with gradients: attention": lambda: attention(qg, kg, vg, mask, backend=backend),
        "with gradients: attention and its backward pass": backward,
    }
    if state.wishes.flex:
        calls["flex_attention"] = partial(flex_attend(problem, mask), q, k, v)
    return calls
