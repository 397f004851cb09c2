"""What the tests compile: the same specs that plans launch, for GPUs that are not there."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from firstlight.frozen import dataclass
from firstlight.kernels.product import Layout
from firstlight.kernels.triton_backend.groups_plan import groups_spec, groups_traits, packing_spec, turning_spec
from firstlight.kernels.triton_backend.launch import Spec
from firstlight.kernels.triton_backend.problem import Gpu, Problem
from firstlight.kernels.triton_backend.rows_plan import adding_spec, rows_spec, rows_traits
from firstlight.kernels.triton_backend.sample_plan import Sampling, sampled_spec, sampled_traits
from firstlight.kernels.triton_backend.tiles import Tile, Walk, choose_sampled_tile, choose_tile, family_of

PLAIN = Problem(
    rows=8192,
    cols=8192,
    block=128,
    entries=4000,
    n=8192,
    batch=1,
    tokens=False,
    has_blocks=False,
    blocks_transposed=False,
    has_addend=False,
    has_bias=False,
    activation="none",
    dtype=torch.float16,
    index_dtype=torch.int32,
    tf32=False,
    device=torch.device("cuda", 0),
)
BACKWARD = PLAIN._replace(has_blocks=True, blocks_transposed=True)
FULL_EPILOGUE = PLAIN._replace(has_addend=True, has_bias=True, activation="gelu", index_dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to compile for, e.g. (9, 0)."""

    capability: tuple[int, int]

    @property
    def gpu(self) -> Gpu:
        return Gpu(family_of(self.capability), 132, has_boxes=self.capability >= (9, 0))

    def specs(self, problem: Problem) -> Iterator[Spec]:
        """Every kernel of a product with the table's tile; those of a row that was split too, for 16 tokens."""
        gpu = self.gpu
        tile = tile_of(gpu, problem)
        if tile.walk is Walk.GROUPS:
            how = groups_traits(problem, tile, has_boxes=gpu.has_boxes)
            yield groups_spec(problem, how, tile, pitch=problem.n)
            yield packing_spec(problem, how)
            yield turning_spec(problem)
            return
        how = rows_traits(problem, tile, has_boxes=gpu.has_boxes)
        if problem.n <= 16:
            how = how._replace(split=True)
            yield adding_spec(problem, how)
        yield rows_spec(problem, how, tile)

    def sampled(self, sampling: Sampling) -> Spec:
        """The kernel of a sampled product."""
        gpu = self.gpu
        tile = choose_sampled_tile(gpu.family, sampling.block, element_bytes=sampling.dtype.itemsize)
        return sampled_spec(sampling, sampled_traits(sampling, tile, gpu), tile)


def tile_of(gpu: Gpu, problem: Problem) -> Tile:
    """The table's tile for a problem."""
    return choose_tile(
        gpu.family,
        problem.block,
        element_bytes=problem.dtype.itemsize,
        tokens=problem.n,
        layout=Layout.TOKENS if problem.tokens else Layout.COLUMNS,
        density=problem.entries / (problem.block_rows * problem.block_cols),
    )


def sampling(block: int) -> Sampling:
    """A sampled product in the linear layout."""
    return Sampling(
        rows=8192,
        cols=8192,
        block=block,
        n=8192,
        batch=1,
        tokens=True,
        has_blocks=False,
        blocks_transposed=False,
        dtype=torch.bfloat16,
        index_dtype=torch.int32,
        tf32=False,
        device=torch.device("cuda", 0),
    )
