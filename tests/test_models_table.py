"""The table of the pruned language model beside the dense one: its figures, and how they came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.models_table import RESULTS, language_model_part


def changed(folder: Path, **more: Any) -> Path:
    path = folder / "made-up.json"
    path.write_text(json.dumps({**json.loads(RESULTS.read_text()), **more}))
    return path


def measured(density: float, loss: float, training: float, evaluation: float) -> dict[str, float]:
    return {
        "density": density, "loss": loss, "training_tokens_per_s": training, "evaluation_tokens_per_s": evaluation,
    }  # fmt: skip


def test_both_models_stand_beside_each_other_with_machine_and_commit(tmp_path: Path) -> None:
    results = {"dense": measured(1.0, 1.2, 1000.0, 3000.0), "pruned": measured(0.25, 1.25, 1500.0, 6000.0)}
    text = language_model_part(changed(tmp_path, results=results, machine="MADE UP", commit="abc", date="2026-11-19"))
    assert "| dense | 1.00 | 1.200 | 1,000 | 3,000 |" in text
    assert "| pruned | 0.25 | 1.250 | 1,500 | 6,000 |" in text
    assert "it trains 1.50 times as fast and evaluates 2.00 times as fast. The dense one has the lower loss" in text
    assert "MADE UP, torch" in text
    assert "commit abc, 2026-11-19: " in text


@pytest.mark.parametrize("commit", [None, "", "not told"])
def test_a_file_that_names_no_commit_is_refused(tmp_path: Path, commit: str | None) -> None:
    with pytest.raises(SystemExit, match="names no commit"):
        language_model_part(changed(tmp_path, commit=commit))


def test_the_measured_run_was_of_the_gpu_and_all_its_attention_was_ours() -> None:
    found = json.loads(RESULTS.read_text())
    assert "H200" in found["machine"]
    assert set(found["attention_calls"]) == {"firstlight"}
    text = language_model_part()
    for one in found["results"].values():
        assert one["loss"] > 1.5 * found["least_loss"]  # 'in the middle of learning'
        assert f"| {one['density']:.2f} | {one['loss']:.3f} | {one['training_tokens_per_s']:,.0f} |" in text
