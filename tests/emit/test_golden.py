"""Every kind for eight recorded machines, byte by byte."""

from __future__ import annotations

import pytest

from tools.make_emitted import GOLDEN, MACHINES, golden_files


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_emitted_is_what_is_kept(machine: str) -> None:
    made = dict(golden_files(machine))
    kept = {str(path.relative_to(GOLDEN)): path.read_text() for path in (GOLDEN / machine).rglob("*") if path.is_file()}
    assert made == kept, "run: python -m tools.generate emitted"
