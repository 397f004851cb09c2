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
from firstlight.kernels.sparsify import sparsify_
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


def supermask(scores: Tensor, sparsity: float) -> Tensor:
    """The tiles that torchao's supermask keeps."""
    sparsity = min(sparsity, 1 - 1 / scores.numel())
    rank = 1 + round(0.01 * float(sparsity * 100) * (scores.numel() - 1))
    return scores >= scores.view(-1).kthvalue(rank).values


def kept_tiles(scores: Tensor, density: float) -> Tensor:
    """[tile rows, tile columns]: where from_superblock stores a block."""
    state = {"l.weight": torch.ones(scores.shape[0] * 16, scores.shape[1] * 16), "l.scores": scores}
    found = from_superblock(state, density=density)
    matrix = BlockSparseMatrix.from_parts(found["l.values"], found["l.crow"], found["l.col"], (160, 160))
    return matrix.to_dense()[::16, ::16] != 0


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.35, 0.5, 0.55, 0.65, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("exact", [True, False])
def test_the_tiles_are_those_that_superblock_trained_with(sparsity: float, exact: bool) -> None:  # noqa: FBT001
    density = 1 - sparsity if exact else round(1 - sparsity, 3)
    scores = torch.randn(10, 10)
    assert torch.equal(kept_tiles(scores, density), supermask(scores, sparsity))
    equal = scores.mul(2).round()  # many equal scores: all of those at the limit are kept
    assert torch.equal(kept_tiles(equal, density), supermask(equal, sparsity))


def test_a_superblock_checkpoint_keeps_11_of_100_tiles_at_sparsity_0_9() -> None:
    scores = torch.randn(10, 10)
    assert int(kept_tiles(scores, 1 - 0.9).sum()) == 11
    assert int(kept_tiles(scores, 1.0).sum()) == 100
    assert int(kept_tiles(scores, 1e-9).sum()) == 2  # its sparsity goes up to 1 - 1 / tiles
    with pytest.raises(UnsupportedInput, match=r"density is 0\.0"):
        kept_tiles(scores, 0.0)


@pytest.mark.parametrize("tiles", [1, 2, 3, 6, 11, 26, 51, 101])
def test_ranks_that_end_in_a_half_are_rounded_as_superblock_does(tiles: int) -> None:
    scores = torch.arange(float(tiles)).view(1, tiles)
    state = {"l.weight": torch.ones(16, tiles * 16), "l.scores": scores}
    for per_cent in range(1, 101):
        found = from_superblock(state, density=per_cent / 100)
        assert found["l.col"].numel() == int(supermask(scores, (100 - per_cent) / 100).sum()), per_cent


def test_a_superblock_checkpoint() -> None:
    full, scores = torch.randn(64, 96), torch.rand(4, 6)
    state = {
        "0.weight": full, "0.scores": scores, "0.scale": torch.tensor([2.0]), "0.shift": torch.tensor([0.25]),
        "0.bias": torch.randn(64), "2.weight": torch.randn(3, 64), "2.bias": torch.zeros(3),
    }  # fmt: skip
    found = from_superblock(state, density=0.25)
    mask = supermask(scores, 0.75).repeat_interleave(16, 0).repeat_interleave(16, 1)
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


def test_the_pattern_of_a_checkpoint_is_checked_and_copied() -> None:
    state = blocks_for("0")
    model = nn.Sequential(nn.Linear(64, 64, bias=False))
    load_with_patterns(model, state)
    assert isinstance(model[0], BlockSparseLinear)
    for key, item in model.state_dict().items():
        assert item.data_ptr() != state[key].data_ptr(), key
    state["0.col"] = state["0.col"] + 4
    with pytest.raises(UnsupportedInput, match="0: col holds"):
        load_with_patterns(nn.Sequential(nn.Linear(64, 64, bias=False)), state)


def test_unsorted_blocks_of_a_checkpoint_are_taken_by_linear_layers_too() -> None:
    parts = (torch.randn(3, 16, 16), torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]))
    saved = nn.Sequential(BlockSparseLinear(BlockSparseMatrix.from_parts(*parts, (32, 32), allow_unsorted=True)))
    model = nn.Sequential(nn.Linear(32, 32, bias=False))
    load_with_patterns(model, saved.state_dict())
    x = torch.randn(5, 32)
    assert torch.equal(model(x), saved(x))


def encoder() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)


def test_an_encoder_that_took_patterns_still_runs_in_evaluation_mode() -> None:
    saved, model = encoder(), encoder()
    sparsify_(saved, block=16, density=0.5)
    taken = load_with_patterns(model, saved.state_dict())
    assert taken == ("layers.0.linear1", "layers.0.linear2", "layers.1.linear1", "layers.1.linear2")
    x = torch.randn(2, 5, 64)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    with torch.no_grad():
        wanted = saved.eval()(x)
        assert torch.equal(model.eval()(x), wanted)
        torch.testing.assert_close(model(x, src_key_padding_mask=padding), wanted)


def blocks_for(name: str, *, out: int = 64) -> dict[str, Any]:
    """The state dict of one block-sparse layer [out, 64] without a bias, under this name."""
    layer = BlockSparseLinear(BlockSparseMatrix.random(out, 64, block=16, density=0.5))
    return {f"{name}.{key}" if name else key: item for key, item in layer.state_dict().items()}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.head.weight = self.embedding.weight


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64, bias=False))
    model[0].register_forward_hook(lambda *given: None)
    return model


@pytest.mark.parametrize(
    ("model", "name", "why"),
    [
        (nn.MultiheadAttention(64, 4), "out_proj", "it is a NonDynamicallyQuantizableLinear, whose owner reads"),
        (nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(64, 64))), "0", "its weight is parametrized"),
        (Tied(), "head", "its weight is shared with another module"),
        (hooked(), "0", "it has hooks"),
        (nn.Sequential(nn.Linear(64, 64, device="meta")), "0", "its weight has no data yet"),
        (nn.Linear(64, 64), "", "the model: .* it is the model itself"),
    ],
)
def test_blocks_for_a_layer_that_cannot_be_replaced_are_refused(model: nn.Module, name: str, why: str) -> None:
    first = nn.Linear(64, 64)
    whole = nn.ModuleDict({"first": first, "rest": model}) if name else model
    state = {**blocks_for("first"), **blocks_for(f"rest.{name}")} if name else blocks_for("")
    with pytest.raises(UnsupportedInput, match=rf"{'rest.' + name if name else ''}.*{why}"):
        load_with_patterns(whole, state, strict=False)
    assert not any(isinstance(module, BlockSparseLinear) for module in whole.modules())


def test_what_was_frozen_stays_frozen_with_the_patterns_of_a_checkpoint() -> None:
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    first.weight.requires_grad = second.bias.requires_grad = False
    model = nn.Sequential(first, second)
    load_with_patterns(model.eval(), {**blocks_for("0"), **blocks_for("1")}, strict=False)
    assert {name: item.requires_grad for name, item in model.named_parameters()} == {
        "0.values": False, "0.bias": True, "1.values": True, "1.bias": False,
    }  # fmt: skip
    assert not model[0].training


class Twice(nn.Module):
    """One layer under two names."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.up = self.again = layer


def test_a_layer_under_two_names_stays_one_layer() -> None:
    layer = BlockSparseLinear(BlockSparseMatrix.random(64, 64, block=16, density=0.5), torch.randn(64))
    other = BlockSparseLinear(BlockSparseMatrix.random(64, 64, block=16, density=0.1), torch.zeros(64))
    for model in (Twice(nn.Linear(64, 64)), Twice(other)):
        assert load_with_patterns(model, Twice(layer).state_dict()) == ("up", "again")
        assert isinstance(model.up, BlockSparseLinear)
        assert model.up is model.again
        assert torch.equal(model.up.matrix.to_dense(), layer.matrix.to_dense())
    with pytest.raises(RuntimeError, match="again: the checkpoint has another pattern"):
        load_with_patterns(Twice(nn.Linear(64, 64)), {**Twice(layer).state_dict(), **blocks_for("again")})


def test_keys_that_fit_no_layer_are_named_by_torch() -> None:
    saved = nn.Sequential(BlockSparseLinear(BlockSparseMatrix.random(64, 96, block=16, density=0.3)))
    state = {f"other.{key}": item for key, item in saved.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other\.0\.values"):
        load_with_patterns(nn.Sequential(nn.Linear(96, 64)), state)
