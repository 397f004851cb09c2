"""The kernels that these tests compile are kept."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def kernels_kept(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is kept among the tests' own files."""
    assert pytestconfig.cache is not None
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(pytestconfig.cache.mkdir("sm90")))
