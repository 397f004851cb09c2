"""Attention beside its rivals in one process, in turns: results/rivals-<machine>.json.

    python -m benchmarks.rivals --out results/rivals-h200.json --commit HASH [--only backward] [--budget-s 300]
    python -m benchmarks.rivals --list
    python -m benchmarks.rivals --compile    # FlashAttention-4's kernels, without a GPU: are they called rightly?

FlashAttention-4 and cuDNN's block-sparse attention take part where they are installed (`pip install '.[rivals]'`),
torch's cuDNN kernel always. Two heads of every answer are held against float64 before anything is timed: who is wrong
gets no time. burst: median of 10 calls after a pause, L2 flushed before each; sustained: 0.6 s back to back, with the
clock read meanwhile. All contenders of a case take turns, twice; each figure is the median of both, and all are kept.
Each row says who was fastest; --without NAME leaves a contender out, e.g. one that breaks the GPU for those after it.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from benchmarks.rivals.cases import CASES, Case, Setting, exact, setting_of, useful_tflop
from benchmarks.rivals.contest import OURS, Row, contest, fastest, said
from benchmarks.rivals.cudnn_lists import cudnn_lists, cudnn_lists_version
from benchmarks.rivals.flash4 import HOPPER_BACKWARD_BLOCK, flash4, flash4_version
from benchmarks.rivals.ours import cudnn_dense, ours, torch_version
from benchmarks.rivals.runner import Refused, Runner

Entrant = Callable[[Case, Setting], "Runner | Refused"]


def entrants(without: Sequence[str] = ()) -> dict[str, Entrant]:
    """Who is here and not left out."""
    found: dict[str, Entrant] = {OURS: ours}
    if flash4_version():
        found["flash4"] = flash4
        found["flash4 deterministic"] = partial(flash4, deterministic=True)
    if cudnn_lists_version():
        found["cudnn lists"] = cudnn_lists
    found["cudnn dense"] = cudnn_dense
    return {name: entrant for name, entrant in found.items() if name not in without}


def compare(case: Case, here: dict[str, Entrant]) -> Row:
    """One case: everybody's error, then everybody's times in turns."""
    began = time.monotonic()
    setting = setting_of(case)
    row: Row = {"case": case.id, "name": case.name, "shape": case.shape, "backward": case.backward, "block": case.block,
                "dtype": str(case.dtype).removeprefix("torch."), "density": round(setting.mask.density, 4)}  # fmt: skip
    entered = {name: partial(entrant, case, setting) for name, entrant in here.items()}
    row["contenders"] = contest(
        entered, partial(exact, case, setting), dtype=case.dtype, tflop=useful_tflop(case, setting)
    )
    row["fastest"] = fastest(row["contenders"])
    row["seconds"] = round(time.monotonic() - began, 1)  # of the whole case, compiling and checking too
    return row


def about(commit: str) -> Row:
    """Machine and versions."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    versions = {"flash4": flash4_version(), "cudnn lists": cudnn_lists_version(), "cudnn dense": torch_version()}
    return {
        "schema": "firstlight.rivals/1", "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit,
        "gpu": torch.cuda.get_device_name(), "driver": driver, "torch": torch.__version__, "versions": versions,
    }  # fmt: skip


def _compile(chosen: Sequence[Case], parser: argparse.ArgumentParser) -> None:
    if flash4_version() is None:
        parser.error("flash-attn-4 is not installed; pip install '.[rivals]' brings it")
    from benchmarks.rivals.compiled import compiled

    for case in chosen:
        if case.backward and case.block != HOPPER_BACKWARD_BLOCK:
            print(f"{case.id}: it has no such kernel", flush=True)
            continue
        for each in compiled(case):
            print(f"{each.case}: {each.what} compiled in {each.seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the document goes; written after every case")
    parser.add_argument("--commit", default="not told", help="of the code that is measured")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--without", action="append", default=[], help="a contender to leave out; may be given again")
    parser.add_argument("--budget-s", type=float, default=600.0, help="no case is begun later (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the cases and who would take part, and stop")
    parser.add_argument(
        "--compile", action="store_true", help="compile FlashAttention-4's kernels for Hopper, and stop"
    )
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.without) - set(entrants()) | ({OURS} & set(given.without)))
    if unknown:
        parser.error(f"{unknown[0]!r} cannot be left out; here are: {', '.join(entrants())}, and ours always stays")
    chosen = [case for case in CASES if given.only in case.id]
    if not chosen:
        parser.error(f"no case has {given.only!r} in its name; --list prints them")
    if given.list:
        print("\n".join(case.id for case in chosen))
        print("contenders here: " + ", ".join(entrants()))
        return
    if given.compile:
        _compile(chosen, parser)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use; these are kernels of Hopper GPUs")
    began, document, here = time.monotonic(), {**about(given.commit), "rows": []}, entrants(given.without)
    for case in chosen:
        if time.monotonic() - began > given.budget_s:
            print(f"the time is up before {case.id}", flush=True)
            break
        document["rows"].append(compare(case, here))
        print(said(document["rows"][-1]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(document, indent=1) + "\n")
        gc.collect()
        torch.cuda.empty_cache()
