"""Fill the generated parts of README.md and of pages of docs/: screens, a picture, tables from results/*.json."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tools import (
    attention_table,
    doctor_picture,
    gradients_table,
    kernels_table,
    models_table,
    ragged_table,
    regret_table,
    rivals_table,
    sm90_table,
)
from tools.generate import with_part

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS, DOCTOR, FACTS, MEASURING = (ROOT / "docs" / f"{name}.md" for name in ("commands", "doctor", "facts", "bench"))
EXAMPLES = ROOT / "examples" / "README.md"
LIBRARY = ROOT / "docs" / "kernels" / "library.md"
MATMUL = ROOT / "docs" / "kernels" / "matmul.md"
ATTENTION = ROOT / "docs" / "kernels" / "attention.md"
MODELS = ROOT / "docs" / "kernels" / "models.md"
BENCH = "bench-h200-standard.json"
BENCH_ROWS = (
    "gemm/fp16/4096x4096x4096", "gemm/bf16/8192x8192x8192", "gemm/fp8/8192x8192x8192", "bandwidth/copy/fp16/512MiB",
    "bandwidth/add/fp16/512MiB", "sdpa/flash/fp16/b16-h96-s4096-d128/causal",
    "sdpa/cudnn/fp16/b16-h96-s4096-d128/causal", "softmax/fp16/32x12x512x512",
)  # fmt: skip
SPEED = ("facts-speed-gpu-less.json", "facts-speed-h200.json")


def made() -> dict[Path, str]:
    """Every page and picture as it should be."""
    pages = {page: fill(page.read_text()) for page, fill in PAGES.items()}
    pages[doctor_picture.PICTURE] = doctor_picture.picture()
    if drawn := attention_table.picture_part():
        pages[attention_table.PICTURE] = drawn
    return pages


def filled(text: str) -> str:
    """The README with its generated parts made anew."""
    return with_part(with_part(text, "bench-row", _bench_row_alone), "kernel-rows", _kernel_rows)


def filled_doctor(text: str) -> str:
    """The page of doctor with the screens of two bundled machines made anew."""
    for name in ("thor-missing-libraries", "h100-driver-570"):
        text = with_part(text, f"doctor {name}", partial(_doctor, name))
    return text


def filled_library(text: str) -> str:
    """The page of the block-sparse library with its measured part made anew."""
    text = with_part(text, "regret", regret_table.regret_part)
    return with_part(text, "kernels", kernels_table.library_part)


def filled_matmul(text: str) -> str:
    """The page of the Hopper kernels with its measured parts made anew."""
    for name, make in sm90_table.PARTS.items():
        text = with_part(text, name, make)
    return text


def filled_attention(text: str) -> str:
    """The page of block-sparse attention with its measured parts made anew."""
    for name, make in attention_table.PARTS.items():
        text = with_part(text, name, make)
    text = with_part(text, "ragged", ragged_table.ragged_part)
    text = with_part(text, "rivals", rivals_table.rivals_part)
    return with_part(text, "gradients", gradients_table.gradients_part)


def _doctor(example: str) -> str:
    return _screen(["firstlight", "doctor", "--facts", f"example:{example}"], ends=1)


def _linted() -> str:
    """What lint says of the Dockerfile that examples/README.md shows."""
    dockerfile = "tests/emit/golden/h100-driver-570/dockerfile/Dockerfile"
    return _screen(["firstlight", "lint", dockerfile, "--for", "H100, driver 570"], ends=0)


def _screen(argv: list[str], *, ends: int) -> str:
    """A command and all that it prints; it has to end with that code."""
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode != ends:
        sys.exit(f"{shlex.join(argv)} ended with {done.returncode}: {done.stderr}")
    return f"```text\n$ {shlex.join(argv)}\n{done.stdout}```\n"


def _kernel_rows() -> str:
    rows = sm90_table.front_rows() + attention_table.front_rows() + rivals_table.front_rows()
    if not rows:
        return ""
    return f"| call, on one H200 | ours | beside it, same process |\n|---|---|---|\n{rows}"


def _schemas() -> str:
    rows = ["| document | what it is |", "|---|---|"]
    for path in sorted((ROOT / "src" / "firstlight" / "schemas").glob("*.json")):
        title = json.loads(path.read_text())["title"]
        name, _, version = path.stem.rpartition("-")
        rows.append(f"| `firstlight.{name}/{version}` | {title} |")
    return "\n".join(rows) + "\n"


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
    return bench_table(ROOT / "results" / BENCH)


def _bench_row_alone() -> str:
    return bench_table(ROOT / "results" / BENCH, rows=BENCH_ROWS[1:2])


def bench_table(path: Path, *, rows: Sequence[str] = BENCH_ROWS) -> str:
    """These rows of a measured suite; a file without a commit, or with a figure that `_backed` refuses, is refused."""
    found: dict[str, Any] = json.loads(path.read_text())
    name = f"results/{path.name}"
    if not found["run"]["commit"]:
        sys.exit(f"{name} names no commit")
    by_id = {case["id"]: case for case in found["cases"]}
    measured = [case for case in found["cases"] if case["verdict"] == "ok"]
    for case in measured:
        _backed(case, name)
    lines = ["| case | figure | time | rate | of the limit at the measured clock |", "|---|---|---|---|---|"]
    lines += [_bench_row(case_id, figure) for case_id in rows for figure in by_id[case_id]["figures"]]
    gpu, software = found["gpus"][0], found["software"]
    where = f"{gpu['name']}, driver {software['driver']}, torch {software['torch']}"
    command = f"`firstlight bench --effort {found['run']['profile']} --no-compile`, {found['run']['started'][:10]}"
    skipped = len(found["cases"]) - len(measured)
    kept = f"{len(measured)} cases measured and {skipped} skipped; samples and clocks in `{name}`"
    return "\n".join(lines) + f"\n\n{where}; {command}, {kept}.\n"


def _backed(case: dict[str, Any], where: str) -> None:
    """Refuse a case whose figures lack samples or what NVML read meanwhile: a number alone proves nothing."""
    for figure in case["figures"]:
        spot = f"{where}: {case['id']} ({figure['regime']})"
        if not all(each["samples"] for each in figure["passes"]):
            sys.exit(f"{spot} holds no samples")
        if not (figure["telemetry"] or {}).get("sm_mhz"):
            sys.exit(f"{spot} holds no clocks")
    if not case["figures"]:
        sys.exit(f"{where}: {case['id']} holds no figures")


def _bench_row(case_id: str, figure: dict[str, Any]) -> str:
    rate, limit = figure["rate"], figure["limit"]
    fast = f"{rate['tflops']:.0f} TFLOPS" if limit["bound"] == "compute" else f"{rate['gbps']:,.0f} GB/s"
    time_us = figure["time_s"]["median"] * 1e6
    shown = f"{time_us:.1f} us" if time_us < 1000 else f"{time_us / 1000:.3f} ms"
    return f"| `{case_id}` | {figure['regime']} | {shown} | {fast} | {limit['pct_clock']:.0f} % |"


PAGES: dict[Path, Callable[[str], str]] = {
    README: filled,
    COMMANDS: lambda text: with_part(text, "schemas", _schemas),
    EXAMPLES: lambda text: with_part(text, "lint-of-dockerfile", _linted),
    DOCTOR: filled_doctor,
    FACTS: lambda text: with_part(text, "speed", _speed),
    MEASURING: lambda text: with_part(text, "bench", _bench),
    LIBRARY: filled_library,
    MATMUL: filled_matmul,
    ATTENTION: filled_attention,
    MODELS: lambda text: with_part(text, "language-model", models_table.language_model_part),
}
