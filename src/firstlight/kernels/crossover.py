"""Up to which density the sparse kernel beats the same matrix stored dense, as measured on a GPU.

One document (schema firstlight.crossover/1) holds machines, each with rows:
    {"operation": "multiply" or "sample", "block": 64, "dtype": "float16", "layout": "tokens" or "columns",
     "rows": 8192, "cols": 8192, "tokens": 4096,
     "dense_us": 745.2,             the same matrix at density 0.5 stored dense, through cuBLAS
     "dense_full_us": 802.0,        at density 1: more power for fewer zeros; left out or 0: not measured
     "copy_us": 61.0,               building that dense copy from the stored blocks
     "sparse_us": [[0.05, 80.1], [0.1, 140.3], [0.3, 395.0]],       density, time of the sparse kernel
     "backend": "triton"}           or "sm90": which sparse kernel that was; left out: triton
Times are medians of CUDA events with the L2 cache overwritten before each call. data/crossover.json ships with the
package; `firstlight kernels autotune` writes the same document for the GPU it runs on into the user's cache folder, and
that one is read first.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from pathlib import Path
from typing import Any

from firstlight.errors import BadInput, NotOurs
from firstlight.frozen import dataclass
from firstlight.owned import our_folder, read_ours

SCHEMA = "firstlight.crossover/1"
SHIPPED = Path(__file__).parent / "data" / "crossover.json"
DENSE_AT = 0.5  # density of the matrix that dense_us is of; at 1 dense_full_us
SAME_SPEED = {"bfloat16": "float16", "float16": "bfloat16"}  # one tensor-core rate; rows of one serve the other


@dataclass(frozen=True, slots=True)
class Row:
    """One measured product, e.g. block 64, float16, tokens layout, 8192 x 8192 with 4096 tokens."""

    operation: str
    block: int
    dtype: str
    layout: str
    rows: int
    cols: int
    tokens: int
    dense_us: float
    copy_us: float
    sparse_us: tuple[tuple[float, float], ...]
    backend: str = "triton"  # whose times sparse_us are
    dense_full_us: float = 0.0  # 0: not measured

    def dense_at(self, density: float) -> float:
        """Microseconds of dense where this share of its blocks is not zero; at its power limit a GPU feels that."""
        if not self.dense_full_us:
            return self.dense_us
        return self.dense_us + max(density / DENSE_AT - 1.0, 0.0) * (self.dense_full_us - self.dense_us)


@dataclass(frozen=True, slots=True)
class Machine:
    """The rows of one GPU model, e.g. 'NVIDIA H200', and what they were measured with."""

    gpu: str
    torch: str
    triton: str
    date: str
    source: str
    rows: tuple[Row, ...]


def crossover(row: Row, *, training: bool) -> float:
    """Density at which the sparse kernel takes as long as dense, e.g. 0.43; never beyond the densities measured.

    When training, the dense copy is rebuilt after each change of the values, and its time counts on the dense side.
    """
    copy_us = row.copy_us if training else 0.0
    start, lead = 0.0, 0.0  # of the last density at which sparse was ahead, and by how much
    for density, time in sorted(row.sparse_us):
        ahead = row.dense_at(density) + copy_us - time
        if ahead < 0.0:
            return start + (density - start) * lead / (lead - ahead) if start else 0.0
        start, lead = density, ahead
    return start


def time_at(row: Row, density: float) -> float:
    """The sparse kernel's time at a density by the measured ones around it, as a share of dense, e.g. 0.31."""
    points = sorted(row.sparse_us)
    before = points[0]
    for point in points[1:]:
        if point[0] >= density:
            share = (density - before[0]) / max(point[0] - before[0], 1e-12)
            return (before[1] + max(share, 0.0) * (point[1] - before[1])) / row.dense_us
        before = point
    return before[1] / row.dense_us


def neighbours(machine: Machine, wanted: Row) -> tuple[Row, ...]:
    """Rows of the same kind whose tokens and size lie next to the wanted ones on either side; empty: none such."""
    same = _same_kind(machine.rows, wanted) or _same_kind(
        machine.rows, _with_dtype(wanted, SAME_SPEED.get(wanted.dtype, ""))
    )
    near = [row for row in same if row.tokens in _around(wanted.tokens, {row.tokens for row in same})]
    sizes = {row.rows * row.cols for row in near}
    return tuple(row for row in near if row.rows * row.cols in _around(wanted.rows * wanted.cols, sizes))


def _same_kind(rows: tuple[Row, ...], wanted: Row) -> list[Row]:
    kind = (wanted.operation, wanted.block, wanted.dtype, wanted.layout, wanted.backend)
    return [row for row in rows if (row.operation, row.block, row.dtype, row.layout, row.backend) == kind]


def _with_dtype(row: Row, dtype: str) -> Row:
    return Row(row.operation, row.block, dtype, row.layout, row.rows, row.cols, row.tokens, 0.0, 0.0, (), row.backend)


def _around(value: int, known: set[int]) -> set[int]:
    lower = [item for item in known if item <= value]
    upper = [item for item in known if item >= value]
    return ({max(lower)} if lower else set()) | ({min(upper)} if upper else set())


def cache_file(gpu: str) -> Path:
    """Where autotune keeps its rows, e.g. ~/.cache/firstlight/kernels/crossover-nvidia-h200.json."""
    base = os.environ.get("FIRSTLIGHT_CACHE_DIR") or ""
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "firstlight")
    plain = "-".join("".join(letter if letter.isalnum() else " " for letter in gpu.lower()).split())
    return Path(base) / "kernels" / f"crossover-{plain}.json"


def machine_for(gpu: str) -> tuple[Machine, Path] | None:
    """The rows for a GPU model and their file: the user's own first, then the shipped ones; None: neither."""
    for path in (cache_file(gpu), SHIPPED):
        try:
            text = path.read_text(encoding="utf-8") if path is SHIPPED else _our_text(path)
        except OSError:
            continue
        for machine in parsed(text, str(path)):
            if machine.gpu == gpu and machine.rows:
                return machine, path
    return None


def _our_text(path: Path) -> str:
    """The text of the user's own rows; one warning, and OSError, where another user could have written them."""
    try:
        with our_folder(os.path.abspath(path.parent)) as folder:
            return read_ours(folder, path.name).decode("utf-8", "replace")
    except NotOurs as error:
        warnings.warn(
            f"{error}: its rows are not used. Set FIRSTLIGHT_CACHE_DIR to a folder of your own.", stacklevel=2
        )
        raise PermissionError(errno.EPERM, str(error)) from error


def parsed(text: str, name: str) -> tuple[Machine, ...]:
    """The machines of a document; BadInput names the file and what is wrong with it."""
    try:
        document: Any = json.loads(text)
        if document["schema"] != SCHEMA:
            raise BadInput(f"{name}: schema is {document['schema']!r}; this version reads {SCHEMA}. {_AGAIN}")
        return tuple(
            Machine(
                gpu=str(machine["gpu"]),
                torch=str(machine["torch"]),
                triton=str(machine["triton"]),
                date=str(machine["date"]),
                source=str(machine["source"]),
                rows=tuple(_row(row) for row in machine["rows"]),
            )
            for machine in document["machines"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{name}: not a {SCHEMA} document ({type(error).__name__}: {error}). {_AGAIN}") from error


_AGAIN = "Delete the file, or write it anew with `firstlight kernels autotune`."


def _row(given: Any) -> Row:
    return Row(
        operation=str(given["operation"]),
        block=int(given["block"]),
        dtype=str(given["dtype"]),
        layout=str(given["layout"]),
        rows=int(given["rows"]),
        cols=int(given["cols"]),
        tokens=int(given["tokens"]),
        dense_us=float(given["dense_us"]),
        copy_us=float(given["copy_us"]),
        sparse_us=tuple((float(density), float(time)) for density, time in given["sparse_us"]),
        backend=str(given.get("backend", "triton")),
        dense_full_us=float(given.get("dense_full_us", 0.0)),
    )


def document(machines: tuple[Machine, ...]) -> str:
    """The document as text, one row a line, ready to be written."""
    lines = [f'{{"schema": "{SCHEMA}", "machines": [']
    for number, machine in enumerate(machines):
        head = {name: getattr(machine, name) for name in ("gpu", "torch", "triton", "date", "source")}
        lines.append(json.dumps(head)[:-1] + ', "rows": [')
        rows = [json.dumps({name: getattr(row, name) for name in Row.__match_args__}) for row in machine.rows]
        lines += [f"  {row}{',' if place < len(rows) - 1 else ''}" for place, row in enumerate(rows)]
        lines.append("]}" + ("," if number < len(machines) - 1 else ""))
    return "\n".join([*lines, "]}"]) + "\n"
