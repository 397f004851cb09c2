"""Cases to measure, drawn at random over what people multiply: sizes, tokens, densities, masks, types.

Drawn and not laid out in a grid: as many rows then say more about each size alone. The same seed draws the same cases.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firstlight.kernels.choice.cases import BACKWARD, FORWARD, MULTIPLY, SAMPLE, TURNED, AttentionCase, ProductCase

PRODUCT_WORK = 1.5e12  # multiplications of the same product dense: about 4 ms on an H200
ATTENTION_WORK = 6e11  # of the kept blocks alone
DENSE_ATTENTION_WORK = 1.2e12  # of all blocks, which dense computes
SMALL_PRODUCT, SMALL_ATTENTION = 2e10, 5e9  # below these most that is drawn is drawn again: choosing saves little
SMALL_KEPT = 0.3
SLOW_TYPE = 12.0  # float32 takes about so many times as long


@dataclass(frozen=True, slots=True)
class Masked:
    """An attention case and how its mask is made, e.g. 'window'; kept is not known before it is."""

    case: AttentionCase
    mask: str  # plain, random, by_head, window, sink_window, documents
    share: float


def drawn_products(count: int, *, seed: int, dtypes: Sequence[str]) -> Iterator[ProductCase]:
    """So many products, e.g. 1000; dtypes are taken as often as they are named."""
    dice = random.Random(seed)  # noqa: S311 a draw of cases, not of secrets
    found = 0
    while found < count:
        case = _product(dice, dtypes)
        work = case.rows * case.cols * case.tokens * _slowness(case.dtype)
        if work <= PRODUCT_WORK and (work >= SMALL_PRODUCT or dice.random() < SMALL_KEPT):
            found += 1
            yield case


def _product(dice: random.Random, dtypes: Sequence[str]) -> ProductCase:
    operation = _taken(dice, {MULTIPLY: 55, TURNED: 20, SAMPLE: 25})
    block = dice.choice((128, 128, 64, 64, 32, 16))
    rows, cols = (_side(dice, block) for _ in range(2))
    density = math.exp(dice.uniform(math.log(0.01), 0.0))
    places = -(-rows // block) * -(-cols // block)
    epilogue = operation == MULTIPLY and dice.random() < 0.45
    return ProductCase(
        operation, _taken(dice, {"tokens": 70, "columns": 30}), block, dice.choice(dtypes), rows, cols,
        max(1, round(density * places)), _tokens(dice),
        _taken(dice, {"none": 4, "relu": 2, "gelu": 4, "gelu_tanh": 2, "silu": 5}) if epilogue else "none",
        int(epilogue and dice.random() < 0.5),
    )  # fmt: skip


def _side(dice: random.Random, block: int) -> int:
    size = math.exp(dice.uniform(math.log(640), math.log(18000)))
    if dice.random() < 0.1:
        return round(size)  # any number
    unit = max(block, dice.choice((64, 128, 256)))
    return max(1, round(size / unit)) * unit


def _tokens(dice: random.Random) -> int:
    kind = dice.random()
    size = math.exp(dice.uniform(0.0 if kind < 0.15 else math.log(48), math.log(24000)))
    if kind < 0.3:
        return max(1, round(size))
    unit = dice.choice((8, 64, 128, 256))
    return max(1, round(size / unit)) * unit


def drawn_attention(count: int, *, seed: int, dtypes: Sequence[str]) -> Iterator[Masked]:
    """So many attention cases, forward and backward in turn as drawn."""
    dice = random.Random(seed)  # noqa: S311 a draw of cases, not of secrets
    found = 0
    while found < count:
        drawn = _attention(dice, dtypes)
        case = drawn.case
        heavy = (2.5 if case.operation == BACKWARD else 1.0) * _slowness(case.dtype)
        products = heavy * case.batch * case.heads * case.q_len * case.k_len * case.head_dim * 2
        kept = products * drawn.share
        if kept <= ATTENTION_WORK and (kept >= SMALL_ATTENTION or dice.random() < SMALL_KEPT):
            found += 1
            yield drawn


def _attention(dice: random.Random, dtypes: Sequence[str]) -> Masked:
    kind = _taken(
        dice, {"full": 10, "upper_left": 11, "lower_right": 8, "random": 26, "by_head": 14, "window": 14,
               "sink_window": 9, "documents": 8}
    )  # fmt: skip
    block = dice.choice((128, 128, 64))
    heads = dice.choice((1, 4, 8, 12, 16, 24, 32, 40, 64))
    group = dice.choice((1, 1, 1, 2, 4, 8))
    k_len = _length(dice, 256, 66000)
    q_len = k_len
    if kind in ("lower_right", "window", "random", "full") and dice.random() < (1.0 if kind == "lower_right" else 0.2):
        q_len = min(k_len, dice.choice((1, 1, 4, 16, 64, 128, 256, 512, 1024, 2048)))
    shape = kind if kind in ("full", "upper_left", "lower_right") else "listed"
    if shape == "lower_right" and q_len == k_len:
        shape = "upper_left"
    if shape == "lower_right" and q_len == 1:
        shape = "full"
    batch = dice.choice((1, 1, 2, 4, 8, 16))
    share = {"full": 1.0, "upper_left": 0.5, "lower_right": 1.0 - q_len / (2 * k_len)}.get(
        shape, math.exp(dice.uniform(math.log(0.02), math.log(0.95)))
    )
    case = AttentionCase(
        _taken(dice, {FORWARD: 58, BACKWARD: 42}), shape, 128 if shape != "listed" else block, dice.choice(dtypes),
        dice.choice((128, 128, 128, 128, 64, 64, 64, 96, 256, 32)), batch, heads,
        heads // group if heads % group == 0 else heads, q_len, k_len, 1, 0,
    )  # fmt: skip
    return Masked(case, kind if shape == "listed" else "plain", share)


def _slowness(dtype: str) -> float:
    return {"float32": SLOW_TYPE, "tf32": 2.0}.get(dtype, 1.0)


def _length(dice: random.Random, least: int, most: int) -> int:
    size = math.exp(dice.uniform(math.log(least), math.log(most)))
    unit = 1 if dice.random() < 0.2 else dice.choice((64, 128, 512))
    return max(1, round(size / unit)) * unit


def _taken(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(tuple(weights), tuple(weights.values()))[0]
