"""The kernels' one argument each, as bytes: the structs MultiplyArgs, SampleArgs, TurnArgs, PitchArgs,
ListsArgs, MaskListsArgs, AttentionArgs, GradientArgs, GradientOnceArgs and GradientRowsArgs.

Fields stand here in the order of the struct; a test reads the structs from the sources and compares.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

ALIGNMENT = 64
_MULTIPLY = struct.Struct("<15Q15i2f")
_SAMPLE = struct.Struct("<7Q6if")
_TURN = struct.Struct("<2Q3i4x")
_PITCH = struct.Struct("<2Q4i")
_LISTS = struct.Struct("<19Q13i4x")
_MASK_LISTS = struct.Struct("<7Q6i")
_ATTENTION = struct.Struct("<11Q9if")
_GRADIENT = struct.Struct("<8Q10i2f")
_GRADIENT_ONCE = struct.Struct("<18Q13i2f")
_GRADIENT_ROWS = struct.Struct("<6Q4if")


class MultiplyFields(NamedTuple):
    """MultiplyArgs after its tensor maps w, x, y and c; the first fifteen are addresses."""

    columns: int
    members: int
    portions: int
    block_rows: int
    starts: int
    first_slot: int
    slot_counts: int
    queue: int
    parts: int
    arrivals: int
    bias: int
    values: int
    dense: int
    addend: int
    out: int
    portions_count: int
    tiles: int
    batches: int
    super_tile: int
    two_windows: int
    rows: int
    cols: int
    n: int
    pitch: int
    out_pitch: int
    boxes: int
    activation: int
    plain: int
    gated: int
    never: int
    alpha: float
    beta: float


class SampleFields(NamedTuple):
    """SampleArgs after its tensor maps a and b; the first seven are addresses."""

    columns: int
    members: int
    starts: int
    queue: int
    parts: int
    arrivals: int
    values: int
    groups: int
    splits: int
    batches: int
    depth: int
    rows: int
    cols: int
    alpha: float


class TurnFields(NamedTuple):
    """TurnArgs; from and to are addresses."""

    source: int  # `from` in the struct, a word that Python keeps for itself
    to: int
    rows: int
    cols: int
    pitch: int


class PitchFields(NamedTuple):
    """PitchArgs; from and to are addresses."""

    source: int  # `from` in the struct
    to: int
    from_pitch: int
    to_pitch: int
    there: int
    wanted: int


class ListsFields(NamedTuple):
    """ListsArgs; the first nineteen are addresses."""

    row_starts: int
    columns: int
    blocks: int
    starts: int
    listed: int
    members: int
    grouped: int
    items: int
    first_slot: int
    slot_counts: int
    bits: int
    table: int
    common: int
    weight: int
    sums: int
    order: int
    best: int
    steps: int
    loose: int
    phase: int
    level: int
    wide: int
    entries: int
    block_rows: int
    block_cols: int
    height: int
    width: int
    groups: int
    levels: int
    limit: int
    bound: int
    plain: int


class MaskListsFields(NamedTuple):
    """MaskListsArgs; the first seven are addresses."""

    kinds: int
    which: int
    starts: int
    columns: int
    masks: int
    order: int
    counts: int
    lists: int
    of_head: int
    blocks: int
    turned: int
    most: int
    never: int


class AttentionFields(NamedTuple):
    """AttentionArgs after its tensor maps q, k, v and o; the first eight are addresses, the next three strides."""

    starts: int
    columns: int
    masks: int
    order: int
    bits: int
    out: int
    lse: int
    queue: int
    out_batch: int
    out_head: int
    out_row: int
    items: int
    blocks: int
    heads: int
    group: int
    q_len: int
    k_len: int
    list_batch: int
    list_head: int
    never: int
    scale_log2: float


class GradientFields(NamedTuple):
    """GradientArgs after its tensor maps f, g, x, y, first and second; the first eight are addresses."""

    starts: int
    columns: int
    masks: int
    order: int
    bits: int
    log_sums: int
    deltas: int
    queue: int
    items: int
    blocks: int
    heads: int
    group: int
    pitch: int
    k_len: int
    list_batch: int
    list_head: int
    list_shared: int
    never: int
    scale: float
    scale_log2: float


class GradientOnceFields(NamedTuple):
    """GradientOnceArgs after its tensor maps k, v, q and g; the first twelve are addresses, the next six strides."""

    starts: int
    columns: int
    masks: int
    ranks: int
    bits: int
    log_sums: int
    deltas: int
    sums: int
    turns: int
    dk: int
    dv: int
    queue: int
    dk_batch: int
    dk_head: int
    dk_row: int
    dv_batch: int
    dv_head: int
    dv_row: int
    items: int
    blocks: int
    heads: int
    group: int
    pitch: int
    k_len: int
    list_batch: int
    list_head: int
    list_shared: int
    q_blocks: int
    abreast: int
    upward: int
    never: int
    scale: float
    scale_log2: float


class GradientRowsFields(NamedTuple):
    """GradientRowsArgs; the first three are addresses, the next three strides."""

    sums: int
    turns: int
    dq: int
    batch_step: int
    head_step: int
    row_step: int
    heads: int
    tiles: int
    q_len: int
    unused: int
    scale: float


def multiply_bytes(maps: tuple[bytes, bytes, bytes, bytes], fields: MultiplyFields) -> bytes:
    """704 bytes."""
    return _whole(b"".join(maps) + _MULTIPLY.pack(*fields))


def sample_bytes(maps: tuple[bytes, bytes], fields: SampleFields) -> bytes:
    """384 bytes."""
    return _whole(b"".join(maps) + _SAMPLE.pack(*fields))


def turn_bytes(fields: TurnFields) -> bytes:
    """32 bytes."""
    return _TURN.pack(*fields)


def pitch_bytes(fields: PitchFields) -> bytes:
    """32 bytes."""
    return _PITCH.pack(*fields)


def lists_bytes(fields: ListsFields) -> bytes:
    """208 bytes."""
    return _LISTS.pack(*fields)


def mask_lists_bytes(fields: MaskListsFields) -> bytes:
    """80 bytes."""
    return _MASK_LISTS.pack(*fields)


def attention_bytes(maps: tuple[bytes, bytes, bytes, bytes], fields: AttentionFields) -> bytes:
    """640 bytes."""
    return _whole(b"".join(maps) + _ATTENTION.pack(*fields))


def gradient_bytes(maps: tuple[bytes, bytes, bytes, bytes, bytes, bytes], fields: GradientFields) -> bytes:
    """896 bytes."""
    return _whole(b"".join(maps) + _GRADIENT.pack(*fields))


def gradient_once_bytes(maps: tuple[bytes, bytes, bytes, bytes], fields: GradientOnceFields) -> bytes:
    """768 bytes."""
    return _whole(b"".join(maps) + _GRADIENT_ONCE.pack(*fields))


def gradient_rows_bytes(fields: GradientRowsFields) -> bytes:
    """128 bytes."""
    return _whole(_GRADIENT_ROWS.pack(*fields))


def _whole(packed: bytes) -> bytes:
    return packed + bytes(-len(packed) % ALIGNMENT)
