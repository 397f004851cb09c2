"""Our own block-sparse linear layers: work on stored blocks only, by the portable kernel or, on a CPU, by reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import capability_needs, torch_needs
from firstlight.bench.cases.settings import settings_for, under
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.bench.operator_counts import Work
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

    from firstlight.kernels.matrix import BlockSparseMatrix

SIZE = 4096
TRITON, REFERENCE = "triton", "reference"


@dataclass(frozen=True, slots=True)
class SparseLinear:
    """x [tokens, cols] @ W.T with W [rows, cols] of square blocks, a share of which is stored."""

    dtype: str
    tokens: int
    rows: int
    cols: int
    block: int
    density: float
    backend: str

    @property
    def case_id(self) -> str:
        """E.g. block-sparse/fp16/b128-d0.1/m4096-k4096-n4096."""
        shape = f"m{self.tokens}-k{self.cols}-n{self.rows}"
        return f"block-sparse/{self.dtype}/b{self.block}-d{self.density:g}/{shape}"

    @property
    def stored(self) -> int:
        """Blocks that are stored, e.g. 102 of 1024."""
        return round(self.density * (self.rows // self.block) * (self.cols // self.block))


def cases(place: Place) -> tuple[Case, ...]:
    """Blocks of 128 and 64 at one tenth and one half; not in the quick suite, since the kernels are compiled first."""
    rows = (
        (128, 0.1, Effort.STANDARD),
        (128, 0.5, Effort.STANDARD),
        (64, 0.1, Effort.STANDARD),
        (64, 0.5, Effort.RIGOROUS),
    )
    needs = triton_needs(place)
    return tuple(
        linear_case(SparseLinear("fp16", SIZE, SIZE, SIZE, block, density, TRITON), effort=effort, needs=needs)
        for block, density, effort in rows
    )


def cpu_case() -> Case:
    """A small one for a machine without a GPU."""
    small = SparseLinear("fp32", 256, 512, 512, 64, 0.1, REFERENCE)
    return linear_case(small, effort=Effort.QUICK, needs=torch_needs("block-sparse kernels"), devices="cpu")


def triton_needs(place: Place) -> str:
    """Why the portable kernel cannot run at a place, e.g. that triton is not installed."""
    from importlib.util import find_spec

    if too_old := torch_needs("block-sparse kernels"):
        return too_old
    if find_spec("triton") is None:
        return "block-sparse kernels need triton, which is not installed"
    return capability_needs("block-sparse kernels", place, least=(8, 0))


def linear_case(case: SparseLinear, *, effort: Effort, needs: str = "", devices: str = "cuda") -> Case:
    """One layer; its limit is that of the stored blocks, what a dense layer would do stands beside it."""
    work = stored_work(case)
    return Case(
        id=case.case_id,
        family="block-sparse",
        params=(
            ("m", str(case.tokens)),
            ("k", str(case.cols)),
            ("n", str(case.rows)),
            ("block", str(case.block)),
            ("density", f"{case.density:g}"),
            ("stored_blocks", str(case.stored)),
            ("backend", case.backend),
            ("accumulate", "fp32"),
        ),
        dtype=case.dtype,
        work=work,
        peak=case.dtype,
        prepare=partial(prepare_linear, case),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[case.dtype],
        least_effort=effort,
        devices=(devices,),
        needs=needs,
    )


def stored_work(case: SparseLinear) -> Work:
    """2 FLOP for every stored element and token; stored blocks, activations, output and block columns move once."""
    elements = case.stored * case.block**2
    width = data.ELEMENT_BYTES[case.dtype]
    lists = 4 * (case.stored + case.rows // case.block + 1)
    moved = width * (elements + case.tokens * (case.cols + case.rows)) + lists
    dense_flops = 2 * case.tokens * case.rows * case.cols
    return Work(2 * elements * case.tokens, dense_flops, moved, "stored-blocks-2mkn", "min-rw")


def prepare_linear(case: SparseLinear, place: Place, sets: int) -> Prepared:
    """Activations of unit variance; one pattern, and stored blocks of their own for every buffer set."""
    import torch

    from firstlight.kernels import BlockSparseMatrix, linear

    dtype = data.torch_dtype(case.dtype)
    inputs: list[tuple[Tensor, BlockSparseMatrix]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        if not inputs:
            matrix = BlockSparseMatrix.random(
                case.rows, case.cols, block=case.block, density=case.density, dtype=dtype, device=place.device,
                generator=random,
            )  # fmt: skip
        values = data.normal(tuple(matrix.values.shape), case.dtype, random, std=(case.density * case.cols) ** -0.5)
        inputs.append((data.normal((case.tokens, case.cols), case.dtype, random), matrix.with_values(values)))
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    settings = settings_for(case.dtype)

    def call_for(x: Tensor, weight: BlockSparseMatrix) -> Any:
        def call() -> Tensor:
            with torch.no_grad():
                return linear(x, weight, backend=case.backend)

        return under(settings, call)

    calls = tuple(data.holding(call_for(*each), box) for each, box in zip(inputs, boxes, strict=True))
    _require_kernel(calls[0])

    def check() -> float:
        shape = (case.tokens, case.rows)
        out = data.call_on_poison(calls[0], boxes[0], shape=shape, dtype=case.dtype, place=place)
        x, weight = inputs[0]
        rows, columns = data.spread(case.tokens, place), data.spread(case.rows, place)
        wanted = x[rows].double() @ weight.to_dense()[columns].double().t()
        return data.relative_error(out[rows][:, columns], wanted)

    return Prepared(calls, check)


def _require_kernel(call: Callable[[], object]) -> None:
    """The first call compiles a kernel and a launcher in C: what that lacks here is a reason to skip the case."""
    from subprocess import CalledProcessError

    from firstlight.errors import UnsupportedInput

    try:
        call()
    except UnsupportedInput as error:
        raise Unavailable(str(error)) from None
    except CalledProcessError as error:
        raise Unavailable(f"triton could not build its launcher: {error}") from None
    except RuntimeError as error:
        if "C compiler" not in str(error):
            raise
        raise Unavailable(f"triton needs a C compiler for its launcher: {error}") from None
