"""Guards that need a GPU: work on streams that the events do not see, and graphs that leave the work out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight.bench.user_cases import guards
from firstlight.bench.user_cases.declare import UserCase

if TYPE_CHECKING:
    from firstlight.bench.user_cases.prepare import Buffers, Looks

BLOCK_CYCLES = 40_000_000  # of a spinning kernel: some 20 ms, in which a call is queued and looked at
SHORT_BLOCK_CYCLES = 2_000_000
TRIES = 5


def on_the_current_stream(looks: Looks, buffers: Buffers, case: UserCase) -> bool:
    """other-stream: nothing may be done before the current stream gets to it, or after it has gone on.

    Gives whether the call itself waits for the device, which cannot be captured in a graph.
    """
    waits = _not_before(looks, buffers, case)
    for _ in range(TRIES):
        _not_after(looks, buffers, case)
    return waits


def _not_before(looks: Looks, buffers: Buffers, case: UserCase) -> bool:
    """With the current stream held up by a spinning kernel, the result of new inputs cannot be there yet."""
    import time

    import torch

    cuda: Any = torch.cuda
    spin = getattr(cuda, "_sleep", None)
    if spin is None:
        return False
    wanted, _ = looks.renew(buffers)
    side = cuda.Stream()
    seen = [torch.empty_like(each) for each in buffers.results(case)] if buffers.outputs or buffers.box else []
    torch.cuda.synchronize()
    held = cuda.Event()
    spin(BLOCK_CYCLES)
    held.record()
    buffers.call()
    time.sleep(0.002)
    waits = bool(held.query())
    results = buffers.results(case)
    if not waits and len(seen) == len(results):
        with torch.cuda.stream(side):
            for copy, each in zip(seen, results, strict=True):
                copy.copy_(each)
        side.synchronize()
        still_held = not held.query()
        torch.cuda.synchronize()
        if still_held and guards.worst_error(seen, wanted) <= guards.tolerance_of(case):
            raise guards.NotTrusted(
                "other-stream: the result was there while the current stream was held up: the work runs on another "
                "stream, where the events do not time it; launch on torch.cuda.current_stream()"
            )
    torch.cuda.synchronize()
    return waits


def _not_after(looks: Looks, buffers: Buffers, case: UserCase) -> None:
    """A copy queued on the current stream right behind the call has the result.

    The stream is held up until both are queued, so that a copy which does not wait starts together with the work.
    """
    import torch

    from firstlight.bench.user_cases.prepare import copies

    wanted, _ = looks.renew(buffers)
    cuda: Any = torch.cuda
    if (spin := getattr(cuda, "_sleep", None)) is not None:
        spin(SHORT_BLOCK_CYCLES)
    buffers.call()
    at_once = copies(buffers.results(case))
    torch.cuda.synchronize()
    at_last = buffers.results(case)
    accepted = guards.tolerance_of(case)
    if guards.worst_error(at_once, wanted) > accepted >= guards.worst_error(at_last, wanted):
        raise guards.NotTrusted(
            "other-stream: what is queued behind the call does not find its result, which comes later: the work runs "
            "on another stream that is not joined; let the current stream wait for it inside of run"
        )
    guards.fresh_enough(case, at_last, wanted, when="before timing")


def graph_does_the_work(looks: Looks, buffers: Buffers, case: UserCase) -> None:
    """empty-graph: short calls are timed in a graph, so a graph of one call has to give the result of new inputs."""
    import torch

    graph = torch.cuda.CUDAGraph()
    cuda: Any = torch.cuda
    stream = cuda.Stream()
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(graph, stream=stream):
            buffers.call()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:  # cannot be captured: it is then timed call by call, and the result says so
        torch.cuda.synchronize()
        room = torch.empty(1024, device=buffers.inputs[0].device) if buffers.inputs else torch.empty(1024).cuda()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            room.zero_()
        return
    captured = buffers.results(case)
    wanted, _ = looks.renew(buffers)
    graph.replay()
    torch.cuda.synchronize()
    error = guards.worst_error(captured, wanted)
    buffers.box.clear()
    if error > guards.tolerance_of(case):
        raise guards.NotTrusted(
            f"empty-graph: captured in a CUDA graph and replayed on new inputs, the relative error is {error:.3g}: the "
            "call does not put its work into the graph (a kept result, or less work while capturing)"
        )
