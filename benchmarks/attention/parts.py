"""The parts of attention.py that compare with cuDNN and FlexAttention: table, backward, sweep, held-out masks."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

from benchmarks.attention.calls import backward, flex, ours, sdpa
from benchmarks.attention.limits import Row, limited
from benchmarks.attention.watch import back_to_back, in_a_row
from benchmarks.attention.work import (
    Inputs,
    Problem,
    State,
    backward_problem,
    held_out_problems,
    inputs_of,
    mask_of,
    sweep_problems,
    table_problems,
)
from benchmarks.matmul.products import Entry, brief_of, record_of, seconds_of
from benchmarks.matmul.sm90.watch import Manner, take_turns

from firstlight.bench.results import CaseResult
from firstlight.kernels.block_attention.functions import explain_attention

WITHOUT_FLEX = ("bf16", "head dim", "GQA", "ragged")  # these rows are held against our own fp16 rate
MASK_BYTES = 8 << 30  # of a mask as a tensor, beyond which torch's attention is not given it


def table(state: State) -> list[Row]:
    """Every row of the table: ours, cuDNN where it computes the same, FlexAttention; burst, then back to back."""
    rows: list[Row] = []
    for problem in table_problems(state.scene):
        if state.budget.allows(f"table {problem.name}"):
            rows.append(_table_row(state, problem))
            _against_our_rate(rows)
            state.keep("table", rows)
            free(state)
    return rows


def _table_row(state: State, problem: Problem) -> Row:
    kit, inputs = state.kit, inputs_of(problem, state.kit.place.device)
    entries = {"ours": ours(kit, problem, inputs, backend=kit.backend)}
    rival = _dense_rival(state, problem, inputs)
    if rival is not None:
        entries["cudnn"] = rival
    if state.wishes.flex and not any(word in problem.name for word in WITHOUT_FLEX):
        entries["flex"] = flex(kit, problem, inputs)
    row = _timed_row(state, problem, inputs, entries)
    if problem.mask == "causal":
        state.found["cudnn_causal"] = {"ms": row.get("cudnn_ms"), "sustained": row.get("cudnn_sustained")}
    causal = state.found.get("cudnn_causal", {}).get("ms")
    row["times_cudnn_causal"] = ratio(causal, row["ms"]) if problem.sizes == state.scene.large else None
    limited(row, problem, inputs.mask, row["ms"] and 1e-3 * row["ms"], state)
    say(row)
    return row


def _timed_row(state: State, problem: Problem, inputs: Inputs, entries: dict[str, Entry]) -> Row:
    """Each entry three times: a few calls after pauses (cool), 15 in a row after one (burst), a second back to back."""
    kit = state.kit
    results = take_turns(kit, list(entries.values()), passes=1, manner=Manner.BURST)
    state.found["records"] += [record_of(result) for result in results.values()]
    row = row_of(problem, inputs, {role: results[entry.case.id] for role, entry in entries.items()})
    fine = {role: entry for role, entry in entries.items() if seconds_of(results[entry.case.id])}
    in_burst(row, in_a_row(kit, fine, passes=turns(state, 2)))
    for role, entry in fine.items() if state.wishes.sustain_s else ():
        later = back_to_back(kit, entry, seconds=state.wishes.sustain_s)
        row["sustained" if role == "ours" else f"{role}_sustained"] = later
    return row


def in_burst(row: Row, bursts: dict[str, Row]) -> None:
    """Puts the burst figures where a row has its times; what was there is kept as cool."""
    for role, burst in bursts.items():
        before = "" if role == "ours" else f"{role}_"
        row[f"cool_{before}ms"], row[f"cool_{before}tflops"] = row[f"{before}ms"], row[f"{before}tflops"]
        row[f"{before}ms"], row[f"{before}tflops"], row[f"{before}burst"] = burst["ms"], burst["tflops"], burst
    for role in bursts:
        if role != "ours":
            row[f"times_{role}"] = ratio(row[f"{role}_ms"], row["ms"])


def _dense_rival(state: State, problem: Problem, inputs: Inputs) -> Entry | None:
    """cuDNN's dense attention: causal for the causal row, full for the longest lists and the long sequence."""
    kernel = "cudnn" if state.kit.timer.has_launches else "math"
    if problem.mask == "causal":
        return sdpa(state.kit, problem, inputs, kernel=kernel)
    if problem.share < 1.0 and problem.sizes != state.scene.long:
        return None
    full = replace(problem, mask="full")
    whole = Inputs(inputs.q, inputs.k, inputs.v, mask_of(full, state.kit.place.device))
    entry = sdpa(state.kit, full, whole, kernel=kernel)
    return replace(entry, passes=1) if problem.sizes == state.scene.long else entry


def row_of(problem: Problem, inputs: Inputs, found: dict[str, CaseResult]) -> Row:
    """One row: what it is, our time and rate, those of the others and how many times ours they take."""
    mine = found["ours"]
    seconds = seconds_of(mine)
    mask = inputs.mask
    row: Row = {
        "name": problem.name, "id": problem.id, "mask": problem.mask, "block": problem.block, "dtype": problem.dtype,
        "sizes": problem.sizes.id, "lists": problem.lists, "density": round(mask.density, 4),
        "blocks_per_row": round(mask.density * mask.kinds.shape[3], 2), "verdict": mine.verdict.value,
        "reason": mine.reason, "error_over_bound": mine.error_rel, "flops": mine.flops, "ms": ms(seconds),
        "tflops": None if not seconds else round(mine.flops / seconds / 1e12, 1),
    }  # fmt: skip
    for role, result in found.items():
        if role == "ours":
            continue
        theirs = seconds_of(result)
        row[f"{role}_ms"], row[f"times_{role}"] = ms(theirs), ratio(theirs, seconds)
        row[f"{role}_tflops"] = None if not theirs else round(result.flops / theirs / 1e12, 1)
        if result.verdict.value != "ok":
            row[f"{role}_reason"] = result.reason
    return row


def _against_our_rate(rows: list[Row]) -> None:
    """What share of the fp16, head dim 128 rate at density 0.5 the other types and shapes have."""
    base = next((row["tflops"] for row in rows if row["name"] == "density 0.5"), None)
    for row in rows:
        if any(word in row["name"] for word in WITHOUT_FLEX):
            row["of_fp16_d128"] = ratio(row["tflops"], base)


def backwards(state: State) -> list[Row]:
    """The backward pass alone at density 0.5: ours, Triton's beside sm90's, FlexAttention's and cuDNN's dense one."""
    kit, problem = state.kit, backward_problem(state.scene)
    inputs = inputs_of(problem, kit.place.device)
    entries = {"ours": backward(kit, problem, inputs, role="ours")}
    if kit.backend == "sm90":
        entries["triton"] = backward(kit, problem, inputs, role="triton")
    if state.wishes.flex:
        entries["flex"] = backward(kit, problem, inputs, role="flex")
    entries["cudnn"] = replace(backward(kit, problem, inputs, role="cudnn"), passes=1)
    row = _timed_row(state, problem, inputs, entries)
    row["computed_by"] = kit.backend
    say(row)
    free(state)
    return [row]


def sweep(state: State) -> list[Row]:
    """Time against density at the large shape, for the picture; cuDNN full and causal once, at its first point."""
    rows: list[Row] = []
    kit, device = state.kit, state.kit.place.device
    for problem in sweep_problems(state.scene):
        if not state.budget.allows(f"sweep {problem.name}"):
            continue
        inputs = inputs_of(problem, device)
        entries = {"ours": ours(kit, problem, inputs, backend=kit.backend)}
        if state.wishes.flex:
            entries["flex"] = flex(kit, problem, inputs)
        if not rows:
            kernel = "cudnn" if kit.timer.has_launches else "math"
            for name in ("causal", "full"):
                plain = replace(problem, mask=name)
                whole = Inputs(inputs.q, inputs.k, inputs.v, mask_of(plain, device))
                entries[f"cudnn_{name}"] = sdpa(kit, plain, whole, kernel=kernel)
        results = take_turns(kit, list(entries.values()), passes=1, manner=Manner.BRIEF)
        state.found["records"] += [brief_of(result) for result in results.values()]
        row = row_of(problem, inputs, {role: results[entry.case.id] for role, entry in entries.items()})
        fine = {role: entry for role, entry in entries.items() if seconds_of(results[entry.case.id])}
        in_burst(row, in_a_row(kit, fine, passes=1))
        limited(row, problem, inputs.mask, row["ms"] and 1e-3 * row["ms"], state)
        rows.append(row)
        say(row)
        state.keep("sweep", rows)
        free(state)
    return rows


def held_out(state: State) -> list[Row]:
    """Masks and shapes that nothing was tuned on: ours, `auto`, and torch's attention with the mask and without."""
    rows: list[Row] = []
    kit, device = state.kit, state.kit.place.device
    for problem in held_out_problems(state.scene):
        if not state.budget.allows(f"held out {problem.name}"):
            continue
        inputs = inputs_of(problem, device)
        entries = {
            "ours": ours(kit, problem, inputs, backend=kit.backend),
            "auto": ours(kit, problem, inputs, backend="auto", role="auto"),
        }
        full = replace(problem, mask="full")
        whole = Inputs(inputs.q, inputs.k, inputs.v, mask_of(full, device))
        for kernel in ("cudnn", "flash") if kit.timer.has_launches else ("math",):  # cuDNN may refuse shared keys
            entries[kernel] = sdpa(kit, full, whole, kernel=kernel)
        results = take_turns(kit, list(entries.values()), passes=turns(state, 2), manner=Manner.BRIEF, pause_s=0.01)
        state.found["records"] += [brief_of(result) for result in results.values()]
        row = row_of(problem, inputs, {role: results[entry.case.id] for role, entry in entries.items()})
        row["auto_took"] = explain_attention(inputs.q, inputs.k, inputs.mask).backend
        dense = {name: row[f"{name}_ms"] for name in ("cudnn", "flash", "math") if row.get(f"{name}_ms")}
        row["dense_by"] = min(dense, key=lambda name: float(dense[name]), default=None)
        row["dense_ms"] = dense.get(row["dense_by"])
        limited(row, problem, inputs.mask, seconds_of(results[entries["ours"].case.id]), state)
        rows.append(row)
        say(row)
        state.keep("held_out", rows)
        free(state)
    return rows


def turns(state: State, passes: int) -> int:
    """Passes of a round robin; one is enough to try the script on a processor."""
    return passes if state.kit.timer.has_launches else 1


def free(state: State) -> None:
    """Gives the memory of a row back before the next one asks for as much."""
    gc.collect()
    if state.kit.timer.has_launches:
        import torch

        torch.cuda.empty_cache()


def say(row: Row) -> None:
    """One row as it is found, on one line, without its samples."""
    print(json.dumps(shortened(row)), flush=True)


def shortened(row: Row) -> dict[str, Any]:
    return {
        key: {name: one for name, one in value.items() if name != "samples_ms"} if isinstance(value, dict) else value
        for key, value in row.items()
    }


def ms(seconds: float | None) -> float | None:
    """Milliseconds to a hundredth of a microsecond."""
    return None if seconds is None else round(1e3 * seconds, 5)


def ratio(one: float | None, other: float | None) -> float | None:
    """one / other, None where either is missing."""
    return None if not one or not other else round(one / other, 3)
