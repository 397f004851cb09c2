"""Products and sampled products from the request to the launch, on a driver that computes what the arguments say."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, sm90
from firstlight.kernels.product import Activation, Epilogue, Layout
from firstlight.kernels.sm90 import again, driver, libcuda, loaded, multiply_plan, problem, sample_plan, workspace
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.lists import WHOLE
from firstlight.kernels.sm90.multiply_plan import make_plan
from firstlight.kernels.sm90.problem import is_padded, padding_of, problem_of
from firstlight.kernels.sm90.sample_plan import splits_of
from firstlight.kernels.sm90.turning import turn_launches
from firstlight.kernels.sm90.variants import NARROW, TURN, TURN_SIDE, WIDE
from tests.kernels.products import Case, bound, wanted
from tests.kernels.sm90.emulated import FAKE_NVCC, Driver

STREAM = 7


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver that computes on the processor, a compiler that keeps its arguments, a GPU of 132 multiprocessors."""
    folder = tmp_path_factory.mktemp("toolkit")
    (folder / "bin").mkdir()
    (folder / "bin" / "nvcc").write_text(FAKE_NVCC)
    (folder / "bin" / "nvcc").chmod(0o755)
    made = Driver()
    patch = pytest.MonkeyPatch()
    for name, value in (("FIRSTLIGHT_JIT", "nvcc"), ("CUDA_HOME", str(folder)), ("FIRSTLIGHT_CACHE_DIR", str(folder))):
        patch.setenv(name, value)
    patch.setattr(libcuda, "library", lambda: made)
    patch.setattr(again, "_raw_stream", lambda device: STREAM)
    patch.setattr(again, "_is_capturing", lambda: torch.cuda.is_current_stream_capturing())
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    _forget()
    yield made
    patch.undo()
    _forget()


def _forget() -> None:
    for cached in (driver.load, loaded.loaded, driver.encode_map, libcuda.primary_context, problem.multiprocessors):
        cached.cache_clear()
    multiply_plan._kernels.cache_clear()
    for kept in (multiply_plan._PLANS, sample_plan._PLANS, workspace._KEPT):
        kept.clear()


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def right(case: Case) -> Tensor:
    """Computes into NaN, compares every element, and returns the output."""
    shape = list(case.dense.shape)
    shape[-2 if case.layout is Layout.COLUMNS else -1] = case.matrix.shape[0]
    out = torch.full(shape, math.nan, dtype=case.dense.dtype)
    sm90.multiply(
        case.matrix.index, case.matrix.values, case.dense, out, layout=case.layout, epilogue=case.epilogue
    )  # fmt: skip
    off = (out.double() - wanted(case)).abs()
    assert (off <= bound(case)).all(), f"{int((~(off <= bound(case))).sum())} of {off.numel()} off"
    return out


def case_of(
    matrix: BlockSparseMatrix, n: int, layout: Layout, epilogue: Epilogue | None = None, batch: tuple[int, ...] = ()
) -> Case:
    cols = matrix.shape[1]
    dense = randn(n, cols, seed=1, dtype=matrix.dtype) if layout is Layout.TOKENS else randn(
        *batch, cols, n, seed=1, dtype=matrix.dtype
    )  # fmt: skip
    return Case(matrix, dense, layout, epilogue or Epilogue())


def random(rows: int, cols: int, block: int, *, density: float = 0.5, dtype: torch.dtype = torch.float16) -> Any:
    return BlockSparseMatrix.random(
        rows, cols, block=block, density=density, dtype=dtype, generator=torch.Generator().manual_seed(3)
    )


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((16, 32, 64, 128), Layout)))
def test_products_of_every_block_and_layout(gpu: Driver, block: int, layout: Layout) -> None:
    for rows, cols, n in ((256, 192, 64), (3 * block - 8, 4 * block - 8, 24), (3 * block - 3, 2 * block - 5, 13)):
        matrix = random(rows, cols, block, dtype=torch.bfloat16 if n == 24 else torch.float16)
        right(case_of(matrix, n, layout))
        right(case_of(matrix.T, n, layout))
    right(case_of(random(2 * block, 2 * block, block), 328, layout))  # more than one tile of tokens
    right(case_of(random(256, 256, block, density=0.0), 16, layout))


@pytest.mark.parametrize("layout", Layout)
def test_everything_that_is_added_on_the_way_out(gpu: Driver, layout: Layout) -> None:
    for rows, n in ((136, 40), (133, 9)):
        matrix = random(rows, 72, 32)
        shape = (n, rows) if layout is Layout.TOKENS else (rows, n)
        for kind in Activation:
            epilogue = Epilogue(-0.5, 2.0, randn(*shape, seed=4), randn(rows, seed=5), kind)
            right(case_of(matrix, n, layout, epilogue))
        unread = torch.full(shape, math.nan, dtype=torch.float16)
        right(case_of(matrix, n, layout, Epilogue(beta=0.0, addend=None, bias=randn(rows, seed=5))))
        out = right(case_of(matrix, n, layout))
        again_out = out.clone()
        sm90.multiply(
            matrix.index, matrix.values, case_of(matrix, n, layout).dense, again_out, layout=layout,
            epilogue=Epilogue(beta=0.0, addend=unread),
        )  # fmt: skip
        assert torch.equal(out, again_out), "beta 0 reads c"


@pytest.mark.parametrize(("block", "n"), list(itertools.product((16, 128), (64, 40, 13, 256 + 64))))
def test_batches_by_column(gpu: Driver, block: int, n: int) -> None:
    matrix = random(2 * block + 8, 3 * block - 8, block)
    right(case_of(matrix, n, Layout.COLUMNS, Epilogue(bias=randn(2 * block + 8, seed=2)), batch=(3,)))


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_a_long_row_is_cut_and_put_together_again(gpu: Driver, block: int) -> None:
    mask = torch.zeros(1024 // block, 2048 // block, dtype=torch.bool)
    mask[3] = True
    matrix = BlockSparseMatrix.from_mask(mask, block=block, values=randn(1024, 2048, seed=7))
    for n, layout in ((16, Layout.TOKENS), (72, Layout.COLUMNS)):
        before = gpu.splits
        first = right(case_of(matrix, n, layout))
        assert gpu.splits > before
        assert torch.equal(right(case_of(matrix, n, layout)), first)
    [control] = workspace._KEPT.values()
    assert not control.room.any(), "counts are left behind"


@pytest.mark.parametrize("block", [32, 128])
def test_a_block_stored_twice_counts_twice(gpu: Driver, block: int) -> None:
    values = randn(3, block, block)
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0])
    matrix = BlockSparseMatrix.from_parts(values, crow, col, (2 * block, 2 * block), allow_duplicates=True)
    right(case_of(matrix, 24, Layout.TOKENS))


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((16, 32, 64, 128), Layout)))
def test_sampled_products(gpu: Driver, block: int, layout: Layout) -> None:
    for rows, cols, n in ((256, 128, 64), (3 * block - 8, 4 * block - 8, 24), (2 * block - 3, 3 * block - 5, 1300)):
        matrix = random(rows, cols, block)
        a, b = (randn(n, side) if layout is Layout.TOKENS else randn(side, n) for side in (rows, cols))
        out = torch.full_like(matrix.values, math.nan)
        sm90.sample(matrix.index, a, b, out, layout=layout, alpha=0.5)
        left, right_ = (a.mT, b) if layout is Layout.TOKENS else (a, b.mT)
        stored = matrix.with_values(torch.ones_like(matrix.values)).to_dense().double()
        exact, size = 0.5 * (left.double() @ right_.double()), left.double().abs() @ right_.double().abs()
        assert ((matrix.with_values(out).to_dense().double() - exact * stored).abs() <= 2**-10 * size).all()
        assert not out.isnan().any(), "padding is written too"


def test_sampled_products_are_summed_over_a_batch(gpu: Driver) -> None:
    matrix = random(96, 64, 32)
    a, b = randn(3, 96, 20), randn(3, 64, 20, seed=1)
    out = torch.empty_like(matrix.values)
    sm90.sample(matrix.index, a, b, out, layout=Layout.COLUMNS, alpha=1.0)
    exact = (a.double() @ b.double().mT).sum(0)
    stored = matrix.with_values(torch.ones_like(matrix.values)).to_dense().double()
    torch.testing.assert_close(matrix.with_values(out).to_dense().double(), exact * stored, rtol=2e-3, atol=2e-2)
    with pytest.raises(UnsupportedInput, match="forward index"):
        sm90.sample(matrix.T.index, b, a, out, layout=Layout.COLUMNS, alpha=1.0)


def test_a_prepared_product_encodes_nothing_when_the_addresses_come_again(gpu: Driver) -> None:
    matrix = random(256, 256, 64)
    x, out = randn(64, 256), torch.empty(64, 256, dtype=torch.float16)
    call = sm90.prepare(matrix.index, x, layout=Layout.TOKENS, epilogue=Epilogue())
    assert call is not None
    call(matrix.values, x, out, None, None, (x.data_ptr(), matrix.values.data_ptr()))
    maps, launches = len(gpu.maps), len(gpu.launched)
    call(matrix.values, x, out, None, None, (x.data_ptr(), matrix.values.data_ptr()))
    assert (len(gpu.maps), len(gpu.launched)) == (maps, launches + 1)
    assert len(call._known) == 1
    ragged = random(250, 256, 64)
    assert sm90.prepare(ragged.index, x, layout=Layout.TOKENS, epilogue=Epilogue()) is None, "padded: the long way"


def test_what_is_captured_gets_zeros_of_its_own(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random(256, 256, 64)
    x, out = randn(64, 256), torch.empty(64, 256, dtype=torch.float16)
    call = sm90.prepare(matrix.index, x, layout=Layout.TOKENS, epilogue=Epilogue())
    assert call is not None
    at = x.data_ptr(), matrix.values.data_ptr()
    call(matrix.values, x, out, None, None, at)
    known, kept = dict(call._known), dict(workspace._KEPT)
    made, make = [], workspace._made

    def counted(device: torch.device, counts: int) -> workspace.Control:
        made.append(make(device, counts))
        return made[-1]

    monkeypatch.setattr(workspace, "_made", counted)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    call(matrix.values, x, out, None, None, at)
    assert len(made) == 1, "the launch of the same addresses outside of the graph names the stream's zeros"
    assert (call._known, workspace._KEPT) == (known, kept), "a launch of a graph names memory of the graph"


def test_nobody_asks_whether_the_default_stream_is_captured(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random(256, 256, 64)
    x, out = randn(64, 256), torch.empty(64, 256, dtype=torch.float16)
    call = sm90.prepare(matrix.index, x, layout=Layout.TOKENS, epilogue=Epilogue())
    assert call is not None
    monkeypatch.setattr(again, "_raw_stream", lambda device: 0)
    call(matrix.values, x, out, None, None, (x.data_ptr(), matrix.values.data_ptr()))
    monkeypatch.setattr(again, "_is_capturing", lambda: pytest.fail("it was asked"))
    launches = len(gpu.launched)
    call(matrix.values, x, out, None, None, (x.data_ptr(), matrix.values.data_ptr()))
    assert len(gpu.launched) == launches + 1


def test_streams_do_not_share_a_queue() -> None:
    device = torch.device("cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        one, other = (workspace.control_of(device, stream, arrivals=8) for stream in (101, 102))
        assert one.queue != other.queue
        assert workspace.control_of(device, 101, arrivals=one.counts) is one
        larger = workspace.control_of(device, 101, arrivals=one.counts + 1)
    assert larger.counts == 2 * one.counts
    assert not larger.room.any()


def test_only_16_bit_operands_of_one_type_are_taken(gpu: Driver) -> None:
    matrix = random(64, 64, 32)
    out = torch.empty(8, 64)
    with pytest.raises(UnsupportedInput, match=r"the dense operand is torch\.float32; float16 and bfloat16"):
        sm90.multiply(matrix.index, matrix.values, out, out, layout=Layout.TOKENS, epilogue=Epilogue())
    x = randn(8, 64)
    with pytest.raises(UnsupportedInput, match="one type for all three"):
        sm90.multiply(matrix.index, matrix.values, x, out, layout=Layout.TOKENS, epilogue=Epilogue())


def test_few_tokens_take_narrow_tiles(gpu: Driver) -> None:
    def tile(tokens: int) -> Any:
        index = random(4096, 4096, 128, density=0.5).index
        return make_plan(problem_of(index, torch.empty(tokens, 4096), Layout.TOKENS), index).tile

    assert tile(64) is NARROW
    assert tile(512) is NARROW, "two wide tiles of 32 groups leave half of the GPU without work"
    assert tile(520) is WIDE


def test_narrow_tiles_are_for_groups_that_are_short_enough_and_boxes_that_are_whole(gpu: Driver) -> None:
    def tile(rows: int, cols: int, block: int, n: int, layout: Layout = Layout.TOKENS) -> Any:
        index = random(rows, cols, block, density=0.3).index
        x = torch.empty(n, cols) if layout is Layout.TOKENS else torch.empty(cols, n)
        return make_plan(problem_of(index, x, layout), index).tile

    assert tile(4096, 4096, 64, 512) is NARROW
    assert tile(1024, 16384, 64, 128) is NARROW
    assert tile(1024, 16384, 64, 256) is WIDE, "128 stages of 256 tokens are faster than four times as many of 64"
    assert tile(1024, 1024, 32, 128) is NARROW
    assert tile(1024, 1024, 32, 192) is WIDE
    assert tile(1024, 1024, 16, 128) is WIDE
    assert tile(1024, 1024, 128, 128, Layout.COLUMNS) is NARROW
    assert tile(1024, 1024, 128, 136, Layout.COLUMNS) is NARROW, "it is copied into rows of 192"
    assert tile(1024, 1024, 128, 144, Layout.COLUMNS) is WIDE, "a tile would be a part of a row of 64 tokens"


def test_an_even_pattern_with_many_tokens_is_not_cut(gpu: Driver) -> None:
    matrix = random(8192, 8192, 128, density=1.0, dtype=torch.float16)
    product = problem_of(matrix.index, torch.empty(8192, 1).expand(8192, 8192), Layout.TOKENS)
    assert make_plan(product, matrix.index).limit == WHOLE
    few = problem_of(matrix.index, torch.empty(16, 1).expand(16, 8192), Layout.TOKENS)
    assert make_plan(few, matrix.index).limit < 64


def test_where_rows_are_not_multiples_of_16_bytes_the_product_is_padded() -> None:
    assert is_padded(Layout.TOKENS, 128, (512, 500), 64)
    assert is_padded(Layout.TOKENS, 32, (512, 500), 64), "its transpose"
    assert not is_padded(Layout.TOKENS, 32, (512, 504), 64)
    assert is_padded(Layout.TOKENS, 32, (500, 512), 64)
    assert is_padded(Layout.COLUMNS, 64, (512, 500), 12)
    assert not is_padded(Layout.COLUMNS, 64, (500, 500), 16)
    matrix = random(500, 500, 64)
    columns = problem_of(matrix.index, torch.empty(500, 12), Layout.COLUMNS)
    assert padding_of(columns, with_addend=True) == (500, 500, 64)
    assert padding_of(columns, with_addend=False) is None, "a kernel copies on the way"
    assert (columns.pitch, columns.out_pitch) == (64, 64)
    tokens = problem_of(matrix.index, torch.empty(12, 500), Layout.TOKENS)
    assert padding_of(tokens, with_addend=False) == (504, 504, 12)


def test_x_by_column_is_copied_where_it_is_read_slowly_and_often() -> None:
    def pitches(n: int, density: float) -> tuple[int, int]:
        problem = problem_of(random(512, 512, 64, density=density).index, torch.empty(512, n), Layout.COLUMNS)
        return problem.pitch, problem.out_pitch

    assert pitches(3008, 0.5) == (3008, 3008)
    assert pitches(3000, 0.5) == (3008, 3000), "rows of 6000 bytes do not start at multiples of 32"
    assert pitches(3000, 0.05) == (3000, 3000), "seldom enough"
    assert pitches(3001, 0.05) == (3008, 3008), "TMA takes no such rows"


def test_sizes_without_end_do_not_pile_up(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MOST_PRODUCTS", 4)
    matrix = random(64, 64, 64)
    for n in range(8, 80, 8):
        right(case_of(matrix, n, Layout.TOKENS))
        out = torch.empty_like(matrix.values)
        sm90.sample(matrix.index, randn(n, 64), randn(n, 64), out, layout=Layout.TOKENS, alpha=1.0)
    assert len(again._PRODUCTS) <= 4
    assert len(again._SAMPLES) <= 4


def test_more_tokens_than_a_grid_has_tiles_are_turned_by_several_launches(gpu: Driver) -> None:
    kernel = driver.load(built(TURN).cubin, "turn", device=0)
    most = 65535 * TURN_SIDE
    launches = turn_launches(kernel, 1 << 40, 1 << 41, n=most + 70, cols=200)
    assert [launch.shape.grid for launch in launches] == [(4, 65535, 1), (4, 2, 1)]
    told = [struct.unpack("<2Q3i", ctypes.string_at(launch._pointers[0] or 0, 28)) for launch in launches]
    pitch = most + 128
    assert told[0] == (1 << 40, 1 << 41, most, 200, pitch)
    assert told[1] == ((1 << 40) + 2 * most * 200, (1 << 41) + 2 * most, 70, 200, pitch)


def test_a_contraction_is_cut_where_the_steps_do_not_fill_the_gpu() -> None:
    assert splits_of(2048, 128, 132) == 1
    assert splits_of(64, 128, 132) == 7
    assert splits_of(64, 16, 132) == 2
    assert splits_of(1, 4, 132) == 1
    assert splits_of(0, 128, 132) == 16
