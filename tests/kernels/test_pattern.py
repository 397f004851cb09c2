"""Patterns: two directions over one set of blocks, derived once, and anew when the indices change."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from hypothesis import given
from torch._subclasses.fake_tensor import FakeTensorMode

from firstlight.kernels import pattern as pattern_room
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern, pattern_behind, pattern_of, rows_of_entries, transpose
from tests.kernels.patterns import INDEX_DTYPES, pattern_of_mask, patterns, places


def small_pattern() -> Pattern:
    return Pattern(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), (32, 32), 16)


@given(patterns())
def test_the_transposed_index_holds_every_block_at_the_swapped_place(pattern: Pattern) -> None:
    swapped = sorted((col, row, block) for row, col, block in places(pattern.forward))
    assert places(pattern.transposed) == swapped
    assert pattern.transposed.blocks_transposed
    assert (pattern.transposed.rows, pattern.transposed.cols) == pattern.shape[::-1]


@given(patterns())
def test_transposing_twice_gives_the_first_index_back(pattern: Pattern) -> None:
    back = transpose(pattern.transposed)
    assert places(back) == places(pattern.forward)
    assert not back.blocks_transposed
    assert (back.rows, back.cols) == pattern.shape


@given(patterns())
def test_indices_keep_their_dtype_and_ascend_inside_a_row(pattern: Pattern) -> None:
    index = pattern.transposed
    assert index.blocks is not None
    assert {index.row_starts.dtype, index.columns.dtype, index.blocks.dtype} == {pattern.col.dtype}
    assert pattern.rows_of_entries.dtype == pattern.col.dtype
    assert places(index) == sorted(places(index))


@given(patterns())
def test_rows_of_entries_are_the_rows_that_the_offsets_count(pattern: Pattern) -> None:
    assert pattern.rows_of_entries.tolist() == [row for row, _, _ in places(pattern.forward)]


def test_offsets_that_make_no_sense_give_rows_inside_the_matrix() -> None:
    for crow in ([0, 900, -7], [5, 1, 2], [3, 3, 3]):
        rows = rows_of_entries(torch.tensor(crow), torch.tensor([0, 1, 1]))
        assert int(rows.min()) >= 0
        assert int(rows.max()) <= 1


def test_both_directions_are_computed_once() -> None:
    pattern = small_pattern()
    assert pattern.forward is pattern.forward
    assert pattern.transposed is pattern.transposed
    assert pattern.rows_of_entries is pattern.rows_of_entries


def test_a_change_of_the_columns_in_place_is_noticed() -> None:
    pattern = small_pattern()
    before = pattern.transposed
    pattern.col[2] = 0
    assert pattern.transposed is not before
    assert places(pattern.transposed) == [(0, 0, 0), (0, 1, 2), (1, 0, 1)]


def test_a_change_of_the_offsets_in_place_is_noticed() -> None:
    pattern = small_pattern()
    assert pattern.rows_of_entries.tolist() == [0, 0, 1]
    pattern.crow[1] = 1
    assert pattern.rows_of_entries.tolist() == [0, 1, 1]
    assert places(pattern.transposed) == [(0, 0, 0), (1, 1, 1), (1, 1, 2)]


def test_what_is_derived_in_inference_mode_serves_a_backward_pass_later() -> None:
    pattern = small_pattern()
    with torch.inference_mode():
        index = pattern.transposed
        rows = pattern.rows_of_entries
    assert index.blocks is not None
    x = torch.ones(3, requires_grad=True)
    (x[index.blocks] * x[rows]).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None


def test_code_that_has_the_tensors_alone_finds_the_pattern_over_them() -> None:
    pattern = small_pattern()
    assert pattern_of(pattern.crow, pattern.col, (32, 32), 16) is pattern
    assert pattern_of(pattern.crow, pattern.col, (31, 32), 16) is not pattern


def test_the_tensors_of_the_transposed_index_are_no_way_to_the_pattern_as_stored() -> None:
    pattern = small_pattern()  # square, so that shape and block do not tell the directions apart
    turned = pattern.transposed
    other = pattern_of(turned.row_starts, turned.columns, (32, 32), 16)
    assert other is not pattern
    assert places(other.forward) == [(0, 0, 0), (1, 0, 1), (1, 1, 2)]


def test_a_pattern_found_by_its_tensors_is_kept_while_they_live_and_no_longer() -> None:
    crow, col = torch.arange(11), torch.arange(10)
    adopted = pattern_of(crow, col, (160, 160), 16)
    index = adopted.transposed
    assert pattern_of(crow, col, (160, 160), 16).transposed is index
    seen = weakref.ref(adopted)
    del adopted, index
    assert seen() is not None
    del crow, col
    gc.collect()
    assert seen() is None


def test_a_small_pattern_that_compiled_code_writes_anew_is_read_anew() -> None:
    """Its constants of up to eight numbers are written into tensors used before, past every version counter."""
    crow, col = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1])
    assert places(pattern_of(crow, col, (32, 32), 16).transposed) == [(0, 1, 1), (1, 0, 0), (1, 1, 2)]
    version = col._version
    col.numpy()[0] = 0
    assert col._version == version
    assert places(pattern_of(crow, col, (32, 32), 16).transposed) == [(0, 0, 0), (0, 1, 1), (1, 1, 2)]


def test_a_pattern_found_by_its_tensors_notices_their_change() -> None:
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])
    assert places(pattern_of(crow, col, (32, 32), 16).transposed)[0] == (0, 0, 0)
    col[0], col[1] = 1, 0
    assert places(pattern_of(crow, col, (32, 32), 16).transposed)[0] == (0, 0, 1)


def test_nothing_is_kept_of_a_pattern_that_is_gone() -> None:
    gc.collect()
    before = len(pattern_room._PATTERNS), len(pattern_room._ADOPTED)
    pattern = small_pattern()
    assert pattern.transposed.entries == 3
    assert len(pattern_room._PATTERNS) == before[0] + 2
    del pattern
    gc.collect()
    assert (len(pattern_room._PATTERNS), len(pattern_room._ADOPTED)) == before


def test_an_index_leads_back_to_its_pattern() -> None:
    pattern = small_pattern()
    assert pattern_behind(pattern.forward) is pattern
    assert pattern_behind(pattern.transposed) is pattern
    by_hand = Index(torch.tensor([0, 1]), torch.tensor([0]), None, 16, 16, 16, blocks_transposed=False)
    assert pattern_behind(by_hand) is None


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_copies_and_pickles_hold_the_same_blocks(dtype: torch.dtype) -> None:
    pattern = pattern_of_mask(torch.tensor([[True, False], [True, True]]), (30, 32), dtype=dtype)
    assert pattern.transposed.entries == 3
    for other in (copy.deepcopy(pattern), pickle.loads(pickle.dumps(pattern))):
        assert other.crow is not pattern.crow
        assert places(other.transposed) == places(pattern.transposed)
        assert (other.shape, other.block, other.distinct) == (pattern.shape, pattern.block, pattern.distinct)


def test_both_directions_are_computed_without_reading_a_number_back() -> None:
    # a fake tensor has no numbers: whatever asks for one (.item(), nonzero, a boolean mask) raises
    with FakeTensorMode():
        crow, col = torch.empty(129, dtype=torch.int32), torch.empty(1638, dtype=torch.int32)
        pattern = Pattern(crow, col, (8192, 4096), 64)
        assert pattern.transposed.row_starts.shape == (65,)
        assert pattern.transposed.columns.shape == (1638,)
        assert pattern.rows_of_entries.shape == (1638,)


def test_a_compiled_function_reads_a_pattern_without_a_graph_break() -> None:
    pattern = small_pattern()

    def positions(x: torch.Tensor) -> torch.Tensor:
        there = pattern.transposed
        assert there.blocks is not None
        return x + pattern.forward.columns.sum() + 10 * there.columns.sum() + 100 * there.blocks[-1] + there.block_rows

    compiled = torch.compile(positions, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.zeros(2)), positions(torch.zeros(2)))  # first call: built inside the graph
    torch._dynamo.reset()
    assert torch.equal(compiled(torch.zeros(2)), positions(torch.zeros(2)))  # now: read from the pattern


def test_another_pattern_over_the_same_tensors_displaces_neither() -> None:
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1])
    first = Pattern(crow, col, (32, 32), 16, distinct=False)
    second = Pattern(crow, col, (32, 32), 16, distinct=False)
    assert pattern_behind(first.forward) is first
    assert pattern_behind(second.forward) is second
    assert pattern_of(crow, col, (32, 32), 16) is first
    del second
    assert pattern_behind(first.forward) is first
    third = Pattern(crow, col, (32, 32), 16, distinct=False)
    del first
    gc.collect()
    assert pattern_behind(third.forward) is third
    assert pattern_of(crow, col, (32, 32), 16) is third


def test_what_is_derived_under_torch_func_can_be_read_afterwards() -> None:
    pattern = small_pattern()

    def read(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + pattern.rows_of_entries.sum() + pattern.transposed.columns.sum()

    torch.func.grad(read)(torch.randn(3))
    torch.func.vmap(read)(torch.randn(2, 3))
    assert pattern.rows_of_entries.data_ptr() != 0
    assert pattern.rows_of_entries.tolist() == [0, 0, 1]
    assert pattern.transposed.columns.data_ptr() != 0
    assert pattern.transposed.columns.tolist() == [0, 0, 1]


def test_a_pattern_made_under_torch_func_is_used_there() -> None:
    def read(x: torch.Tensor) -> torch.Tensor:
        made = Pattern((x.detach() > 5).cumsum(0), (x[1:].detach() > 9).long(), (32, 32), 16)
        return x.sum() + made.rows_of_entries.sum() + made.transposed.columns.sum()

    assert torch.func.grad(read)(torch.tensor([0.0, 6.0, 6.0])).tolist() == [1, 1, 1]
