"""The cases that the GPU tests run, here on the processor: by the reference and by torch's own attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.gpu.att_gpu_cases import CASES, NOT_BY_DENSE, Where, the_same_bits

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


def test_two_runs_give_the_same_bits() -> None:
    the_same_bits(REFERENCE, runs=2)
