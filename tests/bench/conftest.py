"""Results that are kept for `firstlight handover` go to a folder of the tests, not to that of whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield
