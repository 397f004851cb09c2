"""Settings of the kernel tests: one thread, a fixed seed, and warnings that come once come anew in each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from firstlight.kernels import checks


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the tests' products are too small to be worth sharing
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _warnings_come_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_WARNED", set())
