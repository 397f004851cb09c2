"""Random calls of the library against float64, until the time is up or one is wrong.

    PYTHONPATH=src python -m benchmarks.random_calls --seconds 600 --seed 1 --out results/kernels-random-h200.json

Each call has a seed of its own, printed with what it was when it is wrong; `--only SEED` runs that call alone. What
varies: products and attention, shapes that fit no tile, dtypes, patterns with empty and full rows, transposes, biases,
activations, gradients, backends and `auto`, masks of every kind, and how it runs: plainly, on another stream, in a
thread that has not used CUDA before, from a captured graph, and again after the values were changed in place. Matrices
and masks are dropped while their calls may still run, and other calls take the memory. Without a GPU it runs on the
processor, with the backends and ways that are there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask, BlockSparseMatrix, attention, linear, matmul

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
SCHEMA = "firstlight.random-calls/1"
BACKENDS = ("auto", "triton", "sm90", "dense") if GPU else ("auto", "reference", "dense")
WAYS = ("plain", "stream", "thread", "graph", "changed") if GPU else ("plain", "thread", "changed")
ROUNDING = {
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
    torch.float32: 2.0**-12,
}  # of sums of such products, tf32 off
ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
}  # fmt: skip


class Case(NamedTuple):
    """One call: what it is in words, how it is computed, what is right and how far off it may be; both float64."""

    words: str
    call: Callable[[], tuple[Tensor, ...]]
    right: Callable[[], tuple[Tensor, ...]]
    change: Callable[[], object]
    tolerance: tuple[float, float]  # of the output, and of gradients
    least: tuple[float, float]  # size of an element of the output and of a gradient below which errors count as of that


def product(dice: random.Random, numbers: torch.Generator) -> Case:
    """linear or matmul, some with gradients."""
    dtype = dice.choice(list(ROUNDING))
    block = dice.choice((16, 32, 64, 128))
    rows, cols, n = (dice.choice((dice.randint(1, 300), dice.randint(1, 2500), 1024)) for _ in range(3))
    density = dice.choice((0.0, 0.05, 0.3, 0.7, 1.0))
    w = BlockSparseMatrix.random(
        rows, cols, block=block, density=density, dtype=dtype, device=DEVICE, generator=numbers
    )
    turned, tokens, wanted = dice.random() < 0.3, dice.random() < 0.6, dice.random() < 0.4
    w = w.T if turned else w
    backend, activation = dice.choice(BACKENDS), dice.choice(list(ACTIVATIONS))
    x = torch.randn((n, w.shape[1]) if tokens else (w.shape[1], n), device=DEVICE, generator=numbers).to(dtype)
    bias = torch.randn(w.shape[0], device=DEVICE, generator=numbers).to(dtype) if dice.random() < 0.5 else None
    if wanted:
        x.requires_grad_()
        w.requires_grad_()
    kept = not wanted and dice.random() < 0.3
    if kept:
        w.keep_dense()
    words = (
        f"{'linear' if tokens else 'matmul'} {w.shape} block {block} density {density} n {n} {dtype} {backend} "
        f"{activation} bias {bias is not None} turned {turned} gradients {wanted} kept {kept}"
    )

    def call() -> tuple[Tensor, ...]:
        if tokens:
            out = linear(x, w, bias, activation=activation, backend=backend)
        else:
            out = matmul(w, x, bias=bias, activation=activation, backend=backend)
        return (out, *torch.autograd.grad(out.sum(), (x, w.values))) if wanted else (out,)

    def right() -> tuple[Tensor, ...]:
        exact = w.with_values(w.values.detach().double().requires_grad_())
        there = x.detach().double().requires_grad_()
        out = there @ exact.to_dense().T if tokens else exact.to_dense() @ there
        if bias is not None:
            out = out + (bias.double() if tokens else bias.double()[:, None])
        out = ACTIVATIONS[activation](out)
        return (out, *torch.autograd.grad(out.sum(), (there, exact.values))) if wanted else (out,)

    # a kept copy follows changes that torch counts, all others any change
    changed = w.values if kept else w.values.data
    # relu has no slope at 0: of sums that are right within r of their size, 0.4 r fall on its other side, and a mask of
    # ones and zeros with that many wrong is off by the root of 0.8 r
    # torch's dense product takes a bfloat16 sum in parts and rounds each, unless told otherwise
    # (allow_bf16_reduced_precision_reduction): off by 0.0078 behind gelu where 0.0017 is left without it
    rounding, parts = ROUNDING[dtype], 2 if activation is not None and backend in ("dense", "auto") else 1
    slack = math.sqrt(rounding) if activation == "relu" else parts * rounding
    return Case(words, call, right, lambda: changed.mul_(-0.5), (ROUNDING[dtype], slack), (0.3, 0.3))


def attending(dice: random.Random, numbers: torch.Generator) -> Case:
    """attention, some with gradients."""
    dtype = dice.choice((torch.float16, torch.bfloat16))
    block, dim = dice.choice((64, 128)), dice.choice((64, 128))
    batch, kv_heads, group = dice.choice((1, 2)), dice.choice((1, 2)), dice.choice((1, 3))
    queries, keys = (dice.choice((dice.randint(1, 300), dice.randint(1, 1500), 1024)) for _ in range(2))
    kind = dice.choice(("none", "causal", "lower_right", "window", "top_k", "bits"))
    q = torch.randn(batch, kv_heads * group, queries, dim, device=DEVICE, generator=numbers).to(dtype)
    k, v = (torch.randn(batch, kv_heads, keys, dim, device=DEVICE, generator=numbers).to(dtype) for _ in range(2))
    mask, causal = drawn_mask(dice, numbers, kind, (queries, keys), block)
    backend, wanted = dice.choice(BACKENDS), dice.random() < 0.4
    if wanted:
        q, k, v = (one.requires_grad_() for one in (q, k, v))
    words = f"attention {list(q.shape)} x {list(k.shape)} block {block} {kind} {dtype} {backend} gradients {wanted}"

    def call() -> tuple[Tensor, ...]:
        out = attention(q, k, v, mask, causal=causal or False, backend=backend)
        return (out, *torch.autograd.grad(out.sum(), (q, k, v))) if wanted else (out,)

    def right() -> tuple[Tensor, ...]:
        a, b, c = (one.detach().double().requires_grad_() for one in (q, k, v))
        seen = torch.ones(queries, keys, dtype=torch.bool, device=DEVICE) if mask is None else mask.to_bool()
        if causal:
            seen = seen & BlockMask.causal(queries, keys, alignment=causal, device=DEVICE).to_bool()
        scores = dim**-0.5 * a @ b.repeat_interleave(group, 1).mT
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0.0)
        out = weights @ c.repeat_interleave(group, 1)
        return (out, *torch.autograd.grad(out.sum(), (a, b, c))) if wanted else (out,)

    # a query with one key has an exact gradient of 0, of which rounding leaves something
    return Case(words, call, right, lambda: q.data.mul_(-0.5), (4 * ROUNDING[dtype],) * 2, (0.0, 0.5))


def drawn_mask(
    dice: random.Random, numbers: torch.Generator, kind: str, lengths: tuple[int, int], block: int
) -> tuple[BlockMask | None, str]:
    """A mask and how attention is told to be causal; block 128 where there is no mask."""
    queries, keys = lengths
    if kind in ("none", "causal", "lower_right"):
        return None, {"none": "", "causal": "upper_left"}.get(kind, kind)
    if kind == "window":
        return BlockMask.window(queries, keys, left=dice.randint(0, 400), block=block, device=DEVICE), ""
    blocks = -(-queries // block), -(-keys // block)
    if kind == "top_k":
        scores = torch.rand(1, 1, *blocks, device=DEVICE, generator=numbers)
        return BlockMask.top_k(scores, dice.randint(1, 4), q_len=queries, k_len=keys, block=block), "upper_left"
    return BlockMask.from_bool(torch.rand(queries, keys, device=DEVICE, generator=numbers) < 0.1, block=block), ""


def computed(case: Case, way: str) -> tuple[Tensor, ...]:
    """What the call gives, gone one of the ways."""
    if way == "thread":
        found: list[tuple[Tensor, ...] | BaseException] = []
        thread = threading.Thread(target=lambda: found.append(caught(case.call)))
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]
    if way == "changed":
        case.call()
        case.change()
        return case.call()
    if way == "stream":
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        case.call()
        with torch.cuda.stream(side):
            made = case.call()
        torch.cuda.current_stream().wait_stream(side)
        return made
    if way == "graph":
        case.call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = case.call()
        for one in made:
            one.detach().fill_(math.nan)
        case.change()
        graph.replay()
        return tuple(one.clone() for one in made)
    return case.call()


def caught(call: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...] | BaseException:
    """The result, or what it raised: it is raised again where it is wanted."""
    try:
        return call()
    except (RuntimeError, ValueError, AttributeError, TypeError, AssertionError) as error:
        return error


def off(found: tuple[Tensor, ...], case: Case) -> str:
    """What is off by more than is allowed, relative to the size of what is right; '' where nothing is."""
    for number, (one, other) in enumerate(zip(found, case.right(), strict=True)):
        if not other.numel():
            continue
        kind = min(number, 1)
        size = float(other.detach().norm()) + (case.least[kind] + 1e-6) * math.sqrt(other.numel())
        error = float((one.detach().double() - other.detach()).norm()) / size
        if not error <= case.tolerance[kind]:  # nor is one that is no number
            return f"result {number} is off by {error:.3g}, {case.tolerance[kind]:.3g} is allowed"
    return ""


def once(seed: int) -> tuple[str, str]:
    """One call by its seed: its words and what is wrong with it, or 'right', or 'refused'."""
    dice, numbers = random.Random(seed), torch.Generator(device=DEVICE).manual_seed(seed)
    case = dice.choice((product, attending))(dice, numbers)
    way = dice.choice(WAYS)
    words = f"seed {seed}: {case.words}, {way}"
    try:
        wrong = off(computed(case, way), case)
    except UnsupportedInput as refusal:
        return words, f"refused: {str(refusal)[:60]}"
    except (RuntimeError, AttributeError, TypeError, AssertionError) as failure:
        return words, f"{type(failure).__name__}: {failure}"
    return words, wrong or "right"


def main(arguments: list[str]) -> int:
    """0: every call was right or refused; 1: one was wrong, and it is printed with how to run it alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first call; each has the next number")
    parser.add_argument("--only", type=int, help="one call, by its seed")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    end, said, wrong = time.monotonic() + given.seconds, Counter[str](), ""
    first = given.seed * 1_000_000
    last = first
    for seed in itertools.count(first) if given.only is None else (given.only,):
        words, verdict = once(seed)
        last = seed
        fine = verdict == "right" or verdict.startswith("refused: ")
        said[verdict if fine else "wrong"] += 1
        if not fine:
            wrong = f"{words}: {verdict}"
            print(f"wrong: {wrong}\nrun it alone:\npython -m benchmarks.random_calls --only {seed}")
            break
        if time.monotonic() > end or given.only is not None:
            break
    print(f"seeds {first} to {last}: {dict(said)}")
    if given.out is not None:
        name = torch.cuda.get_device_name() if GPU else "processor"
        row = {"schema": SCHEMA, "device": name, "torch": torch.__version__, "seeds": [first, last], "said": said}
        given.out.write_text(json.dumps(row | {"wrong": wrong}, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
