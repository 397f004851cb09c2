"""A sampled product: which kernel, in how many portions of the contraction, and the launches for its addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.index import Index
from firstlight.kernels.product import Layout
from firstlight.kernels.sm90.arguments import SampleFields, sample_bytes
from firstlight.kernels.sm90.boxes import WIDE
from firstlight.kernels.sm90.driver import Kernel, Launch, encode_map
from firstlight.kernels.sm90.lists import HEIGHT
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.problem import EIGHTH, TURNED_PITCH, multiprocessors, round_up
from firstlight.kernels.sm90.steps import Steps
from firstlight.kernels.sm90.turning import turn_launches
from firstlight.kernels.sm90.variants import NARROWEST_BY_TOKEN, SAMPLED, THREADS, TURN, sample_variant

FULL = 2  # work items for each multiprocessor below which the contraction is cut
WANTED = 3  # and how many there are to be
LEAST_STAGES = 8  # of 64 in a portion
PART_BYTES = HEIGHT * SAMPLED.tokens * 4
MOST_PART_BYTES = 256 << 20


class Sampling(NamedTuple):
    """A sampled product, e.g. blocks of 64 in [8192, 8192], contraction over 4096 tokens."""

    rows: int
    cols: int
    block: int
    n: int
    batch: int
    tokens: bool
    bf16: bool
    device: int

    @property
    def by_token(self) -> bool:
        """The kernel reads the operands as [n, rows] and [n, cols]."""
        fits = self.rows % EIGHTH == 0 and self.cols % EIGHTH == 0
        return self.tokens and self.block >= NARROWEST_BY_TOKEN and fits

    @property
    def turns(self) -> bool:
        """Both operands come by token and are turned over first."""
        return self.tokens and not self.by_token

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.bf16 else "float16"


class SampleAddresses(NamedTuple):
    """Where the tensors of one call lie."""

    a: int
    b: int
    out: int
    scratch: int
    queue: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """Ready to run any sampled product of one shape."""

    sampling: Sampling
    kernel: Kernel
    turn: Kernel | None
    multiprocessors: int

    def splits(self, steps: Steps) -> int:
        """In how many portions the contraction is cut."""
        sampling = self.sampling
        return splits_of(steps.bound, stages_of(sampling) * sampling.batch, self.multiprocessors)

    def turned_bytes(self) -> tuple[int, int]:
        """Room for both operands turned over, in front of the partial sums."""
        if self.turn is None:
            return 0, 0
        pitch = round_up(self.sampling.n, TURNED_PITCH)
        return 2 * pitch * self.sampling.rows, 2 * pitch * self.sampling.cols

    def scratch_bytes(self, steps: Steps) -> int:
        """Memory that a call needs for itself; not zeroed."""
        splits = self.splits(steps)
        return sum(self.turned_bytes()) + (steps.bound * splits * PART_BYTES if splits > 1 else 0)

    def arrivals(self, steps: Steps) -> int:
        """How many counts of finished portions there are."""
        return steps.bound * 2 if self.splits(steps) > 1 else 0

    def launches(self, steps: Steps, at: SampleAddresses, alpha: float) -> tuple[Launch, ...]:
        """What is started, in this order."""
        sampling, splits = self.sampling, self.splits(steps)
        rooms = self.turned_bytes()
        first, second = at.a, at.b
        turns: tuple[Launch, ...] = ()
        if self.turn is not None:
            first, second = at.scratch, at.scratch + rooms[0]
            turns = (
                *turn_launches(self.turn, at.a, first, n=sampling.n, cols=sampling.rows),
                *turn_launches(self.turn, at.b, second, n=sampling.n, cols=sampling.cols),
            )
        fields = SampleFields(
            steps.columns.data_ptr(), steps.members.data_ptr(), steps.starts.data_ptr(), at.queue,
            at.scratch + sum(rooms), at.arrivals, at.out, steps.groups, splits, sampling.batch, stages_of(sampling),
            sampling.rows, sampling.cols, alpha,
        )  # fmt: skip
        maps = operand_maps(sampling, first, second)
        grid = (max(1, min(steps.bound * splits, self.multiprocessors)), 1, 1)
        return (*turns, Launch(self.kernel, sample_bytes(maps, fields), grid=grid, threads=THREADS))


def operand_maps(sampling: Sampling, a: int, b: int) -> tuple[bytes, bytes]:
    """Both operands as the copy engine reads them; addresses are those of turned copies where there are any."""
    rows, cols, n, batch = sampling.rows, sampling.cols, sampling.n, sampling.batch
    dtype = sampling.dtype
    if sampling.by_token:
        return (
            encode_map(a, dtype, (rows, n, 1), (2 * rows, 2 * rows * n), (WIDE, WIDE, 1), 128),
            encode_map(b, dtype, (cols, n, 1), (2 * cols, 2 * cols * n), (WIDE, WIDE, 1), 128),
        )
    pitch = round_up(n, TURNED_PITCH) if sampling.turns else n
    return (
        encode_map(a, dtype, (n, rows, batch), (2 * pitch, 2 * pitch * rows), (WIDE, HEIGHT, 1), 128),
        encode_map(b, dtype, (n, cols, batch), (2 * pitch, 2 * pitch * cols), (WIDE, sampling.block, 1), 128),
    )


def stages_of(sampling: Sampling) -> int:
    """Stages of the contraction over n, for one of the batches."""
    return -(-sampling.n // WIDE)


def splits_of(steps: int, stages: int, count: int) -> int:
    """In how many portions the contraction is cut: 1 where the steps alone fill the GPU, e.g. 3 where they do not."""
    steps = max(1, steps)
    if steps >= FULL * count:
        return 1
    wanted = min(-(-WANTED * count // steps), stages // LEAST_STAGES, MOST_PART_BYTES // (PART_BYTES * steps))
    return max(1, wanted)


_PLANS: dict[Sampling, SamplePlan] = {}
_MOST_PLANS = 4096


def plan_of(sampling: Sampling) -> SamplePlan:
    """The plan for a sampled product, made at its first call."""
    found = _PLANS.get(sampling)
    if found is None:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        device = sampling.device
        variant = sample_variant(sampling.block, bf16=int(sampling.bf16), by_token=int(sampling.by_token))
        kernel = loaded(variant, device=device, shared_bytes=SAMPLED.shared_bytes)
        turn = loaded(TURN, device=device) if sampling.turns else None
        found = _PLANS[sampling] = SamplePlan(sampling, kernel, turn, multiprocessors(device))
    return found


def sampling_of(index: Index, a: Tensor, layout: Layout) -> Sampling:
    """The sampled product of one call."""
    if index.blocks is not None or index.blocks_transposed:
        raise UnsupportedInput("backend 'sm90': sample takes a pattern's forward index. Use pattern.forward.")
    tokens = layout is Layout.TOKENS
    return Sampling(
        index.rows, index.cols, index.block, a.shape[0] if tokens else a.shape[-1], a.shape[0] if a.dim() == 3 else 1,
        tokens, a.dtype is torch.bfloat16, a.get_device(),
    )  # fmt: skip
