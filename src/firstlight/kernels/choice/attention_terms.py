"""What a pass of attention costs a backend before any fit, in microseconds at peak; see terms.py."""

from __future__ import annotations

import math

from firstlight.kernels.choice.cases import BACKWARD, AttentionCase
from firstlight.kernels.choice.rows import Card
from firstlight.kernels.choice.speeds import Speeds, element_bytes, up, wasted

PASSES = {BACKWARD: 2.5}  # five products where the forward pass has two
MOVED_TWICE = {BACKWARD: 2.0}
TILE = 128
SPLIT_BELOW = 0.8  # tiles to a multiprocessor below which torch's flash kernel splits the keys of each
USUAL_DIMS = (64, 128)  # that torch's fastest kernels are made for


def attention_terms(case: AttentionCase, backend: str, speeds: Speeds) -> tuple[float, ...]:
    """Floor, work, waves, longest path, bytes and items."""
    return _dense_terms(case, speeds) if backend == "dense" else _sparse_terms(case, speeds)


def attention_marks(case: AttentionCase, backend: str, card: Card) -> tuple[float, ...]:
    """Where a pass lies among others of its kind."""
    items = case.batch * case.heads * up(case.q_len, case.block) / card.sms
    shapes = {"full": 0.0, "upper_left": 2.0, "lower_right": 3.0}
    named = 0.8 if backend == "dense" else 0.1  # torch has a kernel for each; ours go by the share of blocks
    return (
        0.25 * math.log(case.q_len), 0.33 * math.log(case.k_len), 0.2 * math.log(case.batch * case.heads),
        0.4 * math.log(max(share_of(case), 1e-3)), named * shapes.get(case.shape, 5.0), 1.3 * math.log2(case.block),
        1.2 * math.log2(case.head_dim / 32), 0.3 * math.log2(case.heads / case.kv_heads), 0.8 * wasted(items),
        0.15 * (case.lists > 1), 0.6 * case.cut,
    )  # fmt: skip


def share_of(case: AttentionCase) -> float:
    """Of the blocks that have to be computed; of a plain shape by its diagonal."""
    if case.shape == "upper_left":
        return 0.5 + 0.5 / up(case.q_len, case.block)
    if case.shape == "lower_right":
        return 1.0 - case.q_len / (2.0 * max(case.k_len, case.q_len))
    return 1.0 if case.shape == "full" else case.share


def _dense_terms(case: AttentionCase, speeds: Speeds) -> tuple[float, ...]:
    listed = case.shape == "listed"
    heads, size = case.batch * case.heads, element_bytes(case.dtype)
    queries = up(case.q_len, TILE) * TILE if case.q_len > TILE else case.q_len  # few are not padded
    flops = 4.0 * heads * queries * up(case.k_len, TILE) * TILE * case.head_dim * PASSES.get(case.operation, 1.0)
    work = flops * (1.0 if listed else share_of(case)) / speeds.flops_us
    waves = heads * up(case.q_len, TILE) / speeds.sms
    mask = case.lists * case.q_len * case.k_len * size if listed else 0
    logits = heads * case.q_len * case.k_len * size if listed else 0
    grouped = listed and case.heads != case.kv_heads
    copied = 2 * heads * case.k_len * case.head_dim * size if grouped else 0
    path = case.k_len * case.head_dim * TILE * 4.0 * PASSES.get(case.operation, 1.0) / (speeds.flops_us / speeds.sms)
    return (
        1.0, work, work * (wasted(waves) - 1.0), _moved(case) / speeds.bytes_us, mask / speeds.bytes_us,
        copied / speeds.bytes_us, logits / speeds.bytes_us, path, work * (case.q_len < TILE),
        work * (case.head_dim <= 64), work * (case.head_dim not in USUAL_DIMS), work * (case.shape == "lower_right"),
        path * _in_turn(case, waves),
    )  # fmt: skip


def _in_turn(case: AttentionCase, waves: float) -> float:
    """How often a multiprocessor goes through all keys where torch's kernel does not share those of one tile out."""
    if case.shape == "listed":
        return math.ceil(waves)
    if case.shape != "lower_right" or case.operation == BACKWARD:
        return 0.0
    return math.ceil(waves) if waves >= SPLIT_BELOW else waves


def _sparse_terms(case: AttentionCase, speeds: Speeds) -> tuple[float, ...]:
    rows, columns = up(case.q_len, case.block), up(case.k_len, case.block)
    heads, times = case.batch * case.heads, PASSES.get(case.operation, 1.0)
    block = 4.0 * case.block**2 * case.head_dim * times / speeds.flops_us
    share = share_of(case)
    work = heads * rows * columns * share * block
    items = heads * rows
    longest = columns if case.shape != "listed" else share * columns
    backward = case.operation == BACKWARD
    ragged = case.q_len % case.block != 0 or case.k_len % case.block != 0
    return (
        1.0, work, work * min(wasted(items / speeds.sms) - 1.0, 4.0), longest * block * speeds.sms,
        _moved(case) / speeds.bytes_us, items / 1e3, heads * columns / 1e3 * backward, work * 64 / case.head_dim,
        work * case.cut, work * ragged, heads * columns * share * block * backward * (rows < 4),
    )  # fmt: skip


def _moved(case: AttentionCase) -> float:
    """Bytes of q, k, v and the output, each once; gradients beside them."""
    size = element_bytes(case.dtype)
    queries = 2 * case.batch * case.heads * case.q_len
    keys = 2 * case.batch * case.kv_heads * case.k_len
    return size * case.head_dim * (queries + keys) * MOVED_TWICE.get(case.operation, 1.0)
