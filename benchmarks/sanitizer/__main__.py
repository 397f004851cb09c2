"""python -m benchmarks.sanitizer; see run.py."""

from __future__ import annotations

import sys

from benchmarks.sanitizer.run import main

sys.exit(main())
