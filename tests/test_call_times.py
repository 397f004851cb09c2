"""Processor times of calls are taken in turns, and one that fails leaves the others."""

from __future__ import annotations

import time

import pytest
import torch
from benchmarks.call_times import ROUNDS, call_times


def test_calls_take_turns_and_the_slower_one_is_seen_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("b")
        time.sleep(2e-4)

    found = call_times({"a": lambda: order.append("a"), "b": slow}, on_gpu=False)
    in_rounds = order[4:]  # two warm calls of each
    assert in_rounds == ["a", "a", "b", "b"] * ROUNDS
    assert len(found["calls"]["a"]["samples_us"]) == len(found["calls"]["b"]["samples_us"]) == ROUNDS
    assert found["calls"]["b"]["min_us"] >= 200 > found["calls"]["a"]["min_us"]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["a", "b"]


def test_gradients_are_recorded_where_the_name_says_so() -> None:
    seen: dict[str, bool] = {}
    names = ("linear", "with gradients: linear", "forward and backward: linear")
    call_times({name: lambda name=name: seen.update({name: torch.is_grad_enabled()}) for name in names}, on_gpu=False)  # type: ignore[misc]
    assert list(seen.values()) == [False, True, True]


def test_a_call_that_fails_is_named_in_its_place_and_the_others_are_timed() -> None:
    found = call_times({"bad": lambda: 1 // 0, "good": lambda: None}, on_gpu=False)["calls"]
    assert list(found) == ["bad", "good"]
    assert found["bad"] == {"error": "ZeroDivisionError: integer division or modulo by zero"}
    assert found["good"]["median_us"] > 0
