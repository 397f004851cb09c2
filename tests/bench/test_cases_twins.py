"""Every family on a processor at a small size: its check passes, its memory is what it says, its sets are its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from firstlight.bench.case import Case
from firstlight.bench.cases import cpu, low_precision
from firstlight.bench.cases.inference import Run
from firstlight.bench.cases.resnet import resnet_case
from firstlight.bench.cases.settings import switches_kept
from tests.bench.small_cases import CPU, bytes_of_tensors, small_cases

TWINS = small_cases()
BY_ID = {case.id: case for case in TWINS}


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    with switches_kept():
        yield


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.id)
def test_a_small_twin_passes_its_own_check(case: Case) -> None:
    prepared = case.prepare(CPU, 1)
    assert len(prepared.calls) == 1
    assert 0 <= prepared.check() <= case.tolerance


@pytest.mark.parametrize(
    "case", [case for case in TWINS if not case.id.startswith(("resnet50", "transfer"))], ids=lambda case: case.id
)
def test_a_further_buffer_set_takes_exactly_set_bytes(case: Case) -> None:
    one = bytes_of_tensors(lambda: case.prepare(CPU, 1))
    three = bytes_of_tensors(lambda: case.prepare(CPU, 3))
    assert (three - one) / 2 == case.set_bytes


@pytest.mark.parametrize("case", [case for case in TWINS if case.family == "transfer"], ids=lambda case: case.id)
def test_a_copy_counts_the_memory_of_one_side(case: Case) -> None:
    assert bytes_of_tensors(lambda: case.prepare(CPU, 1)) == 2 * case.set_bytes


def test_resnet_takes_exactly_set_bytes() -> None:
    case = BY_ID["resnet50/fp32/b2/eager"]
    assert bytes_of_tensors(lambda: case.prepare(CPU, 1)) == case.set_bytes


@pytest.mark.parametrize("case", cpu.cases(), ids=lambda case: case.id)
def test_the_suite_of_a_machine_without_gpu_passes_its_checks(case: Case) -> None:
    assert case.devices == ("cpu",)
    assert case.prepare(CPU, 1).check() <= case.tolerance


def test_buffer_sets_hold_different_numbers_and_the_same_ones_in_every_run() -> None:
    case = BY_ID["gemm/fp32/96x80x128"]
    products = []
    for _ in range(2):
        prepared = case.prepare(CPU, 2)
        products.append([call().clone() for call in prepared.calls])
    first, second = products
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_compiled_model_is_checked_like_the_others() -> None:
    # dynamo's own "eager" backend: the path through torch.compile without a C++ compiler at work for minutes.
    case = resnet_case("fp32", 1, run=Run.COMPILED_GRAPH, compiler="eager")
    assert case.flags == ("algorithmic", "compile")
    prepared = case.prepare(CPU, 1)
    assert prepared.flags == ("uncaptured",)
    assert prepared.check() <= case.tolerance


def test_fp8_data_that_collapsed_to_few_values_is_refused() -> None:
    random = torch.Generator().manual_seed(1)
    varied, _ = low_precision._fp8(256, random, std=1.0)
    low_precision.require_varied_bytes(varied.view(torch.uint8), "fp8")
    saturated = torch.full((256, 256), 448.0).to(torch.float8_e4m3fn)
    with pytest.raises(AssertionError, match="fp8 data has 1 byte values"):
        low_precision.require_varied_bytes(saturated.view(torch.uint8), "fp8")
