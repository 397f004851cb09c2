"""The device a run uses: one CUDA device as torch and NVML describe it, or the processor."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

from firstlight.bench.case import Place
from firstlight.bench.clocks import MEMORY_CLOCK, SM_CLOCK, NoGauge, NvmlCard, open_card
from firstlight.bench.results import GpuResult
from firstlight.errors import BadInput, CouldNotLook
from firstlight.frozen import dataclass

CPU = "cpu"
ALL = "all"
# For `--list` and `--estimate` on a machine without a GPU: what an H100 would be given.
ASSUMED = Place("cuda:0", l2_bytes=50 << 20, free_bytes=79 << 30, capability=(9, 0))


@dataclass(frozen=True, slots=True)
class Device:
    """A device as described without a context on it: GPU None is the processor; `card` is the way to NVML."""

    name: str
    gpu: GpuResult | None
    card: NvmlCard | NoGauge
    capability: tuple[int, int] = (0, 0)
    pci_address: str = ""


def device_names(wanted: str) -> tuple[str, ...]:
    """The torch names of the devices asked for: 'cuda' is cuda:0, 'all' every CUDA device, 'cpu' the processor."""
    if wanted == CPU:
        return (CPU,)
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", wanted)
    if match is None and wanted != ALL:
        raise BadInput(f"--device {wanted!a}: accepted: cuda:0 (or another number), all, cpu")
    torch = import_torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise CouldNotLook(
            f"no CUDA device is usable: {_why_no_cuda(torch)}. `firstlight doctor` says why; "
            f"`firstlight bench --device cpu` times small cases on the processor."
        )
    if match is None:
        return tuple(f"cuda:{index}" for index in range(count))
    index = int(match.group(1) or 0)
    if index >= count:
        raise BadInput(f"--device {wanted}: torch sees {count} CUDA device(s), so cuda:0 to cuda:{count - 1}")
    return (f"cuda:{index}",)


def import_torch() -> Any:
    """torch, or one line that says what is wrong with it."""
    try:
        import torch
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CouldNotLook(
            f"torch cannot be imported here ({reason}); `firstlight doctor` says why. Nothing was measured."
        ) from None
    return torch


def describe(name: str) -> Device:
    """What the device is. No context is made on it, so that NVML's list of processes does not hold us yet."""
    if name == CPU:
        return Device(CPU, None, NoGauge("a processor has no NVML"))
    torch = import_torch()
    index = int(name.partition(":")[2])
    properties = torch.cuda.get_device_properties(index)
    pci = _pci_address(properties)
    card = open_card(_uuid(properties), pci)
    capability = (int(properties.major), int(properties.minor))
    return Device(name, _gpu_result(index, properties, card), card, capability, pci)


def place_of(device: Device) -> Place:
    """The place with the memory that is free now; on a GPU this makes our context."""
    l2_bytes = 0 if device.gpu is None else device.gpu.l2_bytes or 0
    place = Place(device.name, l2_bytes, 0, device.capability)
    return Place(device.name, l2_bytes, free_bytes(place), device.capability)


def with_link_under_load(device: Device) -> Device:
    """The device with its PCIe link as it is right after work: idle links of many cards run at generation 1."""
    if device.gpu is None:
        return device
    generation = _asked(device.card, "nvmlDeviceGetCurrPcieLinkGeneration")
    width = _asked(device.card, "nvmlDeviceGetCurrPcieLinkWidth")
    return replace(device, gpu=replace(device.gpu, pcie_gen=generation, pcie_width=width))


def free_bytes(place: Place) -> int:
    """Memory that can be had on a device now."""
    if place.device == CPU:
        return processor_memory()
    return int(import_torch().cuda.mem_get_info(place.device)[0])


def _gpu_result(index: int, properties: Any, card: NvmlCard | NoGauge) -> GpuResult:
    ecc, mig = _first(card, "nvmlDeviceGetEccMode"), _first(card, "nvmlDeviceGetMigMode")
    return GpuResult(
        index=index,
        uuid=f"gpu-{index}",
        name=str(properties.name),
        cc=f"{properties.major}.{properties.minor}",
        sms=_number(properties, "multi_processor_count"),
        l2_bytes=_number(properties, "L2_cache_size"),
        mem_bytes=_number(properties, "total_memory"),
        mem_bus_bits=_asked(card, "nvmlDeviceGetMemoryBusWidth") or _number(properties, "memory_bus_width"),
        clock_max_mhz=_asked(card, "nvmlDeviceGetMaxClockInfo", SM_CLOCK),
        mem_clock_max_mhz=_asked(card, "nvmlDeviceGetMaxClockInfo", MEMORY_CLOCK),
        power_limit_w=_watts(_asked(card, "nvmlDeviceGetEnforcedPowerLimit")),
        power_default_w=_watts(_asked(card, "nvmlDeviceGetPowerManagementDefaultLimit")),
        ecc=None if ecc is None else bool(ecc),
        mig=None if mig is None else bool(mig),
        pcie_gen=_asked(card, "nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_width=_asked(card, "nvmlDeviceGetCurrPcieLinkWidth"),
        vbios=_text(card, "nvmlDeviceGetVbiosVersion"),
    )


def _ask(card: NvmlCard | NoGauge, function: str, *arguments: int) -> Any:
    name = " ".join((function, *(str(argument) for argument in arguments)))
    return card.ask(name, function, *arguments) if isinstance(card, NvmlCard) else None


def _asked(card: NvmlCard | NoGauge, function: str, *arguments: int) -> int | None:
    found = _ask(card, function, *arguments)
    return int(found) if found else None


def _first(card: NvmlCard | NoGauge, function: str) -> int | None:
    """The present state of a [present, pending] pair."""
    found = _ask(card, function)
    return None if found is None else int(found[0])


def _text(card: NvmlCard | NoGauge, function: str) -> str | None:
    found = _ask(card, function)
    return found.decode("ascii", "replace") if isinstance(found, bytes) else None if found is None else str(found)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _number(properties: Any, name: str) -> int | None:
    value = getattr(properties, name, None)
    return int(value) if value else None


def _uuid(properties: Any) -> str:
    uuid = str(getattr(properties, "uuid", ""))
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _pci_address(properties: Any) -> str:
    """NVML's form of the address, 00000000:18:00.0; '' from a torch that does not tell it."""
    if not hasattr(properties, "pci_bus_id"):
        return ""
    return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def _why_no_cuda(torch: Any) -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch {torch.__version__} sees none"


def processor_memory() -> int:
    """Free memory of the machine in bytes."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
