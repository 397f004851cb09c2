"""The table of sequences of different lengths, from results/ragged-h200.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.contests import OURS, Contest, Contests, ahead_cell, listed, pair, ratio_cell, read, spread, standing, table

RESULTS = Path(__file__).parents[1] / "results" / "ragged-h200.json"
NEW, PADDED, TORCH, FLASH4, IN_ORDER = (
    "ours, new offsets", "ours padded", "cudnn padded", "flash4 varlen", "flash4 varlen deterministic",
)  # fmt: skip
CALLED = {
    OURS: "ours", NEW: "ours, new offsets in every call", PADDED: "ours, padded", TORCH: "cuDNN, padded",
    FLASH4: "FlashAttention-4", IN_ORDER: "FlashAttention-4, deterministic",
}  # fmt: skip


def ragged_part(path: Path = RESULTS) -> str:
    """What docs/kernels/attention.md says of them."""
    found = read(path)
    parts = [_head(found), _table(found.rows), _said(found), _missing(found)]
    return "\n\n".join([*(part for part in parts if part), f"Every sample in `results/{path.name}`."]) + "\n"


def missing(rows: Sequence[Contest]) -> list[str]:
    """Passes of a batch of which the other direction was timed alone, e.g. ['the backward pass of `even`']."""
    there = {(row.name, row.backward) for row in rows}
    return [
        f"the {'forward' if backward else 'backward'} pass of `{name}`"
        for name, backward in sorted(there)
        if (name, not backward) not in there
    ]


def _head(found: Contests) -> str:
    about, heads = found.about, found.rows[0].row["heads"]
    return (
        f"On one {about['gpu']} (driver {about['driver']}, torch {about['torch']}, FlashAttention-4 "
        f"{about['versions']['flash4']} with cu_seqlens, commit {about['commit']}, {about['date']}), causal, bf16, "
        f"{heads[0]} heads on {heads[1]} of keys, head dim 128; all in turns in one process, a group of heads of every "
        "answer held against float64 first. Burst / sustained, measured as "
        "[with full batches](#beside-flashattention-4-and-cudnn) in shorter stretches. Ours with offsets that stay in "
        "milliseconds, **the others as their time over that: below 1 they are faster**. What is padded is padded to "
        "the longest before the clock starts; FlashAttention-4's passes are called without autograd."
    )


def _table(rows: Sequence[Contest]) -> str:
    heads = ["batch", "sequences", "lengths", "of a padded batch", "pass", "ours, ms"]
    lines = []
    for row in rows:
        lengths = row.row["lengths"]
        apart = min(lengths) != max(lengths)
        cells = [
            row.name, str(len(lengths)), f"{min(lengths)} to {max(lengths)}" if apart else str(lengths[0]),
            f"{100 * row.row['real_share']:.0f} %", "backward" if row.backward else "forward", pair(row.times[OURS]),
        ]  # fmt: skip
        others = (ratio_cell(row, name) for name in CALLED if name != OURS)
        lines.append([*cells, *others, ahead_cell(row, CALLED)])
    return table([*heads, *(called for name, called in CALLED.items() if name != OURS), "ahead"], lines, words=5)


def _said(found: Contests) -> str:
    forward, backward = found.way(backward=False), found.way(backward=True)
    uneven = [row for row in found.rows if row.row["real_share"] < 1]
    return " ".join(
        [
            standing(forward, FLASH4, "**Forward**, FlashAttention-4"),
            standing(backward, FLASH4, "**Backward**, FlashAttention-4 in its default mode"),
            standing(backward, IN_ORDER, "Its deterministic mode"),
            _new_offsets([row for row in forward if NEW in row.times]),
            f"Padding costs where lengths differ: ours takes {spread(uneven, PADDED)} times as long padded, torch's "
            f"cuDNN kernel {spread(uneven, TORCH)} times ours without.",
        ]
    )


def _new_offsets(rows: Sequence[Contest]) -> str:
    both = [(row.times[NEW], row.times[OURS]) for row in rows]
    more = [gap for new, kept in both for gap in (new.burst_ms - kept.burst_ms, new.sustained_ms - kept.sustained_ms)]
    beaten = sum(row.fastest_of((NEW, FLASH4)) == (FLASH4, FLASH4) for row in rows)
    return (
        f"**New offsets in every call** take {spread(rows, NEW)} times the time of a forward pass with offsets that "
        f"stay: making the mask costs {min(more):.1f} to {max(more):.1f} ms, once for all layers that share it. "
        f"FlashAttention-4 makes no mask: beside a single call with new offsets it is ahead in {beaten} of these "
        f"{len(rows)} rows."
    )


def _missing(found: Contests) -> str:
    names = missing(found.rows)
    return f"Not measured, as the run's time was up before it: {listed(names)}." if names else ""
