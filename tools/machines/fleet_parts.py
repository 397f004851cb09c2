"""Parts of NVSwitch systems: switches, InfiniBand devices that manage them, the Fabric Manager and its companions."""

from __future__ import annotations

from typing import Any

from tools.machines.driver_parts import pci
from tools.machines.guest_parts import Placed, cuda_fails, cuda_works, gpus_at, unit
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q

_PLACES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
FABRIC = {0: "N/A", 1: "N/A", 2: "In Progress", 3: "Completed"}


def hgx(
    machine: Reconstruction, version: str, gpu: GpuSpec, *, state: int, source: str, code: int = 0,
    switch: str = "0x22a3", switches: int = 4, **fields: Any,
) -> Reconstruction:  # fmt: skip
    """Eight GPUs on NVSwitches: fabric state 2 is in progress, 3 completed; `code` is what cuInit returns."""
    places = [Placed(gpu, f"0000:{number:02x}:00.0") for number in _PLACES]
    gpus_at(machine, version, *places, source=source, fabric_state=state, fabric_status=0, **fields)
    for number in range(switches):
        address = f"0000:{0x05 + number:02x}:00.0"
        pci(machine, address, switch, driver="nvidia-nvswitch", code="0x068000", source=SUPPOSED)
        machine.file(f"/dev/nvidia-nvswitch{number}", "", source=SUPPOSED)
    if switches:
        machine.file("/dev/nvidia-nvswitchctl", "", source=SUPPOSED)
    status = "Success" if state == 3 else "N/A"
    smi_q(machine, fabric=FABRIC[state], fabric_status=status)
    return cuda_fails(machine, version, code) if code else cuda_works(machine, version, *[gpu] * 8)


def fabric_manager(
    machine: Reconstruction, version: str, *, source: str, log: tuple[str, ...] = (), failed: int = 0
) -> Reconstruction:
    """nv-fabricmanager of a version, running or failed with an exit status, and the end of its log."""
    machine.file("/usr/bin/nv-fabricmanager", "", source=source)
    for line in ("nv-fabricmanager --version", "/usr/bin/nv-fabricmanager --version"):
        machine.command(line, f"Fabric Manager version is : {version}\n")
    machine.file("/usr/share/nvidia/nvswitch/fabricmanager.cfg", "LOG_LEVEL=4\nFABRIC_MODE=0\n", source=SUPPOSED)
    if failed:
        return unit(machine, "nvidia-fabricmanager", state="failed", sub="failed", result="exit-code", status=failed,
                    log=log, source=source)  # fmt: skip
    machine.file("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "1507\n", source=SUPPOSED)
    return unit(machine, "nvidia-fabricmanager", log=log, source=source)


def switch_managers(machine: Reconstruction, *, source: str) -> Reconstruction:
    """The InfiniBand devices through which NVLink5 switches are managed; their VPD says SW_MNG."""
    for number in (8, 9, 10, 11):
        folder = f"/sys/class/infiniband/mlx5_{number}"
        machine.file(f"{folder}/device/vpd", b"\x82\x0cNVSwitch\x00\x90SW_MNG", source=source)
        machine.file(f"{folder}/ports/1/state", "4: ACTIVE\n", source=SUPPOSED)
        pci(machine, f"0000:{0xC0 + number:02x}:00.0", "0x1021", driver="mlx5_core", code="0x020700", source=SUPPOSED)
        machine.file(f"/sys/bus/pci/devices/0000:{0xC0 + number:02x}:00.0/vendor", "0x15b3\n", source=SUPPOSED)
    return machine


def nvlsm(machine: Reconstruction, *, source: str) -> Reconstruction:
    """The NVLink subnet manager that the Fabric Manager of NVLink5 systems needs."""
    machine.file("/opt/nvidia/nvlsm/sbin/nvlsm", "", source=source)
    machine.file("/usr/share/nvidia/nvlsm/nvlsm.conf", "log_file /var/log/nvlsm.log\n", source=source)
    return machine.file("/var/run/nvlsm.pid", "2210\n", source=SUPPOSED)
