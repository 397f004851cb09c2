"""Scores of blocks, the masks made from them, and the schedule."""

from __future__ import annotations

import pytest
import torch

from firstlight.kernels import UnsupportedInput
from firstlight.kernels.pruning import (
    block_scores,
    density_at,
    keep_best,
    keep_best_of_all,
    keep_random,
    stored_scores,
)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_score_is_the_norm_of_its_block_and_padding_counts_as_zero(norm: str) -> None:
    weight = torch.randn(40, 50)
    scores = block_scores(weight, block=16, norm=norm)
    assert scores.shape == (3, 4)
    order = 1 if norm == "l1" else 2
    torch.testing.assert_close(scores[1, 2], torch.linalg.vector_norm(weight[16:32, 32:48], order))
    torch.testing.assert_close(scores[2, 3], torch.linalg.vector_norm(weight[32:, 48:], order))
    torch.testing.assert_close(stored_scores(torch.ones(5, 16, 16), norm="l1"), torch.full((5,), 256.0))


def test_float16_scores_do_not_overflow() -> None:
    assert block_scores(torch.full((128, 128), 60.0, dtype=torch.float16), block=128).item() == 128 * 128 * 60


def test_the_best_blocks_of_the_matrix_or_of_each_row_are_kept() -> None:
    scores = torch.tensor([[9.0, 8.0, 7.0, 6.0], [1.0, 2.0, 3.0, 4.0]])
    assert keep_best(scores, density=0.5).tolist() == [[True] * 4, [False] * 4]
    rows = keep_best(scores, density=0.5, scope="row").tolist()
    assert rows == [[True, True, False, False], [False, False, True, True]]


def test_of_equal_scores_the_earlier_ones_are_kept() -> None:
    assert keep_best(torch.ones(1, 6), density=0.5).tolist() == [[True] * 3 + [False] * 3]


def test_at_least_one_block_stays() -> None:
    assert keep_best(torch.rand(4, 4), density=0.001).sum() == 1
    assert keep_random((4, 4), density=0.25).sum() == 4


def test_layers_compete_for_blocks() -> None:
    masks = keep_best_of_all({"a": torch.full((2, 2), 5.0), "b": torch.full((2, 2), 1.0)}, density=0.5)
    assert masks["a"].all()
    assert not masks["b"].any()
    assert keep_best_of_all({}, density=0.5) == {}


def test_density_falls_fast_and_then_slowly() -> None:
    densities = [density_at(step, begin=10, end=110, final=0.1) for step in (0, 10, 60, 110, 500)]
    assert densities == pytest.approx([1.0, 1.0, 0.1 + 0.9 * 0.125, 0.1, 0.1])


@pytest.mark.parametrize("density", [0.0, -0.1, 1.1])
def test_a_density_outside_of_0_to_1_is_refused(density: float) -> None:
    with pytest.raises(UnsupportedInput, match="more than 0 and at most 1"):
        keep_best(torch.rand(2, 2), density=density)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(UnsupportedInput, match="norm is 'max'"):
        block_scores(torch.rand(16, 16), block=16, norm="max")
    with pytest.raises(UnsupportedInput, match="scope is 'column'"):
        keep_best(torch.rand(2, 2), density=0.5, scope="column")
    with pytest.raises(UnsupportedInput, match="the end has to come after"):
        density_at(1, begin=5, end=5, final=0.1)
