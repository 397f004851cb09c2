"""Kept results: found by the very tensors, missed after a change, gone with them."""

from __future__ import annotations

import gc

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from firstlight.kernels.lifetimes import held_after
from firstlight.kernels.memo import TensorMemo, being_captured, keepable


def test_a_value_is_found_by_the_very_tensors_and_tag() -> None:
    memo: TensorMemo[str] = TensorMemo()
    a, b = torch.zeros(2), torch.zeros(2)
    memo.put(a, b, "kept", tag=1)
    assert memo.get(a, b, 1) == "kept"
    assert memo.get(b, a, 1) is None
    assert memo.get(a, b, 2) is None
    assert memo.get(a, b.clone(), 1) is None


def test_a_change_of_either_tensor_is_a_miss_until_a_new_value_is_kept() -> None:
    memo: TensorMemo[int] = TensorMemo()
    a, b = torch.zeros(2), torch.zeros(2)
    for number, changed in enumerate((a, b)):
        memo.put(a, b, number)
        assert memo.get(a, b) == number
        changed.add_(1)
        assert memo.get(a, b) is None
    assert len(memo) == 1


def test_a_value_goes_with_either_tensor() -> None:
    memo: TensorMemo[int] = TensorMemo()
    a, b = torch.zeros(2), torch.zeros(2)
    memo.put(a, b, 1)
    memo.put(a, a, 2)
    del b
    gc.collect()
    assert len(memo) == 1
    del a
    gc.collect()
    assert len(memo) == 0


def test_forgetting_a_tensor_drops_its_values_alone() -> None:
    memo: TensorMemo[int] = TensorMemo()
    a, b, c = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    memo.put(a, b, 1)
    memo.put(c, c, 2)
    memo.forget(b)
    assert memo.get(a, b) is None
    assert memo.get(c, c) == 2


def test_nothing_is_kept_beside_tensors_that_do_not_count_changes() -> None:
    memo: TensorMemo[int] = TensorMemo()
    with torch.inference_mode():
        a = torch.zeros(2)
    memo.put(a, a, 1)
    assert memo.get(a, a) is None
    assert len(memo) == 0


def test_an_alias_in_the_value_does_not_keep_the_tensor_alive() -> None:
    memo: TensorMemo[torch.Tensor] = TensorMemo()
    a = torch.zeros(2)
    memo.put(a, a, a.detach())
    del a
    gc.collect()
    assert len(memo) == 0


def test_what_has_no_numbers_is_not_kept_beside_what_has() -> None:
    real = torch.zeros(2)
    with FakeTensorMode():
        fake = torch.zeros(2)
    assert keepable(real, real)
    assert keepable(fake, fake)
    assert not keepable(real, fake)


def test_on_the_processor_nothing_is_captured_and_nobody_waits() -> None:
    assert not being_captured(torch.zeros(2))
    assert held_after(torch.zeros(2)) is None


def test_what_torch_func_wraps_is_not_kept() -> None:
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(keepable(real, x * 2))
        return x.sum()

    real = torch.zeros(2)
    torch.func.grad(look)(real)
    assert seen == [False]
