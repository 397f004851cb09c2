"""Measures on this GPU what each backend takes for products and attention, and writes the rows that `auto` goes by.

Cases are drawn at random (choice/drawn.py), common ones alone, as every other one would have kernels of its own to
compile. Measuring stops when the budget is spent, and what was measured until then is written beside the rows of
earlier runs: of other types, and of the cases that this run did not reach.
"""

from __future__ import annotations

import datetime
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from firstlight.errors import BadInput, CouldNotLook, UnsupportedInput
from firstlight.kernels.backends import why_not
from firstlight.kernels.block_attention.choose import forget_choices as forget_attention
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.drawn import Masked, drawn_attention, drawn_products
from firstlight.kernels.choice.measuring import Stopwatch, attention_times, product_times
from firstlight.kernels.choice.rows import Machine, Row, cache_file, document, in_cache, parsed, with_rows
from firstlight.kernels.choose import SPARSE, forget_choices

LEAST_BUDGET_S = 1.0
SEED = 7  # another draw than the rows that ship
EACH = 160  # cases of products, and of attention
ROUND = 16  # sizes that are no multiple of this have kernels of their own
Drawn = ProductCase | Masked


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured and where it was written, e.g. 96 of 320 cases in 60.2 s."""

    machine: Machine
    path: str
    planned: int
    seconds: float
    kept: int = 0  # rows of earlier runs that stay beside them
    too_large: int = 0  # cases that no backend had the memory for


def plan(dtype: str = "float16") -> tuple[Drawn, ...]:
    """The cases in the order in which they are measured: products and attention in turn."""
    products = (case for case in drawn_products(20 * EACH, seed=SEED, dtypes=(dtype,)) if _is_common_product(case))
    attention = (case for case in drawn_attention(20 * EACH, seed=SEED, dtypes=(dtype,)) if _is_common_attention(case))
    pairs = zip(itertools.islice(products, EACH), itertools.islice(attention, EACH), strict=True)
    return tuple(case for pair in pairs for case in pair)


def _is_common_product(case: ProductCase) -> bool:
    whole = all(size % ROUND == 0 for size in (case.rows, case.cols, case.tokens))
    return whole and case.layout == "tokens" and case.activation == "none" and not case.extras


def _is_common_attention(drawn: Masked) -> bool:
    case = drawn.case
    whole = case.q_len % case.block == 0 and case.k_len % case.block == 0
    return whole and case.head_dim == 128 and case.heads == case.kv_heads


def autotune(
    *, budget_s: float, dtype: str = "float16", device: int = 0, path: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:  # fmt: skip
    """Measures until the budget is spent and writes the rows, whole or not at all; later calls use them at once.

    Rows of earlier runs stay; a case that is measured again has its new times.
    """
    if not budget_s >= LEAST_BUDGET_S:  # so that NaN is refused too
        raise UnsupportedInput(
            f"the budget is {budget_s:g} seconds; {LEAST_BUDGET_S:g} or more is accepted, e.g. 110, in which about a "
            "hundred cases are measured."
        )
    backends = (*_backends_here(device, getattr(torch, dtype)), "dense")
    gpu = card_of(device).gpu
    earlier(path, gpu)  # what cannot be read back is said before anything is measured
    began = time.monotonic()
    cases = plan(dtype)
    rows: list[Row] = []
    too_large = 0
    with torch.cuda.device(device):
        watch = Stopwatch()
        for number, case in enumerate(cases, 1):
            if time.monotonic() - began > budget_s:
                break
            row = measured(case, watch, backends=backends, seed=number)
            if not row.us:
                too_large += 1
                continue
            rows.append(row)
            say(f"{number}/{len(cases)} {shown(row)}")
    if not rows:
        raise CouldNotLook(
            f"no case could be timed on {gpu}: its memory was too small or taken. Nothing was written; free memory and "
            "run it again."
        )
    machine = Machine(
        card_of(device), torch.__version__, _triton_version(), datetime.date.today().isoformat(),
        "firstlight kernels autotune", tuple(rows),
    )  # fmt: skip
    target = path or cache_file(gpu)
    merged = with_rows(earlier(path, gpu), machine)
    write_whole(target, document(merged))
    forget_choices()
    forget_attention()
    kept = len(merged[-1].rows) - len({row.case for row in rows})
    return Tuned(machine, str(target), len(cases), time.monotonic() - began, kept, too_large)


def earlier(path: Path | None, gpu: str) -> tuple[Machine, ...]:
    """The machines that lie where rows will be written; BadInput where a file there is none of ours."""
    if path is None:
        return in_cache(gpu)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: it cannot be read ({error}). Give another --out FILE.") from error
    return parsed(text, str(path))


def measured(case: Drawn, watch: Stopwatch, *, backends: tuple[str, ...], seed: int) -> Row:
    """One row: what every backend that can takes for a case."""
    if isinstance(case, ProductCase):
        return Row(case, tuple(product_times(case, watch, backends=backends, seed=seed).items()))
    told, found = attention_times(case, watch, backends=backends, seed=seed)
    return Row(told, tuple(found.items()))


def shown(row: Row) -> str:
    """A row as a line, e.g. 'multiply block 64 4096x1024, 2048 tokens, density 0.10: sm90 41.2 us, triton 50.1 us'."""
    case = row.case
    if isinstance(case, ProductCase):
        what = f"{case.operation} block {case.block} {case.rows}x{case.cols}, {case.tokens} tokens"
        what += f", density {case.density:.2f}"
    else:
        what = f"attention {case.operation} block {case.block} {case.q_len}x{case.k_len}, {case.shape}"
    times = [(name, us) for name, us in row.us if name in (*SPARSE, "dense")]
    return f"{what}: " + ", ".join(f"{name} {us:.1f} us" for name, us in sorted(times, key=lambda item: item[1]))


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    try:
        with open(scratch, "x", encoding="utf-8") as file:  # never through a link that lies there
            file.write(text)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _backends_here(device: int, dtype: torch.dtype) -> tuple[str, ...]:
    """The sparse kernels that run there, e.g. ('triton', 'sm90'); CouldNotLook where none does."""
    if not torch.cuda.is_available() or not 0 <= device < torch.cuda.device_count():
        raise CouldNotLook(
            f"autotune measures on CUDA device {device}, and torch sees {torch.cuda.device_count()} devices. "
            f"`firstlight doctor` says why."
        )
    hurdles = {name: why_not(name, device, dtype) for name in SPARSE}
    found = tuple(name for name, hurdle in hurdles.items() if not hurdle)
    if not found:
        raise CouldNotLook(f"autotune has nothing to measure: {'; '.join(hurdles.values())}.")
    return found


def _triton_version() -> str:
    return next(_versions_of("triton"), "")


def _versions_of(name: str) -> Iterator[str]:
    from importlib import metadata

    try:
        yield metadata.version(name)
    except metadata.PackageNotFoundError:
        return
