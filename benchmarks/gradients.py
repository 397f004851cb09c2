"""Gradients of attention in one pass beside two: right, the same bits, and how long they take.

    python -m benchmarks.gradients check --out check.json      # against float64, waits of the kernel bounded
    python -m benchmarks.gradients times --out times.json      # one pass and two in turns, burst and sustained
    python -m benchmarks.gradients tune --out tune.json        # the order of work

Times are of whole backward passes (the sums of rows too), bf16, head dim 128. benchmarks.rivals times others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.passes import Forward, Upstream
from firstlight.kernels.sm90 import attention, gradient, gradient_once
from firstlight.kernels.sm90.attention_variants import OnceBuild
from firstlight.kernels.sm90.compile import Variant
from firstlight.kernels.sm90.gradient_once import Order

BURST, PAUSE_S, SUSTAINED_S, FLUSH_BYTES = 10, 0.5, 0.6, 256 << 20
Passes = tuple[Tensor, Tensor, Tensor]


class Case(NamedTuple):
    """One backward pass, e.g. Case('dense causal', (4, 32, 8192), 'causal'); group: query heads for one of keys."""

    name: str
    shape: tuple[int, int, int]  # batch, heads, queries
    mask: str
    density: float = 0.0
    group: int = 1
    k_len: int = 0
    dtype: torch.dtype = torch.bfloat16


TIMED = (
    Case("dense causal", (4, 32, 8192), "causal"), Case("dense full", (4, 32, 8192), "full"),
    Case("dense causal", (4, 16, 4096), "causal"), Case("dense full", (4, 16, 4096), "full"),
    Case("lists 0.09", (16, 96, 4096), "lists", 0.09), Case("lists 0.25", (16, 96, 4096), "lists", 0.25),
    Case("lists 0.5", (16, 96, 4096), "lists", 0.5), Case("window 1024 and sink", (1, 32, 16384), "sink"),
    Case("window 1024", (1, 32, 16384), "window"),
)  # fmt: skip
CHECKED = (
    Case("full", (1, 2, 512), "full"), Case("causal", (2, 3, 1000), "causal"),
    Case("causal fp16", (1, 4, 777), "causal", dtype=torch.float16), Case("lists", (2, 4, 2048), "lists", 0.25),
    Case("lists, heads share keys", (1, 8, 1500), "lists", 0.3, group=4), Case("window", (1, 2, 3000), "window"),
    Case("more keys", (1, 2, 300), "lower", k_len=1300), Case("sparse, empty rows", (1, 6, 1024), "holes", 0.1),
    Case("causal, heads share keys", (2, 16, 1024), "causal", group=8),
    Case("lists fp16", (1, 160, 640), "lists", 0.5, dtype=torch.float16),
)  # fmt: skip


def mask_of(case: Case, device: str) -> BlockMask:
    """The case's mask."""
    batch, heads, length = case.shape
    k_len = case.k_len or length
    near = BlockMask.window(length, left=1024, device=device) if case.mask in ("window", "sink") else None
    if near is not None and case.mask == "window":
        return near
    if near is not None:
        return near | (BlockMask.causal(length, device=device) & BlockMask.sink(length, keys=128, device=device))
    if case.mask in ("causal", "full"):
        return (BlockMask.causal if case.mask == "causal" else BlockMask.full)(length, k_len, device=device)
    if case.mask == "lower":
        return BlockMask.causal(length, k_len, alignment="lower_right", device=device)
    rows, columns = -(-length // 128), -(-k_len // 128)
    random = torch.Generator(device=device).manual_seed(int(1000 * case.density))
    chosen = torch.rand(batch, heads, rows, columns, device=device, generator=random) < case.density
    if case.mask == "lists":
        chosen |= torch.eye(rows, columns, dtype=torch.bool, device=device)
    return BlockMask.from_bool(chosen, block_level=True, q_len=length, k_len=k_len)


class Setting(NamedTuple):
    """All that a backward pass gets."""

    made: Forward
    upstream: Upstream
    mask: BlockMask
    scale: float


def setting_of(case: Case, device: str = "cuda") -> Setting:
    """Random numbers through the forward pass."""
    batch, heads, length = case.shape
    random = torch.Generator(device=device).manual_seed(5)

    def normal(count: int, rows: int) -> Tensor:
        return torch.randn(batch, count, rows, 128, dtype=case.dtype, device=device, generator=random)

    k_len = case.k_len or length
    q, k, v = normal(heads, length), normal(heads // case.group, k_len), normal(heads // case.group, k_len)
    mask, scale = mask_of(case, device), 128**-0.5
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=device)
    attention.forward(q, k, v, mask, scale=scale, out=out, lse=lse)
    return Setting(Forward(q, k, v, out, lse), Upstream(normal(heads, length)), mask, scale)


@contextmanager
def passes(*, once: bool, order: Order | None = None) -> Iterator[None]:
    """One pass or two; order None: as the kernels choose."""
    with patch.object(gradient_once, "takes", lambda *given: once):
        if order is None:
            yield
            return
        with patch.object(gradient_once, "order_for", lambda mask: order):
            yield


def backward(setting: Setting) -> Passes:
    """dq, dk, dv."""
    return gradient.backward(setting.upstream, setting.made, setting.mask, scale=setting.scale)


def exact(setting: Setting) -> Passes:
    """In float64, by the definition."""
    q, k, v = (each.double() for each in setting.made[:3])
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    grad, seen = setting.upstream.out.double(), setting.mask.to_bool()
    scores = (setting.scale * q @ k.mT).masked_fill(~seen, -torch.inf)
    shares = torch.nan_to_num(scores.softmax(-1))
    pressed = grad @ v.mT
    changed = shares * (pressed - (shares * pressed).sum(-1, keepdim=True)) * setting.scale

    def summed(wide: Tensor) -> Tensor:
        return wide.reshape(wide.shape[0], -1, group, *wide.shape[2:]).sum(2)

    return changed @ k, summed(changed.mT @ q), summed(shares.mT @ grad)


def errors(made: Passes, wanted: Passes) -> list[float]:
    """Norm of each error over the norm; NaN where there is one."""
    return [float((one.double() - right).norm() / right.norm()) for one, right in zip(made, wanted, strict=True)]


def check(runs: int, budget_s: float) -> list[dict[str, Any]]:
    """Every small case against float64, one pass and two, and the bits of `runs` runs."""
    rows, began = [], time.monotonic()
    for case in CHECKED:
        if time.monotonic() - began > budget_s:
            break
        setting = setting_of(case)
        wanted = exact(setting)
        with passes(once=False):
            two = errors(backward(setting), wanted)
        with passes(once=True):
            first = backward(setting)
            one = errors(first, wanted)
            same = sum(all(map(torch.equal, first, backward(setting))) for _ in range(runs))
        blind = ~setting.mask.to_bool().any(-1).expand(first[0].shape[:3])
        row = {
            "case": case.name, "shape": case.shape, "one_pass": one, "two_passes": two, "same_bits": same, "runs": runs,
            "zero_where_blind": bool((first[0][blind] == 0).all()), "blind_rows": int(blind.sum()),
        }  # fmt: skip
        row["right"] = same == runs and row["zero_where_blind"] and one[0] <= 1.02 * two[0] and max(one) < 6e-3
        rows.append(row)
        print(f"{case.name:28s} one {one} two {two} same {same}/{runs} {'ok' if row['right'] else 'WRONG'}", flush=True)
    return rows


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def burst(call: Callable[[], object], flush: Tensor, count: int = BURST, pause_s: float = PAUSE_S) -> float:
    """Median milliseconds of some calls after a pause, L2 flushed before each."""
    call()
    torch.cuda.synchronize()
    time.sleep(pause_s)
    events = [(_event(), _event()) for _ in range(count)]
    for begin, end in events:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return float(statistics.median(begin.elapsed_time(end) for begin, end in events))


def sustained(call: Callable[[], object], single_ms: float, seconds: float = SUSTAINED_S) -> float:
    """Milliseconds a call, back to back."""
    count = max(3, int(seconds * 1000 / single_ms))
    begin, end = _event(), _event()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count


def tflops(case: Case, setting: Setting, ms: float) -> float:
    """Five products of what the listed blocks hold."""
    batch, heads, length = case.shape
    return 10 * batch * heads * length * (case.k_len or length) * 128 * setting.mask.density / ms / 1e9


def times(budget_s: float) -> list[dict[str, Any]]:
    """One pass and two in turns."""
    rows, began = [], time.monotonic()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for case in TIMED:
        if time.monotonic() - began > budget_s:
            print("the time is up", flush=True)
            break
        setting = setting_of(case)
        found: dict[str, dict[str, float]] = {"two": {}, "one": {}}
        with passes(once=True):
            mine = backward(setting)
        with passes(once=False):
            apart = errors(mine, tuple(each.double() for each in backward(setting)))  # type: ignore[arg-type]
        del mine
        for name, into in found.items():
            with passes(once=name == "one"):
                into["burst_ms"] = burst(partial(backward, setting), flush)
        for name, into in found.items():
            with passes(once=name == "one"):
                into["sustained_ms"] = sustained(partial(backward, setting), into["burst_ms"])
        row: dict[str, Any] = {
            "case": case.name,
            "shape": case.shape,
            "density": setting.mask.density,
            "apart": apart,
            **found,
        }
        rows.append(row)
        words = []
        for kind in ("burst_ms", "sustained_ms"):
            one, two = found["one"][kind], found["two"][kind]
            ratios = f"two/one {two / one:.3f} {tflops(case, setting, one):.0f} TF"
            words.append(f"{kind[:-3]} two {two:.3f} one {one:.3f} {ratios}")
        print(f"{case.name:22s} S{case.shape[2]} apart {max(apart):.1e}: {'; '.join(words)}", flush=True)
        del setting
        torch.cuda.empty_cache()
    return rows


def tune(budget_s: float) -> list[dict[str, Any]]:
    """Short bursts of settings of the one pass."""
    rows, began = [], time.monotonic()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for case in (TIMED[1], TIMED[0], TIMED[5], TIMED[4], TIMED[6], TIMED[7], TIMED[2]):
        if time.monotonic() - began > budget_s:
            print("the time is up", flush=True)
            break
        setting, words = setting_of(case), []
        for order in (*(Order(abreast, upward=False) for abreast in (4, 8, 16, 32)), Order(32, upward=True)):
            with passes(once=True, order=order), patch(f"{__name__}.PAUSE_S", 0.1):
                ms = burst(partial(backward, setting), flush, 3)
            rows.append({"case": case.name, "shape": case.shape, **order._asdict(), "ms": ms})
            words.append(f"{order.abreast}{'up' if order.upward else ''} {ms:.2f}")
        with passes(once=False):
            words.append(f"two {burst(partial(backward, setting), flush, 3):.2f}")
        print(f"{case.name:22s} S{case.shape[2]}: {' | '.join(words)}", flush=True)
        del setting
        torch.cuda.empty_cache()
    return rows


def bounded() -> None:
    """The one pass with every wait bounded: what would hang, traps."""
    plain = OnceBuild.variant.fget  # type: ignore[attr-defined]

    def variant(build: OnceBuild) -> Variant:
        made: Variant = plain(build)
        return Variant(made.source, (*made.defines, ("FIRSTLIGHT_DEBUG", 1)), made.hgmma)

    OnceBuild.variant = property(variant)  # type: ignore[method-assign,assignment]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "times", "tune"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=100, help="runs whose bits are compared (%(default)s)")
    parser.add_argument("--budget-s", type=float, default=60.0, help="no case is begun later (%(default)s)")
    given = parser.parse_args()
    if given.what == "check":
        bounded()
        rows = check(given.runs, given.budget_s)
    else:
        rows = (times if given.what == "times" else tune)(given.budget_s)
    if given.out:
        name = torch.cuda.get_device_name()
        given.out.write_text(
            json.dumps({"gpu": name, "torch": torch.__version__, "what": given.what, "rows": rows}, indent=1) + "\n"
        )
    if given.what == "check" and not all(row["right"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
