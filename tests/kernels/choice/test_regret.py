"""The regret of auto: which rows count, and that every kind of question can be asked."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import regret, regret_cases
from benchmarks.regret_cases import Attended, Product

from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.rows import SHIPPED, parsed
from tools.regret_table import RESULTS, counted_of, named_regrets, regret_part, timed_regrets

ROWS = RESULTS.with_name("kernels-choice-h200.json")
ROW: dict[str, Any] = {"id": "a", "kind": "products", "direction": "forward", "us": {"sm90": 60.0, "dense": 90.0}}
PATTERNS: Any = SimpleNamespace(
    blocks_of=lambda q: np.ones((-(-q["rows"] // q["block"]), -(-q["columns"] // q["block"])), bool),
    block_mask=lambda q: np.ones((1, q["heads"], 4, 4), bool),
    document_ids=lambda q: np.arange(q["q_len"]) // 100,
)
PRODUCT: dict[str, Any] = {
    "id": "test", "rows": 64, "columns": 48, "block": 16, "tokens": 6, "dtype": "fp32", "tf32": None,
    "activation": "none", "bias": True, "dense_copy_kept": False, "direction": "forward", "layout": "linear",
    "pattern": {"seed": 1},
}  # fmt: skip
PASS: dict[str, Any] = {
    "id": "test", "batch": 1, "heads": 2, "kv_heads": 1, "q_len": 256, "kv_len": 256, "head_dim": 16, "block": 64,
    "dtype": "fp32", "direction": "forward",
}  # fmt: skip


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(regret_cases, "DEVICE", "cpu")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))


def test_short_calls_do_not_count_and_the_worst_is_told_by_backend_and_by_autos_own_time() -> None:
    rows = [
        {**ROW, "regret": 1.0, "regret_timed": 1.06},
        {**ROW, "id": "b", "regret": 1.12, "regret_timed": 1.1},
        {**ROW, "id": "c", "us": {"sm90": 20.0}, "regret": 3.0, "regret_timed": 3.0},
        {**ROW, "id": "d", "regret": None, "regret_timed": 1.3, "direction": "training"},
        {"id": "e", "kind": "products", "skipped": "gated"},
    ]
    found = regret.summary(rows, "products")
    assert (found["calls"], found["within_5_percent"], found["worst"]) == (3, 0.3333, 1.3)
    assert found["beyond_5_percent"] == ["b", "d"]
    assert (found["timed"]["within_5_percent"], found["timed"]["within_15_percent"]) == (0.0, 0.6667)
    assert found["timed"]["beyond_5_percent"] == ["a", "b", "d"]
    forward = counted_of(rows, "products", gradients=False)
    assert (named_regrets(forward), timed_regrets(forward)) == ([1.0, 1.12], [1.06, 1.1])
    gradients = counted_of(rows, "products", gradients=True)
    assert (named_regrets(gradients), timed_regrets(gradients)) == ([1.3], [1.3])


def test_the_table_says_what_the_results_say() -> None:
    text = regret_part()
    assert text.count("\n| ") == 14
    assert "closed half, first run" in text
    assert "seed 2211, first run" in text
    assert "seed 2212, first run" in text


def test_questions_of_two_draws_with_one_id_have_patterns_of_their_own() -> None:
    made: list[str] = []

    def make(question: dict[str, Any]) -> Any:
        made.append(question["name"])
        return np.full((2, 2), question["name"] == "first")

    first, second = ({"id": "p0", "name": name, "pattern": {"seed": 1}} for name in ("first", "second"))
    for question, kept in ((first, True), (second, False), (first, True)):
        assert bool(regret_cases.made_once(question, make).all()) is kept
    assert made == ["first", "second"]


@pytest.mark.parametrize("direction", ["forward", "dx", "dw", "training"])
@pytest.mark.parametrize("layout", ["linear", "matmul"])
def test_products_are_asked_in_every_direction(direction: str, layout: str) -> None:
    asked = Product({**PRODUCT, "direction": direction, "layout": layout}, PATTERNS)
    for backend in ("reference", "auto"):
        for _ in range(3):
            asked.call(backend)()
    assert regret.took(asked) in ("reference", "dense")


@pytest.mark.parametrize(
    "mask",
    [
        {"kind": "full"}, {"kind": "causal", "alignment": "bottom-right"}, {"kind": "top_k", "causal": True},
        {"kind": "window", "left": 60, "right": 0, "sink": 10, "alignment": "top-left"}, {"kind": "video"},
        {"kind": "strided", "stride": 2, "window": 64}, {"kind": "documents", "count": 3, "causal": True},
    ],
)  # fmt: skip
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_is_asked_with_every_mask(mask: dict[str, Any], direction: str) -> None:
    asked = Attended({**PASS, "mask": {**mask, "seed": 1}, "direction": direction}, PATTERNS)
    found = [asked.call(backend)() for backend in ("reference", "dense")]
    for one, other in zip(*found, strict=True):
        assert isinstance(one, torch.Tensor)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert regret.took(asked) in ("reference", "dense")


def test_the_figures_by_seed_are_those_of_the_results() -> None:
    found = json.loads(RESULTS.read_text())["drawn"]["rows"]
    text = (RESULTS.parents[1] / "docs" / "kernels" / "library.md").read_text(encoding="utf-8")
    for seed, kind, words in (
        ("2211", "products", "products"), ("2211", "attention", "attention calls"), ("2212", "products", "products"),
        ("both", "products", "products"),
    ):  # fmt: skip
        rows = [row for row in found if seed in ("both", row["id"].split()[0])]
        counted = [row for gradients in (False, True) for row in counted_of(rows, kind, gradients=gradients)]
        named, timed = (
            f"{sum(one <= 1.05 for one in each) / len(each):.1%}, {max(each):.3f}x".replace("%", " %")
            for each in (named_regrets(counted), timed_regrets(counted))
        )
        assert f"\n| {seed} | {len(counted)} {words} | {named} | {timed} |\n" in text


def test_what_is_told_of_the_rows_that_ship_is_so() -> None:
    [shipped], [measured] = (parsed(path.read_text(), path.name) for path in (SHIPPED, ROWS))
    kept, before = ({row.case: dict(row.us) for row in machine.rows} for machine in (shipped, measured))
    products = sum(isinstance(row.case, ProductCase) for row in shipped.rows)
    assert (products, len(shipped.rows) - products) == (1748, 959)
    assert len(set(kept) - set(before)) == 30
    assert all(kept[case] == us for case, us in before.items() if not isinstance(case, ProductCase))
    changed = Counter(
        (name, name in kept[case]) for case, us in before.items() for name in us if us[name] != kept[case].get(name)
    )
    assert changed == {("sm90", False): 217, ("sm90", True): 69, ("new sm90", True): 280, ("copy", True): 252}
