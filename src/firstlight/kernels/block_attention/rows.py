"""What attention was measured to take on a GPU model, by backend: what `auto` goes by where it is known.

One document (schema firstlight.attention/1) holds machines, each with rows:
    {"shape": "listed", "block": 128, "dtype": "float16", "head_dim": 128, "q_len": 4096, "k_len": 4096,
     "us": {"dense": [[1.0, 23520.0]], "triton": [[0.1, 4310.0], [0.25, 8800.0]], "sm90": [[0.1, 2490.0]]}}
shape: full, upper_left, lower_right (block 128 then) or listed. us: share of the blocks that is kept, microseconds;
dense takes as long for any share. It ships as data/attention.json; without that file there are no rows.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from pathlib import Path
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

SCHEMA = "firstlight.attention/1"
SHIPPED = Path(__file__).parent.parent / "data" / "attention.json"
SAME_SPEED = {"bfloat16": "float16", "float16": "bfloat16"}  # one tensor-core rate; rows of one serve the other
FURTHEST = 4.0  # a row serves sizes (queries * keys) up to so many times as large or small
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case and the times of each backend, e.g. listed blocks of 128, float16, head dim 128, 4096 long."""

    shape: str
    block: int
    dtype: str
    head_dim: int
    q_len: int
    k_len: int
    us: tuple[tuple[str, Points], ...]


def nearest(rows: tuple[Row, ...], wanted: Row) -> Row | None:
    """The row of the same kind whose lengths are next to the wanted ones, or None."""
    same = _same_kind(rows, wanted, wanted.dtype) or _same_kind(rows, wanted, SAME_SPEED.get(wanted.dtype, ""))
    near = [row for row in same if _distance(row, wanted) <= math.log(FURTHEST)]
    return min(near, key=lambda row: _distance(row, wanted), default=None)


def times_at(row: Row, share: float) -> dict[str, float]:
    """Microseconds of each backend at a share of blocks, between the measured ones; none is guessed beyond them."""
    found = {}
    for backend, points in row.us:
        time = points[0][1] if backend == "dense" else _between(sorted(points), share)
        if time is not None:
            found[backend] = time
    return found


def _between(points: list[tuple[float, float]], share: float) -> float | None:
    if share < points[0][0]:
        return points[0][1]  # fewer blocks take no longer
    for (low, fast), (high, slow) in itertools.pairwise(points):
        if share <= high:
            return fast + (slow - fast) * (share - low) / max(high - low, 1e-12)
    return points[-1][1] if share <= points[-1][0] * 1.001 else None


def _same_kind(rows: tuple[Row, ...], wanted: Row, dtype: str) -> list[Row]:
    kind = (wanted.shape, wanted.block, dtype, wanted.head_dim)
    return [row for row in rows if (row.shape, row.block, row.dtype, row.head_dim) == kind]


def _distance(row: Row, wanted: Row) -> float:
    return abs(math.log(row.q_len * row.k_len) - math.log(max(1, wanted.q_len * wanted.k_len)))


@functools.lru_cache(maxsize=16)
def rows_for(gpu: str) -> tuple[Row, ...]:
    """The rows of a GPU model, e.g. 'NVIDIA H200'; empty where it was not measured. Read once."""
    try:
        text = SHIPPED.read_text(encoding="utf-8")
    except OSError:
        return ()
    return tuple(row for name, rows in parsed(text, str(SHIPPED)) if name == gpu for row in rows)


def parsed(text: str, name: str) -> tuple[tuple[str, tuple[Row, ...]], ...]:
    """(GPU model, rows) of each machine in a document; BadInput names the file and what is wrong with it."""
    try:
        document: Any = json.loads(text)
        if document["schema"] != SCHEMA:
            raise BadInput(f"{name}: schema is {document['schema']!r}; this version reads {SCHEMA}. {_AGAIN}")
        return tuple((str(one["gpu"]), tuple(_row(row) for row in one["rows"])) for one in document["machines"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{name}: not a {SCHEMA} document ({type(error).__name__}: {error}). {_AGAIN}") from error


_AGAIN = "Install firstlight anew, or take the file away."


def _row(given: Any) -> Row:
    times = [
        (str(backend), tuple((float(share), float(time)) for share, time in points))
        for backend, points in given["us"].items()
    ]
    if not times or not all(points for _, points in times):
        raise ValueError("a row without times")
    return Row(
        shape=str(given["shape"]),
        block=int(given["block"]),
        dtype=str(given["dtype"]),
        head_dim=int(given["head_dim"]),
        q_len=int(given["q_len"]),
        k_len=int(given["k_len"]),
        us=tuple(times),
    )
