"""What a case costs a backend before any fit: work, waves, bytes, epilogue and path, each in microseconds at peak.

A fit multiplies each by a number of its own. At peak: every multiprocessor of the card at its clock, memory at its
bandwidth; so a fit made on one card speaks for another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from firstlight.kernels.backends import BY_NAME, Arch
from firstlight.kernels.choice.attention_terms import attention_marks, attention_terms
from firstlight.kernels.choice.cases import SAMPLE, AttentionCase, Case, ProductCase
from firstlight.kernels.choice.rows import Card
from firstlight.kernels.choice.speeds import Speeds, element_bytes, up, wasted

COPY = "copy"
ROUND = 16  # elements that Triton reads at once; the others read 8
SHORT = 64  # tokens that any kernel computes at least
EXPENSIVE = {"none": 0.0, "relu": 0.1}  # activations by what they cost beside the others


class Tiling(NamedTuple):
    """How a backend cuts a product: rows and tokens of an item, and the share of depth that its lists name."""

    items: int
    flops: float
    loads: float  # bytes of X and W that items read, most of them from L2


def terms_of(case: Case, backend: str, card: Card) -> tuple[float, ...]:
    """Microseconds at peak of each part of a case, the same parts for all cases of a kind; see fit.py."""
    speeds = Speeds.of(card, case.dtype)
    if isinstance(case, AttentionCase):
        return attention_terms(case, backend, speeds)
    if backend == COPY:
        return _copy_terms(case, speeds)
    return _dense_terms(case, speeds) if backend == "dense" else _sparse_terms(case, backend, speeds)


def marks_of(case: Case, backend: str, card: Card) -> tuple[float, ...]:
    """Where a case lies among others of its kind: the nearer two lie, the more their errors are alike."""
    if isinstance(case, AttentionCase):
        return attention_marks(case, backend, card)
    out, given = case.sides
    most = ROUND if backend == "triton" else 8
    items = _tiling(case, backend, card.sms).items / card.sms if backend == "triton" or backend in BY_NAME else 1.0
    read_odd, written_odd = (math.log2(ROUND / min(one, most)) for one in alignments(case))
    return (
        0.35 * math.log(case.tokens), 0.35 * math.log(out), 0.35 * math.log(given),
        0.5 * math.log(max(case.density, 1e-3)), 0.9 * math.log2(case.block), 0.8 * (case.layout == "tokens"),
        1.5 * EXPENSIVE.get(case.activation, 1.0), 0.3 * case.extras, 1.0 * read_odd,
        1.0 * written_odd, 0.5 * min(wasted(items), 3.0),
        0.3 * (case.operation == "turned"),
    )  # fmt: skip


def alignment(case: ProductCase, most: int) -> int:
    """The largest power of two, up to `most`, that every row that a dense product reads or writes is a multiple of."""
    _, given = case.sides
    if case.operation == SAMPLE:
        pitches: tuple[int, ...] = (case.cols,)
    else:
        pitches = () if case.layout == "tokens" else (given,)
    return min(*alignments(case), *(math.gcd(pitch, most) for pitch in pitches), most)


def alignments(case: ProductCase) -> tuple[int, int]:
    """The largest powers of two, up to 16, that rows of the dense operands and of the result are multiples of."""
    out, given = case.sides
    if case.operation == SAMPLE:  # the result is whole blocks
        return (
            math.gcd(case.rows, case.cols, ROUND) if case.layout == "tokens" else math.gcd(case.tokens, ROUND)
        ), ROUND
    if case.layout == "tokens":
        return math.gcd(given, ROUND), math.gcd(out, ROUND)
    return math.gcd(case.tokens, ROUND), math.gcd(case.tokens, ROUND)


def _copy_terms(case: ProductCase, speeds: Speeds) -> tuple[float, ...]:
    size = element_bytes(case.dtype)
    stored = case.entries * case.block**2 * size
    return 1.0, case.rows * case.cols * size / speeds.bytes_us, stored / speeds.bytes_us, case.entries / 1e4


def _dense_terms(case: ProductCase, speeds: Speeds) -> tuple[float, ...]:
    size, (out, given) = element_bytes(case.dtype), case.sides
    flops = 2.0 * case.rows * case.cols * case.tokens
    across = case.cols if case.operation == SAMPLE else case.tokens
    waves = up(case.rows if case.operation == SAMPLE else out, 128) * up(across, 256) / speeds.sms
    work = flops / speeds.flops_us
    weights, result = case.rows * case.cols * size, out * case.tokens * size
    moved = weights + result + given * case.tokens * size
    if case.operation == SAMPLE:
        moved = 3 * weights + (case.rows + case.cols) * case.tokens * size + 2 * case.entries * case.block**2 * size
    odd = alignment(case, 8)
    return (
        1.0, work, work * (wasted(waves) - 1.0), moved / speeds.bytes_us,
        2 * result / speeds.bytes_us * (case.activation != "none"), result / speeds.bytes_us * case.extras,
        work * (odd == 4), work * (odd == 2), work * (odd == 1), moved / speeds.bytes_us * (odd < 8),
        work * case.density,
    )  # fmt: skip


def _sparse_terms(case: ProductCase, backend: str, speeds: Speeds) -> tuple[float, ...]:
    size, (out, given) = element_bytes(case.dtype), case.sides
    tiling = _tiling(case, backend, speeds.sms)
    work = tiling.flops / speeds.flops_us
    stored = case.entries * case.block**2 * size
    result, read = out * case.tokens * size, given * case.tokens * size
    if case.operation == SAMPLE:
        result, read = stored, (case.rows + case.cols) * case.tokens * size
    waste = wasted(tiling.items / speeds.sms) - 1.0
    read_odd, written_odd = alignments(case)
    once = min(tiling.loads, float(stored + read))  # comes from memory, and from L2 when it is read again
    loads, written = once / speeds.bytes_us + (tiling.loads - once) / speeds.l2_bytes_us, result / speeds.bytes_us
    triton = backend == "triton"
    padded = min(read_odd, written_odd) < 8 and not triton  # those of an Arch compute in padded copies
    turns = backend in BY_NAME and case.layout == "tokens" and case.block < 64 and case.operation != SAMPLE
    by_token = case.layout == "tokens"
    return (
        1.0, work, work * min(waste, 6.0), work * (case.block <= 32), work * (case.block == 16), work * by_token,
        loads, (stored + result + read) / speeds.bytes_us, tiling.items / speeds.sms,
        written * EXPENSIVE.get(case.activation, 1.0), written * case.extras,
        (read + 2 * result) / speeds.bytes_us * padded, read / speeds.bytes_us * turns,
        loads * (triton and read_odd < 16), loads * (triton and read_odd < 8), loads * (triton and read_odd == 1),
        work * (triton and read_odd < 8), written * (triton and written_odd < 16),
        written * (triton and written_odd < 8),
    )  # fmt: skip


def _tiling(case: ProductCase, backend: str, sms: int) -> Tiling:
    if case.operation == SAMPLE:
        return _sampled(case, backend)
    size, (out, given) = element_bytes(case.dtype), case.sides
    if backend == "triton":
        height, tokens, depth = _triton_tile(case)
    else:
        height, tokens, depth = 128, _tokens_of(BY_NAME[backend], case, sms), max(64, case.block)
    groups, tiles = up(out, height), up(case.tokens, tokens)
    rows, width = max(1, height // case.block), max(1, depth // case.block)
    # of each group's steps those that any of its blocks falls into
    steps = given / depth * (1.0 - (1.0 - min(1.0, case.density)) ** (rows * width))
    if rows * width == 1:
        steps = case.entries * case.block / depth / groups
    read = groups * steps * depth
    loads = size * (read * tiles * tokens + read * height * tiles)
    return Tiling(groups * tiles, 2.0 * read * height * tiles * tokens, loads)


def _sampled(case: ProductCase, backend: str) -> Tiling:
    size, block = element_bytes(case.dtype), case.block
    if backend == "triton":
        pairs, height = float(case.entries), block
    else:
        height, rows = 128, 128 // block
        pairs = up(case.rows, 128) * (case.cols / block) * (1.0 - (1.0 - min(1.0, case.density)) ** rows)
    tokens = up(case.tokens, SHORT) * SHORT
    items = math.ceil(pairs * height * block / (128 * 128)) if backend in BY_NAME else case.entries
    return Tiling(max(1, items), 2.0 * pairs * height * block * tokens, size * pairs * (height + block) * tokens)


def _triton_tile(case: ProductCase) -> tuple[int, int, int]:
    from firstlight.kernels.product import Layout
    from firstlight.kernels.triton_backend.tiles import Family, Walk, choose_tile

    tile = choose_tile(
        Family.SM90, case.block, element_bytes=element_bytes(case.dtype), tokens=case.tokens,
        layout=Layout(case.layout), density=case.density,
    )  # fmt: skip
    return tile.height, tile.bn, tile.bk if tile.walk is Walk.GROUPS else case.block


def _tokens_of(arch: Arch, case: ProductCase, sms: int) -> int:
    """Tokens of a tile, e.g. 64 where tiles of 256 would not fill the card's multiprocessors."""
    out, given = case.sides
    problem = arch.part("problem").Problem(
        out, given, case.block, case.entries, case.tokens, 1, case.layout == "tokens", turned=False, bf16=False,
        device=0,
    )  # fmt: skip
    tokens: int = arch.part("multiply_plan").tile_of(problem, sms).tokens
    return tokens
