"""Compiles what attention.py will launch before anything is timed, in a pool of processes, into the caches on disk."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.attention.work import Scene, Wishes, backward_problem, inputs_of, table_problems

COMPILED_BY_FLEX = ("dense causal", "density 0.5", "64x64 top")  # the other rows have one of their shapes
Task = tuple[str, int]  # what, and which one


def tasks_of(scene: Scene, wishes: Wishes, backend: str) -> list[Task]:
    """Everything to compile, the longest first; each task runs in a process of the pool."""
    problems = table_problems(scene)
    tasks: list[Task] = [("triton backward", 0)]
    if wishes.flex:
        tasks.insert(0, ("flex backward", 0))
        tasks += [("flex", at) for at, each in enumerate(problems) if each.name.startswith(COMPILED_BY_FLEX)]
    if backend == "sm90":
        tasks += [("sm90", at) for at in range(len(_sm90_variants()))]
    shapes: dict[tuple[Any, ...], int] = {}
    for at, each in enumerate(problems):
        shapes.setdefault((each.dtype, each.sizes.head_dim, each.block, each.sizes.heads // each.sizes.kv_heads), at)
    return tasks + [("triton", at) for at in shapes.values()]


def compile_task(task: Task) -> dict[str, Any]:
    """One task done: what, seconds, error. For a pool's child; what fails says so again when it is measured."""
    what, at = task
    began = time.perf_counter()
    said = ""
    try:
        _DO[what](at)
    except Exception as error:  # noqa: BLE001
        said = f"{type(error).__name__}: {error}"[:300]
    _give_back()
    return {"what": f"{what} {at}", "seconds": round(time.perf_counter() - began, 1), "error": said}


def _give_back() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the next child wants as much


def compile_first(scene: Scene, wishes: Wishes, backend: str, jobs: int) -> list[dict[str, Any]]:
    """Every task in a pool of `jobs` processes; nothing for 0: then all is compiled when its turn comes."""
    if not jobs:
        return []
    assert scene == Scene(), "the children compile for the large sizes"
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            done = list(pool.map(compile_task, tasks_of(scene, wishes, backend)))
    except Exception as error:  # noqa: BLE001
        return [{"what": "a child", "seconds": 0.0, "error": f"{type(error).__name__}: {error}"[:200]}]
    for each in done:
        if each["error"]:
            print(f"compiling {each['what']}: {each['error']}", flush=True)
    return done


def _sm90_variants() -> list[Any]:
    from firstlight.kernels.sm90.attention_variants import attention_builds, gradient_builds, once_builds

    found = [build.variant for build in attention_builds()] + [build.variant for build in gradient_builds()]
    return found + [variant for build in once_builds() for variant in (build.variant, build.rows)]


def _sm90(at: int) -> None:
    from firstlight.kernels.sm90.cache import built

    built(_sm90_variants()[at])


def _flex(at: int) -> None:
    import torch
    from benchmarks.attention.calls import flex_attend

    problem = table_problems(Scene())[at]
    inputs = inputs_of(problem, "cuda")
    with torch.no_grad():
        flex_attend(problem, inputs.mask)(inputs.q, inputs.k, inputs.v)
    torch.cuda.synchronize()


def _flex_backward(_: int) -> None:
    import torch
    from benchmarks.attention.calls import flex_attend

    problem = backward_problem(Scene())
    inputs = inputs_of(problem, "cuda")
    leaves = [one.requires_grad_() for one in (inputs.q, inputs.k, inputs.v)]
    out = flex_attend(problem, inputs.mask)(*leaves)
    torch.autograd.grad(out, leaves, torch.randn_like(out))
    torch.cuda.synchronize()


def _triton(at: int) -> None:
    import torch

    from firstlight.kernels.block_attention.functions import attention

    inputs = inputs_of(table_problems(Scene())[at], "cuda")
    attention(inputs.q, inputs.k, inputs.v, inputs.mask, backend="triton")
    torch.cuda.synchronize()


def _triton_backward(_: int) -> None:
    import torch

    from firstlight.kernels.block_attention.functions import attention

    inputs = inputs_of(backward_problem(Scene()), "cuda")
    leaves = [one.requires_grad_() for one in (inputs.q, inputs.k, inputs.v)]
    q, k, v = leaves
    out = attention(q, k, v, inputs.mask, backend="triton")
    assert isinstance(out, torch.Tensor)
    torch.autograd.grad(out, leaves, torch.randn_like(out))
    torch.cuda.synchronize()


_DO: dict[str, Callable[[int], None]] = {
    "sm90": _sm90,
    "flex": _flex,
    "flex backward": _flex_backward,
    "triton": _triton,
    "triton backward": _triton_backward,
}
