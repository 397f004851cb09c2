"""The blocks that a question of draw.py stores or sees, as booleans; every one from its seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.bool_]
Question = dict[str, Any]


def blocks_of(question: Question) -> Blocks:
    """[block rows, block columns]: what a product stores."""
    block, told = question["block"], question["pattern"]
    shape = -(-question["rows"] // block), -(-question["columns"] // block)
    dice, density = np.random.default_rng(told["seed"]), told["density"]
    if told["kind"] == "band":
        row, column = np.arange(shape[0])[:, None] / shape[0], np.arange(shape[1]) / shape[1]
        near: Blocks = np.abs(row - column) <= density / 2
        return near
    if told["kind"] == "skewed":  # few rows hold much
        share = dice.pareto(2.0, shape[0])[:, None] + 0.3
        kept: Blocks = dice.random(shape) < np.minimum(1.0, share * density / share.mean())
        return kept
    even: Blocks = dice.random(shape) < density
    return even


def block_mask(question: Question) -> Blocks:
    """[1, heads or 1, blocks of queries, blocks of keys]: what attention sees; of each row one block at least."""
    block, told = question["block"], question["mask"]
    queries, keys = -(-question["q_len"] // block), -(-question["kv_len"] // block)
    heads = question["heads"] if told["per_head"] else 1
    seen: Blocks = np.random.default_rng(told["seed"]).random((1, heads, queries, keys)) < told["density"]
    place = np.arange(queries)
    seen[:, :, place, np.minimum(keys - 1, place + keys - queries)] = True
    return seen


def document_ids(question: Question) -> npt.NDArray[np.int64]:
    """[length]: the number of the document that a token belongs to."""
    told, size = question["mask"], question["q_len"]
    dice = np.random.default_rng(told["seed"])
    ends = np.sort(dice.choice(np.arange(1, size), told["count"] - 1, replace=False))
    return np.searchsorted(ends, np.arange(size), side="right").astype(np.int64)
