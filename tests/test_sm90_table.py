"""The tables of the Hopper kernels: absent before they were measured, refused without evidence, both regimes shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.sm90_table import (
    PARTS,
    epilogues_part,
    front_rows,
    held_out_part,
    new_part,
    nsight_part,
    table_part,
    without_part,
)

NAME = "128/tokens/fp16/8192x8192x8192"


def record(name: str) -> dict[str, Any]:
    one_pass = {"sm_mhz": 1980.0, "samples_s": [1.8e-4, 1.81e-4]}
    figure = {"regime": "burst", "median_s": 1.8e-4, "passes": [one_pass], "telemetry": {"sm_mhz": [1980, 1980, 1980]}}
    return {"id": name, "verdict": "ok", "figures": [figure]}


def measured() -> dict[str, Any]:
    row = {
        "id": f"{NAME}/0.1", "block": 128, "layout": "tokens", "dtype": "fp16", "density": 0.1, "verdict": "ok",
        "ms": 0.184, "tflops": 598.0, "of_cublas": 0.83, "dense_random_ms": 1.46, "dense_same_ms": 1.31,
        "times_dense_same": 7.12, "limit": "L2", "limit_ms": 0.164, "of_limit": 0.891,
    }  # fmt: skip
    return {
        "commit": "abc",
        "date": "2026-11-15",
        "gpu": {"name": "NVIDIA H200"},
        "software": {"driver": "580.159.04", "torch": "2.11.0+cu130"},
        "parts": {"table": [row]},
        "records": [record(f"{NAME}/{end}") for end in ("0.1/sparse", "0.1/same", "1/random")],
    }


def written(folder: Path, found: dict[str, Any]) -> Path:
    path = folder / "kernels-sm90-h200.json"
    path.write_text(json.dumps(found))
    return path


def test_nothing_is_shown_before_it_was_measured(tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    makers = (front_rows, table_part, held_out_part, nsight_part, without_part, new_part, epilogues_part)
    assert [make(absent) for make in makers] == [""] * 7
    names = {"sm90-table", "sm90-held-out", "sm90-nsight", "sm90-without", "sm90-new", "sm90-epilogues"}
    assert set(PARTS) == names


def test_a_row_shows_its_share_of_cublas_and_its_limit_and_a_dash_for_what_was_not_measured(tmp_path: Path) -> None:
    text = table_part(written(tmp_path, measured()))
    assert text.startswith("**Measured on H200 only** (NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130, 2026-11-15)")
    assert "| 128 | 0.1 | linear fp16 | 0.184 ms | 598 | 0.83 | - | - | 1.310 ms (7.1x ours) | L2 | 89% |" in text


def test_burst_and_sustained_stand_side_by_side(tmp_path: Path) -> None:
    found = measured()
    found["parts"]["sustained"] = [{"id": f"{NAME}/0.1", "ms": 0.221, "of_cublas": 0.79}]
    assert "| 0.184 ms | 598 | 0.83 | 0.221 ms | 0.79 |" in table_part(written(tmp_path, found))


def test_every_part_that_was_measured_is_shown(tmp_path: Path) -> None:
    found = measured()
    low = {"block": 64, "layout": "columns", "density": 0.02, "ms": 0.09, "gbps": 3000.0, "of_copy": 0.71}
    found["parts"] |= {
        "gradients": [{**found["parts"]["table"][0], "gradient": "dX"}],
        "low": [low],
        "overheads": {"shape": "512 x 512", "calls": {"linear": {"median_us": 9.1, "samples_us": [9.1]}}},
        "held_out": [
            {
                "id": "64/tokens/fp16/4096x4096x16/0.1", "ms": 0.006, "dense_same_ms": 0.014, "auto_ms": 0.0061,
                "auto_took": "sm90", "limit": "HBM", "of_limit": 0.31,
            }
        ],
        "patterns": [
            {
                "pattern": "banded", "block": 16, "density": 0.1167, "layout": "tokens", "ms": 0.3, "tflops": 400.0,
                "of_cublas": 0.55,
            }
        ],
        "crossings": {
            "crossovers": [
                {
                    "operation": "multiply", "rows": 8192, "tokens": 4096, "block": 128, "layout": "tokens",
                    "crossover": 0.91,
                }
            ]
        },
        "auto": {
            "summary": {
                "long_calls": 100, "long_within_3_percent": 0.99, "worst": 1.034, "sent_to_dense": 0.4,
                "sent_to_sm90": 0.6, "sent_to_triton": 0.0,
            },
            "rows": [{"id": "128/tokens/fp16/5120x13824x4096/0.01"}],
        },
    }  # fmt: skip
    path = written(tmp_path, found)
    text = table_part(path) + held_out_part(path, choices=tmp_path / "none.json")
    assert "| dX | 128 | 0.1 | linear | 0.184 ms | 598 | 0.83 |" in text
    assert "| 64 | 0.02 | matmul | 0.090 ms | 3,000 | 71% | - | - |" in text
    assert "| linear | 9.1 us |" in text
    assert "| 4096 x 4096 | 16 | linear | 64 | 0.1 | 6.0 us | 14.0 us | HBM | 31% | sm90, 6.1 us |" in text
    assert "| banded | 16 | 0.117 | linear | 0.300 ms | 400 | 0.55 | - | - |" in text
    assert "| 128 | linear | 0.91 |" in text
    assert "of 100 calls of 100 us and more 99 % took at most 3 % longer" in text
    assert "the worst 3.4 % longer. 40 % of the calls went to dense" in text


def test_what_the_profiler_counted_is_shown_with_the_prediction(tmp_path: Path) -> None:
    case = {
        "id": f"{NAME}/0.5", "tensor_active_pct": 88.21, "l2_to_sm_over_predicted": {"xbar2l1tex": 1.0123},
        "shared_load_conflicts": 0.0, "shared_store_conflicts": 1234.0,
    }  # fmt: skip
    path = tmp_path / "nsight.json"
    path.write_text(json.dumps({"commit": "abc", "ncu": "2025.3", "cases": [case]}))
    assert "| 128 | 0.5 | linear | 88.2 % | 1.012 | - | 0 | - | 1,234 |" in nsight_part(path)
    path.write_text(json.dumps({"commit": "", "ncu": "2025.3", "cases": [case]}))
    with pytest.raises(SystemExit, match="names no commit"):
        nsight_part(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda found: found.update(commit=None), "names no commit"),
        (lambda found: found["parts"].update(table=[]), "holds no rows"),
        (lambda found: found["parts"]["table"][0].update(verdict="failed"), "is failed"),
        (lambda found: found["records"].pop(), "1/random holds no figures"),
        (lambda found: found["records"][1]["figures"][0]["passes"][0].update(samples_s=[]), "same holds no samples"),
        (lambda found: found["records"][0]["figures"][0].update(telemetry=None), "sparse holds no clocks"),
    ],
)
def test_a_file_without_evidence_is_refused(tmp_path: Path, spoil: Any, reason: str) -> None:
    found = measured()
    spoil(found)
    with pytest.raises(SystemExit, match=reason):
        table_part(written(tmp_path, found))


def test_what_the_parts_take_stands_beside_the_whole(tmp_path: Path) -> None:
    times = {
        "whole": 0.2,
        "loads and stores": 0.16,
        "loads and products": 0.19,
        "loads": 0.1,
        "products and stores": 0.11,
    }
    rows = [
        {
            "block": 32,
            "density": 0.02,
            "layout": "tokens",
            "part": part,
            "ms": ms,
            "least_bytes": 4e8,
            "samples_ms": [ms],
        }
        for part, ms in times.items()
    ]
    found = {"commit": "abc", "gpu": "NVIDIA H200", "copy_bytes_per_s": 4e12, "rows": rows}
    path = tmp_path / "without.json"
    path.write_text(json.dumps(found))
    text = without_part(path)
    assert "| 32 | 0.02 | linear | 0.200 ms | 0.160 ms | 0.190 ms | 0.100 ms | 0.110 ms | 50% | 62% |" in text
    rows[3]["samples_ms"] = []
    path.write_text(json.dumps(found))
    with pytest.raises(SystemExit, match="has no samples"):
        without_part(path)


def test_a_new_pattern_stands_beside_one_that_was_used_before(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "block": 16, "density": 0.1, "shape": [8192, 8192, 4096], "backend": "sm90", "returned_ms": 2.5,
        "first_ms": 3.25, "second_ms": 0.375, "first_samples_ms": [3.2, 3.25, 3.5],
    }  # fmt: skip
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"commit": "abc", "parts": {"new": [row]}}))
    text = new_part(path)
    assert "| 16 | `sm90` | 2.50 ms | 3.25 ms | 0.38 ms |" in text
    assert "8192 x 8192, 4096 tokens, density 0.1, medians of 3 new patterns; commit abc" in text
    path.write_text(json.dumps({"commit": "abc", "parts": {"new": [row | {"first_samples_ms": []}]}}))
    with pytest.raises(SystemExit, match="block 16 by sm90 has no samples"):
        new_part(path)
    path.write_text(json.dumps({"commit": "", "parts": {"new": [row]}}))
    with pytest.raises(SystemExit, match="names no commit"):
        new_part(path)


def test_what_follows_a_product_stands_beside_the_product_alone(tmp_path: Path) -> None:
    names = {"none": 1.0, "bias": 1.01, "relu": 1.02, "silu": 1.03, "gelu": 1.04, "gelu_tanh": 1.05, "gate": 1.06}
    rows: list[dict[str, Any]] = [
        {"shape": [512, 256, 64, 128, 0.3], "name": name, "ms": 0.1 * over, "over": over, "samples_ms": [0.1]}
        for name, over in names.items()
    ]
    ragged = [
        {"block": 128, "density": 0.3, "call": "matmul", "n": n, "ms": 0.25, "samples_ms": [0.25]} for n in (1001, 1008)
    ]
    path = tmp_path / "epilogues.json"
    path.write_text(json.dumps({"commit": "abc", "gpu": "NVIDIA H200", "rows": rows, "ragged": ragged}))
    text = epilogues_part(path)
    assert "| 512 x 256 | 64 | 128 | 0.3 | 0.100 ms | +1.0% | +2.0% | +3.0% | +4.0% | +5.0% | +6.0% |" in text
    assert "| 128 | 0.3 | matmul | 0.250 ms | 0.250 ms |" in text
    rows[2]["samples_ms"] = []
    path.write_text(json.dumps({"commit": "abc", "gpu": "NVIDIA H200", "rows": rows, "ragged": ragged}))
    with pytest.raises(SystemExit, match="rows without samples"):
        epilogues_part(path)
