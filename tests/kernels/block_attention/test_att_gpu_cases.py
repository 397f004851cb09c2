"""The cases that the GPU tests run, here on the processor: by the reference and by torch's own attention."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.kernels.gpu.att_gpu_cases import CASES, NOT_BY_DENSE, Where, the_same_bits

ROOT = Path(__file__).parents[3]
# the ones that kernels get wrong, of those that the interpreter is fast enough for
INTERPRETED = """
import torch
from tests.kernels.gpu import att_gpu_cases as cases
from tests.kernels.triton_backend.interpreted_cases import let_loop_bounds_be_arrays

let_loop_bounds_be_arrays()
where = cases.Where("cpu", "triton", 64, 16, torch.float16)
for case in (
    cases.hidden_in_parts, cases.large_logits, cases.rising_and_falling_maxima, cases.each_head_its_own,
    cases.nan_in_a_hidden_block, cases.nothing_past_the_end, cases.gradients,
):
    case(where)
    print(case.__name__)
"""
REFERENCE = Where("cpu", "reference", 64, 16, torch.float32)
DENSE = Where("cpu", "dense", 64, 16, torch.float32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case_by_the_reference(case: Callable[[Where], None]) -> None:
    case(REFERENCE)


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_BY_DENSE], ids=lambda case: case.__name__)
def test_case_by_torch(case: Callable[[Where], None]) -> None:
    case(DENSE)


def test_cases_in_sixteen_bits_and_with_blocks_of_128() -> None:
    for case in CASES[:6]:
        case(Where("cpu", "reference", 128, 16, torch.float16))
        case(Where("cpu", "reference", 64, 16, torch.bfloat16))


def test_the_hard_cases_by_triton_in_its_interpreter() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    argv = [sys.executable, "-c", INTERPRETED]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) == 7


def test_two_runs_give_the_same_bits() -> None:
    the_same_bits(REFERENCE, runs=2)
