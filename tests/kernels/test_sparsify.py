"""sparsify_: which layers it replaces, which it keeps and why; and pruning further while training."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from firstlight.kernels import UnsupportedInput
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import block_scores, keep_best
from firstlight.kernels.sparsify import prune_further_, sparsify_


class Model(nn.Module):
    """Layers of every kind that sparsify_ tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 128)
        self.up = nn.Linear(128, 256)
        self.down = nn.Linear(256, 128, bias=False)
        self.small = nn.Linear(16, 16)
        self.hooked = nn.Linear(128, 128)
        self.hooked.register_forward_hook(lambda *given: None)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(128, 128))
        self.attention = nn.MultiheadAttention(128, 4)
        self.head = nn.Linear(128, 64, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.down(torch.relu(self.up(x)))
        out: Tensor = self.head(self.hooked(x))
        return out


def test_every_layer_is_accounted_for_with_the_reason() -> None:
    model = Model()
    report = sparsify_(model, block=32, density=0.25)
    done = {layer.name: (layer.done, layer.why) for layer in report.layers}
    assert done == {
        "up": ("sparsified", "8 of 32 blocks"),
        "down": ("sparsified", "8 of 32 blocks"),
        "small": ("kept", "it has 1 blocks of 32; fewer than 16 gain nothing"),
        "hooked": ("kept", "it has hooks, which a new layer would lose"),
        "normed": ("kept", "its weight is parametrized"),
        "attention.out_proj": ("kept", "it is a NonDynamicallyQuantizableLinear, whose owner reads its weight"),
        "head": ("kept", "its weight is shared with another module"),
    }
    assert isinstance(model.up, BlockSparseLinear)
    assert type(model.head) is nn.Linear
    assert report.parameters_before - report.parameters_after == 2 * (128 * 256) * 3 // 4
    assert "up" in str(report)
    assert model(torch.randint(0, 64, (2, 7))).shape == (2, 7, 64)


class Shared(nn.Module):
    """One layer under two names, and two layers with one bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = self.first
        self.left = nn.Linear(64, 64)
        self.right = nn.Linear(64, 64)
        self.right.bias = self.left.bias


def test_shared_layers_and_shared_biases_are_kept() -> None:
    model = Shared()
    report = sparsify_(model, block=16, density=0.5)
    assert {layer.name: (layer.done, layer.why) for layer in report.layers} == {
        "first": ("kept", "it is shared: first and second are one layer"),
        "left": ("kept", "its bias is shared with another module"),
        "right": ("kept", "its bias is shared with another module"),
    }
    assert model.first is model.second
    assert type(model.first) is nn.Linear
    assert model.left.bias is model.right.bias


def test_a_layer_below_a_shared_parent_is_replaced_there_once() -> None:
    block = nn.Sequential(nn.Linear(64, 64))
    model = nn.ModuleList([block, block])
    assert [layer.why for layer in sparsify_(model, block=16, density=0.5, skip=["1.0"]).layers] == [
        "it matches the skip pattern 1.0"
    ]
    report = sparsify_(model, block=16, density=0.5)
    assert [(layer.name, layer.done) for layer in report.layers] == [("0.0", "sparsified")]
    assert isinstance(block[0], BlockSparseLinear)
    assert model[0] is model[1] is block


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "computed",
    [
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),  # type: ignore[no-untyped-call]
        lambda layer: nn.utils.weight_norm(layer),
        lambda layer: nn.utils.spectral_norm(layer),
    ],
)
def test_a_weight_that_a_hook_computes_is_kept(computed: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    computed(model[0])
    [layer] = sparsify_(model, block=16, density=0.5).layers
    assert layer.done == "kept"
    assert "its weight is computed by a hook" in layer.why
    assert model(torch.randn(3, 64)).shape == (3, 64)


def test_the_largest_blocks_are_kept_with_their_values() -> None:
    model = nn.Sequential(nn.Linear(128, 256))
    first = model[0]
    assert isinstance(first, nn.Linear)
    weight, bias = first.weight.detach().clone(), first.bias.detach().clone()
    sparsify_(model, block=32, density=0.25)
    mask = keep_best(block_scores(weight, block=32), density=0.25)
    kept = weight * mask.repeat_interleave(32, 0).repeat_interleave(32, 1)
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    assert torch.equal(layer.matrix.to_dense(), kept)
    x = torch.randn(3, 128)
    torch.testing.assert_close(model(x), x @ kept.T + bias)


def test_skip_takes_names_and_patterns_and_method_takes_a_function() -> None:
    model = nn.ModuleDict({name: nn.Linear(128, 128) for name in ("a1", "a2", "b")})
    asked: list[tuple[str, int, float]] = []

    def diagonal(name: str, weight: Tensor, block: int, density: float) -> Tensor:
        asked.append((name, block, density))
        return torch.eye(weight.shape[0] // block, weight.shape[1] // block, dtype=torch.bool)

    report = sparsify_(model, block=32, density=0.25, method=diagonal, skip=["a*"])
    assert asked == [("b", 32, 0.25)]
    assert [layer.done for layer in report.layers] == ["kept", "kept", "sparsified"]
    assert "skip pattern a*" in report.layers[0].why


def test_rows_and_random_masks() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128))
    sparsify_(model, block=16, density=0.25, scope="row", skip=["1"])
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    assert (layer.crow.diff() == 2).all()
    sparsify_(model, block=16, density=0.25, method="random")
    other = model[1]
    assert isinstance(other, BlockSparseLinear)
    assert other.values.shape[0] == 16


def test_an_encoder_layer_still_runs_in_evaluation_mode() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 2, 256, batch_first=True), 2).eval()
    report = sparsify_(model, block=16, density=0.5)
    assert "fused inference path is off" in str(report)
    x = torch.randn(2, 5, 64)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    with torch.no_grad():
        found = model(x)
        torch.testing.assert_close(model(x, src_key_padding_mask=padding), found)
    assert found.shape == (2, 5, 64)


def test_what_was_frozen_stays_frozen() -> None:
    model = nn.Sequential(nn.Linear(128, 128))
    model.requires_grad_(requires_grad=False)
    sparsify_(model.eval(), block=16, density=0.5)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model[0].training


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_pruning_further_carries_the_optimizers_state_over(kind: type[torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    sparsify_(model, block=16, density=1.0)
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    more: dict[str, Any] = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=1e-2, **more)  # type: ignore[call-arg]
    name = "momentum_buffer" if kind is torch.optim.SGD else "exp_avg"

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(8, 64)).square().sum())
        optimizer.step()

    step()
    scores = layer.values.detach().abs().sum((1, 2))
    kept = keep_best(scores.view(1, -1), density=0.25).view(-1)
    values, state = layer.values.detach()[kept], optimizer.state[layer.values][name][kept]
    assert prune_further_(layer, density=0.25, optimizer=optimizer) == 12
    assert torch.equal(layer.values, values)
    assert torch.equal(optimizer.state[layer.values][name], state)
    before = layer.values.detach().clone()
    step()
    assert not torch.equal(layer.values, before)
    assert prune_further_(layer, density=0.5, optimizer=optimizer) == 0


class Factored(torch.optim.SGD):
    """Keeps sums over rows and columns of each block in two dimensions, as Adafactor does in transformers."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            if parameter.dim() == 3:
                found = self.state[parameter]
                for name, side in (("row", 2), ("column", 1)):
                    found[name] = found.get(name, 0) + parameter.grad.square().sum(side)
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.Adagrad, Factored])
def test_factored_statistics_are_cut_with_their_blocks(kind: type[torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    sparsify_(model, block=16, density=1.0)  # 16 blocks of 16: the number of blocks is also their size
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    optimizer = kind(model.parameters(), lr=1e-2)  # type: ignore[call-arg]
    for density in (0.75, 0.5):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(8, 64)).square().sum())
        optimizer.step()
        kept = keep_best(layer.values.detach().abs().sum((1, 2)).view(1, -1), density=density * 16 / len(layer.values))
        before = {name: item.clone() for name, item in optimizer.state[layer.values].items() if item.dim() > 1}
        prune_further_(layer, density=density, optimizer=optimizer)
        for name, item in before.items():
            assert torch.equal(optimizer.state[layer.values][name], item[kept.view(-1)]), name
        assert before


def test_pruning_between_backward_and_step_keeps_the_gradient() -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    sparsify_(model, block=16, density=1.0)
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.autograd.backward(model(torch.randn(8, 64)).square().sum())
    gradient = layer.values.grad
    assert gradient is not None
    kept = keep_best(layer.values.detach().abs().sum((1, 2)).view(1, -1), density=0.25).view(-1)
    wanted = layer.values.detach()[kept] - 0.5 * gradient[kept]
    prune_further_(layer, density=0.25, optimizer=optimizer)
    optimizer.step()
    torch.testing.assert_close(layer.values.detach(), wanted)


def test_the_example_prunes_and_trains_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "prune_and_finetune.py"
    example = runpy.run_path(str(path), run_name="example")
    short = example["Settings"](64, 1, 16, 8, 8, dense_steps=3, sparse_steps=30)
    monkeypatch.setitem(example["main"].__globals__, "PROCESSOR", short)
    monkeypatch.setattr("sys.argv", ["prune_and_finetune.py", "--density", "0.5"])
    example["main"]()
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if "loss" in line] == ["dense", "pruned", "fine-tuned"]
    assert "at density 0.5" in printed


def test_mistakes_are_named() -> None:
    model = nn.Sequential(nn.Linear(128, 128))
    with pytest.raises(UnsupportedInput, match="method is 'movement'"):
        sparsify_(model, block=16, density=0.5, method="movement")
    with pytest.raises(UnsupportedInput, match="block is 48"):
        sparsify_(model, block=48, density=0.5)
    with pytest.raises(UnsupportedInput, match=r"method returned \[2, 2\]"):
        sparsify_(model, block=16, density=0.5, method=lambda *given: torch.ones(2, 2, dtype=torch.bool))
    sparsify_(model, block=16, density=0.5)
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    with pytest.raises(UnsupportedInput, match="does not hold the values"):
        prune_further_(layer, density=0.1, optimizer=torch.optim.SGD([nn.Parameter(torch.zeros(1))]))
    assert layer.density == 0.5  # refused before anything was dropped
    assert "cannot be replaced inside" in sparsify_(nn.Linear(128, 128), block=16, density=0.5).layers[0].why


@pytest.mark.parametrize("skip", ["head", ["nosuch"], ["hea"]])
def test_a_skip_that_would_skip_nothing_is_refused(skip: object) -> None:
    model = nn.ModuleDict({"body": nn.Linear(128, 128), "head": nn.Linear(128, 128)})
    with pytest.raises(UnsupportedInput, match="skip"):
        sparsify_(model, block=16, density=0.25, skip=skip)  # type: ignore[arg-type]
    assert isinstance(model["head"], nn.Linear)
