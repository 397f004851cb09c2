"""Fleet facts as lines for a person: licences, the fabric, boot keys, services and neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, value_or
from firstlight.numerals import counted
from firstlight.report.layout import joined


def fleet_lines(facts: Facts) -> Iterator[str]:
    """What there is of a fleet; nothing on a machine by itself."""
    fleet = facts.fleet
    for licence in fleet.vgpu.licences:
        if isinstance(licence.state, Known):
            yield f"virtual {licence.gpu}: licence {licence.state.value.value}"
    yield from _fabric(facts)
    if isinstance(fleet.boot.standing, Known):
        yield f"nvidia.ko is {fleet.boot.standing.value.value}"
    if value_or(fleet.early_image.holds_nouveau, default=False):
        yield "the early boot image holds nouveau"
    if value_or(fleet.confidential.enabled, default=False):
        ready = "ready" if value_or(fleet.confidential.ready, default=False) else "not ready"
        yield f"confidential computing is on, GPUs {ready}"
    if isinstance(fleet.mps.running, Known):
        yield f"MPS pipes are there, the daemon {'runs' if fleet.mps.running.value else 'is gone'}"
    for pages in fleet.retired_pages:
        count = value_or(pages.single_bit, 0) + value_or(pages.double_bit, 0)
        if count:
            yield f"{pages.gpu}: {counted(count, 'page')} of memory out of use"
    adapters = value_or(fleet.peers.rdma_devices, 0)
    if adapters:
        yield counted(adapters, "RDMA adapter")


def _fabric(facts: Facts) -> Iterator[str]:
    fabric = facts.fleet.fabric
    if not isinstance(fabric.generation_five, Known):
        return
    managed = "NVLSM installed" if value_or(fabric.subnet_manager, default=False) else ""
    rack = "GPUs of a rack" if value_or(fabric.across_nodes, default=False) else ""
    imex = (
        counted(fabric.imex_channels.value, "IMEX channel") if isinstance(fabric.imex_channels, Known) and rack else ""
    )
    unit = f"Fabric Manager {fabric.manager.value.active}" if isinstance(fabric.manager, Known) else ""
    yield joined(["on an NVLink fabric", rack, unit, managed, imex])
