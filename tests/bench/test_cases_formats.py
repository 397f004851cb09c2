"""nvfp4 packing, the switches of torch, slices, and names of links."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from firstlight.bench.cases import data, nvfp4
from firstlight.bench.cases.attention import attention_case
from firstlight.bench.cases.links import link_name
from firstlight.bench.cases.settings import Backend, Products, Settings, switches_kept, under
from firstlight.bench.cases.unavailable import Unavailable
from tests.bench.small_cases import CPU, TINY_ATTENTION


def test_nvfp4_numbers_come_back_within_half_a_step_of_their_block() -> None:
    wide = torch.randn(128, 64, generator=torch.Generator().manual_seed(1))
    blocks = nvfp4.quantise(wide)
    assert blocks.packed.shape == (128, 32)
    assert blocks.packed.numel() + blocks.tiled_scales.numel() == 128 * 64 * (0.5 + 1 / 16)
    back = nvfp4.dequantise(blocks, torch.arange(128))
    largest = wide.view(128, 4, 16).abs().amax(dim=2).repeat_interleave(16, dim=1)
    # The widest gap of the codes is 4 to 6, and a scale in e4m3 is off by up to 1/16.
    assert bool(((back - wide).abs() <= largest * (1 / 6 + 1 / 16)).all())
    assert (back - wide).norm() / wide.norm() < 0.15


def test_nvfp4_codes_are_the_nearest_ones() -> None:
    row = torch.tensor([6.0, -6.0, 0.0, 0.5, 1.0, -1.5, 2.0, 3.0, 4.0, 0.2, 0.3, 2.4, 2.6, 4.9, 5.1, -0.6])
    wide = row.repeat(128, 4)
    back = nvfp4.dequantise(nvfp4.quantise(wide), torch.tensor([0, 127]))
    nearest = [6, -6, 0, 0.5, 1, -1.5, 2, 3, 4, 0, 0.5, 2, 3, 4, 6, -0.5]
    assert back[0, :16].tolist() == nearest
    assert back[1, 48:].tolist() == nearest


def test_scales_lie_in_tiles_of_128_by_4_in_cublas_order() -> None:
    rows, columns = 256, 8
    flat = nvfp4.tile(torch.arange(rows * columns).view(rows, columns))
    for row, column in ((0, 0), (1, 0), (31, 3), (32, 0), (127, 3), (128, 0), (200, 5), (255, 7)):
        tile = (row // 128) * (columns // 4) + column // 4
        inside = 16 * (row % 32) + 4 * (row % 128 // 32) + column % 4
        assert flat[512 * tile + inside] == row * columns + column
    assert torch.equal(nvfp4.untile(flat, rows, columns), torch.arange(rows * columns).view(rows, columns))


def test_a_call_sets_the_switches_it_depends_on_and_a_run_puts_them_back() -> None:
    seen: list[tuple[bool, ...]] = []

    backends: Any = torch.backends

    def look() -> None:
        products = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        seen.append((*products, backends.cuda.flash_sdp_enabled(), backends.cuda.math_sdp_enabled()))

    with switches_kept():
        under(Settings(), look)()
        with switches_kept():
            under(Settings(Products.TF32), look)()
            under(Settings(backend=Backend.FLASH), look)()
            under(Settings(backend=Backend.MATH), look)()
        look()
    first, *others, last = seen
    assert others == [(True, True, True, True), (False, False, True, False), (False, False, False, True)]
    assert last == first == (False, False, True, True)


def test_a_backend_that_torch_does_not_have_here_is_unavailable_rather_than_wrong() -> None:
    case = attention_case("fp16", TINY_ATTENTION, "full", backend=Backend.CUDNN)
    with switches_kept(), pytest.raises(Unavailable, match="no cudnn attention kernel"):
        case.prepare(CPU, 1)


def test_a_spread_has_the_first_and_the_last_index_and_every_tile_between() -> None:
    picked = data.spread(8192, CPU)
    assert (int(picked[0]), int(picked[-1]), len(picked)) == (0, 8191, 64)
    assert len({int(index) // 256 for index in picked}) == 32
    assert data.spread(3, CPU).tolist() == [0, 1, 2]
    assert data.spread(1, CPU).tolist() == [0]


def test_nan_and_a_wrong_shape_are_infinitely_wrong() -> None:
    good = torch.ones(4)
    assert data.relative_error(good, good) == 0
    assert data.relative_error(torch.tensor([1.0, 1.0, 1.0, math.nan]), good) == math.inf
    assert data.relative_error(torch.ones(5), good) == math.inf
    assert data.relative_error(torch.tensor([1.0, 1.0, 1.0, math.inf]), good) == math.inf
    assert data.relative_error(good * 1.01, good) == pytest.approx(0.01, rel=1e-4)


class StandInNvml:
    """NVML of a machine with two GPUs, by their link: 'nvlink' or a topology level."""

    class NVMLError(Exception):
        pass

    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def __init__(self, *, links: int = 0, level: int = 0) -> None:
        self.links, self.level = links, level

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if not uuid.startswith("GPU-"):
            raise self.NVMLError("Invalid Argument")
        return uuid

    def nvmlDeviceGetP2PStatus(self, first: Any, second: Any, index: int) -> int:
        assert (first, second, index) == ("GPU-a", "GPU-b", 2)
        return 0 if self.links else 5

    def nvmlDeviceGetNvLinkState(self, device: Any, link: int) -> int:
        if link >= self.links:
            raise self.NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetTopologyCommonAncestor(self, first: Any, second: Any) -> int:
        return self.level


@pytest.mark.parametrize(
    ("nvml", "name"),
    [
        (StandInNvml(links=18), "NV18"),
        (StandInNvml(links=4, level=50), "NV4"),
        (StandInNvml(level=10), "PIX"),
        (StandInNvml(level=20), "PXB"),
        (StandInNvml(level=30), "PHB"),
        (StandInNvml(level=40), "NODE"),
        (StandInNvml(level=50), "SYS"),
        (StandInNvml(level=77), "unknown (topology level 77)"),
    ],
)
def test_a_link_has_the_name_that_the_topology_matrix_gives_it(nvml: StandInNvml, name: str) -> None:
    assert link_name(nvml, "GPU-a", "GPU-b") == name


def test_a_link_that_nvml_does_not_know_says_so() -> None:
    assert link_name(StandInNvml(), "MIG-a", "GPU-b") == "unknown (Invalid Argument)"
