"""`apply --dry-run 2>&1 | head -8`, fifty times: one exit code, whoever is faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

TIMES = 50
LINE = f"{sys.executable} -m firstlight apply --dry-run --no-verify %s 2>&1 | head -8 > /dev/null; echo $PIPESTATUS"


def test_fifty_dry_runs_into_head_end_the_same(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state")}
    for words in ("", "--want torch==0.0.1"):  # a plan; and nothing that can work, which is 1 or 2
        ended = {
            subprocess.run(
                ["bash", "-c", LINE % words], env=environ, capture_output=True, text=True, check=False
            ).stdout.strip()
            for _ in range(TIMES // 2)
        }
        assert len(ended) == 1, (words, ended)
