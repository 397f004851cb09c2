"""What attention.py measures: problems, masks, inputs, and the state of a run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from benchmarks.matmul.products import DTYPES, Budget, Kit
from torch import Tensor

from firstlight.frozen import dataclass
from firstlight.kernels.block_attention.bits import FULL, PARTIAL
from firstlight.kernels.block_attention.mask import BlockMask

# a band of 768 keys, four documents in a row on average 1/16 of the sequence, the best eighth of the key blocks
HELD_OUT_MASKS = ("random", "banded", "document", "top_k")
SWEEP = (1 / 32, 0.05, 0.09, 0.16, 0.25, 0.35, 0.5, 0.7, 0.85, 1.0)
ROW_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
AUTO_SHARES = (0.07, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the tensors, e.g. 16 x 96 heads of 4096 x 128 with as many key heads."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int

    @property
    def id(self) -> str:
        """E.g. b16-h96-s4096-d128, b16-h96:12-... where heads share keys."""
        shared = "" if self.heads == self.kv_heads else f":{self.kv_heads}"
        return f"b{self.batch}-h{self.heads}{shared}-s{self.seq}-d{self.head_dim}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One attention call, e.g. random lists of density 0.5 with another list for each head."""

    name: str  # of the row, e.g. 'density 0.5'
    sizes: Sizes
    mask: str  # causal, full, random, banded, document, top_k
    share: float  # of the blocks: random; of the key blocks: top_k; else 0
    block: int = 128
    dtype: str = "fp16"
    lists: str = "each"  # each: every batch and head its own; heads: one for each head; one: one for all

    @property
    def id(self) -> str:
        """E.g. random-0.5-each/128/fp16/b16-h96-s4096-d128."""
        kind = self.mask if self.mask in ("causal", "full") else f"{self.mask}-{self.share:.4g}-{self.lists}"
        return f"{kind}/{self.block}/{self.dtype}/{self.sizes.id}"

    @property
    def blocks(self) -> int:
        """Blocks of the sequence."""
        return -(-self.sizes.seq // self.block)

    @property
    def is_plain(self) -> bool:
        """Whether torch's attention knows it by name."""
        return self.mask in ("causal", "full")


@dataclass(frozen=True, slots=True)
class Scene:
    """How large things are: on a GPU, or tiny on the processor."""

    large: Sizes = Sizes(16, 96, 96, 4096, 128)
    long: Sizes = Sizes(1, 7, 7, 109_632, 128)
    long_top: int = 64
    held_out: tuple[Sizes, ...] = (
        Sizes(8, 32, 8, 1000, 128), Sizes(4, 32, 8, 8192, 128), Sizes(1, 32, 4, 32_768, 128),
    )  # fmt: skip
    auto: tuple[Sizes, ...] = (Sizes(4, 24, 24, 3000, 128), Sizes(8, 32, 8, 1500, 64), Sizes(1, 32, 32, 12_000, 128))
    ragged: int = 4001
    group: int = 8
    small_head: int = 64
    overhead: Sizes = Sizes(1, 8, 8, 512, 64)
    square: int = 8192  # of the dense product whose rate is the limit
    copied: int = 1 << 28  # elements of a copy


TINY = Scene(
    Sizes(1, 2, 2, 256, 32), Sizes(1, 2, 2, 320, 32), 2, (Sizes(1, 4, 2, 200, 32),),
    (Sizes(1, 2, 1, 200, 32),), 250, 2,
    16, Sizes(1, 2, 2, 128, 16), 128, 1 << 12,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inputs:
    """q, k and v of a problem, normal random numbers, and its mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: BlockMask


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asked for."""

    flex: bool
    sustain_s: float


class State:
    """One run: what it measures with, what it found, and the rates that limits are computed from."""

    def __init__(self, kit: Kit, scene: Scene, budget: Budget, found: dict[str, Any], wishes: Wishes) -> None:
        self.kit, self.scene, self.budget, self.found, self.wishes = kit, scene, budget, found, wishes
        self.cublas: dict[str, float] = {}
        self.copy: float | None = None
        self.save: Callable[[], None] = lambda: None

    def keep(self, part: str, found: Any) -> None:
        """What there is of a part so far, written at once: a run may be stopped at any time."""
        self.found["parts"][part] = found
        self.save()


# ----------------------------------------------------------------------------------------------------------- problems


def table_problems(scene: Scene) -> tuple[Problem, ...]:
    """The rows of the table, in order of importance."""
    large = scene.large
    blocks = -(-large.seq // 128)
    half = Problem("density 0.5", large, "random", 0.5)
    return (
        Problem("dense causal", large, "causal", 0.0),
        Problem("3.3 of 32 blocks a row", large, "random", 3.3 / 32 if blocks == 32 else 0.6),
        Problem("full lists, density 1.0", large, "random", 1.0),
        half,
        Problem("density 0.25", large, "random", 0.25),
        Problem("density 0.09", large, "random", 0.09),
        Problem("1.6 of 32 blocks a row", large, "random", 1.6 / 32 if blocks == 32 else 0.5),
        Problem(
            f"64x64 top-{scene.long_top}", scene.long, "top_k", scene.long_top / -(-scene.long.seq // 64), block=64
        ),
        replace(half, name="bf16", dtype="bf16"),
        replace(half, name=f"head dim {scene.small_head}", sizes=replace(large, head_dim=scene.small_head)),
        replace(
            half, name=f"GQA {scene.group}:1", sizes=replace(large, kv_heads=large.heads // scene.group)
        ),
        replace(half, name=f"ragged S={scene.ragged}", sizes=replace(large, seq=scene.ragged)),
        replace(
            half, name=f"bf16, GQA {scene.group}:1, ragged", dtype="bf16",
            sizes=replace(large, kv_heads=large.heads // scene.group, seq=scene.ragged),
        ),
    )  # fmt: skip


def backward_problem(scene: Scene) -> Problem:
    return Problem("backward, density 0.5", scene.large, "random", 0.5)


def held_out_problems(scene: Scene) -> Iterator[Problem]:
    """Masks and shapes that nothing was tuned on; heads share keys in all of them."""
    for sizes in scene.held_out:
        for mask in HELD_OUT_MASKS:
            share = {"random": 0.2, "top_k": 0.125}.get(mask, 0.0)
            lists = "heads" if mask in ("random", "top_k") else "one"
            yield Problem(f"{mask}, S={sizes.seq}", sizes, mask, share, lists=lists)


def sweep_problems(scene: Scene) -> Iterator[Problem]:
    blocks = -(-scene.large.seq // 128)
    for share in SWEEP:
        yield Problem(f"density {share:.3g}", scene.large, "random", max(share, 1 / blocks))


def auto_problems(scene: Scene) -> Iterator[Problem]:
    """Lengths and densities between those of the rows, and masks that are not random."""
    for sizes in scene.auto:
        for mask in ("causal", "full"):
            yield Problem(f"{mask}, {sizes.id}", sizes, mask, 0.0)
        for share in AUTO_SHARES:
            block = 128 if sizes.head_dim == scene.large.head_dim else 64
            yield Problem(f"density {share:g}, {sizes.id}", sizes, "random", share, block=block, lists="one")
        yield Problem(f"banded, {sizes.id}", sizes, "banded", 0.0, lists="one")
        yield Problem(f"document, {sizes.id}", sizes, "document", 0.0, lists="one")


# --------------------------------------------------------------------------------------------------- masks and inputs


def seed_of(problem: Problem) -> int:
    return zlib.crc32(problem.id.encode())


def mask_of(problem: Problem, device: str) -> BlockMask:
    """The mask of a problem: the same in every process."""
    seq, block = problem.sizes.seq, problem.block
    if problem.mask == "causal":
        return BlockMask.causal(seq, block=block, device=device)
    if problem.mask == "full":
        return BlockMask.full(seq, block=block, device=device)
    if problem.mask == "banded":
        width = max(1, min(768, seq // 4))
        return BlockMask.window(seq, left=width // 2, right=width - width // 2, block=block, device=device)
    random = torch.Generator(device=device).manual_seed(seed_of(problem))
    if problem.mask == "document":
        ends = torch.rand(seq, device=device, generator=random) < 16 / seq
        return BlockMask.document(ends.cumsum(0), block=block)
    blocks = problem.blocks
    batch, heads = {
        "each": (problem.sizes.batch, problem.sizes.heads), "heads": (1, problem.sizes.heads), "one": (1, 1),
    }[problem.lists]  # fmt: skip
    drawn = torch.rand(batch, heads, blocks, blocks, device=device, generator=random)
    if problem.mask == "top_k":
        return BlockMask.top_k(drawn, max(1, round(problem.share * blocks)), q_len=seq, k_len=seq, block=block)
    assert problem.mask == "random", problem.mask
    return listed(drawn, problem)


def listed(drawn: Tensor, problem: Problem) -> BlockMask:
    """Random lists with the block on the diagonal; on average share * blocks in a row."""
    blocks, seq = problem.blocks, problem.sizes.seq
    chance = (problem.share * blocks - 1) / max(1, blocks - 1)
    kept = (drawn < chance) | torch.eye(blocks, dtype=torch.bool, device=drawn.device)
    if problem.share >= 1.0:
        kept = torch.ones_like(kept)
    return BlockMask.from_bool(kept, block_level=True, q_len=seq, k_len=seq, block=problem.block)


def inputs_of(problem: Problem, device: str) -> Inputs:
    """Normal random numbers, so that logits are of size one."""
    random = torch.Generator(device=device).manual_seed(seed_of(problem) + 1)
    sizes, dtype = problem.sizes, DTYPES[problem.dtype]
    q, k, v = (
        torch.randn(sizes.batch, heads, sizes.seq, sizes.head_dim, dtype=dtype, device=device, generator=random)
        for heads in (sizes.heads, sizes.kv_heads, sizes.kv_heads)
    )
    return Inputs(q, k, v, mask_of(problem, device))


def useful_flops(problem: Problem, mask: BlockMask) -> int:
    """Of a forward pass: 4 D for each pair that is seen."""
    return mask.flops(problem.sizes.heads, problem.sizes.head_dim, batch=problem.sizes.batch)


def rows_seen(mask: BlockMask, batch: int, head: int, rows: Tensor) -> Tensor:
    """bool [rows, keys] of some queries of one head, from kinds and bits alone; for checks of any size."""
    at = (batch if mask.kinds.shape[0] > 1 else 0, head if mask.kinds.shape[1] > 1 else 0)
    lines = rows // mask.block
    kinds = mask.kinds[at][lines]
    seen = (kinds == FULL)[:, :, None].expand(-1, -1, mask.block)
    if mask.which is not None and mask.bits is not None:
        words = mask.bits[mask.which[at][lines].long(), (rows % mask.block)[:, None]]
        places = torch.arange(32, device=rows.device, dtype=torch.int32)
        bits = ((words[..., None] >> places) & 1).flatten(2).bool()
        seen = torch.where((kinds == PARTIAL)[:, :, None], bits, seen)
    return seen.reshape(rows.shape[0], -1)[:, : mask.k_len]
