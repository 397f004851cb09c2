"""The kernels that make lists of a mask give those written out block by block, both ways, and the order of a sort."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
AT_LEAST = 46  # cases; fewer would mean that the script ended early


def test_lists_made_by_kernels_are_those_written_out() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    case = [sys.executable, str(HERE / "att_triton_lists_cases.py")]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) >= AT_LEAST
    assert [case for case in seen if case["wrong"]] == []
