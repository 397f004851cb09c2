"""How much longer `auto` takes than the best backend, on questions that nothing was fitted to.

    python -m benchmarks.regret --products FILE --attention FILE --out FILE --commit HASH [--hide-own-rows]

Every backend that can take a question is timed with the same call (backend=), and so is `auto` itself. Two regrets are
told: the time of the backend that `auto` took over the best, which leaves out that two times of one call differ, and
auto's own time over the best, which does not. Calls whose best is under 50 us are told and not counted. Kernels are
compiled first, in a pool of processes. --hide-own-rows: the rows of this GPU model count as another card's (borrowed).
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.regret_cases import Attended, Product, Question, patterns_beside

from firstlight.errors import FirstlightError
from firstlight.kernels.choice import measuring, rows
from firstlight.kernels.choice.card import card_of

BACKENDS = ("sm90", "triton", "dense")
LONG_US, CLOSE, FAR = 50.0, 1.05, 1.15
MASK_BYTES = 2 << 30  # auto makes none that is larger
Row = dict[str, Any]


def loaded(options: argparse.Namespace) -> list[tuple[str, Path, Question]]:
    """All questions: (products or attention, file, question)."""
    found = []
    for kind in ("products", "attention"):
        path = getattr(options, kind)
        if path is not None:
            found += [(kind, path, question) for question in json.loads(path.read_text())]
    return found


def subject_of(kind: str, path: Path, question: Question) -> Product | Attended:
    """The question with its tensors."""
    made = (Product if kind == "products" else Attended)(question, patterns_beside(path))
    torch.backends.cuda.matmul.allow_tf32 = made.tf32
    return made


def able(question: Question, backend: str) -> bool:
    """Whether a backend may be asked: not for a mask that would take too much as a tensor."""
    if backend != "dense" or question.get("mask", {}).get("kind") in (None, "full", "causal"):
        return True
    heads = question["heads"] if question["mask"].get("per_head") else 1
    return bool(2 * heads * question["q_len"] * question["kv_len"] <= MASK_BYTES)


def compile_some(part: list[tuple[str, Path, Question]], seconds: float) -> int:
    """Calls every backend once, so that its kernels are in the caches on disk."""
    began = time.perf_counter()
    for number, (kind, path, question) in enumerate(part):
        if time.perf_counter() - began > seconds:
            return number
        if question.get("gated"):
            continue
        subject = subject_of(kind, path, question)
        for backend in ("sm90", "triton"):
            try:
                subject.call(backend)()
            except (FirstlightError, RuntimeError):
                continue  # said again when it is timed
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    return len(part)


def timed(kind: str, path: Path, question: Question, watch: measuring.Stopwatch) -> Row:
    """The times of every backend and of auto."""
    row: Row = {"id": question["id"], "kind": kind, "name": question["name"], "direction": question["direction"]}
    if question.get("gated"):
        return {**row, "skipped": "gated"}
    subject = subject_of(kind, path, question)
    us: dict[str, float] = {}
    for backend in BACKENDS:
        if not able(question, backend):
            continue
        try:
            us[backend] = round(watch.us(subject.call(backend)), 2)
        except (FirstlightError, RuntimeError) as error:
            row[f"{backend}_refused"] = f"{type(error).__name__}: {error}"[:200]
    call = subject.call("auto")
    for _ in range(3):
        call()
    row |= {"us": us, "auto_us": round(watch.us(subject.call("auto")), 2), "took": took(subject)}
    best = min(us.values())
    row["regret"] = round(us[row["took"]] / best, 4) if row["took"] in us else None
    row["regret_timed"] = round(row["auto_us"] / best, 4)
    return row


def took(subject: Product | Attended) -> str:
    """What auto takes; several of a training step are named together and judged by their own time."""
    from firstlight.kernels.block_attention.functions import explain_attention
    from firstlight.kernels.block_attention.launch import call_for
    from firstlight.kernels.block_attention.seen import seen_by

    question = subject.question
    if isinstance(subject, Attended):
        causal = subject.causal or ""
        if question["direction"] == "backward":
            seen = seen_by(subject.q, subject.k, subject.mask, str(causal))
            call = call_for(subject.q, seen, 1.0, "auto", kv_heads=subject.k.shape[1], recorded=1)
            return "dense" if call.forward == "dense" else call.backward
        return explain_attention(subject.q, subject.k, subject.mask, causal=subject.causal).backend
    wanted = {"forward": ("multiply", False), "dx": ("multiply", True), "dw": ("sample", False)}
    chosen: list[tuple[str, bool, str]] = [
        (key[2], key[7], answer.settled.backend)
        for key, answer in subject.w.pattern.backends.items() if key[5] == "auto"
    ]  # fmt: skip
    if question["direction"] == "training":
        each = [backend for _, _, backend in chosen]
        return each[0] if len(set(each)) == 1 else " + ".join(f"{a} {b}" for a, _, b in sorted(chosen))
    operation, turned = wanted[question["direction"]]
    return next(backend for a, b, backend in chosen if (a, b) == (operation, turned))


def summary(found: list[Row], kind: str) -> Row:
    """The calls that count, by the time of the backend that auto took, and under `timed` by auto's own."""
    counted = [row for row in found if row["kind"] == kind and "us" in row and min(row["us"].values()) >= LONG_US]
    named = {row["id"]: row["regret"] or row["regret_timed"] for row in counted}
    timed_ = {row["id"]: row["regret_timed"] for row in counted}
    return {"calls": len(counted), **shares(named), "timed": shares(timed_)}


def shares(regrets: dict[str, float]) -> Row:
    """Shares within 5 % and 15 % of the best, and the worst, e.g. of regrets by question {'p0': 1.02}."""
    found = list(regrets.values())
    return {
        "within_5_percent": round(sum(one <= CLOSE for one in found) / max(1, len(found)), 4),
        "within_15_percent": round(sum(one <= FAR for one in found) / max(1, len(found)), 4),
        "worst": max(found, default=None),
        "beyond_5_percent": [name for name, one in regrets.items() if one > CLOSE],
    }


def hide_own_rows() -> None:
    """Lets the rows of this card pass for another one's."""
    shown = rows.shipped()
    here = card_of(0)
    hidden = tuple(
        replace(machine, card=replace(machine.card, gpu="another card")) if machine.card.gpu == here.gpu else machine
        for machine in shown
    )
    path = Path(os.environ.get("TMPDIR", "/tmp")) / "hidden-choice.json"
    path.write_text(rows.document(hidden))
    rows.SHIPPED = path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=Path)
    parser.add_argument("--attention", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True, help="of the code that runs")
    parser.add_argument("--hide-own-rows", action="store_true")
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 2))
    parser.add_argument("--compile-s", type=float, default=80.0)
    options = parser.parse_args()
    began = time.perf_counter()
    questions = loaded(options)
    if options.jobs:
        parts = [questions[number :: options.jobs] for number in range(options.jobs)]
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            done = list(pool.map(compile_some, parts, [options.compile_s] * options.jobs))
        print(f"compiled for {sum(done)} questions after {time.perf_counter() - began:.1f} s", flush=True)
    if options.hide_own_rows:
        hide_own_rows()
    watch = measuring.Stopwatch()
    found: list[Row] = []
    for kind, path, question in questions:
        try:
            found.append(timed(kind, path, question, watch))
        except (FirstlightError, RuntimeError) as error:
            found.append({"id": question["id"], "kind": kind, "failed": f"{type(error).__name__}: {error}"[:300]})
        print(json.dumps(found[-1]), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    sums = {kind: summary(found, kind) for kind in ("products", "attention")}
    document = {
        "schema": "firstlight.kernels-regret/1", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit, "gpu": card_of(0).gpu, "torch": torch.__version__, "hidden": options.hide_own_rows,
        "seconds": round(time.perf_counter() - began, 1), "summary": sums, "rows": found,
    }  # fmt: skip
    options.out.write_text(json.dumps(document, indent=1))
    print(json.dumps(sums, indent=1))


if __name__ == "__main__":
    main()
