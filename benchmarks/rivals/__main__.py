"""python -m benchmarks.rivals; see run.py."""

from __future__ import annotations

from benchmarks.rivals.run import main

main()
