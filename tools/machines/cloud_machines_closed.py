"""Images of the clouds with a fault of their kind, from public threads: second half."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import SM_50_TO_90, TORCH_26_CU124, TORCH_211_CU130, log, pci, torch_of
from tools.machines.fleet_parts import fabric_manager
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_fails,
    cuda_works,
    debian,
    firmware,
    gpus_at,
    modules,
    other,
    package,
    renamed,
    running,
    torch_for,
    ubuntu,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.wheels import TorchWheel

A10G = GpuSpec("NVIDIA A10G", "8.6", 14, 22.3, "0x2237")
A10 = GpuSpec("NVIDIA A10", "8.6", 14, 22.0, "0x2236")
T4 = GpuSpec("Tesla T4", "7.5", 14, 14.6, "0x1eb8")
_AZURE = tuple(f"{number:04x}:00:00.0" for number in (0x1, 0x2, 0x3, 0x8, 0x9, 0xA, 0xB, 0xC))


def _ndv5(name: str, about: str, *, missing: str) -> Reconstruction:
    machine = box(name, about)
    source = "NVIDIA/aicr#1858 (ND96isr_H100_v5, 580.126.09, 000a:00:00.0 fails in the driver's probe, NVSwitches 4)"
    ubuntu(machine, "22.04", kernel="5.15.0-1102-azure", source=SUPPOSED)
    firmware(machine, "Microsoft Corporation", "Virtual Machine", guest="microsoft", source=SUPPOSED)
    there = [Placed(H100, address) for address in _AZURE if address != missing]
    gpus_at(machine, "580.126.09", *there, source=source, virtualization=1, fabric_state=3, fabric_status=0)
    cuda_works(machine, "580.126.09", *[H100] * len(there))
    for number in range(4):
        pci(machine, f"{0x10 + number:04x}:00:00.0", "0x22a3", driver="nvidia-nvswitch", code="0x068000", source=source)
    if missing:
        bus(machine, Placed(H100, missing), source=source)
    fabric_manager(machine, "580.126.09", source=SUPPOSED)
    smi_q(machine, virtualization="Pass-Through", fabric="Completed", fabric_status="Success")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def azure_ndv5_seven_of_eight() -> Reconstruction:
    """One H100 of the host is faulty; the driver's sentence about support is misleading."""
    about = "Azure ND96isr_H100_v5 on which the driver refused one of eight H100"
    machine = _ndv5("azure-ndv5-seven-of-eight", about, missing="000a:00:00.0")
    return log(
        machine,
        "NVRM: The NVIDIA GPU 000a:00:00.0 (PCI ID: 10de:2330)",
        "NVRM: installed in this system is not supported by the",
        "NVRM: NVIDIA 580.126.09 driver release.",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        source="NVIDIA/aicr#1858, comment of 2026-07-22 (the 'not supported' message is spurious)",
    )


def azure_ndv5_seven_of_eight_near_miss() -> Reconstruction:
    """The sibling node with all eight."""
    machine = _ndv5("azure-ndv5-seven-of-eight", "", missing="")
    renamed(machine, "The sibling node with all eight H100")
    return log(machine, source=SUPPOSED)


def _g5(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    ubuntu(machine, "22.04", source=SUPPOSED)
    running(machine, "5.10.198-187.748.amzn2.x86_64", source=SUPPOSED)
    firmware(machine, "Amazon EC2", "g5.4xlarge", guest="amazon", source="awslabs/amazon-eks-ami#1523 (g5.4xlarge)")
    site = wheels.python(machine, "/opt/venv", version="3.10", source=SUPPOSED)
    wheel = TorchWheel("2.1.2+cu121", "12.1", SM_50_TO_90, tag="cp310-cp310-manylinux1_x86_64")
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return machine


def eks_g5_gsp_hangs() -> Reconstruction:
    """An A10G whose firmware does not answer: NVML gives unknown errors for most questions."""
    machine = _g5("eks-g5-gsp-hangs", "EKS node g5.4xlarge (Amazon Linux 2) with driver 535.54.03: the GSP hangs")
    source = "awslabs/amazon-eks-ami#1523, comment of 2023-11-24 (A10G at 00:1E.0, 535.54.03, MIG Mode Unknown Error)"
    unknown = {"error": "Unknown Error", "code": 999}
    gpus_at(machine, "535.54.03", Placed(A10G, "0000:00:1e.0"), source=source, kind="proprietary", virtualization=1,
            mig_mode=unknown, mig_pending=unknown, ecc_mode=unknown, temperature_c=unknown)  # fmt: skip
    machine.file("/proc/driver/nvidia/params", "EnableGpuFirmware: 18\nEnableGpuFirmwareLogs: 2\n", source=SUPPOSED)
    cuda_fails(machine, "535.54.03", 999)
    log(
        machine,
        "NVRM: Xid (PCI:0000:00:1e): 119, pid=15676, name=nvidia-containe, Timeout after 6s of waiting for RPC "
        "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
        source="supposed: the Xid of a GSP that does not answer, as in NVIDIA's catalogue",
    )
    return other(machine, "amzn-2", source=source)


def eks_g5_gsp_hangs_near_miss() -> Reconstruction:
    """The firmware is turned off for the proprietary module, as the image's later release does."""
    machine = _g5("eks-g5-gsp-hangs", "")
    renamed(machine, "The same node with NVreg_EnableGpuFirmware=0: works")
    machine.file("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_EnableGpuFirmware=0\n", source=SUPPOSED)
    gpus_at(machine, "535.54.03", Placed(A10G, "0000:00:1e.0"), source=SUPPOSED, kind="proprietary", virtualization=1)
    machine.file("/proc/driver/nvidia/params", "EnableGpuFirmware: 0\nEnableGpuFirmwareLogs: 2\n", source=SUPPOSED)
    cuda_works(machine, "535.54.03", A10G)
    log(machine, source=SUPPOSED)
    return other(machine, "amzn-2", source=SUPPOSED)


def lambda_stack_half_upgraded() -> Reconstruction:
    """apt upgraded Lambda Stack's driver under a running module."""
    about = "Lambda instance after apt upgrade: module 570.148.08, libraries 580.95.05"
    machine = box("lambda-stack-half-upgraded", about, root=0)
    source = ("ai-infrastructure.net/runbook-driver-module-load-failure (Driver/library version mismatch after an "
              "upgrade), docs.lambda.ai (Lambda Stack bundles driver, CUDA and PyTorch); numbers supposed")  # fmt: skip
    ubuntu(machine, "22.04", kernel="6.8.0-60-generic", source=SUPPOSED)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    entry = "deb http://archive.lambdalabs.com/ubuntu jammy main\n"
    machine.file("/etc/apt/sources.list.d/lambda-repository.list", entry, source=source)
    gpus_at(machine, "570.148.08", Placed(A10, "0000:06:00.0"), source=SUPPOSED, virtualization=1)
    machine.without(*(f"/usr/lib/x86_64-linux-gnu/{name}.so.570.148.08" for name in ("libcuda", "libnvidia-ml")))
    parts.user_driver(machine, "580.95.05", source=source)
    for name in ("lambda-stack-cuda", "nvidia-driver-580-open", "libnvidia-compute-580", "python3-torch-cuda"):
        package(machine, name, "580.95.05-0lambda0.22.04.1", source=source)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    text = "Driver/library version mismatch"
    machine.child("nvml", {"init": {"code": 18, "error": text}, "library": library})
    for line in ("nvidia-smi -L", "nvidia-smi -q"):
        machine.commands.pop(line, None)
    machine.every_call_of("nvidia-smi", f"Failed to initialize NVML: {text}\nNVML library version: 580.95\n", status=18)
    cuda_fails(machine, "580.95.05", 803)
    log(machine, "NVRM: API mismatch: the client has the version 580.95.05, but",
        "NVRM: this kernel module has the version 570.148.08.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
        source=f"{source}; the lines as in aws/aws-parallelcluster#4127")  # fmt: skip
    torch_for(machine, TorchWheel("2.7.0", "12.8", ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")), python="3.10")
    return parts.loader_cache(machine)


def lambda_stack_half_upgraded_near_miss() -> Reconstruction:
    """After the restart, the module is the libraries' own."""
    machine = renamed(lambda_stack_half_upgraded(), "The same instance after a restart: works")
    machine.without("/proc/modules")
    machine.commands.pop("nvidia-smi")
    gpus_at(machine, "580.95.05", Placed(A10, "0000:06:00.0"), source=SUPPOSED, virtualization=1)
    machine.links["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] = "libcuda.so.580.95.05"
    cuda_works(machine, "580.95.05", A10)
    log(machine, source=SUPPOSED)
    return parts.loader_cache(machine)


def gce_debian_new_kernel() -> Reconstruction:
    """Debian's automatic update brought a kernel for which no module was built."""
    about = "GCE Debian 12 with a T4: driver built for the old kernel, new one runs"
    machine = box("gce-debian-new-kernel", about, root=0)
    source = ("GoogleCloudPlatform/compute-gpu-installation#18 (after a kernel upgrade nvidia-smi fails; dkms came too "
              "late); releases supposed")  # fmt: skip
    debian(machine, "12", kernel="6.1.0-40-cloud-amd64", source=f"{source}; Debian is among the tested systems")
    firmware(machine, "Google", "Google Compute Engine", guest="google", source=SUPPOSED)
    bus(machine, Placed(T4, "0000:00:04.0"), source=SUPPOSED)
    machine.file("/lib/modules/6.1.0-38-cloud-amd64/kernel/drivers/video/nvidia.ko", "", source=source)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    machine.file("/usr/bin/nvidia-uninstall", "", source="supposed: installed by NVIDIA's .run file, as by the script")
    machine.file("/var/log/nvidia-installer.log", "", source=SUPPOSED)
    parts.user_driver(machine, "550.90.07", source=SUPPOSED)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    cuda_fails(machine, "550.90.07", 100)
    modules(machine, "virtio_net")
    log(machine, source=SUPPOSED)
    torch_for(machine, TORCH_26_CU124, python="3.11")
    return parts.loader_cache(machine)


def gce_debian_new_kernel_near_miss() -> Reconstruction:
    """The module was built for the new kernel and is loaded."""
    machine = renamed(gce_debian_new_kernel(), "The same machine with the module of the running kernel: works")
    machine.without("/sys/bus/pci/devices", "/proc/modules")
    machine.commands.pop("nvidia-smi")
    gpus_at(machine, "550.90.07", Placed(T4, "0000:00:04.0"), source=SUPPOSED, kind="proprietary", virtualization=1)
    machine.file("/lib/modules/6.1.0-40-cloud-amd64/kernel/drivers/video/nvidia.ko", "", source=SUPPOSED)
    machine.command("modinfo nvidia", "filename: /lib/modules/6.1.0-40-cloud-amd64/kernel/drivers/video/nvidia.ko\n"
                    "version: 550.90.07\nlicense: NVIDIA\n")  # fmt: skip
    cuda_works(machine, "550.90.07", T4)
    return parts.loader_cache(machine)


MACHINES = (azure_ndv5_seven_of_eight, eks_g5_gsp_hangs, lambda_stack_half_upgraded, gce_debian_new_kernel)
NEAR_MISSES = (azure_ndv5_seven_of_eight_near_miss, eks_g5_gsp_hangs_near_miss, lambda_stack_half_upgraded_near_miss,
               gce_debian_new_kernel_near_miss)  # fmt: skip
