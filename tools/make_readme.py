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
SPEED = ("facts-speed-gpu-less.json", "facts-speed-h200.json")


def main() -> None:
    text = filled(README.read_text())
    if "--check" in sys.argv:
        sys.exit(0 if text == README.read_text() else "README.md is not current; run: python -m tools.make_readme")
    README.write_text(text)


def filled(text: str) -> str:
    """The README with every generated part made anew."""
    for name, make in (("doctor", _doctor), ("speed", _speed)):
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


if __name__ == "__main__":
    main()
