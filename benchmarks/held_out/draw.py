"""Draws the questions of benchmarks/regret.py: shapes of published models, sizes and patterns by dice with a seed.

    python -m benchmarks.held_out.draw --out FOLDER [--seed 2211] [--products 72] [--attention 52]

Writes products.json, attention.json and patterns.py into FOLDER. The rule knows nothing of choice/drawn.py, which draws
the rows that the models are fitted to: it takes the widths of published models, and any number of tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

WIDTHS = (2048, 2304, 2560, 2880, 3072, 3584, 4096, 4608, 5120, 6144, 7168, 8192)
HIDDEN = (5632, 6912, 8192, 8960, 9728, 11008, 12288, 13824, 14336, 16384, 18432, 18944, 21504, 22016, 28672)
MOST_FLOPS = 2.5e12  # of a product stored dense
MOST_SCORES = 5e10  # queries times keys, times heads and batch
Question = dict[str, Any]


def between(dice: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is drawn evenly."""
    return math.exp(dice.uniform(math.log(low), math.log(high)))


def length(dice: random.Random, low: int, high: int) -> int:
    """Any number, or one that is a multiple of something usual."""
    step = dice.choice((1, 8, 16, 64, 128, 256))
    return max(step, round(between(dice, low, high) / step) * step)


def product(dice: random.Random, number: int) -> Question:
    """One product question."""
    while True:
        sides = [dice.choice(WIDTHS), dice.choice(HIDDEN if dice.random() < 0.7 else WIDTHS)]
        dice.shuffle(sides)
        tokens = length(dice, 256, 20000)
        if 2 * sides[0] * sides[1] * tokens <= MOST_FLOPS:
            break
    direction = dice.choices(("forward", "dx", "dw", "training"), (10, 4, 3, 3))[0]
    activation = dice.choices(("none", "relu", "silu", "gelu"), (12, 2, 3, 3))[0] if direction == "forward" else "none"
    kind = dice.choices(("random", "band", "skewed"), (7, 2, 2))[0]
    block = dice.choices((128, 64, 32, 16), (9, 5, 3, 2))[0]
    density = round(between(dice, 0.03, 0.6), 3)
    return {
        "id": f"p{number}", "name": f"{kind} {sides[0]}x{sides[1]} x {tokens}, block {block}, density {density}",
        "rows": sides[0], "columns": sides[1], "tokens": tokens, "block": block, "direction": direction,
        "dtype": dice.choice(("bf16", "bf16", "fp16")), "tf32": False,
        "layout": "linear" if dice.random() < 0.75 else "matmul", "bias": dice.random() < 0.25,
        "activation": activation, "dense_copy_kept": direction == "forward" and dice.random() < 0.3, "gated": False,
        "pattern": {"kind": kind, "density": density, "seed": dice.randrange(1 << 30)},
    }  # fmt: skip


def mask(dice: random.Random) -> Question:
    """What a query sees."""
    kind = dice.choice(("causal", "window", "window", "blocks", "blocks", "blocks", "strided", "documents"))
    made: Question = {"kind": kind, "seed": dice.randrange(1 << 30)}
    if kind == "causal":
        made["alignment"] = "bottom-right"
    elif kind == "window":
        made |= {"left": int(between(dice, 128, 4096)), "right": 0, "alignment": "bottom-right"}
        made["sink"] = dice.choice((0, 0, 4, 64))
    elif kind == "strided":
        made |= {"stride": dice.choice((4, 8, 16)), "window": int(between(dice, 128, 1024))}
        made["alignment"] = "bottom-right"
    elif kind == "documents":
        made |= {"count": dice.randint(2, 12), "causal": dice.random() < 0.7}
    else:
        made |= {"density": round(between(dice, 0.05, 0.8), 3), "per_head": dice.random() < 0.5}
        made["causal"] = dice.random() < 0.4
    return made


def attention(dice: random.Random, number: int) -> Question:
    """One attention question."""
    while True:
        batch, heads = dice.choice((1, 1, 2, 4)), dice.choice((8, 16, 24, 32, 40, 64))
        queries = length(dice, 700, 33000)
        keys = queries if dice.random() < 0.8 else queries + length(dice, 256, 16000)
        seen, direction = mask(dice), dice.choices(("forward", "backward"), (3, 2))[0]
        if seen["kind"] in ("documents", "strided"):
            keys = queries
        if batch * heads * queries * keys <= MOST_SCORES and (direction == "forward" or queries == keys):
            break
    block, dim = dice.choice((64, 128, 128)), dice.choice((64, 128, 128))
    return {
        "id": f"a{number}", "name": f"{seen['kind']} {batch}x{heads}x{queries}x{keys}x{dim}, block {block}",
        "batch": batch, "heads": heads, "kv_heads": heads // dice.choice((1, 1, 4, 8)), "q_len": queries,
        "kv_len": keys, "head_dim": dim, "block": block, "dtype": dice.choice(("bf16", "bf16", "fp16")),
        "direction": direction, "mask": seen,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2211)
    parser.add_argument("--products", type=int, default=72)
    parser.add_argument("--attention", type=int, default=52)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    dice = random.Random(given.seed)
    drawn = {
        "products": [product(dice, number) for number in range(given.products)],
        "attention": [attention(dice, number) for number in range(given.attention)],
    }
    for name, questions in drawn.items():
        (given.out / f"{name}.json").write_text(json.dumps(questions, indent=1) + "\n", encoding="utf-8")
    shutil.copy(Path(__file__).with_name("patterns.py"), given.out / "patterns.py")


if __name__ == "__main__":
    main()
