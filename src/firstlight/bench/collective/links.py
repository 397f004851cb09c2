"""The link that ranks speak over, by name, and what it carries: NVLink by generation and count, else PCIe.

A limit must never be too low, or a true figure would be refused: where GPUs are joined by NVLink in parts only, the
limit that is shown is PCIe's, and what is refused is above NVLink's. Switches of NVLink 4 and later can add up what
GPUs send (NVLink SHARP). A GPU then still receives the whole sum, so that algbw of all_reduce cannot be above the link,
and busbw not above 2(n-1)/n of it. Never run on several GPUs; tested with links as NVML reports them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from firstlight.bench.case import LinkLimit
from firstlight.bench.cases.links import MOST_LINKS, link_between
from firstlight.bench.clocks import NvmlCard
from firstlight.bench.collective.cases import Spec
from firstlight.bench.peaks import pcie_gbps, peaks_of
from firstlight.bench.place import Device
from firstlight.frozen import dataclass
from firstlight.tables import Tables, load

THROUGH_HOST = "staged through host"  # as links.link_between says it
Names = Mapping[tuple[int, int], str]  # of every pair of ranks: NV18, PIX, SYS


@dataclass(frozen=True, slots=True)
class OwnLink:
    """What one GPU says of its links: 18 active NVLinks of NVML's version 6, PCIe 5.0 x16; NVLink of its model."""

    nvlink_version: int | None = None
    nvlinks: int = 0
    model_gbps: float | None = None  # each way, of all links of the model, by its datasheet
    pcie_generation: int | None = None
    pcie_width: int | None = None


def own_link(device: Device) -> OwnLink:
    """What NVML tells of a GPU's links, and the tables of its model; nothing on a processor."""
    if device.gpu is None:
        return OwnLink()
    both_ways = peaks_of(device.gpu, load()).nvlink_gbps
    version, active = _nvlinks(device.card)
    return OwnLink(
        version, active, None if both_ways is None else both_ways / 2, device.gpu.pcie_gen, device.gpu.pcie_width
    )


def _nvlinks(card: Any) -> tuple[int | None, int]:
    if not isinstance(card, NvmlCard):
        return None, 0
    states = [card.ask(f"nvlink {link}", "nvmlDeviceGetNvLinkState", link) for link in range(MOST_LINKS)]
    active = [link for link, state in enumerate(states) if state == 1]
    if not active:
        return None, 0
    version = card.ask("nvlink version", "nvmlDeviceGetNvLinkVersion", active[0])
    return None if version is None else int(version), len(active)


def link_of_all(own: Sequence[OwnLink], tables: Tables, *, nodes: int) -> Callable[[Spec], LinkLimit]:
    """The limit of every case of these ranks, which are GPUs of one node numbered as torch numbers them."""
    if nodes > 1:
        return lambda _: LinkLimit(f"between {nodes} nodes, not known")
    names = {pair: link_between(*pair) for pair in combinations(range(len(own)), 2)}
    return lambda spec: limit_of(spec, own, names, tables)


def limit_of(spec: Spec, own: Sequence[OwnLink], names: Names, tables: Tables) -> LinkLimit:
    """The limit of one case: of its two ranks, or of all of them together."""
    if spec.pair:
        first, second = spec.pair
        ranks = (own[first], own[second])
        name = names[first, second]
        return _nvlink(ranks, tables, adds=1.0) if _is_nvlink(name) else _pcie(ranks, name)
    joined = _joined(len(own), names)
    adds = float(spec.operation.factor(len(own))) if spec.operation.name == "all_reduce" else 1.0
    if joined == len(own):
        return _nvlink(own, tables, adds=adds)
    worst = _worst(names)
    slow = _pcie(own, worst)
    if joined == 1:
        return slow
    return LinkLimit(f"{slow.name}, NVLink in parts", slow.gbps, _nvlink(own, tables, adds=adds).gbps)


def _is_nvlink(name: str) -> bool:
    return re.match(r"NV\d", name) is not None


def _joined(count: int, names: Names) -> int:
    """The size of the largest set of ranks that NVLink joins, directly or over others; 1 where there is none."""
    sets = [{rank} for rank in range(count)]
    for (one, other), name in names.items():
        if _is_nvlink(name):
            first = next(each for each in sets if one in each)
            second = next(each for each in sets if other in each)
            if first is not second:
                sets.remove(second)
                first |= second
    return max(len(each) for each in sets)


def _nvlink(ranks: Sequence[OwnLink], tables: Tables, *, adds: float) -> LinkLimit:
    """The rank with the fewest or slowest links; a model whose links are slower than its generation's has its own."""
    each = [(_nvlink_gbps(link, tables), link) for link in ranks]
    known = [(gbps, link) for gbps, link in each if gbps is not None]
    if len(known) < len(each):
        return LinkLimit("NVLink, its rate not known")
    gbps, slowest = min(known, key=lambda pair: pair[0])
    row = None if slowest.nvlink_version is None else tables.nvlink_rate(slowest.nvlink_version)
    name = f"NV{slowest.nvlinks}" + (f" (NVLink {row.generation})" if row is not None else "")
    most = gbps * adds if adds > 1 and row is not None and row.switch_adds else None
    return LinkLimit(name, gbps, most)


def _nvlink_gbps(link: OwnLink, tables: Tables) -> float | None:
    row = None if link.nvlink_version is None else tables.nvlink_rate(link.nvlink_version)
    counted = None if row is None or not link.nvlinks else row.each_way_gbps * link.nvlinks
    return min((gbps for gbps in (counted, link.model_gbps) if gbps is not None), default=None)


def _pcie(ranks: Sequence[OwnLink], name: str) -> LinkLimit:
    way = "through the host" if THROUGH_HOST in name else name.partition(",")[0]
    found = [(link.pcie_generation, link.pcie_width) for link in ranks]
    rates = [
        (pcie_gbps(generation, width) or 0.0, f"PCIe {generation}.0 x{width}")
        for generation, width in found
        if generation is not None and width is not None
    ]
    if len(rates) < len(found) or not all(rate for rate, _ in rates):
        return LinkLimit(f"PCIe, {way}")
    rate, slowest = min(rates)
    return LinkLimit(f"{slowest}, {way}", rate)


def _worst(names: Names) -> str:
    """The name of the longest way between two ranks that NVLink does not join."""
    ways = ("PIX", "PXB", "PHB", "NODE", "SYS")
    others = [name for name in names.values() if not _is_nvlink(name)]
    staged = [name for name in others if THROUGH_HOST in name]
    known = [name for name in others if name.partition(",")[0] in ways]
    return staged[0] if staged else max(known or others, key=lambda name: ways.index(name) if name in ways else -1)
