"""PyTorch's own tree, for as much of it as is ever compiled here: configured, and its target c10 built.

Run by hand (it fetches some 700 MB and takes a quarter of an hour): pytest -m slow tests/system/test_build_pytorch.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.build.pytorch_c10 import KILLED_AT, DebianRoot, killed_and_resumed

pytestmark = [
    pytest.mark.system,
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("debootstrap") is None or os.geteuid() != 0, reason="needs debootstrap and root"),
]


def test_c10_of_pytorch_1_13_1_is_killed_and_gone_on_with(tmp_path: Path) -> None:
    root = DebianRoot(tmp_path / "root")
    root.make()
    found = killed_and_resumed(root)
    assert found["exit_code"] == 0, found["said"]
    assert found["objects_configured"] > 1000
    assert found["objects_at_the_kill"] >= KILLED_AT
    assert found["objects_of_c10"] == 67
    assert found["library"]
    assert found["compiled_again"] == []
