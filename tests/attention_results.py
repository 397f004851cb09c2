"""A made-up results file of benchmarks/attention, for tests of what is made from it. None of it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIZES = "b16-h96-s4096-d128"
DENSITIES = (0.0312, 0.05, 0.09, 0.16, 0.25, 0.35, 0.5, 0.7, 0.85, 1.0)
FULL_TFLOP, BYTES_MS = 13.19, 1.52
PEAK = 745.0


def row(name: str, density: float, **more: Any) -> dict[str, Any]:
    """A row with imagined times: 0.9 ms and a rate of 600 for ours, 1.6 ms and 400 for the other."""
    ms = round(0.9 + 1e3 * FULL_TFLOP * density / 600, 3)
    flex = round(1.6 + 1e3 * FULL_TFLOP * density / 410, 3)
    limit = max(BYTES_MS, 1e3 * FULL_TFLOP * density / PEAK)
    made = {
        "name": name, "id": f"random-{density:.4g}-each/128/fp16/{SIZES}", "mask": "random", "block": 128,
        "dtype": "fp16", "sizes": SIZES, "lists": "each", "density": density, "verdict": "ok",
        "blocks_per_row": round(32 * density, 2),
        "reason": "", "error_over_bound": 0.3, "flops": int(FULL_TFLOP * 1e12 * density), "ms": ms,
        "tflops": round(FULL_TFLOP * density / ms * 1e3, 1), "flex_ms": flex, "times_flex": round(flex / ms, 3),
        "flex_tflops": 100.0, "limit": "HBM" if limit == BYTES_MS else "tensor", "limit_ms": round(limit, 3),
        "of_limit": round(limit / ms, 4), "cool_ms": round(0.9 * ms, 3), "cool_tflops": 700.0,
        "burst": {"ms": ms, "tflops": 600.0, "sm_mhz": None, "samples_ms": [ms] * 30},
    }  # fmt: skip
    return {**made, **more}


def record(name: str) -> dict[str, Any]:
    passes = [{"sm_mhz": 1980.0, "samples_s": [2.2e-3] * 5} for _ in range(3)]
    figure = {"regime": "burst", "median_s": 2.2e-3, "passes": passes, "telemetry": {"sm_mhz": [1980, 1980, 1980]}}
    return {"id": name, "verdict": "ok", "figures": [figure]}


def made_up() -> dict[str, Any]:
    """The document; every number in it is imagined."""
    later = {"ms": 2.9, "tflops": 470.0, "sm_mhz": 1380.0, "power_w": 694.0, "samples_ms": [2.9]}
    causal = row(
        "dense causal", 0.5156, id=f"causal/128/fp16/{SIZES}", cudnn_ms=12.7, times_cudnn=1.07, times_cudnn_causal=1.07,
        sustained=later, cudnn_sustained={**later, "ms": 13.2},
    )  # fmt: skip
    few = row("3.3 of 32 blocks a row", 0.1031, times_cudnn_causal=5.1, sustained=later)
    bf16 = row("bf16", 0.5, id=f"random-0.5-each/128/bf16/{SIZES}", of_fp16_d128=0.98)
    backward = row("backward, density 0.5", 0.5)
    sweep = [row(f"density {density:g}", density) for density in DENSITIES]
    held_out = row(
        "banded, S=1000", 0.31, mask="banded", auto_took="triton", auto_ms=0.2, dense_ms=0.3, dense_by="cudnn",
        sizes="b8-h32:8-s1000-d128",
    )  # fmt: skip
    sweep[0] |= {"cudnn_causal_ms": 12.7, "cudnn_full_ms": 22.9}
    table = [causal, few, row("density 0.5", 0.5), bf16]
    records = [record(f"{each['id']}/ours") for each in table] + [record(f"{backward['id']}/backward ours")]
    return {
        "schema": "firstlight.attention-bench/1", "made_up": "nothing of this was measured", "commit": "abc",
        "dry": False, "date": "2026-11-15", "backend": "sm90", "gpu": {"name": "MADE UP"},
        "software": {"driver": "0.0", "torch": "0.0", "triton": "0.0"}, "records": records,
        "parts": {
            "rates": {"cublas_fp16_tflops": PEAK, "copy_gbps": 4230.0}, "table": table, "backward": [backward],
            "sweep": sweep, "held_out": [held_out],
            "lists": [
                {
                    "name": "density 0.5", "what": "lists from booleans", "device_ms": 0.05, "of_the_run": 0.004,
                    "waits_for_the_device": "no",
                }
            ],
            "auto": {
                "summary": {
                    "calls": 33, "long_calls": 30, "within_3_percent": 0.967, "worst": 1.041, "slower": [],
                    "took": {"sm90": 20, "triton": 3, "dense": 10, "reference": 0},
                }
            },
            "overheads": {
                "shape": "b1-h8-s512-d64, fp16", "calls": {"attention": {"median_us": 21.5, "samples_us": [21.5]}},
            },
        },
    }  # fmt: skip


def written(folder: Path, found: dict[str, Any]) -> Path:
    path = folder / "attention-h200.json"
    path.write_text(json.dumps(found))
    return path
