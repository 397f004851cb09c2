"""NCCL adds up across all GPUs: one process each, the sum checked on every one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:  # a rank runs this file as a script, without the packages that run.py stands in for
    from firstlight.verify.children.witness import Witness

_COUNT = 1 << 20


def prove(question: dict[str, Any], witness: Witness) -> str:
    count = torch.cuda.device_count()
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    witness.saw("NCCL", ".".join(str(part) for part in version))
    store = os.path.join(str(question["work"]), "nccl-store")
    mark = os.urandom(16).hex()  # what a rank's Python prints at start is not its answer
    started = time.monotonic()
    ranks = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(rank), str(count), store, mark],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    faults = []
    for index, process in enumerate(ranks):
        out, error = process.communicate()  # the time limit of the check ends the whole group
        if process.returncode != 0:
            told = [line for line in error.splitlines() if line.strip()]
            faults.append(f"rank {index} ended with {process.returncode}: {told[-1][:300] if told else 'no word'}")
            continue
        answers = [line[len(mark) :] for line in out.splitlines() if line.startswith(mark)]
        if not answers:
            faults.append(f"rank {index} ended without an answer")
            continue
        said = json.loads(answers[0])
        witness.saw(f"rank {index}", f"{said['wrong']} of {_COUNT} sums wrong, all_reduce in {said['ms']:.2f} ms")
        if said["wrong"]:
            faults.append(f"rank {index} got {said['wrong']} wrong sums")
    if faults:
        witness.fault("; ".join(faults), "Set NCCL_DEBUG=INFO and run: firstlight verify --only nccl")
    return f"all_reduce over {count} GPUs is right on every rank, {time.monotonic() - started:.1f} s with start-up"


def one_rank(rank: int, count: int, store: str, mark: str) -> None:
    """One process of the group; prints how many of its sums are wrong."""
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=count)
    x = torch.full((_COUNT,), float(rank + 1), device="cuda")
    dist.all_reduce(torch.ones(1, device="cuda"))  # connects
    torch.cuda.synchronize()
    started = time.monotonic()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    took = time.monotonic() - started
    wrong = int((x != count * (count + 1) / 2).sum())
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        answer.write(f"\n{mark}{json.dumps({'wrong': wrong, 'ms': 1000 * took})}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.path and sys.path[0].endswith("children"):
        del sys.path[0]
    one_rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
