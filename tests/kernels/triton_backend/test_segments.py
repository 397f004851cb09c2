"""A schedule made in one launch is the one that torch's operations make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from firstlight.kernels.schedule import split_rows
from firstlight.kernels.triton_backend.launch import compiled_for
from firstlight.kernels.triton_backend.segments import order_spec, portions_spec, split_rows_here

HERE = Path(__file__).parent
AT_LEAST = 20  # cases; fewer would mean that the script ended early


def test_every_list_of_a_schedule_in_the_interpreter_is_torch_s() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": f"{HERE.parents[2]}:{HERE.parents[2] / 'src'}"}
    case = [sys.executable, str(HERE / "scheduled_cases.py")]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) >= AT_LEAST
    assert [case for case in seen if case["wrong"]] == []


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_the_kernels_of_a_schedule_compile_without_scratch_memory(index_dtype: torch.dtype) -> None:
    for spec in (order_spec(index_dtype), portions_spec(index_dtype)):
        assert compiled_for(spec, (9, 0)).metadata.global_scratch_size == 0


def test_tensors_on_the_processor_go_torch_s_way() -> None:
    starts = torch.tensor([0, 3, 3, 9])
    assert torch.equal(split_rows_here(starts, 9, limit=2).items, split_rows(starts, 9, limit=2).items)
