"""How long `firstlight check` takes beside `firstlight --help`: medians of whole processes.

python -m benchmarks.check_speed --lock firstlight.lock [--python PATH] [--runs 20] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """One run: seconds by the clock, seconds of processor, exit code."""

    clock_s: float
    processor_s: float
    code: int


def took(*words: str) -> Took:
    """One run of firstlight."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "firstlight", *words], capture_output=True, check=False)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(time.perf_counter() - started, busy, done.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    words = ("check", "--lock", given.lock, *(("--python", given.python) if given.python else ()))
    checks: list[Took] = []
    helps: list[Took] = []
    for _ in range(given.runs):  # one after the other, so that both see the same machine
        checks.append(took(*words))
        helps.append(took("--help"))
    document = {
        "what": "whole processes of `firstlight check` and `firstlight --help`, alternating",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "runs": given.runs,
        "check_median_s": round(statistics.median(each.clock_s for each in checks), 3),
        "check_best_s": round(min(each.clock_s for each in checks), 3),
        "check_processor_median_s": round(statistics.median(each.processor_s for each in checks), 3),
        "help_median_s": round(statistics.median(each.clock_s for each in helps), 3),
        "help_processor_median_s": round(statistics.median(each.processor_s for each in helps), 3),
        "check_exit_codes": sorted({each.code for each in checks}),
    }
    text = json.dumps(document, indent=1) + "\n"
    if given.out:
        Path(given.out).write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
