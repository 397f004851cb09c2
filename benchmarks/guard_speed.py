"""How long one call of `firstlight guard --hook` takes beside `firstlight --help`, taken in turns in one run.

python -m benchmarks.guard_speed [--out results/guard-speed.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firstlight.guard.corpus import lay_out, load_corpus
from firstlight.guard.hooks import TOOLS, asked_in

CALLS = 50
PROGRAM = [str(Path(sys.executable).parent / "firstlight")]


def _once(arguments: list[str], data: bytes, folder: str) -> float:
    before = time.perf_counter()
    subprocess.run([*PROGRAM, *arguments], input=data, capture_output=True, cwd=folder, check=False)
    return (time.perf_counter() - before) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="")
    out = parser.parse_args().out
    section = load_corpus()[0]
    texts = [action.text for action in section.actions if action.kind == "shell"]
    with tempfile.TemporaryDirectory() as folder:
        lay_out(section, folder)
        times: dict[str, list[float]] = {"--help": [], **{f"--hook {tool}": [] for tool in TOOLS}}
        for number in range(CALLS):
            text = texts[number * len(texts) // CALLS]
            times["--help"].append(_once(["--help"], b"", folder))
            for tool in TOOLS:
                times[f"--hook {tool}"].append(
                    _once(["guard", "--hook", tool], asked_in(tool, "shell", text, folder), folder)
                )
    medians = {name: round(statistics.median(each), 1) for name, each in times.items()}
    document = {
        "calls": CALLS,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "median_ms": medians,
        "times_help": {name: round(each / medians["--help"], 2) for name, each in medians.items()},
        "samples_ms": {name: [round(value, 1) for value in each] for name, each in times.items()},
    }
    if out:
        Path(out).write_text(json.dumps(document) + "\n")
    print(json.dumps({key: document[key] for key in ("median_ms", "times_help")}, indent=1))


if __name__ == "__main__":
    main()
