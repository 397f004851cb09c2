"""Block-sparse layers of the suite: honest counts, a check that sees a wrong kernel, a reason where there is none."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from firstlight.bench.case import Effort, Place
from firstlight.bench.cases.block_sparse import (
    REFERENCE,
    TRITON,
    SparseLinear,
    cases,
    cpu_case,
    prepare_linear,
    stored_work,
)
from firstlight.bench.cases.needs import OLDEST_TORCH
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.kernels import reference
from tests.bench.small_cases import CPU

H200 = Place("cuda:0", l2_bytes=60 << 20, free_bytes=140_000_000_000, capability=(9, 0))
T4 = Place("cuda:0", l2_bytes=4 << 20, free_bytes=15_000_000_000, capability=(7, 5))


def test_only_the_stored_blocks_are_counted() -> None:
    case = next(case for case in cases(H200) if case.id == "block-sparse/fp16/b128-d0.1/m4096-k4096-n4096")
    assert dict(case.params)["stored_blocks"] == "102"
    assert case.work.flops == 2 * 102 * 128 * 128 * 4096
    assert case.work.dense_flops == 2 * 4096**3
    assert case.work.bytes == 2 * (102 * 128 * 128 + 2 * 4096 * 4096) + 4 * (102 + 33)


def test_the_quick_suite_has_none_because_its_kernels_are_compiled_first() -> None:
    assert {case.least_effort for case in cases(H200)} == {Effort.STANDARD, Effort.RIGOROUS}


def test_without_triton_they_are_present_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    assert {case.needs for case in cases(H200)} == {"block-sparse kernels need triton, which is not installed"}


@pytest.mark.parametrize("version", ["2.4.1+cu121", "2.7.1", "2.7.0a0+7c8ec84"])
def test_a_torch_that_the_kernels_do_not_take_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    said = f"block-sparse kernels need torch 2.8 or newer; torch {version} is installed"
    assert {case.needs for case in (*cases(H200), cpu_case())} == {said}
    monkeypatch.setattr(metadata, "version", lambda name: "2.8.0a0+5228986c39")  # as NVIDIA's images have it
    assert "need torch" not in cpu_case().needs


def test_what_the_extras_bring_runs_every_case() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for extra in ("bench", "kernels"):
        assert f'\n{extra} = ["torch>={OLDEST_TORCH}"]\n' in text


def test_an_old_gpu_says_what_they_need() -> None:
    [needs] = {case.needs for case in cases(T4)}
    assert needs == "block-sparse kernels need compute capability 8.0; this GPU has 7.5"


def test_the_layer_of_a_processor_is_right_in_every_buffer_set() -> None:
    case = cpu_case()
    prepared = case.prepare(CPU, 2)
    assert len(prepared.calls) == 2
    assert prepared.check() <= case.tolerance


def test_a_block_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference.multiply

    def forgetful(index: object, values: torch.Tensor, *given: object, **named: object) -> None:
        values = values.clone()
        values[0] = 0
        right(index, values, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(reference, "multiply", forgetful)
    small = SparseLinear("fp32", 64, 128, 128, 32, 0.5, REFERENCE)
    assert stored_work(small).flops == 2 * 8 * 32 * 32 * 64
    assert prepare_linear(small, CPU, 1).check() > 0.1


def test_a_layer_that_no_kernel_takes_is_skipped_with_what_it_says() -> None:
    on_a_processor = SparseLinear("fp16", 64, 128, 128, 32, 0.5, TRITON)
    with pytest.raises(Unavailable, match="was given tensors on the processor"):
        prepare_linear(on_a_processor, CPU, 1)
