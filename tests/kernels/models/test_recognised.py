"""Mask functions of transformers as block masks: recognised where they are its own, and right in any case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from firstlight.kernels.block_attention.construct import Grid
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.models import recognised
from firstlight.kernels.models.recognised import Place, block_mask, padded

masking: Any = pytest.importorskip("transformers", reason="transformers is not installed").masking_utils
CPU = torch.device("cpu")
Making = Callable[[], Any]
IDS = torch.tensor([[0] * 90 + [1] * 100 + [2] * 210, [5] * 400])
FUNCTIONS: dict[str, Making] = {
    "causal": lambda: masking.causal_mask_function,
    "bidirectional": lambda: masking.bidirectional_mask_function,
    "window": lambda: masking.sliding_window_causal_mask_function(70),
    "window longer than the text": lambda: masking.sliding_window_causal_mask_function(5000),
    "window to both sides": lambda: masking.sliding_window_bidirectional_mask_function(70),
    "chunks": lambda: masking.chunked_causal_mask_function(50, torch.tensor([0, 37])),
    "packed": lambda: masking.and_masks(
        masking.causal_mask_function, masking.packed_sequence_mask_function(IDS)
    ),
    "blocks of pictures": lambda: masking.or_masks(
        masking.causal_mask_function, masking.blockwise_overlay(IDS - 1)
    ),
}  # fmt: skip
NEEDS_ASKING = {"blocks of pictures"}


@pytest.fixture(autouse=True)
def _recognised_anew() -> Iterator[None]:
    yield
    recognised._makers.cache_clear()
    recognised._joining.cache_clear()


@pytest.mark.parametrize("lengths", [(200, 200, 0, 0), (60, 260, 200, 0), (60, 129, 200, 131), (130, 300, 0, 0)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_blocks_see_what_the_function_sees(
    name: str, lengths: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    q_len, k_len, q_offset, k_offset = lengths
    place = Place(Grid(q_len, k_len, 64), 2, q_offset, k_offset, CPU)
    real = torch.ones(2, q_offset + q_len, dtype=torch.bool)
    real[1, :37] = False
    wanted = masking.sdpa_mask(2, q_len, k_len, q_offset, k_offset, FUNCTIONS[name](), real, allow_is_causal_skip=False)
    asked: list[Any] = []
    recognised._makers()  # asks on a small grid
    recognised._joining()
    plainly = recognised._asked

    def counted(function: Any, place: Place) -> BlockMask:
        asked.append(function)
        return plainly(function, place)

    monkeypatch.setattr(recognised, "_asked", counted)
    keys = padded(real, place)
    found = block_mask(FUNCTIONS[name](), place)
    assert torch.equal((found if keys is None else found & keys).to_bool().expand_as(wanted), wanted)
    assert bool(asked) == (name in NEEDS_ASKING)


def test_a_function_that_means_something_else_in_another_release_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def sliding_window_overlay(sliding_window: int) -> Any:
        def inner_mask(b: Any, h: Any, q: Any, k: Any) -> Any:
            return k >= q - sliding_window  # one key more

        return inner_mask

    recognised._makers.cache_clear()
    monkeypatch.setattr(masking, "sliding_window_overlay", sliding_window_overlay)
    place = Place(Grid(100, 100, 64), 1, 0, 0, CPU)
    found = block_mask(masking.and_masks(sliding_window_overlay(9), masking.causal_mask_function), place)
    assert sliding_window_overlay(9).__code__ not in recognised._makers()
    assert found.to_bool()[0, 0, 50].nonzero().flatten().tolist() == list(range(41, 51))


def test_masks_of_numbers_alone_are_kept_by_shape() -> None:
    place = Place(Grid(300, 300, 64), 2, 0, 0, CPU)
    window = masking.sliding_window_causal_mask_function
    assert block_mask(window(70), place) is block_mask(window(70), place)
    assert block_mask(window(70), place) is not block_mask(window(71), place)
    assert block_mask(window(70), place) is not block_mask(window(70), place._replace(q_offset=3))
