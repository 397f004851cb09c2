"""Processor time of one call, and the time to schedule a new pattern: parts d and e of run.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from benchmarks.call_times import Call, call_times
from benchmarks.matmul.products import Kit
from torch.nn import functional

from firstlight.bench.timers import Shot
from firstlight.kernels import BlockSparseMatrix, linear, matmul
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import transpose
from firstlight.kernels.prepared import empty_on
from firstlight.kernels.product import PLAIN, Layout
from firstlight.kernels.schedule import Schedule

SIDE, TOKENS, BLOCK, DENSITY = 512, 16, 64, 0.1
SCHEDULES = 15
LIMIT = 8  # entries of a portion, as for 16 tokens


def overhead_calls(device: str, backend: str) -> dict[str, Call]:
    """What a user calls, by name, and torch's own beside it; those with gradients come last."""
    dtype = torch.float16
    w = BlockSparseMatrix.random(SIDE, SIDE, block=BLOCK, density=DENSITY, dtype=dtype, device=device)
    x, columns = (torch.randn(shape, dtype=dtype, device=device) for shape in ((TOKENS, SIDE), (SIDE, TOKENS)))
    bias, gradient = (
        torch.randn(SIDE, dtype=dtype, device=device),
        torch.randn(TOKENS, SIDE, dtype=dtype, device=device),
    )
    dense = w.to_dense()
    wg, xg = w.detach().requires_grad_(), x.clone().requires_grad_()
    values = wg.values
    dense_g = dense.clone().requires_grad_()

    def backward(forward: Callable[[], torch.Tensor]) -> Call:
        def call() -> None:
            values.grad = xg.grad = dense_g.grad = None
            torch.autograd.backward(forward(), gradient)

        return call

    return {
        "torch.nn.functional.linear": lambda: functional.linear(x, dense),
        "torch.nn.functional.linear, bias": lambda: functional.linear(x, dense, bias),
        "torch.mm": lambda: torch.mm(dense, columns),
        "linear": lambda: linear(x, w, backend=backend),
        "linear, bias": lambda: linear(x, w, bias, backend=backend),
        "linear, bias, gelu": lambda: linear(x, w, bias, activation="gelu", backend=backend),
        "linear, auto": lambda: linear(x, w),
        "matmul": lambda: matmul(w, columns, backend=backend),
        "matmul, auto": lambda: matmul(w, columns),
        "with gradients: torch.nn.functional.linear": lambda: functional.linear(xg, dense_g),
        "with gradients: linear": lambda: linear(xg, wg, backend=backend),
        "with gradients: linear, bias": lambda: linear(xg, wg, bias, backend=backend),
        "with gradients: linear, auto": lambda: linear(xg, wg),
        "forward and backward: torch.nn.functional.linear": backward(lambda: functional.linear(xg, dense_g)),
        "forward and backward: linear": backward(lambda: linear(xg, wg, backend=backend)),
        **(_least_calls(w, x) if backend == "sm90" else {}),
    }


def _least_calls(w: BlockSparseMatrix, x: torch.Tensor) -> dict[str, Call]:
    """What no way to call a kernel does without: a tensor for the result, and the driver's launch."""
    from firstlight.kernels import sm90

    shape = (x.shape[0], w.shape[0])
    empty = empty_on(x.device)
    out = empty(shape, (shape[1], 1), x.dtype)
    again = sm90.prepare(w.index, x, layout=Layout.TOKENS, epilogue=PLAIN)
    assert again is not None, "512 columns need no padding"
    again(w.values, x, out, None, None, (x.data_ptr(), w.values.data_ptr()))
    [started] = again._known.values()
    [launch] = started.launches
    stream = torch.cuda.current_stream().cuda_stream
    return {
        "of linear, the empty result alone": lambda: empty(shape, (shape[1], 1), x.dtype),
        "of linear, the driver's launch alone": lambda: launch.start(stream),
    }


def overheads(kit: Kit) -> dict[str, Any]:
    """Microseconds of the processor for one call."""
    found = call_times(overhead_calls(kit.place.device, kit.backend), on_gpu=kit.timer.has_launches)
    return {"shape": f"{SIDE} x {SIDE}, block {BLOCK}, density {DENSITY}, {TOKENS} tokens, fp16", **found}


def _finish(kit: Kit) -> None:
    if kit.timer.has_launches:
        torch.cuda.synchronize()


def compile_overheads() -> list[tuple[str, float, str]]:
    """Calls everything once, so that its kernels are in Triton's cache: (name, seconds, error)."""
    done = []
    for name, call in overhead_calls("cuda", "triton").items():
        began = time.perf_counter()
        try:
            call()
            torch.cuda.synchronize()
            said = ""
        except Exception as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"[:200]
        done.append((name, time.perf_counter() - began, said))
    return done


def schedule_times(kit: Kit, side: int) -> dict[str, Any]:
    """A new pattern of blocks of 64: device time with the launches hidden, and time of the processor, apart."""
    w = BlockSparseMatrix.random(side, side, block=BLOCK, density=DENSITY, dtype=torch.float16, device=kit.place.device)
    index = w.pattern.forward
    works = _works(index, kit.backend)
    found: dict[str, Any] = {"pattern": f"{side} x {side}, block {BLOCK}, density {DENSITY}", "limit": LIMIT}
    for name, work in works.items():
        for _ in range(3):
            work()
        series = [kit.timer.series((Shot(work, 1),)) for _ in range(SCHEDULES)]
        host = [kit.timer.host(work) for _ in range(SCHEDULES)]
        launches = [_launched(kit, work) for _ in range(SCHEDULES)]
        device = [each.seconds[0] for each in series]
        found[name] = {
            "device_ms": _ms(median(device)), "launched_ms": _ms(median(launches)), "waited_for_ms": _ms(median(host)),
            "launches_hidden": all(each.hidden for each in series),
            "device_samples_ms": [_ms(each) for each in device],
            "launched_samples_ms": [_ms(each) for each in launches],
            "waited_for_samples_ms": [_ms(each) for each in host],
        }  # fmt: skip
        print(f"{name}: {found[name]['device_ms']} ms of the device, {found[name]['launched_ms']} ms of the processor")
    found["waits_for_the_device"] = _waits(kit, works)
    return found


def _works(index: Index, backend: str) -> dict[str, Call]:
    """What is done once for a pattern; a Schedule that is made anew has computed nothing yet."""
    works: dict[str, Call] = {
        "order and segments, by torch": lambda: (Schedule(index).order, Schedule(index).segments(LIMIT)),
        "transposed index": lambda: transpose(index),
    }
    if backend == "triton":
        from firstlight.kernels.triton_backend.segments import order_here, split_rows_here

        works |= {
            "order": lambda: Schedule(index).ordered(make=order_here),
            "segments": lambda: Schedule(index).segments(LIMIT, make=split_rows_here),
            "order and segments": lambda: (
                Schedule(index).ordered(make=order_here),
                Schedule(index).segments(LIMIT, make=split_rows_here),
            ),
        }
    return works


def _launched(kit: Kit, work: Call) -> float:
    """Seconds until the processor is done with it; the device may not be."""
    _finish(kit)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _waits(kit: Kit, works: dict[str, Call]) -> str:
    """What torch says of a call that waits for the device while scheduling; 'no' where there is none."""
    if not kit.timer.has_launches:
        return "not asked on a processor"
    torch.cuda.set_sync_debug_mode("error")
    try:
        for work in works.values():
            work()
    except RuntimeError as error:
        return str(error)[:200]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 5)
