"""What it costs to define a frozen, slotted dataclass of six fields: the standard decorator against firstlight.frozen.

python benchmarks/dataclass_cost.py --out results/dataclass-cost.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firstlight import frozen

RUNS, CLASSES = 11, 50
FIELDS = {f"field_{index}": "int" for index in range(6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    makers: dict[str, Callable[..., Any]] = {
        "dataclasses": dataclasses.dataclass,
        "firstlight.frozen": frozen.dataclass,
    }
    samples: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(RUNS):
        for name, make in makers.items():
            start = time.perf_counter()
            for index in range(CLASSES):
                make(frozen=True, slots=True)(type(f"Made{index}", (), {"__annotations__": dict(FIELDS)}))
            samples[name].append((time.perf_counter() - start) / CLASSES * 1e6)
    document = {
        "schema": "firstlight.speed/1",
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "method": f"us a class, {CLASSES} classes of {len(FIELDS)} fields, median of {RUNS} interleaved rounds",
        "median_us": {name: round(statistics.median(times), 1) for name, times in samples.items()},
        "samples_us": {name: [round(value, 2) for value in times] for name, times in samples.items()},
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["median_us"]))


if __name__ == "__main__":
    main()
