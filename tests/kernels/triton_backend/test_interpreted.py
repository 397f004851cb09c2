"""The kernels give the reference's numbers on small, odd shapes, in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("interpreted_cases.py")
AT_LEAST = 50  # cases; fewer would mean that the script ended early


def test_every_product_in_the_interpreter_is_the_reference_s() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(CASES)], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) >= AT_LEAST
    assert [case for case in seen if case["wrong"]] == []
