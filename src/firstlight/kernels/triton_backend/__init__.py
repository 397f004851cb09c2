"""The portable backend: products compiled by Triton for the GPU at hand. Importing it imports triton.

`multiply` and `sample` are the two requests every backend takes; see firstlight.kernels.product.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue, Layout
from firstlight.kernels.triton_backend.groups_plan import GroupsPlan, plan_groups
from firstlight.kernels.triton_backend.launch import DirectRunner
from firstlight.kernels.triton_backend.problem import Problem, gpu_of, problem_of, require_one_dtype, require_runnable
from firstlight.kernels.triton_backend.relaunch import RowsAgain
from firstlight.kernels.triton_backend.rows_plan import Operands, RowsPlan, plan_rows
from firstlight.kernels.triton_backend.sample_plan import run_sample
from firstlight.kernels.triton_backend.tiles import Tile, Walk, choose_tile

__all__ = ["multiply", "plan_for", "prepare", "sample"]

_PLANS: dict[Problem, RowsPlan | GroupsPlan] = {}


def multiply(index: Index, values: Tensor, dense: Tensor, out: Tensor, *, layout: Layout, epilogue: Epilogue) -> None:
    """out = activation(alpha * (W @ dense) + beta * addend + bias), fully overwritten, on the current stream.

    COLUMNS: dense [batch, cols, n] or [cols, n]; TOKENS: dense [n, cols], out [n, rows]. Inputs are contiguous and
    16-byte aligned. The same bits at every call: no atomics, partial sums are added in a fixed order.
    """
    if out.numel() == 0:
        return
    dtype = dense.dtype
    require_one_dtype(values.dtype, dtype, out.dtype)
    addend, bias = epilogue.addend, epilogue.bias
    if addend is not None and (epilogue.beta == 0.0 or addend.dtype is not dtype):  # beta 0 does not read it
        epilogue = replace(epilogue, addend=None if epilogue.beta == 0.0 else addend.to(dtype))
    if bias is not None and bias.dtype is not dtype:
        epilogue = replace(epilogue, bias=bias.to(dtype))
    _plan(problem_of(index, dense, layout, epilogue))(index, Operands(values, dense, out), epilogue)


def prepare(index: Index, dense: Tensor, *, layout: Layout, epilogue: Epilogue) -> RowsAgain | None:
    """How to start the same product again with other tensors of these shapes; None where there is no quicker way."""
    if epilogue.addend is not None and epilogue.beta == 0.0:
        epilogue = replace(epilogue, addend=None)
    plan = _plan(problem_of(index, dense, layout, epilogue))
    if isinstance(plan, RowsPlan) and isinstance(plan.run, DirectRunner):
        return RowsAgain(plan, index, epilogue)
    return None


def _plan(problem: Problem) -> RowsPlan | GroupsPlan:
    plan = _PLANS.get(problem)
    if plan is None:
        plan = _PLANS[problem] = plan_for(problem)
    return plan


def plan_for(problem: Problem, tile: Tile | None = None) -> RowsPlan | GroupsPlan:
    """The plan for a problem with the table's tile, or with one under trial; compiles what it needs."""
    require_runnable(problem.dtype, problem.index_dtype, problem.device)
    gpu = gpu_of(problem.device)
    if tile is None:
        tokens = problem.n * problem.batch if not problem.tokens else problem.n
        layout = Layout.TOKENS if problem.tokens else Layout.COLUMNS
        density = problem.entries / max(1, problem.block_rows * problem.block_cols)
        element_bytes = problem.dtype.itemsize
        tile = choose_tile(
            gpu.family, problem.block, element_bytes=element_bytes, tokens=tokens, layout=layout, density=density
        )
    return plan_groups(problem, tile, gpu) if tile.walk is Walk.GROUPS else plan_rows(problem, tile, gpu)


def sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """out_values[block of entry] = alpha * A[row block] @ B[:, column block], summed over tokens and batch.

    COLUMNS: a [rows, n], b [cols, n] or both with a batch in front; TOKENS: a [n, rows], b [n, cols]. What lies past a
    ragged edge is written as 0.
    """
    if out_values.numel() == 0:
        return
    run_sample(index, a, b, out_values, layout=layout, alpha=alpha)
