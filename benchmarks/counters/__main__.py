"""python -m benchmarks.counters; see run.py."""

from __future__ import annotations

import sys

from benchmarks.counters.run import main

sys.exit(main())
