"""A part of attention.py: `auto` beside every kernel of torch's attention, on shapes that no row was drawn on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.attention.calls import ours, sdpa
from benchmarks.attention.limits import Row
from benchmarks.attention.parts import MASK_BYTES, free, ms, ratio, say, turns
from benchmarks.attention.work import Inputs, Problem, State, auto_problems, inputs_of
from benchmarks.matmul.products import Entry, brief_of, seconds_of
from benchmarks.matmul.sm90.watch import Manner, take_turns
from torch import Tensor

from firstlight.kernels.block_attention.functions import explain_attention

CLOSE = 1.03
LONG_S = 100e-6
BACKENDS = ("sm90", "triton", "dense", "reference")


# --------------------------------------------------------------------------------------------------------------- auto


def auto(state: State) -> dict[str, Any]:
    """`auto` beside the sparse kernels and every kernel of torch's attention that takes the mask."""
    rows: list[Row] = []
    for problem in auto_problems(state.scene):
        if state.budget.allows(f"auto {problem.name}"):
            rows.append(_auto_row(state, problem))
            free(state)
    summary = auto_summary(rows)
    say(summary)
    return {"summary": summary, "rows": rows}


def _auto_row(state: State, problem: Problem) -> Row:
    kit, inputs = state.kit, inputs_of(problem, state.kit.place.device)
    names = [kit.backend, "triton"] if kit.backend == "sm90" else [kit.backend]
    entries = {name: ours(kit, problem, inputs, backend=name, role=name) for name in names}
    entries["auto"] = ours(kit, problem, inputs, backend="auto", role="auto")
    rivals = sdpa_rivals(state, problem, inputs)
    results = take_turns(
        kit, [*entries.values(), *rivals.values()], passes=turns(state, 2), manner=Manner.BRIEF, pause_s=0.005
    )
    state.found["records"] += [brief_of(result) for result in results.values()]
    times = {name: seconds_of(results[entry.case.id]) for name, entry in (entries | rivals).items()}
    taken = explain_attention(inputs.q, inputs.k, inputs.mask)
    row: Row = {
        "name": problem.name, "id": problem.id, "mask": problem.mask, "block": problem.block, "dtype": problem.dtype,
        "sizes": problem.sizes.id, "head_dim": problem.sizes.head_dim, "seq": problem.sizes.seq,
        "share": round(inputs.mask.most / inputs.mask.kinds.numel(), 4), "density": round(inputs.mask.density, 4),
        "ms": {name: ms(seconds) for name, seconds in times.items()}, "auto_took": taken.backend, "why": taken.why,
        "verdict": {name: results[entry.case.id].verdict.value for name, entry in (entries | rivals).items()},
    }  # fmt: skip
    best = min((times[name] or 1e9 for name in rivals), default=1e9)
    row["best_sdpa"] = next((name for name in rivals if times[name] == best), None)
    row["auto_over_best_sdpa"] = ratio(times["auto"], best) if best < 1e9 else None
    fastest = min((seconds for name, seconds in times.items() if seconds and name != "auto"), default=None)
    row["auto_over_fastest"] = ratio(times["auto"], fastest)
    say(row)
    return row


def sdpa_rivals(state: State, problem: Problem, inputs: Inputs) -> dict[str, Entry]:
    """torch's attention by each of its kernels, without a check: those that cannot run say so."""
    kernels: tuple[str, ...] = ("cudnn", "flash", "efficient") if state.kit.timer.has_launches else ("math",)
    seen: Tensor | None = None
    if not problem.is_plain:
        shape = inputs.mask.kinds.shape[0] * inputs.mask.kinds.shape[1]
        if shape * problem.sizes.seq**2 > MASK_BYTES:
            return {}
        seen = inputs.mask.to_bool()
        kernels = tuple(kernel for kernel in kernels if kernel != "flash")  # it takes no mask
    return {
        f"sdpa {kernel}": replace(
            sdpa(state.kit, problem, inputs, kernel=kernel, seen=seen), check=lambda: 0.0, passes=1
        )
        for kernel in kernels
    }


def auto_summary(rows: list[Row]) -> Row:
    """How often `auto` was within 3 % of the best kernel of torch's attention, and the worst."""
    long = [row for row in rows if row["auto_over_best_sdpa"] and (row["ms"]["auto"] or 0) * 1e-3 >= LONG_S]
    slower = [row for row in long if row["auto_over_best_sdpa"] > CLOSE]
    return {
        "calls": len(rows), "long_calls": len(long),
        "within_3_percent": ratio(len(long) - len(slower), len(long)) or 0.0,
        "worst": max((row["auto_over_best_sdpa"] for row in long), default=None),
        "slower": [row["id"] for row in slower],
        "took": {name: sum(row["auto_took"] == name for row in rows) for name in BACKENDS},
    }  # fmt: skip
