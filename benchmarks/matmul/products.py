"""Products for run.py: matrices, calls with rotated buffers, checks, and the round robin that times them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.bench.attempts import Attempt
from firstlight.bench.case import Case, Place, Prepared
from firstlight.bench.cases.data import call_on_poison, holding
from firstlight.bench.clocks import Gauge
from firstlight.bench.figures import Setting, case_results
from firstlight.bench.operator_counts import Work
from firstlight.bench.patience import Patience
from firstlight.bench.results import CaseResult, Verdict
from firstlight.bench.rotation import cache_state, how_cold, sets_wanted
from firstlight.bench.stopwatch import Regimes, Stopwatch, Subject
from firstlight.bench.tape import Launching
from firstlight.bench.timers import Timer
from firstlight.frozen import dataclass
from firstlight.kernels import BlockSparseMatrix, linear, matmul
from firstlight.kernels.product import Layout
from firstlight.records import encode

# One burst of five calls after a pause, more of them where they do not agree within 0.5 %; the passes are the repeats.
PATIENCE = Patience(
    passes=3, sustained_passes=0, budget_s=0.15, warm_up_s=0.0, warm_up_limit_s=0.03, settle_s=0.0, sustain_s=0.0,
    block=5, least_samples=5, precise_from=5, most_samples=15, half_width=0.005, host_samples=3, soak_s=2.0,
    run_limit_s=300.0,
)  # fmt: skip
FEW = replace(PATIENCE, block=1, least_samples=3, precise_from=3, most_samples=3)  # for calls of up to 20 ms
PAUSE_S = 0.06  # before every short case, so that the power limit is not yet at work; long ones pause by themselves
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


@dataclass(frozen=True, slots=True)
class Product:
    """One product, e.g. block 128, columns, fp16, 8192 x 8192 with 8192 tokens at density 0.1."""

    block: int
    layout: Layout
    dtype: str
    rows: int
    cols: int
    tokens: int
    density: float

    @property
    def id(self) -> str:
        """E.g. 128/columns/fp16/8192x8192x8192/0.1."""
        return f"{self.block}/{self.layout.value}/{self.dtype}/{self.rows}x{self.cols}x{self.tokens}/{self.density:g}"

    @property
    def is_linear(self) -> bool:
        return self.layout is Layout.TOKENS


@dataclass(frozen=True, slots=True)
class Kit:
    """What products are timed with on one device."""

    place: Place
    timer: Timer
    gauge: Gauge
    setting: Setting
    backend: str  # triton; reference in a rehearsal


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to time: its work, its calls, what checks it; passes 0: as many as the others."""

    case: Case
    calls: tuple[Callable[[], object], ...]
    check: Callable[[], float]
    launching: Launching = Launching.GRAPHS
    patience: Patience = PATIENCE
    passes: int = 0


def matrix_of(product: Product, device: str) -> BlockSparseMatrix:
    """The matrix of a product: the same in every process, and for every number of tokens."""
    name = f"{product.block}/{product.dtype}/{product.rows}x{product.cols}/{product.density:g}"
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(name.encode()))
    return BlockSparseMatrix.random(
        product.rows, product.cols, block=product.block, density=product.density, dtype=DTYPES[product.dtype],
        device=device, generator=generator,
    )  # fmt: skip


def operand_of(product: Product, device: str) -> Tensor:
    """The dense operand of a product: normal random numbers."""
    generator = torch.Generator(device=device).manual_seed(product.tokens)
    shape = (product.tokens, product.cols) if product.is_linear else (product.cols, product.tokens)
    return torch.randn(shape, dtype=DTYPES[product.dtype], device=device, generator=generator)


def random_weight(product: Product, device: str) -> Tensor:
    """A dense matrix of the product's shape, all of it random."""
    generator = torch.Generator(device=device).manual_seed(1)
    shape = (product.rows, product.cols)
    return torch.randn(shape, dtype=DTYPES[product.dtype], device=device, generator=generator)


def sparse_entry(kit: Kit, product: Product, matrix: BlockSparseMatrix, x: Tensor, *, backend: str) -> Entry:
    """Our product over buffers that take turns; the work is that on stored blocks."""
    role = "auto" if backend == "auto" else "sparse"
    stored = matrix.nnz_blocks * product.block**2
    case = case_of(product, role, kit.place, weights=stored)
    pairs = [(matrix, x)]
    pairs += [(matrix.with_values(matrix.values.clone()), x.clone()) for _ in range(sets_wanted(case, kit.place) - 1)]
    boxes: list[list[Any]] = [[] for _ in pairs]
    calls = tuple(
        holding(partial(_sparse, product, each, operand, backend), box)
        for (each, operand), box in zip(pairs, boxes, strict=True)
    )
    return Entry(case, calls, lambda: _error(kit, product, matrix, x, (calls[0], boxes[0])))


def dense_entry(kit: Kit, product: Product, weight: Tensor, x: Tensor, *, role: str) -> Entry:
    """cuBLAS on a dense weight: role 'random' (all of it random) or 'same' (the sparse matrix stored dense)."""
    case = case_of(product, role, kit.place, weights=product.rows * product.cols)
    pairs = [(weight, x)]
    pairs += [(weight.clone(), x.clone()) for _ in range(sets_wanted(case, kit.place) - 1)]
    calls = tuple(holding(partial(dense_product, product, each, operand), []) for each, operand in pairs)
    return Entry(case, calls, lambda: 0.0)


def torch_entry(kit: Kit, product: Product, matrix: BlockSparseMatrix, x: Tensor) -> Entry:
    """torch's own BSR @ dense, as it is without tuning; three samples in one pass."""
    case = case_of(product, "torch", kit.place, weights=matrix.nnz_blocks * product.block**2)
    theirs = matrix.to_torch_bsr()
    box: list[Any] = []
    call = holding(lambda: theirs @ x, box)
    check = partial(_error, kit, product, matrix, x, (call, box))
    return Entry(case, (call,), check, Launching.PLAIN, FEW, passes=1)


def dense_product(product: Product, weight: Tensor, x: Tensor) -> Tensor:
    return functional.linear(x, weight) if product.is_linear else torch.mm(weight, x)


def _sparse(product: Product, matrix: BlockSparseMatrix, x: Tensor, backend: str) -> Tensor:
    return linear(x, matrix, backend=backend) if product.is_linear else matmul(matrix, x, backend=backend)


def case_of(product: Product, role: str, place: Place, *, weights: int) -> Case:
    """What is timed, as the bench's figures and rotation take it; weights: elements of the matrix that are read."""
    flops = 2 * weights * product.tokens
    moved = 2 * (weights + product.tokens * (product.rows + product.cols))
    dense_flops = 2 * product.rows * product.cols * product.tokens
    return Case(
        id=f"{product.id}/{role}",
        family="kernels",
        params=(("role", role),),
        dtype=product.dtype,
        work=Work(flops, dense_flops, moved, "stored-2mnk", "min-rw"),
        peak=product.dtype,
        prepare=_prepared_already,
        set_bytes=moved,
        tolerance=1.0,
        devices=(place.device.partition(":")[0],),
    )


def _prepared_already(place: Place, sets: int) -> Prepared:
    raise AssertionError("run.py prepares its calls itself")


def _error(
    kit: Kit, product: Product, matrix: BlockSparseMatrix, x: Tensor, called: tuple[Callable[[], object], list[Any]]
) -> float:
    """The largest error of any element over its bound; up to 1 is right.

    Bound: one rounding of the result, and 2 k 2^-24 (|W| @ |X|) for sums of k products in float32 (twice, because
    tensor cores cut instead of rounding). The output memory held NaN before the call.
    """
    shape = (product.tokens, product.rows) if product.is_linear else (product.rows, product.tokens)
    call, box = called
    out = call_on_poison(call, box, shape=shape, dtype=product.dtype, place=kit.place)
    weight = matrix.to_dense()
    exact = dense_product(product, weight.double(), x.double())
    size = dense_product(product, weight.abs().float(), x.abs().float()).double()
    longest = int(torch.diff(matrix.pattern.crow).max()) * product.block
    bound = UNIT[x.dtype] * exact.abs() + 2 * longest * 2.0**-24 * size + 2.0**-24
    worst = float(((out.double() - exact).abs() / bound).max())
    return float("inf") if worst != worst else worst


def round_robin(
    kit: Kit, entries: Sequence[Entry], *, passes: int = PATIENCE.passes, pause_s: float = PAUSE_S
) -> dict[str, CaseResult]:
    """Every entry is checked, then timed in pass 1, every one in pass 2 and so on; results by id."""
    attempts = [checked(kit, entry) for entry in entries]
    for number in range(passes):
        for spot, entry in enumerate(entries):
            if attempts[spot].verdict is Verdict.OK and (not entry.passes or number < entry.passes):
                kit.timer.pause(pause_s)
                attempts[spot] = _timed(kit, entry, attempts[spot])
    return {result.id: result for result in case_results(attempts, kit.setting)}


def checked(kit: Kit, entry: Entry) -> Attempt:
    """An entry's result held against its bound, each of its calls made once; what is wrong is not timed."""
    attempt = Attempt(entry.case, cache_state(entry.case, kit.place))
    try:
        error = entry.check()
        for call in entry.calls:
            call()
    except Exception as problem:  # noqa: BLE001 one broken row must not take the others with it
        return replace(attempt, verdict=Verdict.FAILED, reason=f"{type(problem).__name__}: {problem}"[:300])
    if error <= 1:
        return replace(attempt, error_rel=error)
    return replace(attempt, verdict=Verdict.FAILED, reason=f"wrong result: {error:.3g} times the bound")


def _timed(kit: Kit, entry: Entry, attempt: Attempt) -> Attempt:
    cold = how_cold(entry.case, kit.place, sets=len(entry.calls))
    subject = Subject(entry.calls, entry.case.mode, cold, entry.launching, Regimes.BURST_IF_BIG)
    watch = Stopwatch(kit.timer, kit.gauge, patience=entry.patience)
    try:
        timing = watch.time_pass(subject, budget_s=entry.patience.pass_budget_s)
    except RuntimeError as problem:
        return replace(attempt, verdict=Verdict.FAILED, reason=f"{type(problem).__name__}: {problem}"[:300])
    flags = tuple(dict.fromkeys((*attempt.flags, *timing.flags)))
    return replace(attempt, passes=(*attempt.passes, timing), flags=flags)


def seconds_of(result: CaseResult) -> float | None:
    """The median time of one call; None for what could not be timed."""
    return None if result.shown is None else result.shown.time_s.median


def record_of(result: CaseResult) -> dict[str, Any]:
    """What is kept of one timed thing: samples by pass, clocks, what NVML read, how it was checked."""
    figures = [
        {
            "regime": figure.regime.value,
            "median_s": figure.time_s.median,
            "ci95_s": list(figure.time_s.ci95),
            "passes": [
                {
                    "sm_mhz": each.sm_mhz,
                    "samples_s": [float(f"{sample:.5g}") for sample in each.samples],
                }
                for each in figure.passes
            ],
            "telemetry": encode(figure.telemetry) if figure.telemetry is not None else None,
            "flags": list(figure.flags),
        }
        for figure in result.figures
    ]
    return {
        "id": result.id,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "error_over_bound": result.error_rel,
        "flops": result.flops,
        "cache": result.cache,
        "graph_calls": result.graph_calls,
        "flags": list(result.flags),
        "figures": figures,
    }


def brief_of(result: CaseResult) -> dict[str, Any]:
    """The same for one of many: samples and clock."""
    shown = result.shown
    passes = () if shown is None else shown.passes
    return {
        "id": result.id,
        "samples_s": [float(f"{sample:.5g}") for each in passes for sample in each.samples],
        "sm_mhz": [each.sm_mhz for each in passes],
        "flags": list(result.flags),
    }


def compile_all(products: Sequence[Product]) -> list[tuple[str, float, str]]:
    """Runs each product once, so that what it needs is in Triton's cache: (id, seconds, error). For a pool's child."""
    done = []
    for product in products:
        began = time.perf_counter()
        try:
            with torch.no_grad():
                _sparse(product, matrix_of(product, "cuda"), operand_of(product, "cuda"), "triton")
                torch.cuda.synchronize()
            said = ""
        except Exception as error:  # noqa: BLE001 what cannot be compiled here says so again when it is measured
            said = f"{type(error).__name__}: {error}"[:200]
        done.append((product.id, time.perf_counter() - began, said))
    return done


def compile_torch_bsr(products: Sequence[Product]) -> list[tuple[str, float, str]]:
    """The same for torch's BSR kernel."""
    done = []
    for product in products:
        began = time.perf_counter()
        try:
            (matrix_of(product, "cuda").to_torch_bsr() @ operand_of(product, "cuda")).sum().item()
            said = ""
        except Exception as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"[:200]
        done.append((f"{product.id}/torch", time.perf_counter() - began, said))
    return done


class Budget:
    """The clock of the whole run; what does not fit is listed."""

    def __init__(self, seconds: float) -> None:
        self.began = time.monotonic()
        self.seconds = seconds
        self.not_reached: list[str] = []

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began

    def allows(self, what: str) -> bool:
        if self.spent_s < self.seconds:
            return True
        self.not_reached.append(what)
        return False
