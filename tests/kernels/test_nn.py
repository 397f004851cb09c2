"""The layer: as torch.nn.Linear with blocks left out, through moves, copies and checkpoints."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

from firstlight.kernels import BlockSparseMatrix, UnsupportedInput, dense, linear
from firstlight.kernels.convert import scatter
from firstlight.kernels.nn import BlockSparseLinear
from tests.kernels.cases import scattered


def pair() -> tuple[nn.Linear, BlockSparseLinear]:
    """A dense layer with blocks zeroed and the sparse layer of the same weight."""
    mask = scattered(3, 4)
    dense = nn.Linear(61, 44)
    sparse = BlockSparseLinear.from_linear(dense, mask, block=16)
    with torch.no_grad():
        dense.weight.copy_(sparse.matrix.to_dense())
    return dense, sparse


def test_it_computes_and_trains_as_the_dense_layer_does() -> None:
    dense, sparse = pair()
    x = torch.randn(2, 5, 61)
    torch.testing.assert_close(sparse(x), dense(x))
    one, other = (torch.optim.AdamW(layer.parameters(), lr=1e-2, weight_decay=0.0) for layer in (dense, sparse))
    stored = sparse.matrix.with_values(torch.ones_like(sparse.values)).to_dense()
    for _ in range(3):
        for layer, optimizer in ((dense, one), (sparse, other)):
            optimizer.zero_grad()
            torch.autograd.backward(layer(x).square().sum())
            if layer is dense and dense.weight.grad is not None:
                dense.weight.grad *= stored
            optimizer.step()
        torch.testing.assert_close(sparse(x), dense(x), rtol=1e-4, atol=1e-4)


def test_its_description_says_how_sparse_it_is() -> None:
    _, sparse = pair()
    assert str(sparse).startswith("BlockSparseLinear(in_features=61, out_features=44, bias=True, block=16, blocks=")
    assert f"density={sparse.density:.3g}" in str(sparse)
    fused = BlockSparseLinear(
        BlockSparseMatrix.random(32, 32, block=16, density=1.0), activation="relu", backend="dense"
    )
    assert str(fused).endswith("density=1, activation=relu, backend=dense)")
    assert (fused(torch.randn(3, 32)) >= 0).all()


def test_dtype_and_device_moves_keep_the_pattern() -> None:
    _, sparse = pair()
    x = torch.randn(5, 61)
    plain = sparse(x)
    moved = sparse.to(torch.float64)
    assert moved(x.double()).dtype == torch.float64
    assert moved.crow.dtype in (torch.int32, torch.int64)
    torch.testing.assert_close(moved(x.double()).float(), plain)
    meta = copy.deepcopy(sparse).to("meta")
    assert meta.values.is_meta
    assert meta.crow.is_meta
    assert meta.matrix.device.type == "meta"


def test_copies_and_pickles_have_values_of_their_own() -> None:
    _, sparse = pair()
    x = torch.randn(5, 61)
    plain = sparse(x)
    for twin in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse))):
        assert torch.equal(twin(x), plain)
        with torch.no_grad():
            twin.values.zero_()
        assert torch.equal(sparse(x), plain)
        assert twin.matrix.values is twin.values


def test_the_state_dict_holds_the_pattern_and_comes_back() -> None:
    _, sparse = pair()
    model = nn.Sequential(sparse)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert sorted(state) == ["0.bias", "0.col", "0.crow", "0.shape", "0.values"]
    assert state["0.shape"].tolist() == [44, 61, 16]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        sparse.values.zero_()
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    x = torch.randn(5, 61)
    assert torch.equal(model(x), twin(x))


def test_another_pattern_is_refused_with_what_to_do_and_nothing_is_loaded() -> None:
    _, sparse = pair()
    before = sparse.values.detach().clone()
    other = BlockSparseLinear.from_linear(nn.Linear(61, 44), ~scattered(3, 4), block=16)
    with pytest.raises(
        RuntimeError, match=r"another pattern \(\d+ stored blocks; this layer has \d+.*load_with_patterns"
    ):
        sparse.load_state_dict(other.state_dict())
    assert torch.equal(sparse.values, before)
    sparse.adopt_pattern(other.state_dict())
    sparse.load_state_dict(other.state_dict())
    x = torch.randn(5, 61)
    torch.testing.assert_close(sparse(x), other(x))


def test_a_checkpoint_of_another_shape_or_a_dense_one_is_named() -> None:
    _, sparse = pair()
    other = BlockSparseLinear(BlockSparseMatrix.random(44, 61, block=32, density=1.0), torch.zeros(44))
    with pytest.raises(RuntimeError, match=r"= \[44, 61, 32\]; this layer has \[44, 61, 16\]"):
        sparse.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="the checkpoint holds a dense weight"):
        sparse.load_state_dict(nn.Linear(61, 44).state_dict())
    without = {key: item for key, item in sparse.state_dict().items() if key != "crow"}
    with pytest.raises(RuntimeError, match="crow"):
        sparse.load_state_dict(without)


def test_dropping_blocks_leaves_the_others() -> None:
    _, sparse = pair()
    dense = sparse.matrix.to_dense().detach().clone()
    kept = torch.ones(sparse.values.shape[0], dtype=torch.bool)
    kept[1] = False
    row, col = int(sparse.matrix.pattern.rows_of_entries[1]), int(sparse.col[1])
    sparse.keep_(kept)
    dense[16 * row : 16 * row + 16, 16 * col : 16 * col + 16] = 0
    torch.testing.assert_close(sparse.matrix.to_dense(), dense)
    torch.testing.assert_close(sparse(torch.eye(61)), dense.T + (sparse.bias if sparse.bias is not None else 0))
    with pytest.raises(UnsupportedInput, match="one for each stored block"):
        sparse.keep_(kept)


def test_it_goes_back_to_a_dense_layer() -> None:
    dense, sparse = pair()
    back = sparse.to_linear()
    assert type(back) is nn.Linear
    torch.testing.assert_close(back.weight, dense.weight)
    x = torch.randn(5, 61)
    torch.testing.assert_close(back(x), sparse(x))


def test_a_transposed_matrix_is_stored_the_ordinary_way() -> None:
    matrix = BlockSparseMatrix.random(48, 64, block=16, density=0.5)
    layer = BlockSparseLinear(matrix.T)
    torch.testing.assert_close(layer(torch.eye(48)), matrix.to_dense())


def doubled() -> BlockSparseMatrix:
    """A matrix whose first block is stored twice."""
    values = torch.randn(3, 16, 16)
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1])
    return BlockSparseMatrix.from_parts(values, crow, col, (32, 32), allow_duplicates=True)


def test_blocks_stored_twice_are_summed_in_the_layer_its_copies_and_the_matrix() -> None:
    w, x = doubled(), torch.randn(5, 32)
    plain = linear(x, w, backend="reference")
    layer = BlockSparseLinear(w, backend="dense")
    adopting = BlockSparseLinear(BlockSparseMatrix.random(32, 32, block=16, density=1.0), backend="dense")
    adopting.adopt_pattern(layer.state_dict())
    adopting.load_state_dict(layer.state_dict())
    twins = (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer).to("meta"), adopting)
    twins[2].load_state_dict(layer.state_dict(), assign=True)
    for one in (layer, *twins):
        torch.testing.assert_close(one(x), plain)
        torch.testing.assert_close(one.double()(x.double()).float(), plain)
    torch.testing.assert_close(linear(x, w.with_values(w.values.clone()), backend="dense"), plain)


def test_a_layer_that_goes_leaves_the_matrix_its_dense_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = BlockSparseMatrix.random(64, 64, block=16, density=0.5), torch.randn(5, 64)
    BlockSparseLinear(w)(x)
    layer = BlockSparseLinear(w)
    assert layer.matrix.pattern is w.pattern
    layer.values = nn.Parameter(torch.randn_like(layer.values))
    assert layer.matrix.values is layer.values
    assert layer.matrix.pattern is w.pattern
    w.keep_dense()
    del layer
    gc.collect()
    made: list[object] = []

    def counted(*given: Any, **named: Any) -> torch.Tensor:
        made.append(given)
        return scatter(*given, **named)

    monkeypatch.setattr(dense, "scatter", counted)
    for _ in range(3):
        linear(x, w, backend="dense")
    assert made == []


def test_an_adopted_pattern_is_a_copy_and_is_checked() -> None:
    _, sparse = pair()
    twin = copy.deepcopy(sparse)
    state = sparse.state_dict()
    twin.adopt_pattern(state)
    assert twin.crow.data_ptr() != sparse.crow.data_ptr()
    assert twin.col.data_ptr() != sparse.col.data_ptr()
    falling, beyond = state["crow"].clone(), state["col"].clone()
    falling[1], beyond[0] = 99, 9
    for wrong, words in (({"crow": falling}, "layer: crow falls from 99"), ({"col": beyond}, "layer: col holds 9")):
        with pytest.raises(UnsupportedInput, match=words):
            twin.adopt_pattern(state | wrong)
        with pytest.raises(RuntimeError, match=words):
            copy.deepcopy(twin).to("meta").load_state_dict(state | wrong, assign=True)
    with pytest.raises(UnsupportedInput, match=r"values has shape .*; \[any, 16, 16\] is accepted"):
        twin.adopt_pattern(state | {"values": torch.zeros(state["values"].shape[0], 32, 32)})
    torch.testing.assert_close(twin.matrix.to_dense(), torch.zeros(44, 61))


def test_torch_distributed_checkpoint_reads_and_writes_a_model() -> None:
    layer = pair()[1]
    model = nn.Sequential(layer)
    state = copy.deepcopy(get_model_state_dict(model))
    assert list(state) == list(model.state_dict()) == ["0.values", "0.bias", "0.crow", "0.col", "0.shape"]
    x = torch.randn(5, 61)
    plain = model(x)
    with torch.no_grad():
        layer.values.zero_()
    set_model_state_dict(model, state)
    assert torch.equal(model(x), plain)


def test_a_layer_pickled_before_shape_was_a_buffer_is_read() -> None:
    layer = BlockSparseLinear(doubled(), backend="dense")
    x = torch.randn(5, 32)
    plain, old = layer(x), copy.copy(layer)
    old._buffers = {key: item for key, item in layer._buffers.items() if key != "shape"}
    del old.distinct
    back = pickle.loads(pickle.dumps(old))
    assert back.shape.tolist() == [32, 32, 16]
    torch.testing.assert_close(back(x), plain)
