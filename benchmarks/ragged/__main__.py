"""python -m benchmarks.ragged; see run.py."""

from __future__ import annotations

from benchmarks.ragged.run import main

main()
