"""docs/kernels: what is said of wishes that are not met, and of what was checked, follows from results/."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from firstlight.kernels.choice.cases import AttentionCase, ProductCase
from firstlight.kernels.choice.rows import shipped
from tools.regret_table import BEFORE_MODELS, older_choice

ROOT = Path(__file__).parents[1]
LIBRARY, MATMUL, ATTENTION = (
    (ROOT / "docs" / "kernels" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("library", "matmul", "attention")
)
[MACHINE] = shipped()


def result(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def new_ms(kind: type[ProductCase] | type[AttentionCase], backend: str, block: int) -> float:
    """What a new pattern or mask costs, the median of the shipped rows."""
    times = [
        dict(row.us)[f"new {backend}"] / 1e3
        for row in MACHINE.rows
        if isinstance(row.case, kind) and row.case.block == block and f"new {backend}" in dict(row.us)
    ]
    return statistics.median(times)


def test_activations_that_cost_more_than_was_wanted() -> None:
    rows = result("kernels-sm90-epilogues-h200")["rows"]
    times = {(tuple(row["shape"]), row["name"]): row["ms"] for row in rows}
    said = []
    for shape in ((11008, 4096, 2944, 128, 0.3), (4096, 11008, 2944, 128, 0.3), (8192, 8192, 4096, 128, 0.1)):
        silu, gelu = (100 * times[shape, name] / times[shape, "none"] - 100 for name in ("silu", "gelu"))
        said.append(f"{silu:.1f} % and {gelu:.1f} %")
    assert (
        f"| {said[0]} more; {said[1]} where items are long (4096 x 11008), {said[2]} where they are short |" in LIBRARY
    )


def test_columns_that_are_no_multiple_cost_more_than_was_wanted() -> None:
    rows = result("kernels-sm90-epilogues-h200")["ragged"]
    times = {(row["block"], row["density"], row["call"], row["n"]): row["ms"] for row in rows}

    def more(block: int, density: float, call: str) -> list[float]:
        pairs = ((1001, 1008), (3000, 3008), (4099, 4112))
        return sorted(
            100 * times[block, density, call, odd] / times[block, density, call, even] - 100 for odd, even in pairs
        )

    narrow, dense, light = more(64, 0.3, "matmul"), more(128, 0.3, "matmul"), more(128, 0.1, "matmul")
    assert (
        f"block 64: {narrow[0]:.0f} to {narrow[2]:.0f} % more; block 128: {dense[0]:.0f} to {dense[2]:.0f} % at "
        f"density 0.3, {light[0]:.0f} to {light[2]:.0f} % at 0.1"
    ) in LIBRARY
    assert max(more(block, density, "linear")[2] for block, density in ((64, 0.3), (128, 0.3), (128, 0.1))) < 2.05


def test_what_a_new_pattern_and_a_new_mask_cost() -> None:
    last = result("kernels-new-lists-h200")["runs"][-1]

    def span(words: str, what: str = "returned_ms") -> str:
        times = [row[what] for row in last["rows"] if words in row["case"]]
        return f"{min(times):.2f} to {max(times):.2f}"

    coarse, fine = (span(f" block {block} density") for block in (128, 16))
    assert f"returns after {coarse} ms (block 128), {fine} ms (block 16)" in LIBRARY
    assert f"[{span('linear')} ms](matmul.md#a-new-pattern)" in LIBRARY
    assert f"| block 128: the first call returns after | 1.47 to 2.22 ms | {coarse} ms |" in MATMUL
    seen, again = span("attention"), span("attention", "second_returned_ms")
    assert f"the first call returns after {seen} ms, the second after {again} |" in LIBRARY
    assert f"returns after {seen} ms and the second after {again} (`benchmarks/new_lists.py` at" in ATTENTION
    assert f"`benchmarks/new_lists.py` at {last['commit']}" in ATTENTION
    masks = {name: [new_ms(AttentionCase, name, block) for block in (128, 64)] for name in ("sm90", "triton", "dense")}
    sm90, triton, dense = masks["sm90"], masks["triton"], masks["dense"]
    assert (
        f"by {sm90[0]:.2f} ms with `sm90` at block 128 and {sm90[1]:.2f} at 64, {triton[0]:.2f} and {triton[1]:.2f} "
        f"with `triton`, and {dense[0]:.1f} with\n`dense`"
    ) in ATTENTION
    for name in ("sm90", "triton", "dense"):
        costs = [new_ms(ProductCase, name, block) for block in (16, 32, 64, 128)]
        assert f"`{name}` {min(costs):.2f} to {max(costs):.2f}" in LIBRARY


def test_the_model_and_the_random_calls_and_the_gradients_are_the_results() -> None:
    model = result("kernels-model-h200")
    both = f"{model['forward']['times_as_fast']:.3f}x and {model['training']['times_as_fast']:.3f}x"
    assert f"| {both}; " in LIBRARY
    runs = result("kernels-random-h200")["runs"]
    later = [run for run in runs if run["commit"] == "0f139d3"]
    told = sum(run["said"]["right"] for run in later)
    [wrong] = [run for run in later if run["wrong"]]  # of torch's own product, and said to be
    assert "torch's own" in wrong["about_the_wrong_one"]
    assert f"Four more of 120 seconds at 0f139d3 gave {told} right ones" in LIBRARY
    assert "one that was told wrong" in LIBRARY
    runs = [run for run in runs if run not in later]
    assert not any(run["wrong"] for run in runs)
    right = sum(run["said"]["right"] for run in runs)
    every = sum(sum(run["said"].values()) for run in runs)
    assert f"On an H200 {every:,} random calls" in LIBRARY
    assert f"none wrong, {every - right}\nrefused" in LIBRARY
    back = [dict(row.us) for row in MACHINE.rows if row.case.operation == "backward" and row.case.block == 128]
    both_timed = [us for us in back if {"sm90", "triton"} <= set(us)]
    faster = sum(us["sm90"] < us["triton"] for us in both_timed)
    assert f"at block 128 `sm90` is the faster in {faster} of {len(both_timed)}" in ATTENTION


def test_the_sanitizers_run_is_told_with_its_commit_and_cases() -> None:
    found = result("kernels-sanitizer-h200")
    ids = [case["id"].split("/")[0] for case in found["tools"]["memcheck"]["cases"]]
    for page in (MATMUL, ATTENTION):
        assert f"commit {found['commit']} ({found['date']}" in page
        assert f"{len(ids)} cases" in page
    count = {kind: ids.count(kind) for kind in set(ids)}
    assert f"Of the cases {count['multiply']}\nare products" in MATMUL
    assert f"{count['attention']} forward passes and\n  {count['gradient']} gradients" in ATTENTION


def test_figures_of_auto_before_the_models_say_so() -> None:
    assert older_choice("9b4ca39") == ""
    assert "by the rule of commits 4b92733, c24c708," in older_choice("4b92733", "c24c708")
    for page in (LIBRARY, MATMUL, ATTENTION):
        assert any(f"{commit}, which looked up the nearest measured rows" in page for commit in BEFORE_MODELS)
