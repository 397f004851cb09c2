"""The kernels that make lists of a mask, and choose its blocks by scores, give what plain Python and torch give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LISTS, CHOICES = 47, 120  # at least as many cases; fewer would mean that a script ended early


def cases_of(script: str) -> list[dict[str, str]]:
    """What a script prints that Triton's interpreter runs, a case in each line."""
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, str(HERE / script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_lists_made_by_kernels_are_those_written_out() -> None:
    seen = cases_of("att_triton_lists_cases.py")
    assert len(seen) >= LISTS
    assert [case for case in seen if case["wrong"]] == []


def test_blocks_chosen_by_the_kernel_are_those_of_a_stable_sort() -> None:
    seen = cases_of("att_triton_select_cases.py")
    assert len(seen) >= CHOICES
    assert [case for case in seen if case["wrong"]] == []
