"""Checkpoints of other formats: torch's BSR, torchao's former tensors (whole, pickled, flattened), superblock."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firstlight.kernels import BlockSparseMatrix, UnsupportedInput
from firstlight.kernels.checkpoints import FORMER_CLASSES, converted, from_superblock, load_former, load_with_patterns
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import keep_best
from tests.kernels.cases import scattered

INNER = ("bsr_crow_indices", "bsr_col_indices", "bsr_values")


def weight() -> Tensor:
    """[64, 96] with blocks of 16 left out; the last block column is empty."""
    mask = scattered(4, 6)
    mask[:, 5] = False
    return torch.randn(64, 96) * mask.repeat_interleave(16, 0).repeat_interleave(16, 1)


def dense_model(value: Tensor) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 3))
    with torch.no_grad():
        first = model[0]
        assert isinstance(first, nn.Linear)
        first.weight.copy_(value)
    return model


def loads_and_computes(state: dict[str, Any], value: Tensor) -> None:
    plain = dense_model(value)
    plain.load_state_dict({key: item for key, item in state.items() if key in plain.state_dict()}, strict=False)
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 3))
    assert load_with_patterns(model, state) == ("0",)
    assert isinstance(model[0], BlockSparseLinear)
    x = torch.randn(5, 96)
    torch.testing.assert_close(model(x), plain(x))


def test_a_torch_bsr_weight() -> None:
    value = weight()
    state: dict[str, Any] = dict(dense_model(value).state_dict())
    state["0.weight"] = value.to_sparse_bsr(16)
    loads_and_computes(converted(state), value)
    joined = converted(state, block=32)
    assert joined["0.shape"].tolist() == [64, 96, 32]
    loads_and_computes(joined, value)


def former_class(name: str) -> type[Tensor]:
    """A class as torchao had it, under the module path that a pickle names."""
    path, _, last = name.rpartition(".")

    def new(cls: Any, shape: Any, blocksize: int, *inner: Tensor) -> Any:
        tensor = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=inner[2].dtype)
        tensor.blocksize = blocksize
        for key, item in zip(INNER, inner, strict=True):
            setattr(tensor, key, item)
        return tensor

    def dispatch(cls: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            old = args[0]
            return cls(old.shape, old.blocksize, *(getattr(old, key) for key in INNER))
        raise NotImplementedError(str(func))

    return type(last, (Tensor,), {"__new__": new, "__torch_dispatch__": classmethod(dispatch), "__module__": path})


def former_weight(value: Tensor, kind: type[Tensor]) -> Tensor:
    bsr = value.to_sparse_bsr(16)
    made: Tensor = kind(value.shape, 16, bsr.crow_indices(), bsr.col_indices(), bsr.values())
    return made


def test_torchaos_former_tensor_in_memory() -> None:
    value = weight()
    state: dict[str, Any] = dict(dense_model(value).state_dict())
    state["0.weight"] = former_weight(value, former_class(FORMER_CLASSES[0]))
    loads_and_computes(converted(state), value)


@pytest.mark.parametrize("name", FORMER_CLASSES)
def test_torchaos_former_checkpoint_is_read_without_torchao(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, kind = weight(), former_class(name)
    path, _, last = name.rpartition(".")
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    setattr(sys.modules[path], last, kind)
    state: dict[str, Any] = dict(dense_model(value).state_dict())
    state["0.weight"] = former_weight(value, kind)
    torch.save(state, tmp_path / "former.pt")
    for end in range(1, len(parts) + 1):
        monkeypatch.delitem(sys.modules, ".".join(parts[:end]))
    loads_and_computes(load_former(tmp_path / "former.pt"), value)


@pytest.mark.parametrize("separator", [".", ":", "_"])
def test_flattened_keys(separator: str) -> None:
    value = weight()
    bsr = value.to_sparse_bsr(16)
    state: dict[str, Any] = dict(dense_model(value).state_dict())
    del state["0.weight"]
    for name, item in zip(INNER, (bsr.crow_indices(), bsr.col_indices(), bsr.values()), strict=True):
        state[f"0.weight{separator}{name}"] = item
    loads_and_computes(converted(state, shapes={"0.weight": (64, 96)}), value)
    assert converted(state)["0.shape"].tolist() == [64, 80, 16]  # as far as the last block column used


def test_an_int8_weight_is_refused_with_what_to_do() -> None:
    tensor = former_weight(weight(), former_class(FORMER_CLASSES[0]))
    tensor.scale = torch.ones(64)  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedInput, match="Dequantize it in the torchao that wrote it"):
        converted({"0.weight": tensor})


def test_a_superblock_checkpoint() -> None:
    full, scores = torch.randn(64, 96), torch.rand(4, 6)
    state = {
        "0.weight": full, "0.scores": scores, "0.scale": torch.tensor([2.0]), "0.shift": torch.tensor([0.25]),
        "0.bias": torch.randn(64), "2.weight": torch.randn(3, 64), "2.bias": torch.zeros(3),
    }  # fmt: skip
    found = from_superblock(state, density=0.25)
    mask = keep_best(scores, density=0.25).repeat_interleave(16, 0).repeat_interleave(16, 1)
    loads_and_computes(found, (2 * full + 0.25) * mask)
    loads_and_computes(from_superblock(state, density=0.25, block=32), (2 * full + 0.25) * mask)
    with pytest.raises(UnsupportedInput, match="fit no tile"):
        from_superblock({"0.weight": full, "0.scores": torch.rand(5, 6)}, density=0.5)


def test_a_model_takes_the_patterns_of_its_own_kind_of_checkpoint() -> None:
    saved = nn.Sequential(BlockSparseLinear(BlockSparseMatrix.random(64, 96, block=16, density=0.3), torch.randn(64)))
    model = nn.Sequential(BlockSparseLinear(BlockSparseMatrix.random(64, 96, block=16, density=0.7), torch.zeros(64)))
    assert load_with_patterns(model, saved.state_dict()) == ("0",)
    x = torch.randn(5, 96)
    assert torch.equal(model(x), saved(x))
    other = nn.Sequential(nn.Linear(95, 64))
    with pytest.raises(
        UnsupportedInput, match=r"the checkpoint's weight is \[64, 96\]; the model's layer is \[64, 95\]"
    ):
        load_with_patterns(other, saved.state_dict())


def test_keys_that_fit_no_layer_are_named_by_torch() -> None:
    saved = nn.Sequential(BlockSparseLinear(BlockSparseMatrix.random(64, 96, block=16, density=0.3)))
    state = {f"other.{key}": item for key, item in saved.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other\.0\.values"):
        load_with_patterns(nn.Sequential(nn.Linear(96, 64)), state)
