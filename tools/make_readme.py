"""Fill the generated parts of README.md: the first screen's output, and tables from results/*.json.

python -m tools.make_readme [--check]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BENCH = "bench-h200-standard.json"
BENCH_ROWS = (
    "gemm/fp16/4096x4096x4096", "gemm/bf16/8192x8192x8192", "gemm/fp8/8192x8192x8192", "bandwidth/copy/fp16/512MiB",
    "bandwidth/add/fp16/512MiB", "sdpa/flash/fp16/b16-h96-s4096-d128/causal",
    "sdpa/cudnn/fp16/b16-h96-s4096-d128/causal", "softmax/fp16/32x12x512x512",
)  # fmt: skip
SPEED = ("facts-speed-gpu-less.json", "facts-speed-h200.json")


def main() -> None:
    text = filled(README.read_text())
    if "--check" in sys.argv:
        sys.exit(0 if text == README.read_text() else "README.md is not current; run: python -m tools.make_readme")
    README.write_text(text)


def filled(text: str) -> str:
    """The README with every generated part made anew."""
    for name, make in (("doctor", _doctor), ("speed", _speed), ("bench", _bench)):
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        before, _, after = pattern.sub(r"\1@@\2", text).partition("@@")
        text = before + make() + after
    return text


def _doctor() -> str:
    argv = ["firstlight", "doctor", "--facts", "example:h100-driver-570"]
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode != 1:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")
    return f"```text\n$ {' '.join(argv)}\n{done.stdout}```\n"


def _speed() -> str:
    rows = ["| machine | what | median | times `python -c pass` |", "|---|---|---|---|"]
    for name in SPEED:
        found: dict[str, Any] = json.loads((ROOT / "results" / name).read_text())
        if not found.get("samples_ms"):
            sys.exit(f"results/{name} holds no samples")
        times = found["times_python_pass"]
        rows += [
            f"| {found['machine']} | `{what}` | {found['median_ms'][what]:.0f} ms | {times[what]:.1f} |"
            for what in ("python -c pass", "firstlight --help", "firstlight facts", "torch.utils.collect_env")
            if what in found["median_ms"]
        ]
    return "\n".join(rows) + "\n\n`benchmarks/facts_speed.py`; samples in `results/`.\n"


def _bench() -> str:
    """A few rows of the measured suite; a file without samples, NVML's readings or a commit is refused."""
    found: dict[str, Any] = json.loads((ROOT / "results" / BENCH).read_text())
    if not found["run"]["commit"]:
        sys.exit(f"results/{BENCH} names no commit")
    rows = ["| case | figure | time | rate | of the limit at the measured clock |", "|---|---|---|---|---|"]
    by_id = {case["id"]: case for case in found["cases"]}
    for name in BENCH_ROWS:
        for figure in by_id[name]["figures"]:
            if not figure["passes"][0]["samples"] or not figure["telemetry"]["sm_mhz"]:
                sys.exit(f"results/{BENCH}: {name} holds no samples or no clocks")
            rate, limit = figure["rate"], figure["limit"]
            fast = f"{rate['tflops']:.0f} TFLOPS" if limit["bound"] == "compute" else f"{rate['gbps']:,.0f} GB/s"
            time_us = figure["time_s"]["median"] * 1e6
            shown = f"{time_us:.1f} us" if time_us < 1000 else f"{time_us / 1000:.3f} ms"
            rows.append(f"| `{name}` | {figure['regime']} | {shown} | {fast} | {limit['pct_clock']:.0f} % |")
    gpu, software = found["gpus"][0], found["software"]
    where = f"{gpu['name']}, driver {software['driver']}, torch {software['torch']}"
    command = "`firstlight bench --effort standard --no-compile`"
    kept = f"all {len(found['cases'])} cases with samples and clocks in `results/{BENCH}`"
    return "\n".join(rows) + f"\n\n{where}; {command}, {kept}.\n"


if __name__ == "__main__":
    main()
