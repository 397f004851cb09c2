"""The tables of attention beside FlashAttention-4 and cuDNN, from results/rivals-h200.json, and a row for README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.contests import OURS, Contest, Contests, ahead_cell, label, listed, pair, ratio_cell, read, standing, table

RESULTS = Path(__file__).parents[1] / "results" / "rivals-h200.json"
PAGE = "docs/kernels/attention.md#beside-flashattention-4-and-cudnn"
CALLED = {
    OURS: "ours", "flash4": "FlashAttention-4", "flash4 deterministic": "FlashAttention-4, deterministic",
    "cudnn lists": "cuDNN, lists of blocks", "cudnn dense": "cuDNN, dense",
}  # fmt: skip
IN_WORDS = {
    "flash4": "FlashAttention-4",
    "flash4 deterministic": "Its deterministic mode, which adds in one order as ours does,",
    "cudnn lists": "The block-sparse attention of cuDNN", "cudnn dense": "The dense kernel of cuDNN",
}  # fmt: skip
ANY_ORDER = "FlashAttention-4 in its default mode, which adds dq in any order,"
FRONT = (("causal", 8192, "causal"),)


def rivals_part(path: Path = RESULTS) -> str:
    """What docs/kernels/attention.md says of them: where it was measured, a table and a verdict for each direction."""
    found = read(path)
    parts = [_head(found)]
    for title, backward in (("Forward", False), ("Backward", True)):
        if rows := found.way(backward=backward):
            parts += [_verdict(title, rows), _table(rows)]
    return "\n\n".join([*parts, _silent(found), f"Every sample, error and clock in `results/{path.name}`."]) + "\n"


def front_rows(path: Path = RESULTS) -> str:
    """A forward pass for the first page, beside who took turns with it."""
    return "".join(
        f"| `attention`, B{row.row['shape'][0]} H{row.row['shape'][1]} S{length} D128, bf16, forward, {words} | "
        f"{row.times[OURS].burst_ms:.2f} ms | "
        + ", ".join(
            f"{called}: {row.times[rival].burst_ms:.2f} ms ({row.ratio(rival).burst_ms:.2f}x ours)"
            for rival, called in (("flash4", "FlashAttention-4"), ("cudnn dense", "cuDNN"))
            if rival in row.times
        )
        + f"; [other masks, and backward]({PAGE}) |\n"
        for name, length, words in FRONT
        for row in read(path).way(backward=False)
        if (row.name, row.row["shape"][2]) == (name, length)
    )


def leads(rows: Sequence[Contest]) -> list[Contest]:
    """Those in which ours has the smallest burst and the smallest sustained figure."""
    return [row for row in rows if row.fastest() == (OURS, OURS)]


def _head(found: Contests) -> str:
    about, versions = found.about, found.about["versions"]
    return (
        f"On one {about['gpu']} (driver {about['driver']}, torch {about['torch']}, commit {about['commit']}, "
        f"{about['date']}), all in turns in one process, two heads of every answer held against float64 first: bf16, "
        f"head dim 128, random data. FlashAttention-4 is {versions['flash4']}, cuDNN's block-sparse attention that of "
        f"nvidia-cudnn-frontend {versions['cudnn lists']}, cuDNN's dense kernel torch's (cuDNN "
        f"{versions['cudnn dense'].rpartition(' ')[2]}). Each figure is burst / sustained: the median of 10 calls "
        f"after a pause with L2 flushed, and 0.6 s back to back, each twice and the two not far apart ({found.apart}). "
        "Ours in milliseconds, **the others as their time over ours: below 1 they are "
        "faster**. FlashAttention-4's passes and cuDNN's block-sparse ones are called without autograd and give the "
        "logarithms of the sums too; cuDNN's block-sparse backward pass turns its lists in every call."
    )


def _verdict(title: str, rows: Sequence[Contest]) -> str:
    first = leads(rows)
    if len(first) == len(rows):
        said = f"**{title}, ours is ahead in all {len(rows)} rows.**"
    else:
        where = f" ({listed([label(row, rows) for row in first])})" if first else ""
        said = f"**{title}, ours is ahead in {len(first)} of {len(rows)} rows{where} and behind in the others.**"
    names = {**IN_WORDS, "flash4": ANY_ORDER} if rows[0].backward else IN_WORDS
    stood = [standing(rows, name, words) for name, words in names.items() if any(name in row.times for row in rows)]
    return " ".join([said, *stood])


def _table(rows: Sequence[Contest]) -> str:
    others = [name for name in CALLED if name != OURS and any(name in row.times for row in rows)]
    heads = ["mask", "shape", "share of blocks", "ours, ms", *(CALLED[name] for name in others), "ahead"]
    lines = []
    for row in rows:
        batch, heads_, length = row.row["shape"]
        cells = [row.name, f"B{batch} H{heads_} S{length}", f"{row.row['density']:.3f}", pair(row.times[OURS])]
        lines.append([*cells, *(ratio_cell(row, name) for name in others), ahead_cell(row, CALLED)])
    return table(heads, lines, words=2)


def _silent(found: Contests) -> str:
    """Why there are dashes: every reason, with whose it is."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        for name, why in row.why_not.items():
            shown = any(name in other.times for other in found.way(backward=row.backward))
            if shown and why not in reasons.setdefault(name, []):
                reasons[name].append(why)
    told = [f"{CALLED[name]}: {'; '.join(why)}" for name, why in reasons.items() if why]
    return f"A dash: who has no such kernel. {'. '.join(told)}." if told else "Everybody takes every mask."
