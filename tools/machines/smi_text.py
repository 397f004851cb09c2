"""What `nvidia-smi -q` prints of one GPU after another, in NVIDIA's own layout, with the values that matter given."""

from __future__ import annotations

from typing import Any

from tools.machines.guest_parts import cuda_of
from tools.machines.reconstruction import Reconstruction

_NO = "Not Active"


def smi_q(machine: Reconstruction, *, each: dict[int, dict[str, str]] | None = None, **same: str) -> Reconstruction:
    """`nvidia-smi -q` made from NVML's answer; `same` holds for all GPUs, `each` for the one of that index."""
    answer: Any = machine.children["nvml"].answer
    version = str(answer["driver_version"])
    text = "\n==============NVSMI LOG==============\n\n"
    text += "Timestamp                                 : Sun Nov 15 00:00:00 2026\n"
    text += f"Driver Version                            : {version}\n"
    text += f"CUDA Version                              : {cuda_of(version)}\n\n"
    text += f"Attached GPUs                             : {len(answer['devices'])}\n"
    for device in answer["devices"]:
        text += _gpu(device, {**same, **(each or {}).get(device["index"], {})})
    return machine.command("nvidia-smi -q", text)


def _line(indent: int, name: str, value: str) -> str:
    return f"{' ' * indent}{name:<{42 - indent}}: {value}\n"


def _section(indent: int, name: str, **values: str) -> str:
    text = f"{' ' * indent}{name}\n"
    return text + "".join(_line(indent + 4, key.replace("_", " "), value) for key, value in values.items())


def _gpu(device: dict[str, Any], say: dict[str, str]) -> str:
    address = device["pci_address"].upper()
    address = address if len(address.split(":")[0]) == 8 else f"0000{address}"
    mig = "Enabled" if device.get("mig_mode") else "Disabled"
    text = f"GPU {address}\n" + _line(4, "Product Name", device["name"])
    text += _line(4, "Product Brand", say.get("brand", "NVIDIA")) + _line(4, "Persistence Mode", "Enabled")
    text += _line(4, "Addressing Mode", say.get("addressing", "None"))
    text += _section(4, "MIG Mode", Current=mig, Pending=mig)
    text += _line(4, "GPU UUID", device["uuid"]) + _line(4, "Minor Number", str(device["index"]))
    text += _section(4, "GPU Virtualization Mode", Virtualization_Mode=say.get("virtualization", "None"),
                     Host_VGPU_Mode="N/A")  # fmt: skip
    if "licence" in say:
        product, licence = say["product"], say["licence"]
        text += _section(4, "vGPU Software Licensed Product", Product_Name=product, License_Status=licence)
    text += _section(4, "GPU Reset Status", Reset_Required=say.get("reset", "No"), Drain_and_Reset_Recommended="No")
    text += _line(4, "GPU Recovery Action", say.get("recovery", "None"))
    text += _reasons(say)
    text += _section(4, "FB Memory Usage", Total=f"{device['memory_bytes'] // 2**20} MiB", Used="0 MiB")
    text += _section(4, "Conf Compute Protected Memory Usage", Total=say.get("protected", "0 MiB"), Used="0 MiB")
    text += _line(4, "Compute Mode", say.get("compute", "Default"))
    text += _section(4, "ECC Mode", Current=say.get("ecc", "Enabled"), Pending=say.get("ecc", "Enabled"))
    text += "    ECC Errors\n"
    text += _section(8, "Volatile", SRAM_Uncorrectable="0", DRAM_Uncorrectable=say.get("dram", "0"))
    text += _section(8, "Aggregate", SRAM_Uncorrectable="0", DRAM_Uncorrectable=say.get("dram_all", "0"))
    if "retired" in say:
        text += _section(4, "Retired Pages", Single_Bit_ECC="0", Double_Bit_ECC=say["retired"],
                         Pending_Page_Blacklist=say.get("retired_pending", "No"))  # fmt: skip
    else:
        text += _section(4, "Retired Pages", Single_Bit_ECC="N/A", Double_Bit_ECC="N/A", Pending_Page_Blacklist="N/A")
    if "rows" in say:
        text += _section(4, "Remapped Rows", Correctable_Error="0", Uncorrectable_Error=say["rows"],
                         Pending=say.get("rows_pending", "No"),
                         Remapping_Failure_Occurred=say.get("rows_failed", "No"))  # fmt: skip
    else:
        text += _line(4, "Remapped Rows", "N/A")
    text += _section(4, "Temperature", GPU_Current_Temp=say.get("temperature", "34 C"), GPU_Slowdown_Temp="-2 C")
    text += _section(4, "Clocks", Graphics=say.get("graphics", "1980 MHz"), SM=say.get("graphics", "1980 MHz"))
    text += _section(4, "Max Clocks", Graphics="1980 MHz", SM="1980 MHz")
    text += _section(4, "Fabric", State=say.get("fabric", "N/A"), Status=say.get("fabric_status", "N/A"))
    return text + _line(4, "Processes", "None")


def _reasons(say: dict[str, str]) -> str:
    active = say.get("reasons", "").split(",")

    def state(name: str) -> str:
        return "Active" if name in active else _NO

    text = _section(4, "Clocks Event Reasons", Idle=state("idle"), Applications_Clocks_Setting=_NO,
                    SW_Power_Cap=state("power-cap"), HW_Slowdown=state("slowdown"))  # fmt: skip
    text += _line(12, "HW Thermal Slowdown", state("thermal")) + _line(12, "HW Power Brake Slowdown", state("brake"))
    return text + _line(8, "Sync Boost", _NO) + _line(8, "SW Thermal Slowdown", _NO)
