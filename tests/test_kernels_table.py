"""The table of block-sparse products: absent before it was measured, refused without evidence, honest in its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.generate import with_part
from tools.kernels_table import library_part
from tools.make_readme import LIBRARY, filled_library


def record(name: str) -> dict[str, Any]:
    one_pass = {"sm_mhz": 1980.0, "samples_s": [2.2e-4, 2.21e-4]}
    figure = {"regime": "burst", "median_s": 2.2e-4, "passes": [one_pass], "telemetry": {"sm_mhz": [1980, 1980, 1980]}}
    return {"id": name, "verdict": "ok", "figures": [figure]}


def measured() -> dict[str, Any]:
    name = "128/columns/fp16/8192x8192x8192"
    row = {
        "id": f"{name}/0.1", "block": 128, "layout": "columns", "dtype": "fp16", "density": 0.1, "verdict": "ok",
        "ms": 0.22, "tflops": 500.0, "of_cublas": 0.69, "dense_random_ms": 1.46, "dense_same_ms": 1.31,
        "torch_ms": 0.87, "times_dense_same": 5.955, "times_torch": 3.955,
    }  # fmt: skip
    return {
        "commit": "abc",
        "date": "2026-11-15",
        "backend": "triton",
        "gpu": {"name": "NVIDIA H200"},
        "software": {"driver": "580.159.04", "torch": "2.11.0+cu130", "triton": "3.6.0"},
        "parts": {"a": [row]},
        "records": [record(f"{name}/{end}") for end in ("0.1/sparse", "0.1/same", "0.1/torch", "1/random")],
    }


def written(folder: Path, found: dict[str, Any]) -> Path:
    path = folder / "kernels-matmul-h200.json"
    path.write_text(json.dumps(found))
    return path


def test_nothing_is_shown_before_it_was_measured(tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    assert library_part(absent) == ""


def test_a_page_without_marks_is_left_as_it_is() -> None:
    assert with_part("# A page\n", "kernels", lambda: "a table") == "# A page\n"


def test_the_page_of_the_library_is_current() -> None:
    assert filled_library(LIBRARY.read_text()) == LIBRARY.read_text(), "run: python -m tools.generate readme"


def test_a_table_says_where_it_was_measured_names_the_backend_and_prints_both_dense_times(tmp_path: Path) -> None:
    text = library_part(written(tmp_path, measured()))
    assert "**Measured on H200 only** (NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0" in text
    assert "| `triton` |" in text
    assert "| 0.220 ms | 500 TFLOP/s | 0.69 | 1.460 ms | 1.310 ms (6.0x ours) | 0.87 ms (4.0x ours) |" in text


def test_the_library_has_more_parts_where_they_were_measured(tmp_path: Path) -> None:
    found = measured()
    summary = {"calls": 90, "long_calls": 20, "long_within_3_percent": 0.95, "sent_to_dense": 0.3}
    row = {
        "id": "128/tokens/fp16/4096x4096x64/0.1", "auto_took": "triton", "sparse_ms": 0.01, "dense_same_ms": 0.02,
        "auto_ms": 0.011, "auto_over_better": 1.1,
    }  # fmt: skip
    found["parts"]["b"] = {"summary": summary, "rows": [row]}
    call = {"median_us": 12.3, "samples_us": [12.3]}
    found["parts"]["d"] = {"shape": "512 x 512", "calls": {"linear": call}}
    times = {"device_ms": 0.1, "launched_ms": 0.2}
    found["parts"]["e"] = {"pattern": "8192 x 8192", "order and segments": times, "transposed index": times}
    text = library_part(written(tmp_path, found))
    assert "of 20 calls of 100 us and more 95 % took at most 3 % longer than the better of sparse and dense" in text
    assert "| linear | 12.3 us |" in text
    assert "is scheduled in 0.100 ms of the GPU and 0.200 ms of the processor" in text


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda found: found.update(commit=None), "names no commit"),
        (lambda found: found["parts"].update(a=[]), "holds no rows"),
        (lambda found: found["parts"]["a"][0].update(verdict="failed"), "is failed"),
        (lambda found: found["records"].pop(), "1/random holds no figures"),
        (lambda found: found["records"][1]["figures"][0]["passes"][0].update(samples_s=[]), "same holds no samples"),
        (lambda found: found["records"][2]["figures"][0].update(telemetry=None), "torch holds no clocks"),
    ],
)
def test_a_file_without_evidence_is_refused(tmp_path: Path, spoil: Any, reason: str) -> None:
    found = measured()
    spoil(found)
    with pytest.raises(SystemExit, match=reason):
        library_part(written(tmp_path, found))
