"""kernels/data/choice-fits.json: the fits of the rows that ship, so that no process has to make them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from firstlight.kernels.choice.fit import fitted, times_by_kind
from firstlight.kernels.choice.made import MADE, SCHEMA, rows_digest
from firstlight.kernels.choice.models import FIRST
from firstlight.kernels.choice.rows import Machine, shipped


def fits_of(machine: Machine) -> list[dict[str, Any]]:
    """Every kind that has rows enough."""
    found = []
    for kind, times in sorted(times_by_kind(machine.rows).items()):
        if kind[0].startswith(FIRST) or "tf32" in kind:
            continue
        fit = fitted(kind[0], times, machine.card)
        if fit is not None:
            weights, pull = ([float(f"{one:.7g}") for one in many] for many in (fit.weights, fit.pull.tolist()))
            found.append({"kind": list(kind), "weights": weights, "pull": pull, "error": round(fit.error, 5)})
    return found


def made() -> dict[Path, str]:
    """The document with its place."""
    return {MADE: text()}


def text() -> str:
    """The document, one fit a line."""
    lines = [f'{{"schema": "{SCHEMA}", "rows_sha256": "{rows_digest()}", "machines": {{']
    machines = shipped()
    for number, machine in enumerate(machines):
        fits = [json.dumps(fit) for fit in fits_of(machine)]
        lines.append(f"{json.dumps(machine.card.gpu)}: [")
        lines += [f" {fit}{',' if place < len(fits) - 1 else ''}" for place, fit in enumerate(fits)]
        lines.append("]" + ("," if number < len(machines) - 1 else ""))
    return "\n".join([*lines, "}}"]) + "\n"
