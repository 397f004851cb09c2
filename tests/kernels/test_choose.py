"""Which backend auto takes: measured crossovers, the careful default, and the file they come from."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from firstlight.errors import BadInput, CouldNotLook, UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, choose, linear
from firstlight.kernels.autotune import SHAPES, autotune, plan, write_whole
from firstlight.kernels.choose import (
    SPARSE,
    Choice,
    Question,
    SlowerPath,
    answer,
    backend_module,
    best_choice,
    density_limit,
    forget_choices,
    why_not_built,
    why_not_sm90,
)
from firstlight.kernels.crossover import (
    SHIPPED,
    Machine,
    Row,
    cache_file,
    crossover,
    document,
    machine_for,
    neighbours,
    parsed,
    time_at,
)
from firstlight.kernels.launch import Request
from firstlight.kernels.product import Layout

GPU = "NVIDIA Test"


def row(tokens: int = 4096, size: int = 8192, *, dense_us: float = 100.0, slope: float = 200.0, block: int = 64) -> Row:
    """A kernel that takes slope * density microseconds."""
    times = tuple((density, slope * density) for density in (0.1, 0.3, 0.5, 0.7, 0.9))
    return Row("multiply", block, "float16", "tokens", size, size, tokens, dense_us, 20.0, times)


def machine(*rows: Row) -> Machine:
    return Machine(GPU, "2.11.0", "3.6.0", "2026-11-15", "a test", rows)


def question(**changed: object) -> Question:
    told: dict[str, object] = {
        "operation": "multiply", "device": 0, "dtype": torch.float16, "shape": (8192, 8192), "block": 64,
        "entries": 1638, "n": 4096, "layout": Layout.TOKENS, "training": False,
    }  # fmt: skip
    return Question(**{**told, **changed})  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    forget_choices()
    return cache_file(GPU)


def test_the_crossover_lies_where_the_times_meet_and_never_past_what_was_measured() -> None:
    assert crossover(row(), training=False) == pytest.approx(0.5)
    assert crossover(row(), training=True) == pytest.approx(0.6)  # 20 us of copying count for dense
    assert crossover(row(slope=10.0), training=False) == 0.9
    assert crossover(row(slope=2000.0), training=False) == 0.0


def test_dense_takes_longer_where_more_of_it_is_not_zero() -> None:
    measured = replace(row(), dense_full_us=140.0)
    assert [measured.dense_at(density) for density in (0.1, 0.5, 0.75, 1.0)] == [100.0, 100.0, 120.0, 140.0]
    # sparse takes 200 us at density 1: 140 at 0.7, dense 116; at 0.6 120 and 108; at 0.5 both 100
    assert crossover(measured, training=False) == pytest.approx(0.5)
    assert crossover(measured, training=True) == pytest.approx(0.5 + 20 / 120)


def test_neighbours_bracket_tokens_and_size() -> None:
    rows = [row(tokens, size) for tokens in (16, 256, 4096) for size in (2048, 8192)]
    near = neighbours(machine(*rows), row(1000, 4096))
    assert {(one.tokens, one.rows) for one in near} == {(256, 2048), (256, 8192), (4096, 2048), (4096, 8192)}
    assert {one.tokens for one in neighbours(machine(*rows), row(100_000))} == {4096}
    assert neighbours(machine(*rows), row(block=32)) == ()


def test_bfloat16_takes_the_rows_of_float16(cache: Path) -> None:
    write_whole(cache, document((machine(row()),)))
    limit, why = density_limit(GPU, question(dtype=torch.bfloat16))
    assert limit == pytest.approx(0.5)
    assert "1 measured neighbours" in why


def test_the_lowest_crossover_around_decides(cache: Path) -> None:
    write_whole(cache, document((machine(row(256, slope=400.0), row(4096)),)))
    assert density_limit(GPU, question(n=1000))[0] == pytest.approx(0.25)
    assert density_limit(GPU, question(n=4096))[0] == pytest.approx(0.5)


def test_training_counts_the_dense_copy(cache: Path) -> None:
    write_whole(cache, document((machine(row()),)))
    limit, why = density_limit(GPU, question(training=True))
    assert limit == pytest.approx(0.6)
    assert "the dense copy made for each call" in why


@pytest.mark.parametrize(("block", "limit"), [(128, 0.10), (64, 0.10), (32, 0.05), (16, 0.02)])
def test_a_gpu_without_measurements_gets_the_careful_default(cache: Path, block: int, limit: float) -> None:
    found, why = density_limit(GPU, question(block=block))
    assert found == limit
    assert "was not measured; `firstlight kernels autotune` does it" in why


def test_a_kind_that_was_not_measured_gets_the_default_too(cache: Path) -> None:
    write_whole(cache, document((machine(row()),)))
    assert density_limit(GPU, question(operation="sample"))[0] == 0.10
    assert "but not sample" in density_limit(GPU, question(operation="sample"))[1]


def test_a_broken_file_is_named_and_the_default_taken(cache: Path) -> None:
    write_whole(cache, '{"schema": "firstlight.crossover/1", "machines": [{"gpu": "NVIDIA Test"}]}')
    limit, why = density_limit(GPU, question())
    assert limit == 0.10
    assert str(cache) in why
    assert "autotune" in why
    with pytest.raises(BadInput, match=r"this version reads firstlight\.crossover/1"):
        parsed('{"schema": "firstlight.crossover/9"}', "file")


def test_the_users_file_comes_before_the_shipped_one(cache: Path) -> None:
    assert machine_for(GPU) is None
    write_whole(cache, document((machine(row()),)))
    found = machine_for(GPU)
    assert found == (machine(row()), cache)


def test_a_document_is_read_back_as_it_was_written() -> None:
    machines = (machine(row(), row(256)), machine())
    assert parsed(document(machines), "text") == machines
    json.loads(document(machines))


def test_the_shipped_file_holds_whole_rows() -> None:
    for one in parsed(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED)):
        assert one.gpu
        assert one.date
        assert one.rows
        assert all(item.dense_us > 0 and item.sparse_us for item in one.rows)


def test_the_processor_never_gets_a_gpu_kernel() -> None:
    for density, backend in ((0.02, "reference"), (0.9, "dense")):
        entries = int(density * 4096)
        assert answer("auto", question(device=-1, shape=(8192, 8192), block=128, entries=entries)).backend == backend
    with pytest.raises(UnsupportedInput, match="it takes tensors on an H100 or H200"):
        answer("sm90", question(device=-1))


def by_sm90(one: Row) -> Row:
    return replace(one, backend="sm90")


def chosen(density: float, hurdles: tuple[str, str] = ("", ""), **changed: object) -> Choice:
    """What auto takes at a density, where triton and sm90 have these hurdles."""
    asked = question(**{"entries": int(density * 128 * 128), **changed})
    return best_choice(GPU, asked, dict(zip(SPARSE, hurdles, strict=True)))


def test_the_faster_of_two_sparse_kernels_is_taken_and_dense_above_both(cache: Path) -> None:
    write_whole(cache, document((machine(row(), by_sm90(row(slope=125.0))),)))
    assert [chosen(density).backend for density in (0.2, 0.6, 0.85)] == ["sm90", "sm90", "dense"]
    assert chosen(0.6).why == "density 0.600 is at most 0.800, the lowest crossover of 1 measured neighbours on " + GPU
    write_whole(cache, document((machine(row(), by_sm90(row(slope=210.0))),)))
    forget_choices()
    assert [chosen(density).backend for density in (0.2, 0.49, 0.6)] == ["triton", "triton", "dense"]


def test_sm90_stands_back_where_it_was_not_measured_or_has_to_copy(cache: Path) -> None:
    write_whole(cache, document((machine(row()),)))
    assert chosen(0.2).backend == "triton"
    write_whole(cache, document((machine(row(), by_sm90(row(slope=100.0))),)))
    forget_choices()
    assert chosen(0.2).backend == "sm90"
    assert chosen(0.2, shape=(8191, 8192)).backend == "triton", "rows that are not multiples of 16 bytes"
    assert chosen(0.2, hurdles=("triton is not installed", ""), shape=(8191, 8192)).backend == "sm90"


def test_a_kernel_that_cannot_run_is_not_taken(cache: Path) -> None:
    write_whole(cache, document((machine(row(), by_sm90(row(slope=100.0))),)))
    assert chosen(0.2, hurdles=("", "no compiler")).backend == "triton"
    assert chosen(0.2, hurdles=("triton is not installed", "")).backend == "sm90"
    assert chosen(0.2, hurdles=("triton is not installed", "no compiler")) == Choice("dense", "triton is not installed")


def test_missing_compilers_cost_one_warning_on_a_gpu_that_was_measured_with_sm90(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    write_whole(cache, document((machine(row()),)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen(0.2, hurdles=("", "no NVRTC and no nvcc"))
    write_whole(cache, document((machine(row(), by_sm90(row())),)))
    forget_choices()
    with pytest.warns(SlowerPath, match="goes without the Hopper kernels: no NVRTC and no nvcc"):
        assert chosen(0.2, hurdles=("", "no NVRTC and no nvcc")).backend == "triton"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen(0.3, hurdles=("", "no NVRTC and no nvcc")).backend == "triton"


def test_sm90_needs_16_bits_hopper_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = (8, 9)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert why_not_sm90(0, torch.float32) == "the Hopper kernels take float16 and bfloat16, not float32"
    assert "compute capability is 8.9, and the Hopper kernels run on 9.0" in why_not_sm90(0, torch.float16)
    capability = (10, 0)
    assert "compute capability is 10.0" in why_not_sm90(0, torch.bfloat16)
    capability = (9, 0)
    monkeypatch.setenv("FIRSTLIGHT_JIT", "no-such-compiler")
    why_not_built.cache_clear()
    with pytest.raises(UnsupportedInput, match="cannot run here: FIRSTLIGHT_JIT is 'no-such-compiler'"):
        answer("sm90", question())
    why_not_built.cache_clear()


def test_times_between_measured_densities_are_interpolated() -> None:
    assert time_at(row(), 0.2) == pytest.approx(0.4)
    assert time_at(row(), 0.01) == pytest.approx(0.2)
    assert time_at(row(), 1.0) == pytest.approx(1.8)


def test_rows_without_a_backend_are_tritons() -> None:
    text = document((machine(row()),)).replace(', "backend": "triton"', "")
    assert "backend" not in text
    assert parsed(text, "text")[0].rows[0].backend == "triton"


def test_choosing_again_is_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    request = Request(Layout.TOKENS, transposed=False)
    first = backend_module("multiply", w.pattern, w.values, 8, request=request)

    def refuse(*given: object) -> None:
        raise AssertionError("chose anew")

    monkeypatch.setattr(choose, "answer", refuse)
    assert backend_module("multiply", w.pattern, w.values, 8, request=request) is first
    with pytest.raises(AssertionError, match="chose anew"):
        backend_module("multiply", w.pattern, w.values, 9, request=request)
    forget_choices()
    with pytest.raises(AssertionError, match="chose anew"):
        backend_module("multiply", w.pattern, w.values, 8, request=request)


def test_many_different_token_counts_do_not_pile_up() -> None:
    w = BlockSparseMatrix.random(32, 32, block=16, density=0.5)
    began = time.monotonic()
    for tokens in range(1, 1500, 1):
        backend_module("multiply", w.pattern, w.values, tokens, request=Request(Layout.TOKENS, transposed=False))
    kept = getattr(w.pattern, "backends", {})
    assert len(kept) <= 1024
    assert time.monotonic() - began < 30


def test_autotune_without_a_gpu_says_that_it_could_not_look() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(CouldNotLook, match="torch sees 0 devices"):
        autotune(budget_s=1)


def test_autotune_never_measures_the_shapes_that_results_are_shown_on() -> None:
    shown = {(5120, 13824), (4096, 4096), (12288, 3072)}
    assert not shown & set(SHAPES)
    assert not shown & {(product.rows, product.cols) for product in plan()}
    assert len({product.block for product in plan()[:4]}) == 4


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "deep" / "file.json"
    write_whole(target, "old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert [item.name for item in target.parent.iterdir()] == ["file.json"]


def test_auto_computes_the_right_product_on_either_side() -> None:
    for density in (0.02, 0.9):
        w = BlockSparseMatrix.random(512, 1024, block=128, density=density)
        x = torch.randn(4, 1024)
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T, rtol=1e-4, atol=1e-4)
