"""A sampled product: what is compiled, and one call of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.pattern import pattern_behind, rows_of_entries
from firstlight.kernels.product import Layout
from firstlight.kernels.tf32 import tf32_allowed
from firstlight.kernels.triton_backend.arguments import (
    INDEX_POINTER,
    POINTER,
    SAMPLED_SIZE_TYPES,
    ProductTraits,
    SampledData,
    SampledLists,
    SampledSizes,
)
from firstlight.kernels.triton_backend.boxes import Boxes, fits_boxes
from firstlight.kernels.triton_backend.launch import Constant, Runner, Spec, runner_for
from firstlight.kernels.triton_backend.problem import Gpu, gpu_of, require_runnable
from firstlight.kernels.triton_backend.sampled import sampled_blocks
from firstlight.kernels.triton_backend.tiles import SampledTile, choose_sampled_tile


class Sampling(NamedTuple):
    """A sampled product as a plan sees it, e.g. 1638 blocks of 64 in [8192, 8192], contraction over 4096 tokens."""

    rows: int
    cols: int
    block: int
    n: int
    batch: int
    tokens: bool
    has_blocks: bool
    blocks_transposed: bool
    dtype: torch.dtype
    index_dtype: torch.dtype
    tf32: bool
    device: torch.device


class SamplePlan(NamedTuple):
    """Ready to run any sampled product of one shape."""

    how: ProductTraits
    run: Runner


_PLANS: dict[Sampling, SamplePlan] = {}


def sampling_of(index: Index, a: Tensor, layout: Layout) -> Sampling:
    """The sampled product of one call."""
    tokens = layout is Layout.TOKENS
    return Sampling(
        index.rows,
        index.cols,
        index.block,
        a.shape[0] if tokens else a.shape[-1],
        a.shape[0] if a.dim() == 3 else 1,
        tokens,
        index.blocks is not None,
        index.blocks_transposed,
        a.dtype,
        index.columns.dtype,
        a.dtype is torch.float32 and tf32_allowed(),
        a.device,
    )


def plan_sample(sampling: Sampling) -> SamplePlan:
    """The plan for a sampled product, made at its first call."""
    found = _PLANS.get(sampling)
    if found is None:
        require_runnable(sampling.dtype, sampling.index_dtype, sampling.device)
        gpu = gpu_of(sampling.device)
        tile = choose_sampled_tile(gpu.family, sampling.block, element_bytes=sampling.dtype.itemsize)
        how = sampled_traits(sampling, tile, gpu)
        found = SamplePlan(how, runner_for(sampled_spec(sampling, how, tile), sampling.device))
        _PLANS[sampling] = found
    return found


def sampled_traits(sampling: Sampling, tile: SampledTile, gpu: Gpu) -> ProductTraits:
    """What the kernel is compiled for; both operands go through the copy engine or none does."""
    rows, cols, n, batch = sampling.rows, sampling.cols, sampling.n, sampling.batch
    if sampling.tokens:
        fits = fits_boxes(n, rows, dtype=sampling.dtype) and fits_boxes(n, cols, dtype=sampling.dtype)
    else:
        whole = batch == 1 or (rows % sampling.block == 0 and cols % sampling.block == 0)
        fits = whole and fits_boxes(batch * max(rows, cols), n, dtype=sampling.dtype)
    return ProductTraits(
        block=sampling.block,
        height=sampling.block,
        bn=sampling.block,
        bk=tile.bk,
        super_tile=1,
        precision="tf32" if sampling.tf32 else "ieee",
        tokens=sampling.tokens,
        dense_tiles=gpu.has_boxes and fits,
        blocks_transposed=sampling.blocks_transposed,
        has_blocks=sampling.has_blocks,
    )


def sampled_spec(sampling: Sampling, how: ProductTraits, tile: SampledTile) -> Spec:
    """The kernel as it is compiled."""
    pointer, index = POINTER[sampling.dtype], INDEX_POINTER[sampling.index_dtype]
    box = f"{how.bk},{how.block}" if how.tokens else f"{how.block},{how.bk}"
    boxes = f"tensordesc<{pointer[1:]}[{box}]>" if how.dense_tiles else Constant(None)
    sizes = (sampling.rows, sampling.cols, sampling.n)
    return Spec(
        kernel=sampled_blocks,
        types=(
            boxes,
            boxes,
            SampledLists(index, index, index),
            SampledData(pointer, pointer, pointer),
            SAMPLED_SIZE_TYPES,
            Constant(how),
        ),
        aligned=(
            *((3, field) for field in range(3)),
            *((4, field) for field, size in enumerate(sizes) if size % 16 == 0),
        ),
        warps=tile.warps,
        stages=tile.stages,
    )


def run_sample(index: Index, a: Tensor, b: Tensor, out_values: Tensor, *, layout: Layout, alpha: float) -> None:
    """One call."""
    sampling = sampling_of(index, a, layout)
    plan = plan_sample(sampling)
    how = plan.how
    pattern = pattern_behind(index)
    if pattern is not None and index.blocks is None:
        rows = pattern.rows_of_entries
    else:
        rows = rows_of_entries(index.row_starts, index.columns)
    blocks = index.columns if index.blocks is None else index.blocks
    if not how.dense_tiles:
        boxes: tuple[Boxes | None, Boxes | None] = (None, None)
    elif sampling.tokens:
        boxes = Boxes(a, sampling.n, sampling.rows), Boxes(b, sampling.n, sampling.cols)
    else:
        boxes = (
            Boxes(a, sampling.batch * sampling.rows, sampling.n),
            Boxes(b, sampling.batch * sampling.cols, sampling.n),
        )
    sizes = SampledSizes(sampling.rows, sampling.cols, sampling.n, sampling.batch, alpha)
    lists = SampledLists(rows, index.columns, blocks)
    plan.run(index.entries, (*boxes, lists, SampledData(a, b, out_values), sizes, None))
