"""Which blocks to keep: scores of blocks, the best of them as a mask, and how density falls over a training run."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import require_block

NORMS = ("l1", "l2")
SCOPES = ("matrix", "row")


@torch.no_grad()
def block_scores(weight: Tensor, *, block: int, norm: str = "l1") -> Tensor:
    """[block rows, block columns] float32: the l1 or l2 norm of each block of a [rows, cols] weight, e.g. 31.7.

    The part of an edge block outside the matrix counts as zero.
    """
    require_block(block)
    if norm not in NORMS:
        raise UnsupportedInput(f"norm is {norm!r}; accepted: {', '.join(NORMS)}.")
    if weight.dim() != 2:
        raise UnsupportedInput(f"weight has shape {list(weight.shape)}; [rows, cols] is accepted.")
    rows, cols = weight.shape
    padded = functional.pad(weight.detach().float(), (0, -cols % block, 0, -rows % block))
    blocks = padded.view(padded.shape[0] // block, block, padded.shape[1] // block, block)
    return stored_scores(blocks.permute(0, 2, 1, 3), norm=norm)


@torch.no_grad()
def stored_scores(values: Tensor, *, norm: str = "l1") -> Tensor:
    """The norm of each stored block: [..., block, block] gives [...]."""
    values = values.detach().float()
    return values.abs().sum((-2, -1)) if norm == "l1" else values.square().sum((-2, -1)).sqrt()


def keep_best(scores: Tensor, *, density: float, scope: str = "matrix") -> Tensor:
    """A mask of the best-scored blocks: round(density * count) of the whole matrix, or of each block row.

    Of equal scores the earlier block is kept, so the mask is the same on every run. Row scope gives every row the same
    work; matrix scope keeps more weight.
    """
    require_density(density)
    if scope not in SCOPES:
        raise UnsupportedInput(f"scope is {scope!r}; accepted: {', '.join(SCOPES)}.")
    flat = scores if scope == "row" else scores.reshape(1, -1)
    count = kept_blocks(flat.shape[-1], density)
    best = torch.sort(flat, dim=-1, descending=True, stable=True).indices[..., :count]
    mask = torch.zeros(flat.shape, dtype=torch.bool, device=scores.device)
    return mask.scatter_(-1, best, value=True).view(scores.shape)


def keep_best_of_all(scores: Mapping[str, Tensor], *, density: float) -> dict[str, Tensor]:
    """One mask for each matrix, with the best blocks of all of them together: some keep more, some fewer.

    Scores of unlike matrices compare only when divided by something of their own; `block_scores` / block / block gives
    the mean weight.
    """
    require_density(density)
    if not scores:
        return {}
    device = next(iter(scores.values())).device
    together = torch.cat([tensor.reshape(-1).to(device) for tensor in scores.values()])
    mask = keep_best(together.reshape(1, -1), density=density).view(-1)
    parts = torch.split(mask, [tensor.numel() for tensor in scores.values()])
    return {
        name: part.view(tensor.shape).to(tensor.device)
        for (name, tensor), part in zip(scores.items(), parts, strict=True)
    }


def keep_random(shape: tuple[int, int], *, density: float, generator: torch.Generator | None = None) -> Tensor:
    """A mask of round(density * count) blocks at random places, for [block rows, block columns]."""
    return keep_best(torch.rand(shape, generator=generator), density=density)


def kept_blocks(count: int, density: float) -> int:
    """How many of `count` blocks a density keeps, e.g. 51 of 512 at 0.1; at least one."""
    return min(count, max(1, round(density * count)))


def density_at(step: int, *, begin: int, end: int, final: float, initial: float = 1.0) -> float:
    """The density at a training step when pruning gradually: fast at first, slow near the end (a cubic), e.g. 0.34."""
    if end <= begin:
        raise UnsupportedInput(f"pruning begins at step {begin} and ends at {end}; the end has to come after.")
    require_density(final)
    require_density(initial)
    left = 1.0 - min(max((step - begin) / (end - begin), 0.0), 1.0)
    return final + (initial - final) * left**3


def require_density(density: float) -> None:
    """Raises unless 0 < density <= 1."""
    if not 0.0 < density <= 1.0:
        raise UnsupportedInput(f"density is {density!r}; more than 0 and at most 1 is accepted (0.1 keeps a tenth).")
