"""The table of the pruned language model beside the dense one, from results/kernels-language-model-h200.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "kernels-language-model-h200.json"


def language_model_part() -> str:
    """What docs/kernels/models.md says of it."""
    if not RESULTS.exists():
        return "Not measured on a GPU yet.\n"
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    sizes, results = found["settings"], found["results"]
    lines = [
        "| after the same number of steps | density | loss | tokens/s, training | tokens/s, evaluation |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in ("dense", "pruned"):
        one = results[name]
        speeds = f"{one['training_tokens_per_s']:,.0f} | {one['evaluation_tokens_per_s']:,.0f}"
        lines.append(f"| {name} | {one['density']:.2f} | {one['loss']:.3f} | {speeds} |")
    steps = f"{sizes['first_steps']} steps dense, then {sizes['further_steps']} for each"
    shape = (
        f"{sizes['layers']} layers of width {sizes['width']} and {sizes['inner']} inside, {sizes['heads']} heads over "
        f"{sizes['key_heads']} key heads, window {sizes['window']}, {sizes['batch']} x {sizes['length']} tokens a "
        f"step, blocks of {sizes['block']}, bfloat16 autocast"
    )
    return (
        "\n".join(lines)
        + f"\n\n{found['machine']}, torch {found['torch']}: {shape}; {steps}. The least loss that a model of this text "
        + f"can have is {found['least_loss']:.3f}. Training: the last quarter of the steps, density reached; "
        + "evaluation: the better of three rounds. `examples/prune_a_language_model.py`, "
        + "`results/kernels-language-model-h200.json`.\n"
    )
