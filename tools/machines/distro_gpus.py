"""GPUs that the reports behind the distribution machines name, with the PCI ids that those reports give."""

from __future__ import annotations

from tools.machines.driver_parts import SM_50_TO_90
from tools.machines.parts import GpuSpec
from tools.machines.wheels import TorchWheel

GTX_1050 = GpuSpec("NVIDIA GeForce GTX 1050", "6.1", 5, 4.0, "0x1c8d")
GTX_1060 = GpuSpec("NVIDIA GeForce GTX 1060 6GB", "6.1", 5, 6.0, "0x1c03")
GTX_1070_TI = GpuSpec("NVIDIA GeForce GTX 1070 Ti", "6.1", 5, 8.0, "0x1b82")
GT_1030 = GpuSpec("NVIDIA GeForce GT 1030", "6.1", 5, 2.0, "0x1d01")
GTX_1650 = GpuSpec("NVIDIA GeForce GTX 1650", "7.5", 5, 4.0, "0x1f82")
RTX_2060_SUPER = GpuSpec("NVIDIA GeForce RTX 2060 SUPER", "7.5", 5, 8.0, "0x1f06")
RTX_3060 = GpuSpec("NVIDIA GeForce RTX 3060", "8.6", 5, 12.0, "0x2504")
RTX_3070 = GpuSpec("NVIDIA GeForce RTX 3070", "8.6", 5, 8.0, "0x2484")
RTX_3080_TI = GpuSpec("NVIDIA GeForce RTX 3080 Ti", "8.6", 5, 12.0, "0x2208")
RTX_4060_TI = GpuSpec("NVIDIA GeForce RTX 4060 Ti", "8.9", 5, 8.0, "0x2803")
RTX_4070 = GpuSpec("NVIDIA GeForce RTX 4070", "8.9", 5, 12.0, "0x2786")
RTX_5060_LAPTOP = GpuSpec("NVIDIA GeForce RTX 5060 Laptop GPU", "12.0", 5, 8.0, "0x2d59")
RTX_5070_TI = GpuSpec("NVIDIA GeForce RTX 5070 Ti", "12.0", 5, 15.9, "0x2c05")
RTX_5080_LAPTOP = GpuSpec("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0", 5, 15.9, "0x2c19")
RTX_A5500 = GpuSpec("NVIDIA RTX A5500", "8.6", 1, 24.0, "0x2233")
TESLA_P100 = GpuSpec("Tesla P100-PCIE-16GB", "6.0", 2, 16.0, "0x15f8")
TESLA_V100 = GpuSpec("Tesla V100-SXM2-16GB", "7.0", 2, 16.0, "0x1db1")
TESLA_T4 = GpuSpec("Tesla T4", "7.5", 2, 15.0, "0x1eb8")
A100_80 = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 80.0, "0x20b5")
A10G = GpuSpec("NVIDIA A10G", "8.6", 14, 22.5, "0x2237")
TESLA_M60 = GpuSpec("Tesla M60", "5.2", 2, 8.0, "0x13f2")
RTX_A6000 = GpuSpec("NVIDIA RTX A6000", "8.6", 1, 48.0, "0x2230")
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")

TORCH_27_CU126 = TorchWheel("2.7.1+cu126", "12.6", SM_50_TO_90)
# PyTorch's index had plain linux_x86_64 wheels until 2.6, built for glibc 2.17; manylinux_2_28 came after them.
TORCH_25_CU121 = TorchWheel("2.5.1+cu121", "12.1", SM_50_TO_90, tag="cp312-cp312-linux_x86_64")
TORCH_110_CU113 = TorchWheel("1.10.2+cu113", "11.3", ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),
                             tag="cp39-cp39-linux_x86_64")  # fmt: skip
