"""Measured rows, as data: what each backend took for a case on a GPU model.

One document (schema firstlight.choice/1) holds machines: what was measured on, and two lists of rows, `products` and
`attention`. A row is the fields of its case (cases.py) in order and a dictionary of microseconds by backend. Beside
them "copy" is the time of building a product's dense copy (`dense` is with one that is kept), "new sm90" what a new
pattern costs that backend once, on the host's clock. Times are medians of CUDA events, the L2 cache overwritten before
each call. data/choice.json ships with the package; `firstlight kernels autotune` writes the same document for the GPU
it runs on into the user's cache folder.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firstlight.errors import BadInput, NotOurs
from firstlight.kernels.choice.cases import AttentionCase, Case, ProductCase
from firstlight.owned import our_folder, read_ours

SCHEMA = "firstlight.choice/1"
SHIPPED = Path(__file__).parent.parent / "data" / "choice.json"
_AGAIN = "Move the file away; `firstlight kernels autotune` writes a new one."


@dataclass(frozen=True, slots=True)
class Card:
    """What a GPU's times scale with, e.g. Card('NVIDIA H200', '9.0', sms=132, clock_mhz=1980, bandwidth_gbs=4814)."""

    gpu: str
    capability: str
    sms: int
    clock_mhz: float
    bandwidth_gbs: float


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case, e.g. Row(ProductCase(...), (('triton', 83.2), ('sm90', 61.0)))."""

    case: Case
    us: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """The rows of one GPU model and what they were measured with."""

    card: Card
    torch: str
    triton: str
    date: str
    source: str
    rows: tuple[Row, ...]


def cache_file(gpu: str) -> Path:
    """Where autotune keeps its rows, e.g. ~/.cache/firstlight/kernels/choice-nvidia-h200.json."""
    base = os.environ.get("FIRSTLIGHT_CACHE_DIR") or ""
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "firstlight")
    plain = "-".join("".join(letter if letter.isalnum() else " " for letter in gpu.lower()).split())
    return Path(base) / "kernels" / f"choice-{plain}.json"


def shipped() -> tuple[Machine, ...]:
    """The machines whose rows come with the package; none where the file was taken away."""
    try:
        text = SHIPPED.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return parsed(text, str(SHIPPED))


def own(gpu: str) -> Machine | None:
    """The rows that autotune wrote on this GPU model; None: there are none, or, with one warning, they are not ours."""
    try:
        machines = in_cache(gpu)
    except NotOurs as error:
        warnings.warn(
            f"{error}: its rows are not used. Set FIRSTLIGHT_CACHE_DIR to a folder of your own.", stacklevel=2
        )
        return None
    except OSError:
        return None
    return next((machine for machine in machines if machine.card.gpu == gpu and machine.rows), None)


def in_cache(gpu: str) -> tuple[Machine, ...]:
    """What lies where autotune keeps its rows; NotOurs where another user could have written them."""
    path = cache_file(gpu)
    try:
        with our_folder(os.path.abspath(path.parent)) as folder:
            text = read_ours(folder, path.name).decode("utf-8", "replace")
    except FileNotFoundError:
        return ()
    return parsed(text, str(path))


def with_rows(kept: tuple[Machine, ...], measured: Machine) -> tuple[Machine, ...]:
    """What was measured before and what was measured now: a case's time by a backend is the newest, none is lost."""
    others = tuple(machine for machine in kept if machine.card.gpu != measured.card.gpu)
    times: dict[Case, dict[str, float]] = {}
    before = [row for machine in kept if machine.card.gpu == measured.card.gpu for row in machine.rows]
    for row in (*before, *measured.rows):
        times.setdefault(row.case, {}).update(row.us)
    rows = tuple(Row(case, tuple(us.items())) for case, us in times.items())
    return (*others, replace(measured, rows=rows))


def parsed(text: str, name: str) -> tuple[Machine, ...]:
    """The machines of a document; BadInput names the file and what is wrong with it."""
    try:
        document: Any = json.loads(text)
        if document["schema"] != SCHEMA:
            raise BadInput(f"{name}: schema is {document['schema']!r}; this version reads {SCHEMA}. {_AGAIN}")
        return tuple(_machine(one) for one in document["machines"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{name}: not a {SCHEMA} document ({type(error).__name__}: {error}). {_AGAIN}") from error


def _machine(given: Any) -> Machine:
    card = Card(
        str(given["gpu"]), str(given["capability"]), int(given["sms"]), float(given["clock_mhz"]),
        float(given["bandwidth_gbs"]),
    )  # fmt: skip
    if min(card.sms, card.clock_mhz, card.bandwidth_gbs) <= 0:
        raise ValueError(f"{card.gpu} without multiprocessors, clock or bandwidth")
    rows = [_row(ProductCase, row) for row in given["products"]]
    rows += [_row(AttentionCase, row) for row in given["attention"]]
    return Machine(
        card, str(given["torch"]), str(given["triton"]), str(given["date"]), str(given["source"]), tuple(rows)
    )


def _row(kind: type[ProductCase] | type[AttentionCase], given: Any) -> Row:
    *fields, us = given
    words = {"operation", "layout", "dtype", "activation", "shape"}
    if len(fields) != len(kind._fields):
        raise ValueError(f"a row of {len(fields)} fields where {len(kind._fields)} are read")
    read = [str(one) if name in words else int(one) for name, one in zip(kind._fields, fields, strict=True)]
    times = tuple((str(backend), float(time)) for backend, time in us.items())
    if not times:
        raise ValueError("a row without times")
    return Row(kind(*read), times)  # type: ignore[arg-type]


def document(machines: tuple[Machine, ...]) -> str:
    """The document as text, one row a line, ready to be written."""
    lines = [f'{{"schema": "{SCHEMA}", "machines": [']
    for number, machine in enumerate(machines):
        head: dict[str, Any] = {name: getattr(machine.card, name) for name in Card.__match_args__}
        head |= {name: getattr(machine, name) for name in ("torch", "triton", "date", "source")}
        lines.append(json.dumps(head)[:-1] + ', "products": [')
        lines += _lines(machine, ProductCase)
        lines.append('], "attention": [')
        lines += _lines(machine, AttentionCase)
        lines.append("]}" + ("," if number < len(machines) - 1 else ""))
    return "\n".join([*lines, "]}"]) + "\n"


def _lines(machine: Machine, kind: type[ProductCase] | type[AttentionCase]) -> list[str]:
    rows = [json.dumps([*row.case, dict(row.us)]) for row in machine.rows if isinstance(row.case, kind)]
    return [f" {row}{',' if place < len(rows) - 1 else ''}" for place, row in enumerate(rows)]
