"""multiply.cu, sample.cu and turn.cu themselves, run thread by thread in the emulator behind the real plans."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import pytest
import torch

from firstlight.kernels import BlockSparseMatrix, sm90
from firstlight.kernels.product import Activation, Epilogue, Layout, Second
from firstlight.kernels.sm90 import workspace
from firstlight.kernels.sm90.arguments import PitchFields, TurnFields, pitch_bytes, turn_bytes
from firstlight.kernels.sm90.compile import SOURCES
from firstlight.kernels.sm90.multiply_plan import takes_two_windows
from firstlight.kernels.sm90.problem import problem_of
from tests.kernels.products import ACTIVATIONS, Case
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.driver import EmulatingDriver
from tests.kernels.sm90.emulator.machine import emulated_gpu
from tests.kernels.sm90.emulator.products import case_of, multiplied, randn, random, right
from tests.kernels.sm90.emulator.run import emulate

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatingDriver]:
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=2) as made:
        yield made


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((16, 32, 64, 128), Layout)))
def test_products_of_every_block_and_layout(gpu: EmulatingDriver, block: int, layout: Layout) -> None:
    wide = random(192, 320, block)
    right(case_of(wide, 328, layout))
    right(case_of(wide.T, 328, layout))
    ragged = random(3 * block - 8, 4 * block - 8, block, dtype=torch.bfloat16)
    right(case_of(ragged if layout is Layout.COLUMNS else ragged.T, 24, layout))
    assert gpu.counts[-1].products > 0


@pytest.mark.parametrize("layout", Layout)
def test_everything_that_is_added_on_the_way_out(gpu: EmulatingDriver, layout: Layout) -> None:
    matrix, n = random(136, 72, 32), 72
    shape = (n, 136) if layout is Layout.TOKENS else (136, n)
    for kind in Activation:
        right(case_of(matrix, n, layout, Epilogue(-0.5, 2.0, randn(*shape, seed=4), randn(136, seed=5), kind)))
        gated = Epilogue(-0.5, 1.0, randn(*shape, seed=4), randn(136, seed=5), kind, Second.MULTIPLIED)
        right(case_of(matrix, n, layout, gated))


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((64, 128), Layout)))
def test_what_follows_a_product_is_done_under_the_products_of_the_next_item(
    gpu: EmulatingDriver, block: int, layout: Layout
) -> None:
    matrix, n = random(4 * block, 3 * block, block, density=0.7, dtype=torch.bfloat16), 520
    shape = (n, 4 * block) if layout is Layout.TOKENS else (4 * block, n)
    for kind in Activation:
        right(case_of(matrix, n, layout, Epilogue(1.0, 0.0, None, randn(4 * block, seed=5, dtype=matrix.dtype), kind)))
    gate = randn(*shape, seed=4, dtype=matrix.dtype)
    for kind in (Activation.NONE, Activation.SILU):
        right(case_of(matrix, n, layout, Epilogue(1.0, 1.0, gate, None, kind, Second.MULTIPLIED)))
    assert gpu.grids[-1][0] < 4 * block // 128 * -(-n // 256), "each thread block has one item"


@pytest.mark.parametrize("kind", [Activation.GELU, Activation.GELU_TANH, Activation.SILU])
# the narrow tile's function and the one written out over all sums
@pytest.mark.parametrize(("n", "block"), [(64, 64), (1024, 64), (1024, 128)])
def test_activations_are_as_exact_as_their_rounding_and_spare_their_neighbours(
    gpu: EmulatingDriver, kind: Activation, n: int, block: int
) -> None:
    eye = BlockSparseMatrix.from_dense(torch.eye(block, dtype=torch.float16), block=block)
    x = torch.linspace(-12, 12, n * block).view(n, block).half()
    x[0, 0], x[0, 1] = 60000.0, -60000.0
    x[5] = math.nan  # shares its reciprocals with token 4
    out = multiplied(Case(eye, x, Layout.TOKENS, Epilogue(activation=kind)))
    exact = ACTIVATIONS[kind](x.double())
    assert out[5].isnan().all()
    off = (out.double() - exact).abs()[torch.arange(n) != 5]
    assert (off <= 2**-10 * exact.abs()[torch.arange(n) != 5] + 1e-7).all()


def test_odd_sizes_and_batches(gpu: EmulatingDriver) -> None:
    right(case_of(random(93, 59, 32), 13, Layout.TOKENS))
    right(case_of(random(136, 120, 128), 72, Layout.COLUMNS, Epilogue(bias=randn(136, seed=2)), batch=(3,)))
    right(case_of(random(256, 256, 128, density=0.0), 72, Layout.COLUMNS))


@pytest.mark.parametrize("block", [16, 128])
def test_a_long_row_is_cut_and_put_together_again(tmp_path_factory: pytest.TempPathFactory, block: int) -> None:
    mask = torch.zeros(128 // block, 3072 // block, dtype=torch.bool)
    mask[-1] = True
    matrix = BlockSparseMatrix.from_mask(mask, block=block, values=randn(128, 3072, seed=7))
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=132) as gpu:
        first = right(case_of(matrix, 72, Layout.COLUMNS))
        assert torch.equal(right(case_of(matrix, 72, Layout.COLUMNS)), first), "the sum depends on who came last"
        assert gpu.grids[-1][0] > 2, "the row is not cut"
        [control] = workspace._KEPT.values()
        assert not control.room.any(), "counts are left behind"


@pytest.mark.parametrize("n", [256, 768, 1280, 1536])  # one window, one and a half, two and a half; three in clusters
def test_two_windows_that_take_turns_leave_no_item_out(gpu: EmulatingDriver, n: int) -> None:
    matrix = random(640, 512, 128, density=0.1)
    assert takes_two_windows(problem_of(matrix.index, randn(512, n), Layout.COLUMNS))
    right(case_of(matrix, n, Layout.COLUMNS))


@pytest.mark.parametrize(("block", "density"), [(128, 1.0), (64, 0.3), (32, 0.3), (16, 0.2)])
def test_every_order_of_events_gives_the_same_bits(gpu: EmulatingDriver, block: int, density: float) -> None:
    case = case_of(random(128, 512, block, density=density), 264, Layout.COLUMNS)
    first = right(case)
    for _ in range(4):
        assert torch.equal(multiplied(case), first), f"seed {gpu.seed}"


def test_an_infinity_is_seen_by_rows_that_store_its_column_alone(gpu: EmulatingDriver) -> None:
    mask = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    matrix = BlockSparseMatrix.from_mask(mask, block=32, values=randn(128, 64, seed=7).abs())
    case = case_of(matrix, 72, Layout.COLUMNS)
    case.dense[3, 5] = math.inf
    out = multiplied(case)
    expected = matrix.to_dense().double() @ case.dense.double().nan_to_num(posinf=0.0)
    assert out[:32, 5].isinf().all()
    assert out[64:96, 5].isinf().all()
    assert not out[32:64].isinf().any()
    assert (out[96:] == 0).all()
    torch.testing.assert_close(out[32:64].double(), expected[32:64], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("block", "layout"), list(itertools.product((16, 32, 64, 128), Layout)))
def test_sampled_products(gpu: EmulatingDriver, block: int, layout: Layout) -> None:
    for rows, cols, n in ((3 * block - 8, 4 * block - 8, 24), (2 * block - 3, 3 * block - 5, 600)):
        matrix = random(rows, cols, block)
        a, b = (randn(n, side) if layout is Layout.TOKENS else randn(side, n) for side in (rows, cols))
        out = torch.full_like(matrix.values, math.nan)
        sm90.sample(matrix.index, a, b, out, layout=layout, alpha=0.5)
        left, other = (a.mT, b) if layout is Layout.TOKENS else (a, b.mT)
        stored = matrix.with_values(torch.ones_like(matrix.values)).to_dense().double()
        exact, size = 0.5 * (left.double() @ other.double()), left.double().abs() @ other.double().abs()
        assert ((matrix.with_values(out).to_dense().double() - exact * stored).abs() <= 2**-10 * size).all()
        assert not out.isnan().any(), "padding is written too"


def test_sampled_products_in_portions_are_summed_over_a_batch(tmp_path_factory: pytest.TempPathFactory) -> None:
    matrix = random(96, 64, 32)
    a, b = randn(3, 96, 648), randn(3, 64, 648, seed=1)
    out = torch.full_like(matrix.values, math.nan)
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=132) as gpu:
        sm90.sample(matrix.index, a, b, out, layout=Layout.COLUMNS, alpha=1.0)
        assert gpu.grids[-1][0] > 1, "the contraction is not cut"
    exact = (a.double() @ b.double().mT).sum(0)
    stored = matrix.with_values(torch.ones_like(matrix.values)).to_dense().double()
    torch.testing.assert_close(matrix.with_values(out).to_dense().double(), exact * stored, rtol=2e-3, atol=5e-2)


@pytest.mark.parametrize(("rows", "cols"), [(100, 72), (64, 64), (65, 67), (1, 8)])
def test_turning(rows: int, cols: int) -> None:
    x = randn(rows, cols)
    pitch = -(-rows // 64) * 64
    out = torch.full((cols, pitch), math.nan, dtype=torch.float16)
    fields = TurnFields(x.data_ptr(), out.data_ptr(), rows, cols, pitch)
    grid = (-(-cols // 64), pitch // 64, 1)
    emulate("turn", {}, "turn", turn_bytes(fields), grid=grid, threads=128, shared_bytes=0)
    assert torch.equal(out[:, :rows], x.T)
    assert (out[:, rows:] == 0).all()


@pytest.mark.parametrize(
    ("rows", "there", "wanted"), [(3, 1001, 1024), (4, 1024, 999), (5, 1, 1), (2, 7, 8), (3, 2100, 2112)]
)
def test_rows_made_longer_or_cut_off(rows: int, there: int, wanted: int) -> None:
    x = randn(rows, there)
    out = torch.full((rows, wanted), math.nan, dtype=torch.float16)
    fields = PitchFields(x.data_ptr(), out.data_ptr(), there, wanted, min(there, wanted), wanted)
    emulate("pitch", {}, "pitch", pitch_bytes(fields), grid=(rows, 1, 1), threads=256, shared_bytes=0)
    least = min(there, wanted)
    assert torch.equal(out[:, :least], x[:, :least])
    assert (out[:, least:] == 0).all()


@pytest.mark.parametrize("block", [16, 64, 128])
@pytest.mark.parametrize("n", [1, 129, 333, 520])
def test_columns_that_are_no_multiple_of_sixteen(gpu: EmulatingDriver, block: int, n: int) -> None:
    right(case_of(random(300, 260, block, density=0.4), n, Layout.COLUMNS))


@pytest.mark.parametrize("trial", ["LOADERS=1", "LOADERS=2", "LEAD=2", "LOADERS=1,LEAD=1"])
@pytest.mark.parametrize("block", [16, 128])
def test_settings_that_a_tuning_run_tries_give_the_same_numbers(
    tmp_path_factory: pytest.TempPathFactory, trial: str, block: int
) -> None:
    text = (SOURCES / "roles.cuh").read_text()
    for name, number in (part.split("=") for part in trial.split(",")):
        standing = re.search(rf"#define {name} \d+\n", text)
        assert standing is not None
        text = text.replace(standing[0], f"#define {name} {number}\n")
    with emulated_gpu(tmp_path_factory.mktemp("toolkit"), multiprocessors=1) as gpu:
        gpu.replaced = {"roles.cuh": text}
        right(case_of(random(300, 520, block, density=0.3), 300, Layout.TOKENS))
        right(case_of(random(130, 260, block, density=0.9), 72, Layout.COLUMNS))
