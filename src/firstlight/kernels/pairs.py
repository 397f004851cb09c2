"""Which rows of a block-sparse matrix are multiplied together: those that store most block columns in common.

A kernel that multiplies several block rows at once reads what they need of the dense operand once. Which rows these are
is free. For a random pattern the best partners share far more than neighbours do: with 8192 rows and columns what is
read falls by 11 % at block 64 and density 0.1, by 6 % at 0.5, and by 14 % at block 16 and density 0.1. Neighbours stay
together where that is as good, e.g. in a band.
"""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.pattern import rows_of_entries

MOST_ROWS = 1024  # with more, neighbours stay together: a table of all pairs would take more time than it saves
ROUNDS = 8  # in which all but a few find each other
_TIES, _STEP = 8191, 3571  # prime to each other: of equal partners each gets another one


def grouped_order(index: Index, rows: int) -> Tensor | None:
    """Int64 [groups * rows]: the block rows in an order where each `rows` of them, a power of two, go together.

    Rows find a partner, these pairs find one, and so on, so that halves and quarters of a group have much in common
    too. Rows that do not exist complete the last group. None: neighbours go together. No host wait.
    """
    groups = -(-index.block_rows // rows)
    if groups < 2 or groups * rows > MOST_ROWS or not index.entries or torch.are_deterministic_algorithms_enabled():
        return None  # in the deterministic mode torch may refuse the products below, and this is not worth an error
    stored = _stored(index, groups * rows)
    plain = torch.arange(groups * rows, device=stored.device)
    order, cover = plain[:, None], stored
    while order.shape[1] < rows:
        with torch.autocast(stored.device.type, enabled=False):
            common = cover @ cover.T
        pairs = _in_pairs(_partners(common))
        order = order[pairs].view(-1, 2 * order.shape[1])
        cover = _together(cover[pairs], 2)
    return torch.where(cover.sum() < _together(stored, rows).sum(), order.flatten(), plain)


def _stored(index: Index, count: int) -> Tensor:
    """Float [count, block columns]: 1 where a block is stored."""
    row = rows_of_entries(index.row_starts, index.columns).to(torch.int64)
    stored = torch.zeros(count, index.block_cols, device=index.columns.device)
    stored.view(-1).scatter_(0, row * index.block_cols + index.columns, 1.0)
    return stored


def _together(stored: Tensor, rows: int) -> Tensor:
    return stored.view(-1, rows, stored.shape[1]).amax(1)


def _partners(common: Tensor) -> Tensor:
    """Int64 [rows]: the partner of each, -1 for none; common: how many columns any two have in common.

    In each round those that are each other's best become partners, which nearly all are after a few. What a row has in
    common with all others is taken off, else a long one is everybody's best: the best pairs of all stay the same.
    """
    number = torch.arange(common.shape[0], device=common.device)
    usual = common.mean(1)
    weight = common - usual[:, None] - usual + (number[:, None] + number).mul_(_STEP).remainder_(_TIES) / (2 * _TIES)
    weight += 0.5 * (number[:, None] == (number ^ 1))  # of equal partners the neighbour
    weight.fill_diagonal_(-torch.inf)
    partner = torch.full_like(number, -1)
    for _ in range(ROUNDS):
        best = weight.argmax(1)
        found = (best[best] == number) & (partner < 0)
        partner = torch.where(found, best, partner)
        weight.masked_fill_(found[:, None] | found, -torch.inf)
    return partner


def _in_pairs(partner: Tensor) -> Tensor:
    """Partners side by side, in the order of the first of each two; behind them those without one."""
    count = partner.shape[0]
    number = torch.arange(count, device=partner.device)
    together = 2 * torch.minimum(number, partner) + (number > partner)
    return torch.argsort(torch.where(partner < 0, 2 * count + number, together))
