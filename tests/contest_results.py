"""Made-up files of benchmarks.rivals and benchmarks.ragged, for tests of what is made of them. Nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ABOUT = {
    "date": "2026-11-19", "commit": "abc", "gpu": "MADE UP", "driver": "0.0", "torch": "0.0",
    "versions": {"flash4": "4.0", "cudnn lists": "1.0", "cudnn dense": "0.0, cuDNN 90000"},
}  # fmt: skip


def timed(burst_ms: float, sustained_ms: float) -> dict[str, Any]:
    """A contender of that time whose two samples are 4 % apart."""
    samples = {"burst_ms": [burst_ms, 1.04 * burst_ms], "sustained_ms": [sustained_ms] * 2, "clock_mhz": [1700, 1700]}
    return {"error": {"out": 0.002}, "samples": samples, "burst_ms": burst_ms, "sustained_ms": sustained_ms}


def silent(why: str) -> dict[str, Any]:
    return {"takes no part": why}


def row(name: str, contenders: dict[str, Any], *, backward: bool = False, **more: Any) -> dict[str, Any]:
    """A row of either file: it has what both ask for."""
    return {
        "case": f"{'backward' if backward else 'forward'}/{name}", "name": name, "shape": [1, 2, 4096], "density": 0.5,
        "backward": backward, "lengths": [100, 300], "heads": [8, 2], "real_share": 0.67, "contenders": contenders,
        **more,
    }  # fmt: skip


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "made-up.json"
    path.write_text(json.dumps({**ABOUT, "rows": rows}))
    return path
