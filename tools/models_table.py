"""The table of the pruned language model beside the dense one, from results/prune-model-h200.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "prune-model-h200.json"


def language_model_part(path: Path = RESULTS) -> str:
    """What docs/kernels/models.md says of it."""
    found: dict[str, Any] = json.loads(path.read_text())
    if found.get("commit") in (None, "", "not told"):
        sys.exit(f"results/{path.name} names no commit")
    lines = [
        "| after the same number of steps | density | loss | tokens/s, training | tokens/s, evaluation |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in ("dense", "pruned"):
        one = found["results"][name]
        speeds = f"{one['training_tokens_per_s']:,.0f} | {one['evaluation_tokens_per_s']:,.0f}"
        lines.append(f"| {name} | {one['density']:.2f} | {one['loss']:.3f} | {speeds} |")
    return "\n".join(lines) + f"\n\n{_said(found)} {_how(found)} `results/{path.name}`.\n"


def _said(found: dict[str, Any]) -> str:
    dense, pruned = (found["results"][name] for name in ("dense", "pruned"))
    training, evaluation = (
        pruned[f"{what}_tokens_per_s"] / dense[f"{what}_tokens_per_s"] for what in ("training", "evaluation")
    )
    lower = "pruned" if pruned["loss"] < dense["loss"] else "dense"
    return (
        f"Pruned it trains {training:.2f} times as fast and evaluates {evaluation:.2f} times as fast. The {lower} one "
        "has the lower loss after these steps. The least that a model of this text can have is "
        f"{found['least_loss']:.3f}, so both are in the middle of learning, and the losses say nothing of models that "
        "are trained to their end."
    )


def _how(found: dict[str, Any]) -> str:
    sizes, calls = found["settings"], found["attention_calls"]
    ways = ", ".join(f"{count} by {name}" for name, count in calls.items())
    return (
        f"{found['machine']}, torch {found['torch']}, commit {found['commit']}, {found['date']}: {sizes['layers']} "
        f"layers of width {sizes['width']} and {sizes['inner']} inside, {sizes['heads']} heads over "
        f"{sizes['key_heads']} key heads, window {sizes['window']}, {sizes['batch']} x {sizes['length']} tokens a "
        f"step, blocks of {sizes['block']}, bfloat16 autocast; {sizes['first_steps']} steps dense, then "
        f"{sizes['further_steps']} for each, once. Attention is ours in both ({ways}). Training: the last quarter of "
        "the steps, density reached; evaluation: the better of three rounds. `examples/prune_a_language_model.py`,"
    )
