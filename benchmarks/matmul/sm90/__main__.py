"""python -m benchmarks.matmul.sm90; see run.py."""

from __future__ import annotations

from benchmarks.matmul.sm90.run import main

main()
