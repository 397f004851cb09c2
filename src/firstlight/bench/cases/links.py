"""The name of the link between two GPUs as nvidia-smi's topology matrix writes it: NV18, PIX, PHB, NODE, SYS.

Not run on a machine with several GPUs yet; tested against a stand-in for NVML.
"""

from __future__ import annotations

from typing import Any, Protocol

MOST_LINKS = 18  # of one Hopper or Blackwell GPU; older ones have fewer and say so


class Nvml(Protocol):
    """The part of pynvml that names a link."""

    NVML_P2P_CAPS_INDEX_NVLINK: int
    NVML_P2P_STATUS_OK: int

    @property
    def NVMLError(self) -> type[Exception]: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetP2PStatus(self, first: Any, second: Any, index: int) -> int: ...
    def nvmlDeviceGetNvLinkState(self, device: Any, link: int) -> int: ...
    def nvmlDeviceGetTopologyCommonAncestor(self, first: Any, second: Any) -> int: ...


# nvmlGpuTopologyLevel: the nearest thing two GPUs share.
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def link_name(nvml: Nvml, first: str, second: str) -> str:
    """The link between the GPUs with these UUIDs, e.g. 'NV18'; 'unknown' with NVML's reason when it does not say."""
    try:
        one, other = nvml.nvmlDeviceGetHandleByUUID(first), nvml.nvmlDeviceGetHandleByUUID(second)
        if nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
            return f"NV{_active_links(nvml, one)}"
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except nvml.NVMLError as error:
        return f"unknown ({error})"
    return ANCESTORS.get(level, f"unknown (topology level {level})")


def _active_links(nvml: Nvml, device: Any) -> int:
    active = 0
    for link in range(MOST_LINKS):
        try:
            active += nvml.nvmlDeviceGetNvLinkState(device, link) == 1
        except nvml.NVMLError:  # a link that this GPU does not have
            break
    return active


def link_between(source: int, target: int) -> str:
    """The link between two GPUs as torch numbers them; 'staged through host' is added where peer access is off."""
    import torch

    peer = torch.cuda.can_device_access_peer(source, target)
    try:
        import pynvml

        pynvml.nvmlInit()
    except (ImportError, OSError) as error:
        name = f"unknown ({error})"
    except pynvml.NVMLError as error:
        name = f"unknown ({error})"
    else:
        uuids = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in (source, target)]
        name = link_name(pynvml, *uuids)
        pynvml.nvmlShutdown()
    return name if peer else f"{name}, staged through host"
