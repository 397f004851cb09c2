"""Sequences of different lengths beside the same ones padded and FlashAttention-4: results/ragged-<machine>.json.

    python -m benchmarks.ragged --out results/ragged-h200.json --commit HASH [--only backward] [--budget-s 50]
    python -m benchmarks.ragged --list
    python -m benchmarks.ragged --compile    # FlashAttention-4's kernels, without a GPU: are they called rightly?

Causal, bf16, head dim 128, 32 heads on 8 of keys. ours: ragged_attention on sm90; "ours, new offsets": the same with a
mask made anew in every call, as in training; "ours padded" and "cudnn padded": over a batch that is padded already;
"flash4 varlen" where it is installed, its inner functions. One group of heads of every answer is held against float64
first. Times as of benchmarks.rivals, in turns, with shorter pauses and stretches so that all fits in a minute.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from benchmarks.ragged.cases import CASES, Case, Setting, exact, setting_of, useful_tflop
from benchmarks.ragged.contenders import flash4_varlen, ours, ours_padded, torch_padded
from benchmarks.rivals.contest import OURS, Row, Timing, contest, fastest, said
from benchmarks.rivals.flash4 import flash4_version
from benchmarks.rivals.run import about
from benchmarks.rivals.runner import Refused, Runner

TIMING = Timing(rounds=2, pause_s=0.15, sustained_s=0.2)
Entrant = Callable[[Case, Setting], "Runner | Refused"]


def entrants() -> dict[str, Entrant]:
    """Who is here."""
    found: dict[str, Entrant] = {
        OURS: ours, "ours, new offsets": forward_alone(partial(ours, new=True)), "ours padded": ours_padded,
        "cudnn padded": torch_padded,
    }  # fmt: skip
    if flash4_version():
        found["flash4 varlen"] = flash4_varlen
        found["flash4 varlen deterministic"] = backward_alone(partial(flash4_varlen, deterministic=True))
    return found


def forward_alone(entrant: Entrant) -> Entrant:
    """The mask is made in the forward pass: there is nothing else to time in a backward one."""
    return lambda case, setting: (
        Refused("it is a matter of the forward pass") if case.backward else entrant(case, setting)
    )


def backward_alone(entrant: Entrant) -> Entrant:
    """One order of adding or any is a matter of gradients."""
    return lambda case, setting: (
        entrant(case, setting) if case.backward else Refused("it is a matter of the backward pass")
    )


def compare(case: Case, here: dict[str, Entrant]) -> Row:
    """One case: everybody's error, then everybody's times in turns."""
    began = time.monotonic()
    setting = setting_of(case)
    row: Row = {
        "case": case.id, "name": case.name, "lengths": case.lengths, "heads": (case.heads, case.key_heads),
        "backward": case.backward, "dtype": str(case.dtype).removeprefix("torch."),
        "real_share": round(case.real_share, 4),
    }  # fmt: skip
    entered = {name: partial(entrant, case, setting) for name, entrant in here.items()}
    row["contenders"] = contest(
        entered, partial(exact, case, setting), dtype=case.dtype, tflop=useful_tflop(case), timing=TIMING
    )
    row["fastest"], row["seconds"] = fastest(row["contenders"]), round(time.monotonic() - began, 1)
    return row


def _compile(chosen: Sequence[Case], parser: argparse.ArgumentParser) -> None:
    if flash4_version() is None:
        parser.error("flash-attn-4 is not installed; pip install '.[rivals]' brings it")
    from benchmarks.ragged.compiled import compiled

    for case in chosen:
        for each in compiled(case):
            print(f"{each.case}: {each.what} compiled in {each.seconds:.1f} s", flush=True)


def _parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the document goes; written after every case")
    parser.add_argument("--commit", default="not told", help="of the code that is measured")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--budget-s", type=float, default=50.0, help="no case is begun later (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the cases and who would take part, and stop")
    parser.add_argument(
        "--compile", action="store_true", help="compile FlashAttention-4's kernels for Hopper, and stop"
    )
    return parser.parse_args(arguments), parser


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    given, parser = _parsed(arguments)
    chosen = [case for case in CASES if given.only in case.id]
    if not chosen:
        parser.error(f"no case has {given.only!r} in its name; --list prints them")
    if given.list:
        print("\n".join(f"{case.id} ({case.real_share:.0%} of a padded batch)" for case in chosen))
        print("contenders here: " + "; ".join(entrants()))
        return
    if given.compile:
        _compile(chosen, parser)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use; these are kernels of Hopper GPUs")
    began, here = time.monotonic(), entrants()
    document: Row = {**about(given.commit), "schema": "firstlight.ragged/1", "rows": []}
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
