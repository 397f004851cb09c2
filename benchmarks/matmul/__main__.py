"""python -m benchmarks.matmul; see run.py."""

from __future__ import annotations

from benchmarks.matmul.run import main

main()
