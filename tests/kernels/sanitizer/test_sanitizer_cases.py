"""The cases that run under compute-sanitizer: what they cover, and that a wrong result of one is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from benchmarks.sanitizer.attention_cases import AttentionCase, GradientCase, mask_of, nan_in_new_memory
from benchmarks.sanitizer.cases import (
    THREAD_BLOCKS,
    WHAT,
    ProductCase,
    SampleCase,
    _matrix,
    cases,
    run_case,
    use_lines_and_two_thread_blocks,
)
from benchmarks.sanitizer.run import main
from benchmarks.sanitizer.where import Where

from firstlight.kernels import sm90
from firstlight.kernels.block_attention import reference
from firstlight.kernels.block_attention.bits import NONE, PARTIAL
from firstlight.kernels.product import Layout
from firstlight.kernels.sm90 import attention, gradient, loaded, multiply_plan, sample_plan
from firstlight.kernels.sm90.lists import WHOLE, portion_limit, steps_of
from firstlight.kernels.sm90.multiply_plan import tile_of, work_of
from firstlight.kernels.sm90.sample_plan import splits_of
from firstlight.kernels.sm90.variants import NARROW, SAMPLED
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.machine import STREAM, emulated_gpu


def test_the_cases_are_of_all_blocks_layouts_tiles_heads_and_kinds_of_rows() -> None:
    products = [case for case in cases(("multiply",)) if isinstance(case, ProductCase)]
    for block in (16, 32, 64, 128):
        mine = [case for case in products if case.block == block]
        assert {case.layout for case in mine} == set(Layout)
        assert (
            {case.turned for case in mine}
            == {case.bf16 for case in mine}
            == {case.finish for case in mine}
            == {False, True}
        )
        assert {case.n <= NARROW.tokens for case in mine} == {False, True}
    attentions = [case for case in cases(("attention",)) if isinstance(case, AttentionCase)]
    assert {(case.block, case.head_dim) for case in attentions} == {(128, 128), (128, 64), (64, 128), (64, 64)}
    gradients = [case for case in cases(("gradient",)) if isinstance(case, GradientCase)]
    assert {(case.head_dim, case.bf16) for case in gradients} == set(itertools.product((128, 64), (False, True)))
    assert {(case.head_dim, case.with_lse) for case in gradients} == set(itertools.product((128, 64), (False, True)))
    assert {(case.head_dim, case.key_heads < 4) for case in gradients} == set(
        itertools.product((128, 64), (False, True))
    )
    assert len({case.id for case in cases(WHAT)}) == len(cases(WHAT))


def test_the_gradients_have_rows_and_columns_without_blocks_partial_ones_and_more_stages_than_the_rings() -> None:
    kinds = {case: mask_of(case).kinds for case in cases(("gradient",)) if isinstance(case, GradientCase)}
    assert any(bool((each == PARTIAL).any()) for each in kinds.values())
    assert any(bool((each == NONE).all(3).any()) and each.shape[1] > 1 for each in kinds.values())
    assert any(bool((each == NONE).all(2).any()) and each.shape[1] > 1 for each in kinds.values())
    assert any(case.q_len % 128 and case.k_len % 128 for case in kinds)
    for head_dim, stages in ((128, 3), (64, 6)):
        blocks = [int((each != NONE).sum()) for case, each in kinds.items() if case.head_dim == head_dim]
        assert max(blocks) * 2 > 2 * stages * THREAD_BLOCKS


def test_memory_that_a_kernel_leaves_out_holds_nan_and_only_there() -> None:
    with nan_in_new_memory():
        assert torch.empty(3, dtype=torch.float16).isnan().all()
        assert torch.empty_like(torch.zeros(2, 2)).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda dq, dk, dv: dq[0, 0, 0, 0].fill_(torch.nan), "NaN is left in dq"),
        (lambda dq, dk, dv: dk.mul_(1.01), "the error of dk is 0.01 of its norm"),
        (lambda dq, dk, dv: dv[0, 1, 5].fill_(1e-7), "dv is not 0 where nothing is seen"),
    ],
    ids=["NaN", "off", "not 0"],
)
def test_a_wrong_gradient_is_told(spoil: Callable[..., object], said: str) -> None:
    def backward(*given: Any, **named: Any) -> Any:
        found = reference.backward(*given, **named)
        spoil(*found)
        return found

    case = GradientCase(64, "empty columns", 200, 300)
    assert run_case(case, Where("cpu", sm90, cast(Any, SimpleNamespace(backward=backward)))) == said


def test_a_gradient_that_triton_would_compute_is_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sanitizer.attention_cases.why_not", lambda *given: "blocks of 64")
    fault = run_case(GradientCase(64, "full", 64, 77), Where("cpu", sm90, reference))
    assert fault == "this is not the Hopper kernel's: blocks of 64"


def test_the_cases_that_are_to_be_cut_into_portions_are() -> None:
    for case in cases(("multiply",)):
        if isinstance(case, ProductCase) and case.pattern in ("one row", "uneven") and not case.turned:
            work = work_of(case.problem, _matrix(case).index, tile_of(case.problem, THREAD_BLOCKS), THREAD_BLOCKS)
            assert portion_limit(work) != WHOLE, case.id
    long = [case for case in cases(("sample",)) if isinstance(case, SampleCase) and case.n == 1024]
    for case in long:
        steps = steps_of(_matrix(case).index, width=SAMPLED.tokens // case.block, grouped=False)
        assert splits_of(steps.bound, case.n // 64, THREAD_BLOCKS) > 1, case.id
    assert long


def test_the_first_cases_run_on_the_processor_by_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry", "--most", str(len(WHAT))]) == 0
    lines = capsys.readouterr().out.splitlines()
    ended = [line for line in lines if line.startswith("case end:")]
    assert len(ended) == len(WHAT)
    assert all(line.endswith("| ok") for line in ended)
    assert {line.split()[2].partition("/")[0] for line in ended} == set(WHAT)


def test_a_wrong_number_is_told_and_fails_the_child(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.sanitizer.cases.ROUNDING", {torch.float16: -1.0})
    assert main(["--dry", "--most", "1", "--what", "turn"]) == 3
    assert "elements off, first [0, 0]" in capsys.readouterr().out


@needs_compiler
def test_cases_of_every_kind_run_the_kernels_themselves_in_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU of two multiprocessors, through the plans; the sanitizer alone is missing."""
    monkeypatch.setattr(attention, "_raw_stream", lambda device: STREAM)
    with emulated_gpu(tmp_path, multiprocessors=THREAD_BLOCKS) as gpu:
        attention._kernel.cache_clear()
        for name in WHAT:
            for case in cases((name,))[:: 11 if name == "multiply" else 4]:
                assert run_case(case, Where("cpu", sm90, attention)) == "", case.id
        assert {grid[0] for grid in gpu.grids} >= {THREAD_BLOCKS}
    attention._kernel.cache_clear()


def test_the_child_takes_kernels_with_line_numbers_and_two_thread_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: tuple[Any, ...] = (multiply_plan, sample_plan, attention, gradient)
    for module, name in (*((module, "multiprocessors") for module in modules), (loaded, "built")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    use_lines_and_two_thread_blocks()
    assert [module.multiprocessors(0) for module in modules] == [THREAD_BLOCKS] * 4
    for name in ("attention", "gradient"):
        command = cast(Any, loaded).built(cases((name,))[0].variants[0]).command
        assert "-lineinfo" in command
        assert "FIRSTLIGHT_DEBUG" not in command
