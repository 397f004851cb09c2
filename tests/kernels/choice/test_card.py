"""What a card can do at its peak: asked of the driver, and without one taken for an ordinary card's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from firstlight.errors import UnsupportedInput
from firstlight.kernels.choice import card
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.rows import Card
from firstlight.kernels.choice.speeds import Speeds
from firstlight.kernels.sm90 import libcuda
from tests.kernels.choice.measured import H100, H200

ANSWERS = {card.CLOCK_KHZ: 1_980_000, card.MEMORY_CLOCK_KHZ: 3_201_000, card.MEMORY_BUS_BITS: 6016}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's word on an H200."""
    told = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: told)
    card_of.cache_clear()
    yield
    card_of.cache_clear()


def test_clock_and_bandwidth_are_the_drivers(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(name: str, target: Any, *rest: Any) -> None:
        if name == "cuDeviceGetAttribute":
            target._obj.value = ANSWERS[rest[0]]

    monkeypatch.setattr(libcuda, "call", call)
    assert card_of(0) == Card("NVIDIA H200", "9.0", 132, 1980.0, 4814.3)  # as an H200 said it


def test_without_a_driver_of_nvidias_an_ordinary_card_is_taken(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(name: str, *given: Any) -> None:
        raise UnsupportedInput("libcuda.so.1 cannot be loaded")

    monkeypatch.setattr(libcuda, "call", call)
    found = card_of(0)
    assert (found.clock_mhz, found.bandwidth_gbs) == (card.UNKNOWN_CLOCK_MHZ, card.UNKNOWN_BANDWIDTH_GBS)


def test_peaks_are_what_datasheets_say() -> None:
    h200, h100 = Speeds.of(H200, "bfloat16"), Speeds.of(H100, "bfloat16")
    assert h200.flops_us * 1e6 == pytest.approx(1.07e15, rel=0.01)  # at 1980 MHz; 989e12 at 1830
    assert h200.bytes_us / h100.bytes_us == pytest.approx(4814.3 / 3352.3)
    assert h200.flops_us == 2 * Speeds.of(H200, "tf32").flops_us
