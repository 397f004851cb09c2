"""The attention kernels give float64's numbers on small, odd shapes, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
AT_LEAST = 30  # cases; fewer would mean that the script ended early


def test_every_forward_and_backward_pass_in_the_interpreter_is_float64_s() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    case = [sys.executable, str(HERE / "att_triton_cases.py")]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) >= AT_LEAST
    assert [case for case in seen if case["wrong"]] == []
