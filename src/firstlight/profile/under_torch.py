"""Run a Python program under the torch profiler: python under_torch.py ANSWER (SCRIPT | -m MODULE | -c CODE) [ARGS].

Stands alone, because the interpreter that runs it may have no firstlight. The answer is JSON: kernels with their times.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

MOST_KERNELS = 200


def main(argv: list[str]) -> int:
    """Run, write the answer, and end as the program ended."""
    answer, what, *arguments = argv
    try:
        import torch
        import torch.profiler
    except (ImportError, OSError) as error:
        write(answer, {"problem": f"torch cannot be imported: {' '.join(str(error).split())[:200]}"})
        return 3
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    status = 0
    with torch.profiler.profile(activities=activities) as profiler:
        try:
            run(what, arguments)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    write(answer, {"kernels": kernels_of(profiler, 1)})
    return status


def run(what: str, arguments: list[str]) -> None:
    """The program as the interpreter would run it."""
    if what == "-m":
        sys.argv = arguments
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path.insert(0, "")
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 what the user typed
    else:
        sys.argv = [what, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(what)))
        runpy.run_path(what, run_name="__main__")


def kernels_of(profiler: Any, calls: int) -> list[dict[str, Any]]:
    """Kernels of the GPU with their time a call, longest first; operators of the processor where no GPU was used."""
    rows = []
    for row in profiler.key_averages():
        on_gpu = str(getattr(row, "device_type", "")).endswith("CUDA")
        gpu_us = getattr(row, "self_device_time_total", getattr(row, "self_cuda_time_total", 0.0))
        us = gpu_us if on_gpu else row.self_cpu_time_total
        rows.append({"name": row.key, "launches": row.count, "time_s": us * 1e-6 / calls, "on_gpu": on_gpu})
    used = [row for row in rows if row["on_gpu"]] or rows
    used.sort(key=lambda row: -row["time_s"])
    return [row for row in used if row["time_s"] > 0][:MOST_KERNELS]


def write(path: str, answer: dict[str, Any]) -> None:
    """The answer, whole or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(f"{path}.part", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
