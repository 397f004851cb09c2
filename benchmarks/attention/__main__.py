"""python -m benchmarks.attention; see run.py."""

from __future__ import annotations

from benchmarks.attention.run import main

main()
