"""The cases of different lengths that the GPU tests run, here on the processor: by the reference and torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.gpu.att_gpu_cases import Where
from tests.kernels.gpu.ragged_gpu_cases import ATTENDING, products_of_jagged_tokens

PLACES = [Where("cpu", backend, block, 16, torch.float32) for backend, block in (("reference", 64), ("dense", 128))]


@pytest.mark.parametrize("case", ATTENDING, ids=lambda case: case.__name__)
@pytest.mark.parametrize("where", PLACES, ids=str)
def test_case_on_the_processor(where: Where, case: Callable[[Where], None]) -> None:
    case(where)


def test_products_on_the_processor() -> None:
    products_of_jagged_tokens(Where("cpu", "reference", 32, 16, torch.float32))
