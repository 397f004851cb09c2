"""The regret of auto: which rows count, and that every kind of question can be asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import regret, regret_cases
from benchmarks.regret_cases import Attended, Product

from tools.regret_table import regret_part, regrets_of

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


def test_short_calls_do_not_count_and_the_worst_is_told() -> None:
    rows = [
        {**ROW, "regret": 1.0},
        {**ROW, "id": "b", "regret": 1.12},
        {**ROW, "id": "c", "us": {"sm90": 20.0}, "regret": 3.0},
        {**ROW, "id": "d", "regret": None, "regret_timed": 1.3, "direction": "training"},
        {"id": "e", "kind": "products", "skipped": "gated"},
    ]
    found = regret.summary(rows, "products")
    assert (found["calls"], found["within_5_percent"], found["worst"]) == (3, 0.3333, 1.3)
    assert found["beyond_5_percent"] == ["b", "d"]
    assert regrets_of(rows, "products", gradients=False) == [1.0, 1.12]
    assert regrets_of(rows, "products", gradients=True) == [1.3]


def test_the_table_says_what_the_results_say() -> None:
    text = regret_part()
    assert text.count("\n| ") == 12
    assert "closed half, first run" in text


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
