"""Dense copies of values: none is kept unasked, and one that was asked for is never old where torch could know."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from firstlight.kernels import BlockSparseMatrix, UnsupportedInput, dense, explain_choice, linear
from firstlight.kernels.convert import scatter
from firstlight.kernels.nn import BlockSparseLinear

Change = Callable[[Tensor], None]


def by_numpy(values: Tensor) -> None:
    values.detach().numpy()[:] *= -2.0


def by_data(values: Tensor) -> None:
    values.data.mul_(-2.0)


def by_dlpack(values: Tensor) -> None:
    from_dlpack(values.detach()).mul_(-2.0)


def by_foreach(values: Tensor) -> None:
    with torch.no_grad():
        torch._foreach_mul_([values], -2.0)


def layer_and_input() -> tuple[BlockSparseLinear, Tensor]:
    return BlockSparseLinear(BlockSparseMatrix.random(64, 96, block=16, density=0.6)), torch.randn(5, 96)


def right(layer: BlockSparseLinear, x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(layer(x), x @ layer.matrix.to_dense().T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["dense", "auto"])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_of_a_fused_optimizer_is_seen_by_the_evaluation_after_it(
    optimizer: type[torch.optim.Optimizer], backend: str
) -> None:
    layer, x = layer_and_input()
    layer.backend = backend
    steps = optimizer(layer.parameters(), lr=0.5, fused=True)  # type: ignore[call-arg]
    for _ in range(3):
        right(layer, x)
        layer(x).square().sum().backward()
        steps.step()
        steps.zero_grad()
    right(layer, x)


@pytest.mark.parametrize("change", [by_numpy, by_data, by_dlpack, by_foreach])
@pytest.mark.parametrize("trained", [True, False])
def test_a_change_that_no_counter_sees_is_seen(change: Change, trained: object) -> None:
    layer, x = layer_and_input()
    layer.backend = "dense"
    layer.values.requires_grad_(bool(trained))
    for _ in range(3):
        right(layer, x)
        change(layer.values)
    right(layer, x)


def copies_made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []

    def counted(*given: object, **named: object) -> Tensor:
        made.append(given)
        return scatter(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(dense, "scatter", counted)
    return made


def test_a_kept_copy_serves_all_calls_and_follows_changes_that_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input()
    layer.backend = "dense"
    layer.requires_grad_(requires_grad=False)
    layer.keep_dense()
    made = copies_made(monkeypatch)
    for _ in range(3):
        right(layer, x)
    assert made == []
    with torch.no_grad():
        layer.values.mul_(3.0)
    for _ in range(3):
        right(layer, x)
    assert len(made) == 1
    layer.forget_dense()
    right(layer, x)
    right(layer, x)
    assert len(made) == 3


def test_values_that_are_trained_are_not_kept_and_those_trained_again_lose_their_copy() -> None:
    layer, x = layer_and_input()
    layer.backend = "dense"
    with pytest.raises(UnsupportedInput, match=r"values require a gradient.*requires_grad_\(False\) first"):
        layer.keep_dense()
    layer.requires_grad_(requires_grad=False)
    layer.keep_dense()
    assert len(layer.matrix.pattern.dense_copies) == 1
    layer.requires_grad_()
    steps = torch.optim.SGD(layer.parameters(), lr=0.5, fused=True)
    layer(x).square().sum().backward()
    steps.step()
    right(layer, x)
    assert len(layer.matrix.pattern.dense_copies) == 0


def test_a_kept_copy_is_no_part_of_a_state_dict_and_follows_what_is_loaded() -> None:
    layer, x = layer_and_input()
    layer.backend = "dense"
    layer.requires_grad_(requires_grad=False)
    before = set(layer.state_dict())
    layer.keep_dense()
    assert set(layer.state_dict()) == before
    for assign in (False, True):
        state = {**layer.state_dict(), "values": torch.randn_like(layer.values)}
        layer.load_state_dict(state, assign=assign)
        right(layer, x)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        twin.values.zero_()
    right(twin, x)
    right(layer, x)
    layer.to(torch.float64)
    right(layer, x.double())


def test_a_kept_copy_goes_with_its_layer() -> None:
    layer, _ = layer_and_input()
    layer.requires_grad_(requires_grad=False)
    layer.keep_dense()
    pattern = layer.matrix.pattern
    del layer
    gc.collect()
    assert len(pattern.dense_copies) == 0


def test_a_new_parameter_over_the_same_pattern_has_no_copy_of_the_old_one() -> None:
    layer, x = layer_and_input()
    layer.backend = "dense"
    layer.requires_grad_(requires_grad=False)
    layer.keep_dense()
    layer.values = nn.Parameter(torch.randn_like(layer.values), requires_grad=False)
    right(layer, x)


def test_values_made_in_inference_mode_are_refused() -> None:
    w = BlockSparseMatrix.random(32, 32, block=16, density=0.5)
    with torch.inference_mode():
        made = w.with_values(torch.randn_like(w.values))
        with pytest.raises(UnsupportedInput, match="made in inference mode"):
            made.keep_dense()


def test_what_auto_took_is_chosen_anew_when_a_copy_comes_or_goes() -> None:
    w, x = BlockSparseMatrix.random(64, 64, block=16, density=0.5), torch.randn(4, 64)
    linear(x, w)
    assert w.pattern.calls
    w.keep_dense()
    assert not w.pattern.calls
    assert not w.pattern.backends
    torch.testing.assert_close(linear(x, w), x @ w.to_dense().T)
    w.forget_dense()
    assert not w.pattern.calls
    assert explain_choice(w, 4).backend == "dense"
