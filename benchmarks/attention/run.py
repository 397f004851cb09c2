"""How fast block-sparse attention is, by the bench's own stopwatch: results/attention-<machine>.json.

    python -m benchmarks.attention --out results/attention-h200.json --commit HASH [--only table,sweep] [--budget-s 240]
    python -m benchmarks.attention --list           what would be measured; no GPU needed
    python -m benchmarks.attention --dry --out x    every part with tiny sizes on the processor, to try this script

rates      cuBLAS on random data and a copy: what limits are computed from; always first
table      dense causal, full lists, densities down to 1.6 of 32 blocks a row, 64x64 top-64, types and shapes; cuDNN and
           FlexAttention (compiled) in turns with ours; cool, burst, then a second back to back with clock and power
backward   the backward pass at density 0.5, beside Triton's where ours is sm90's, FlexAttention's and cuDNN's dense one
sweep      time against density, for the picture
lists      time to build the lists on the device, as a share of the run
held_out   random, banded, document and top-k masks on shapes that were never tuned for
auto       `auto` beside every kernel of torch's attention on other shapes
overheads  processor time of one call

Everything is checked against float64 before it is timed. The file is written after every row. Times are medians.
burst: 15 calls in a row after a pause, L2 flushed before each; cool: a few calls after each of some pauses, before the
power limit takes hold; sustained: a second back to back. held_out and auto: a few calls.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.attention.auto import auto
from benchmarks.attention.compile import compile_first
from benchmarks.attention.limits import Row, rates
from benchmarks.attention.more import lists, overheads
from benchmarks.attention.parts import backwards, held_out, sweep, table
from benchmarks.attention.verdicts import verdicts
from benchmarks.attention.work import (
    TINY,
    Scene,
    State,
    Wishes,
    auto_problems,
    backward_problem,
    held_out_problems,
    sweep_problems,
    table_problems,
)
from benchmarks.matmul.products import Budget
from benchmarks.matmul.sm90.run import prepared, write

from firstlight.bench.place import device_names
from firstlight.errors import FirstlightError

SCHEMA = "firstlight.attention-bench/1"
PARTS: dict[str, Callable[[State], Any]] = {  # by importance
    "table": table,
    "backward": backwards,
    "sweep": sweep,
    "lists": lists,
    "held_out": held_out,
    "auto": auto,
    "overheads": overheads,
}
# as they took on an H200 machine (results/attention-h200.json); the backward pass had one kernel less
SECONDS = {
    "start": 5, "compile": 30, "rates": 2, "table": 103, "backward": 32, "sweep": 25, "lists": 2, "held_out": 25,
    "auto": 30, "overheads": 8,
}  # fmt: skip
BACKENDS = ("sm90", "triton", "reference")


def main() -> None:
    options = parsed(sys.argv[1:])
    parts = [part for part in PARTS if part in options.only.split(",")]
    scene = TINY if options.dry else Scene()
    if options.list:
        print(told(parts, scene))
        return
    try:
        run(parts, scene, options)
    except FirstlightError as error:
        sys.exit(str(error))


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options, or an end with one line that says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--budget-s", type=float, default=400.0, help="for everything; what does not fit is listed")
    parser.add_argument("--sustain-s", type=float, default=1.0, help="seconds back to back for each row; 0: none")
    parser.add_argument("--backend", choices=BACKENDS, help="ours; sm90 where it runs, else triton")
    parser.add_argument("--without-flex", action="store_true", help="leave FlexAttention out: it takes long to compile")
    parser.add_argument("--jobs", type=int, default=6, help="processes that compile first; 0: compile when needed")
    parser.add_argument("--list", action="store_true", help="say what would be measured, with seconds")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the processor, to try this script")
    options = parser.parse_args(argv)
    if unknown := set(options.only.split(",")) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not a part; accepted: {','.join(PARTS)}")
    if options.budget_s <= 0 or options.sustain_s < 0 or options.jobs < 0:
        parser.error("--budget-s must be above 0, --sustain-s and --jobs 0 or more")
    if not options.list and options.out is None:
        parser.error("--out FILE is needed")
    if not options.list and not options.dry and not options.commit:
        parser.error("--commit HASH is needed: figures without the code that gave them prove nothing")
    return options


def told(parts: Sequence[str], scene: Scene) -> str:
    """What would be measured, and for about how long."""
    ids = {
        "table": [f"{each.name}: {each.id}" for each in table_problems(scene)],
        "backward": [backward_problem(scene).id],
        "sweep": [each.id for each in sweep_problems(scene)],
        "held_out": [each.id for each in held_out_problems(scene)],
        "auto": [each.id for each in auto_problems(scene)],
    }
    lines = [line for part in parts for line in (f"{part}: about {SECONDS[part]} s", *ids.get(part, ()))]
    total = sum(SECONDS[part] for part in ("start", "compile", "rates", *parts))
    return "\n".join([*lines, f"about {total} s in all, by estimate"])


def run(parts: Sequence[str], scene: Scene, options: argparse.Namespace) -> None:
    """Compiles, then measures part by part; the file is written after each."""
    budget = Budget(options.budget_s)
    device = "cpu" if options.dry else device_names("cuda:0")[0]
    backend = "reference" if options.dry else options.backend or hopper_or_triton()
    wishes = Wishes(flex=not options.without_flex, sustain_s=0.02 if options.dry else options.sustain_s)
    compiled = [] if options.dry else compile_first(scene, wishes, backend, options.jobs)
    kit, about = prepared(device)
    kit = replace(kit, backend=backend)
    found: dict[str, Any] = {
        "schema": SCHEMA, "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": options.commit or None,
        "argv": sys.argv[1:], **about, "backend": backend, "dry": options.dry, "compiled": compiled,
        "seconds": {"before": round(budget.spent_s, 1)}, "parts": {}, "records": [],
    }  # fmt: skip
    print(f"ready after {budget.spent_s:.1f} s, backend {backend}", flush=True)
    state = State(kit, scene, budget, found, wishes)
    state.save = partial(write, options.out, found)
    torch.set_grad_enabled(False)
    if options.dry:
        torch.set_num_threads(1)  # too small to be worth sharing
    gc.collect()
    gc.freeze()
    gc.disable()
    for part, measure in {"rates": rates, **{part: PARTS[part] for part in parts}}.items():
        _one_part(state, part, measure)
        state.save()
    kit.gauge.close()
    if options.dry:
        print("tiny sizes on a processor: what follows says nothing of speed")
    print("\n".join(verdicts(found["parts"])))
    print("not reached:", budget.not_reached or "nothing", flush=True)


def _one_part(state: State, part: str, measure: Callable[[State], Row | list[Row]]) -> None:
    budget, found = state.budget, state.found
    began = budget.spent_s
    if not budget.allows(f"part {part}"):
        found["not_reached"] = budget.not_reached
        return
    try:
        found["parts"][part] = measure(state)
    except Exception as error:  # noqa: BLE001 the parts that were measured are kept
        traceback.print_exc()
        budget.not_reached.append(f"part {part}: {type(error).__name__}: {error}"[:300])
    found["seconds"][part] = round(budget.spent_s - began, 1)
    found["not_reached"] = budget.not_reached
    print(f"part {part}: {found['seconds'][part]} s, {budget.spent_s:.0f} s in all", flush=True)


def hopper_or_triton() -> str:
    """sm90 where it runs, else triton."""
    from firstlight.kernels.backends import why_not

    if hurdle := why_not("sm90", 0, torch.float16):
        print(f"sm90 does not run here: {hurdle}; triton is measured", flush=True)
        return "triton"
    return "sm90"


if __name__ == "__main__":
    main()
