"""Two parts of attention.py: the rows that `auto` goes by, and `auto` beside torch's attention on other shapes.

The rows are written beside the results, as kernels/data/attention.json takes them; `auto` goes by them from there on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import torch
from benchmarks.attention.calls import ours, sdpa
from benchmarks.attention.limits import Row
from benchmarks.attention.parts import MASK_BYTES, free, ms, ratio, say, turns
from benchmarks.attention.work import Inputs, Problem, State, auto_problems, inputs_of, row_problems
from benchmarks.kernels_products import DTYPES, Entry, brief_of, seconds_of
from benchmarks.sm90_watch import Manner, take_turns
from torch import Tensor

from firstlight.kernels.block_attention import rows as kept_rows
from firstlight.kernels.block_attention.choose import forget_choices
from firstlight.kernels.block_attention.functions import explain_attention
from firstlight.kernels.block_attention.seen import shape_of

CLOSE = 1.03
LONG_S = 100e-6
BACKENDS = ("sm90", "triton", "dense", "reference")


# --------------------------------------------------------------------------------------------------------------- rows


def rows(state: State) -> list[Row]:
    """Times of every backend by shape, block and share, in the form that `auto` reads; it goes by them at once."""
    found: dict[tuple[Any, ...], Row] = {}
    for problem in row_problems(state.scene):
        if state.budget.allows(f"rows {problem.name}"):
            _measure_row(state, problem, found)
            free(state)
    made = list(found.values())
    gpu = state.kit.setting.gpu
    machine = {
        "gpu": "a processor" if gpu is None else gpu.name, "torch": torch.__version__,
        "triton": state.found["software"]["triton"] or "", "date": state.found["date"],
        "source": f"benchmarks/attention at {state.found['commit']}", "rows": made,
    }  # fmt: skip
    text = document(machine)
    kept_rows.parsed(text, "the rows just measured")  # as `auto` would read them
    state.rows_file.write_text(text, encoding="utf-8")
    kept_rows.SHIPPED = state.rows_file
    kept_rows.rows_for.cache_clear()
    forget_choices()
    return made


def document(machine: dict[str, Any]) -> str:
    """What data/attention.json holds, a row on a line."""
    head = {key: value for key, value in machine.items() if key != "rows"}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in machine["rows"])
    start = json.dumps({"schema": kept_rows.SCHEMA})[:-1] + ', "machines": ['
    return f'{start}\n {json.dumps(head)[:-1]}, "rows": [\n{lines}\n ]}}\n]}}\n'


def _measure_row(state: State, problem: Problem, found: dict[tuple[Any, ...], Row]) -> None:
    kit, inputs = state.kit, inputs_of(problem, state.kit.place.device)
    dtype = str(DTYPES[problem.dtype]).removeprefix("torch.")
    seq, dim, shape = problem.sizes.seq, problem.sizes.head_dim, shape_of(inputs.mask)
    key = (shape, problem.block, dtype, dim, seq)
    row = found.setdefault(
        key,
        {"shape": shape, "block": problem.block, "dtype": dtype, "head_dim": dim, "q_len": seq, "k_len": seq, "us": {}},
    )
    share = round(inputs.mask.most / inputs.mask.kinds.numel(), 4)
    names = ["sm90", "triton"] if kit.backend == "sm90" else [kit.backend]
    names += [] if "dense" in row["us"] else ["dense"]  # takes as long for any share
    entries = {name: ours(kit, problem, inputs, backend=name, role=name) for name in names}
    results = take_turns(kit, list(entries.values()), passes=turns(state, 2), manner=Manner.BRIEF, pause_s=0.005)
    state.found["records"] += [brief_of(result) for result in results.values()]
    for name, entry in entries.items():
        if seconds := seconds_of(results[entry.case.id]):
            row["us"].setdefault(name, []).append([share, round(1e6 * seconds, 2)])
        else:
            print(f"{entry.case.id}: {results[entry.case.id].reason}", flush=True)
    say({"name": problem.name, "share": share, "us": row["us"]})


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
