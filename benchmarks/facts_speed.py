"""How long `firstlight facts` and `firstlight --help` take, against `python -c pass` and torch's collect_env.

    python benchmarks/facts_speed.py --out results/facts-speed-<machine>.json [--collect-env]

Every figure is the median of 11 runs in one process tree, interleaved, so that a slow spell hits all of them. The
package is compiled to bytecode first, as an installer does. `--collect-env` adds `python -m torch.utils.collect_env`
(needs torch). The 20 and 400 package figures look at two made environments that differ in that number alone.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 11


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--collect-env", action="store_true")
    parser.add_argument("--commit", default="", help="of the code that runs, where it is not a checkout")
    parser.add_argument("--name", default="", help="what this machine is called in the results")
    options = parser.parse_args()
    compileall.compile_dir(str(ROOT / "src"), quiet=1)
    with tempfile.TemporaryDirectory() as scratch:
        few, many = (_environment(Path(scratch) / f"env-{count}", count) for count in (20, 400))
        firstlight = [sys.executable, "-m", "firstlight"]
        cases = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "firstlight --help": [*firstlight, "--help"],
            "firstlight facts": [*firstlight, "facts"],
            "firstlight facts --json": [*firstlight, "facts", "--json"],
            "firstlight facts, 20 packages": [*firstlight, "facts", "--python", str(few)],
            "firstlight facts, 400 packages": [*firstlight, "facts", "--python", str(many)],
        }
        samples = _interleaved(cases, RUNS)
    if options.collect_env:
        samples |= _interleaved({"torch.utils.collect_env": [sys.executable, "-m", "torch.utils.collect_env"]}, 3)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    bare = medians["python -c pass"]
    document = {
        "schema": "firstlight.speed/1",
        "machine": options.name or platform.machine(),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
        "cores": os.cpu_count(),
        "commit": options.commit or _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "method": f"wall time of the process, median of {RUNS} interleaved runs (collect_env: 3), bytecode compiled",
        "median_ms": {name: round(value * 1e3, 1) for name, value in medians.items()},
        "times_python_pass": {name: round(value / bare, 2) for name, value in medians.items()},
        "samples_ms": {name: [round(value * 1e3, 2) for value in times] for name, times in samples.items()},
    }
    if "torch.utils.collect_env" in medians:
        ratio = medians["torch.utils.collect_env"] / medians["firstlight facts"]
        document["faster_than_collect_env"] = round(ratio, 2)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({key: document[key] for key in document if key != "samples_ms"}, indent=1))


def _environment(prefix: Path, count: int) -> Path:
    """A venv-shaped folder with `count` installed distributions, torch not among them."""
    packages = prefix / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\ninclude-system-site-packages = false\n")
    for index in range(count):
        folder = packages / f"package_{index}-1.{index}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{index}\nVersion: 1.{index}\n\n")
        (packages / f"package_{index}").mkdir()
    return prefix


def _interleaved(cases: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for round_number in range(runs + 1):
        for name, argv in cases.items():
            start = time.perf_counter()
            done = subprocess.run(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
            took = time.perf_counter() - start
            if done.returncode not in (0, 1):
                sys.exit(f"{name}: exit code {done.returncode}: {done.stderr.decode()[-300:]}")
            if round_number:  # the first round warms the page cache
                samples[name].append(took)
    return samples


def _commit() -> str:
    argv = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
