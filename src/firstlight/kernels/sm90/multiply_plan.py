"""A product: which kernel, in which portions, and the launches for one set of addresses."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from firstlight.errors import UnsupportedInput
from firstlight.kernels.index import Index
from firstlight.kernels.product import Activation, Epilogue, Second
from firstlight.kernels.sm90.arguments import MultiplyFields, multiply_bytes
from firstlight.kernels.sm90.boxes import dense_boxes, dense_map, result_map, stored_map
from firstlight.kernels.sm90.driver import Kernel, Launch
from firstlight.kernels.sm90.lists import HEIGHT, AnyLists, Work, lists_of, most_steps_of, portion_limit, step_width
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.problem import Problem, activation_number, multiprocessors
from firstlight.kernels.sm90.turning import cutting_launches, turn_launches, widening_launches
from firstlight.kernels.sm90.variants import (
    NARROW,
    NARROWEST_BY_TOKEN,
    PAIR,
    PITCH,
    THREADS,
    TURN,
    WIDE,
    Build,
    Tile,
    multiply_variant,
)

# Tiles of tokens in a window, whose X is to stay in L2 while the rows of W pass by. Measured on an H200, 8192 cubed:
# for blocks of 128 four gain 3 % over two at density 0.3 and 0.5; below WIDE_FROM two windows of two tiles that take
# turns gain 1 to 2 % over either, and nothing with smaller blocks, where two tiles are as good or better than four.
NARROW_WINDOW, WIDE_WINDOW = 2, 4
WIDE_FROM = 0.2  # density, blocks of 128
# Density from which loading W for each other saves more than waiting for each other costs, with blocks of 64 and 128;
# with smaller ones, where W is a small part of what is loaded, it gains nothing.
PAIR_FROM = 0.06
# Tokens up to which tiles of 64 are faster than of 256 where the latter would leave multiprocessors without work; with
# blocks of 64 beyond a quarter of that only where groups are short.
NARROW_UP_TO = {128: 512, 64: 512, 32: 128, 16: 64}
SHORT_GROUP = 64  # stages
ROOM = 1024  # bytes that parts of the scratch memory start at multiples of
INT32_END = 1 << 31


class Addresses(NamedTuple):
    """Where the tensors of one call lie; 0 for bias and addend: none."""

    values: int
    dense: int
    out: int
    bias: int
    addend: int
    scratch: int
    queue: int
    arrivals: int


class Copies(NamedTuple):
    """Where the kernel reads X and writes the result, and what copies X there before and the result back after."""

    dense: int
    out: int
    first: tuple[Launch, ...]
    last: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class MultiplyPlan:
    """Ready to run any product of one shape."""

    problem: Problem
    tile: Tile
    kernel: Kernel
    turn: Kernel | None
    pitch: Kernel | None
    limit: int  # steps of a portion
    super_tile: int
    two_windows: bool
    multiprocessors: int
    turned_bytes: int  # room for X turned over or widened, in front of the partial sums
    widened_bytes: int  # and behind it for the result in longer rows

    @property
    def tiles(self) -> int:
        """Tiles of tokens in one batch."""
        return -(-self.problem.n // self.tile.tokens)

    def lists(self, index: Index) -> AnyLists:
        """What the kernel walks for this index."""
        return lists_of(index, width=step_width(self.problem.block), limit=self.limit)

    def arrivals(self, lists: AnyLists) -> int:
        """How many counts of finished portions there are."""
        return lists.places.slots * self.tiles * self.problem.batch * 2

    def scratch_bytes(self, lists: AnyLists) -> int:
        """Memory that a call needs for itself: X turned over and partial sums; not zeroed."""
        tiles = self.tiles * self.problem.batch
        return self.widened_bytes + lists.places.slots * tiles * part_bytes(self.tile)

    def _copies(self, at: Addresses) -> Copies:
        problem, dense, out = self.problem, at.dense, at.out
        first: tuple[Launch, ...] = ()
        last: tuple[Launch, ...] = ()
        if self.turn is not None and problem.cols:
            dense = at.scratch
            first = turn_launches(self.turn, at.dense, dense, n=problem.n, cols=problem.cols)
        if self.pitch is not None and problem.widens_x and problem.cols:
            dense = at.scratch
            first = widening_launches(self.pitch, at.dense, dense, problem)
        if self.pitch is not None and problem.widens_out:
            out = at.scratch + self.turned_bytes
            last = cutting_launches(self.pitch, out, at.out, problem)
        return Copies(dense, out, first, last)

    def launches(self, lists: AnyLists, at: Addresses, epilogue: Epilogue) -> tuple[Launch, ...]:
        """What is started, in this order; epilogue gives alpha, beta and the activation, `at` the tensors."""
        problem, tile = self.problem, self.tile
        dense, out, first, last = self._copies(at)
        dense, values = (
            dense or at.out,
            at.values or at.out,
        )  # nothing is read of what is empty, but a map has an address
        result = result_map(problem, out)
        maps = (
            stored_map(problem, values, cluster=tile.cluster), dense_map(problem, dense, tokens=tile.tokens),
            result, result_map(problem, at.addend) if at.addend else result,
        )  # fmt: skip
        listed = lists.places
        portions, tiles = listed.portions, self.tiles * problem.batch
        items = portions * tiles
        _require_countable(items + portions * self.super_tile)
        plain = epilogue.alpha == 1.0 and not at.bias and not at.addend and epilogue.activation is Activation.NONE
        gated = epilogue.second is Second.MULTIPLIED and at.addend != 0
        fields = MultiplyFields(
            listed.columns, listed.members, listed.items, listed.rows, listed.starts, listed.first_slot,
            listed.slot_counts, at.queue,
            at.scratch + self.widened_bytes, at.arrivals, at.bias, values, dense, at.addend, out, portions,
            self.tiles, problem.batch,
            self.super_tile // tile.cluster, int(self.two_windows), problem.rows, problem.cols, problem.n,
            problem.pitch, problem.out_pitch, dense_boxes(problem, tokens=tile.tokens), activation_number(epilogue),
            int(plain), int(gated), 0, epilogue.alpha, epilogue.beta if at.addend else 0.0,
        )  # fmt: skip
        clusters = max(1, min(items, self.multiprocessors) // tile.cluster)
        grid = (clusters * tile.cluster, 1, 1)
        return (*first, Launch(self.kernel, multiply_bytes(maps, fields), grid=grid, threads=THREADS), *last)


def _require_countable(items: int) -> None:
    if items >= INT32_END:
        raise UnsupportedInput(
            f"backend 'sm90': the product has {items} work items; fewer than 2^31 are accepted. "
            "Multiply fewer tokens at once."
        )


_PLANS: dict[Problem, MultiplyPlan] = {}
_MOST_PLANS = 4096


def plan_of(problem: Problem, index: Index) -> MultiplyPlan:
    """The plan for a problem, made at its first call."""
    found = _PLANS.get(problem)
    if found is None:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        found = _PLANS[problem] = make_plan(problem, index)
    return found


def make_plan(problem: Problem, index: Index, tile: Tile | None = None) -> MultiplyPlan:
    """A plan with the tile of the rule below, or with one under trial; compiles what it needs."""
    count = multiprocessors(problem.device)
    tile = tile or tile_of(problem, count)
    build = Build(problem.block, problem.bf16, problem.tokens, problem.turned, problem.short_rows)
    turns, widens_x, widens_out = problem.turns_x, problem.widens_x, problem.widens_out
    kernels = _kernels(build, tile, problem.device, turns=turns, widens=widens_x or widens_out)
    limit = portion_limit(work_of(problem, index, tile, count))
    turned = _whole(2 * problem.cols * problem.pitch * problem.batch) if turns or widens_x else 0
    widened = _whole(2 * problem.rows * problem.out_pitch * problem.batch) if widens_out else 0
    return MultiplyPlan(
        problem, tile, kernels.multiply, kernels.turn, kernels.pitch, limit, super_tile_of(problem),
        takes_two_windows(problem), count, turned, turned + widened,
    )  # fmt: skip


class Kernels(NamedTuple):
    """What products of a build take."""

    multiply: Kernel
    turn: Kernel | None
    pitch: Kernel | None


@functools.lru_cache(maxsize=1024)  # by build: each pattern has its own number of blocks, and with that its own plan
def _kernels(build: Build, tile: Tile, device: int, *, turns: bool, widens: bool) -> Kernels:
    return Kernels(
        loaded(multiply_variant(build, tile), device=device, shared_bytes=tile.shared_bytes),
        loaded(TURN, device=device) if turns else None, loaded(PITCH, device=device) if widens else None,
    )  # fmt: skip


def _whole(size: int) -> int:
    return -(-size // ROOM) * ROOM


def tile_of(problem: Problem, count: int) -> Tile:
    """Few tokens: narrow. An even number of tiles and large blocks enough: two thread blocks side by side.

    count: multiprocessors of the GPU.
    """
    tiles = -(-problem.n // WIDE.tokens)
    if problem.n <= NARROW.tokens or (tiles * problem.batch * _groups(problem) < count and _prefers_narrow(problem)):
        return NARROW
    paired = problem.block >= NARROWEST_BY_TOKEN and tiles % PAIR.cluster == 0 and problem.density >= PAIR_FROM
    return PAIR if paired else WIDE


def _groups(problem: Problem) -> int:
    return -(-problem.rows // HEIGHT)


def _prefers_narrow(problem: Problem) -> bool:
    most = NARROW_UP_TO[problem.block]
    if problem.n > most or not (problem.x_by_token or problem.pitch % NARROW.tokens == 0):
        return False  # a narrow tile of X that lies by column is one whole box
    stages = problem.cols / problem.block * (1 - (1 - min(1.0, problem.density)) ** 2)  # with a block in either row
    return problem.block != NARROWEST_BY_TOKEN or problem.n <= most // 4 or stages < SHORT_GROUP


def super_tile_of(problem: Problem) -> int:
    """Token tiles of a window."""
    return WIDE_WINDOW if problem.block == HEIGHT and problem.density >= WIDE_FROM else NARROW_WINDOW


def takes_two_windows(problem: Problem) -> bool:
    """Two windows at a time: X of one comes from memory while that of the other is read again from L2."""
    return problem.block == HEIGHT and problem.density < WIDE_FROM


def work_of(problem: Problem, index: Index, tile: Tile, count: int) -> Work:
    """What the limit of a portion depends on."""
    width = step_width(problem.block)
    return Work(
        groups=_groups(problem), steps=most_steps_of(index, width=width),
        most=-(-index.block_cols // width), tiles=-(-problem.n // tile.tokens) * problem.batch,
        stages_per_step=stages_per_step(problem), part_bytes=part_bytes(tile), multiprocessors=count,
        block=problem.block,
    )  # fmt: skip


def stages_per_step(problem: Problem) -> int:
    """2 for blocks of 128, whose steps are 128 deep."""
    return 2 if problem.block == HEIGHT else 1


def part_bytes(tile: Tile) -> int:
    """The float32 sums of one portion for one tile of tokens."""
    return HEIGHT * tile.tokens * 4
