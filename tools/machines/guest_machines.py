"""Bare machines, passed-through GPUs and virtual GPUs with a fault of their kind, from public threads."""

from __future__ import annotations

from tools.machines import parts
from tools.machines.driver_parts import (
    SM_50_TO_90,
    TORCH_26_CU124,
    TORCH_28_CU128,
    TORCH_211_CU130,
    log,
    reading,
    torch_of,
)
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_fails,
    cuda_works,
    firmware,
    gpus_at,
    modules,
    no_devices,
    package,
    renamed,
    running,
    torch_for,
    ubuntu,
    unit,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.wheels import TorchWheel

L40 = GpuSpec("NVIDIA L40", "8.9", 14, 44.99, "0x26b5")
A100 = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 79.2, "0x20b2")
A100_PCIE_40 = GpuSpec("NVIDIA A100-PCIE-40GB", "8.0", 14, 39.4, "0x20f1")
QUADRO_RTX_5000 = GpuSpec("Quadro RTX 5000", "7.5", 2, 15.7, "0x1eb0")
A10_24Q = GpuSpec("NVIDIA A10-24Q", "8.6", 10, 23.7, "0x2236")
P40_24Q = GpuSpec("GRID P40-24Q", "6.1", 10, 23.9, "0x1b38")
RTX_6000_8Q = GpuSpec("GRID RTX6000-8Q", "7.5", 10, 8.0, "0x1e30")
_OLD = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")

_L40_PLACES = ("0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0", "0000:5d:00.0", "0000:9b:00.0", "0000:b3:00.0",
               "0000:cb:00.0", "0000:db:00.0")  # fmt: skip


def _l40_node(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    source = "NVIDIA/NVSentinel#155 (10de:26b5 at 0000:b3:00.0, open module 570.158.01, on-prem fleet)"
    ubuntu(machine, "22.04", kernel="5.15.0-143-generic", source=SUPPOSED)
    firmware(machine, "Supermicro", "SYS-421GE-TNRT", guest="", source=SUPPOSED)
    all_of_them = [Placed(L40, address) for address in _L40_PLACES]
    there = [each for each in all_of_them if each.address != "0000:b3:00.0"]
    gpus_at(machine, "570.158.01", *there, source=f"{source}; eight of them is supposed")
    cuda_works(machine, "570.158.01", *[L40] * 7)
    bus(machine, all_of_them[5], source=source)
    log(
        machine,
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        source=source,
    )
    smi_q(machine)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def l40_node_seven_of_eight() -> Reconstruction:
    """One of eight GPUs was gone when the driver looked; no Xid was logged."""
    return _l40_node("l40-node-seven-of-eight", "Server with eight L40 on the bus, of which the driver found seven")


def l40_node_seven_of_eight_near_miss() -> Reconstruction:
    """All eight answer."""
    machine = renamed(l40_node_seven_of_eight(), "The same server with all eight L40 in the driver")
    machine.without("/sys/bus/pci/devices", "/proc/modules")
    gpus_at(machine, "570.158.01", *[Placed(L40, address) for address in _L40_PLACES], source=SUPPOSED)
    cuda_works(machine, "570.158.01", *[L40] * 8)
    log(machine, source=SUPPOSED)
    smi_q(machine)
    return parts.loader_cache(machine)


def a100_row_remap_failed() -> Reconstruction:
    """A GPU whose spare rows are used up: NVIDIA's criterion for a replacement."""
    machine = box("a100-row-remap-failed", "Eight A100 of which gpu-5 reports a row remapping failure (Xid 64)")
    source = "aws/eks-node-monitoring-agent#245, awslabs/awsome-distributed-ai#1190 (Xid 64, row remap failure: RMA)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "NVIDIA", "DGXA100 920-23687-2530-000", guest="", source=SUPPOSED)
    places = [Placed(A100, f"0000:{number:02x}:00.0") for number in (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)]
    gpus_at(machine, "580.95.05", *places, source=SUPPOSED, rows_correctable=0, rows_uncorrectable=0, rows_pending=0,
            rows_failure=0, fabric_state=0, fabric_status=0)  # fmt: skip
    reading(machine, 5, rows_uncorrectable=8, rows_pending=0, rows_failure=1, ecc_uncorrected_aggregate=9)
    cuda_works(machine, "580.95.05", *[A100] * 8)
    unit(machine, "nvidia-fabricmanager", log=("Started NVIDIA fabric manager service.",), source=SUPPOSED)
    line = ("2026-08-24T09:12:44,000000+00:00 NVRM: Xid (PCI:0000:90:00): 64, pid='<unknown>', name=<unknown>, "
            "Row Remapper: Error recording remapped row")  # fmt: skip
    log(machine, line, source=f"{source}; the wording of the line is supposed")
    smi_q(machine, each={5: {"rows": "8", "rows_failed": "Yes", "dram_all": "9"}}, rows="0")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def a100_row_remap_failed_near_miss() -> Reconstruction:
    """Rows were remapped long ago, nothing is pending and nothing failed: that is what the spares are for."""
    machine = renamed(a100_row_remap_failed(), "The same server: two rows of gpu-5 are remapped, none failed")
    reading(machine, 5, rows_uncorrectable=2, rows_pending=0, rows_failure=0, ecc_uncorrected_aggregate=2)
    log(machine, source=SUPPOSED)
    return smi_q(machine, each={5: {"rows": "2", "dram_all": "2"}}, rows="0")


def hgx_power_brake() -> Reconstruction:
    """The server's power management pulls the brake line of two GPUs."""
    machine = box("hgx-power-brake", "HGX H100: two of eight GPUs run at 345 MHz, power brake slow-down active")
    source = ("docs.nvidia.com/deploy/nvml-api (HW Power Brake: external assertion, e.g. by the power supply), "
              "kubeflow/kubeflow#68 (HW Power Brake Slowdown in nvidia-smi -q), leptonai/gpud#330")  # fmt: skip
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "Dell Inc.", "PowerEdge XE9680", guest="", source=SUPPOSED)
    places = [Placed(H100, f"0000:{number:02x}:00.0") for number in (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)]
    gpus_at(machine, "580.95.05", *places, source=SUPPOSED, fabric_state=3, fabric_status=0, clock_sm_max_mhz=1980,
            clock_sm_mhz=1980, throttle_bits=0, temperature_c=41, power_limit_mw=700000)  # fmt: skip
    for index in (2, 3):
        reading(machine, index, throttle_bits=0x88, clock_sm_mhz=345)
    cuda_works(machine, "580.95.05", *[H100] * 8)
    unit(machine, "nvidia-fabricmanager", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    slow = {"reasons": "slowdown,brake", "graphics": "345 MHz", "temperature": "41 C"}
    smi_q(machine, each={2: slow, 3: slow}, fabric="Completed", fabric_status="Success")
    machine.sources["nvidia-smi -q"] = source
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def hgx_power_brake_near_miss() -> Reconstruction:
    """The software power cap under full load: normal, and no fault of the machine."""
    machine = renamed(hgx_power_brake(), "The same server under load: the software power cap is active on all GPUs")
    for index in range(8):
        reading(machine, index, throttle_bits=0x4, clock_sm_mhz=1755)
    return smi_q(machine, reasons="power-cap", graphics="1755 MHz", fabric="Completed", fabric_status="Success")


def rke2_vm_bar1_zero() -> Reconstruction:
    """A VM whose address space is too small: two of four GPUs got no BAR1."""
    machine = box("rke2-vm-bar1-zero", "VMware guest with four A100 passed through: two have BAR1 0M @ 0x0")
    source = "NVIDIA/gpu-operator#492 (RKE2 on VMware, 510.108.03, BAR1 is 0M @ 0x0 at 14:00.0 and 1c:00.0)"
    ubuntu(machine, "22.04", kernel="5.15.0-60-generic", source=SUPPOSED)
    firmware(machine, "VMware, Inc.", "VMware7,1", guest="vmware", source=f"{source}; product name supposed")
    good = [Placed(A100_PCIE_40, address) for address in ("0000:13:00.0", "0000:1b:00.0")]
    gpus_at(machine, "510.108.03", *good, source=f"{source}; the model is supposed", kind="proprietary",
            virtualization=1)  # fmt: skip
    cuda_works(machine, "510.108.03", *[A100_PCIE_40] * 2)
    regions = "0x00000000fc000000 0x00000000fcffffff 0x0000000000040200\n"
    regions += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 5
    for address in ("0000:14:00.0", "0000:1c:00.0"):
        bus(machine, Placed(A100_PCIE_40, address), source=source)
        machine.file(f"/sys/bus/pci/devices/{address}/resource", regions, source=source)
    log(
        machine,
        "[83260.063553] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)",
        "[83260.063557] nvidia: probe of 0000:14:00.0 failed with error -1",
        "[83260.106423] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:1c:00.0)",
        "[83260.106426] nvidia: probe of 0000:1c:00.0 failed with error -1",
        "[83260.106438] NVRM: The NVIDIA probe routine failed for 2 device(s).",
        source=source,
    )
    smi_q(machine, virtualization="Pass-Through")
    torch_for(machine, TorchWheel("1.13.1+cu116", "11.6", _OLD), python="3.10")
    return parts.loader_cache(machine)


def rke2_vm_bar1_zero_near_miss() -> Reconstruction:
    """The VM has address space for four."""
    machine = renamed(rke2_vm_bar1_zero(), "The same VM with all four GPUs in the driver")
    machine.without("/sys/bus/pci/devices", "/proc/modules")
    four = [Placed(A100_PCIE_40, f"0000:{place}:00.0") for place in ("13", "14", "1b", "1c")]
    gpus_at(machine, "510.108.03", *four, source=SUPPOSED, kind="proprietary", virtualization=1)
    cuda_works(machine, "510.108.03", *[A100_PCIE_40] * 4)
    log(machine, source=SUPPOSED)
    smi_q(machine, virtualization="Pass-Through")
    return parts.loader_cache(machine)


def gpu_on_vfio() -> Reconstruction:
    """A virtualisation host: the GPU and its functions belong to vfio-pci for a guest."""
    machine = box("gpu-on-vfio", "Host whose only GPU is bound to vfio-pci for a virtual machine")
    source = "cloud-hypervisor/cloud-hypervisor#4353 (TU104 at 65:00, Kernel driver in use: vfio-pci)"
    ubuntu(machine, "22.04", kernel="5.15.0-40-generic", source=SUPPOSED)
    firmware(machine, "Dell Inc.", "Precision 7920 Tower", guest="", source=f"{source} (Subsystem: Dell)")
    bus(machine, Placed(QUADRO_RTX_5000, "0000:65:00.0", "0x030000"), driver="vfio-pci", source=source)
    machine.file("/etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:1eb0,10de:10f8,10de:1ad8,10de:1ad9\n"
                 "softdep nvidia pre: vfio-pci\n", source=SUPPOSED)  # fmt: skip
    machine.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro intel_iommu=on iommu=pt\n", source=SUPPOSED)
    machine.file("/dev/vfio/vfio", "", source=source)
    machine.file("/dev/vfio/31", "", source=SUPPOSED)
    modules(machine, "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio", "kvm_intel", "kvm", source=source)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    machine.file("/lib/modules/5.15.0-40-generic/updates/dkms/nvidia.ko", "", source=SUPPOSED)
    parts.user_driver(machine, "535.183.01", source=SUPPOSED)
    package(machine, "nvidia-driver-535", "535.183.01-0ubuntu0.22.04.1", source=SUPPOSED)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    cuda_fails(machine, "535.183.01", 100)
    log(machine, "vfio-pci 0000:65:00.0: vgaarb: changed VGA decodes: olddecodes=io+mem,decodes=io+mem:owns=none",
        source=SUPPOSED)  # fmt: skip
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def gpu_on_vfio_near_miss() -> Reconstruction:
    """The same GPU given back to the host: it works."""
    machine = renamed(gpu_on_vfio(), "The same host with the GPU bound to nvidia")
    machine.without("/etc/modprobe.d/vfio.conf", "/dev/vfio", "/proc/modules", "/sys/module/vfio_pci",
                    "/sys/bus/pci/devices", "/sys/bus/pci/drivers/vfio-pci")  # fmt: skip
    machine.commands.pop("nvidia-smi")
    place = Placed(QUADRO_RTX_5000, "0000:65:00.0", "0x030000")
    gpus_at(machine, "535.183.01", place, source=SUPPOSED, kind="proprietary", ecc_mode=0)
    cuda_works(machine, "535.183.01", QUADRO_RTX_5000)
    log(machine, source=SUPPOSED)
    return parts.loader_cache(machine)


def aks_a10_grid_unlicensed() -> Reconstruction:
    """GRID 550 came without its licence daemon: the first minutes work, then contexts fail."""
    machine = box("aks-a10-grid-unlicensed", "AKS node NV36ads_A10_v5 with GRID driver 550 and no nvidia-gridd")
    source = "Azure/AKS#4870, Azure/AKS#4880 (A10, GRID 550, nvidia-gridd unit missing), Azure/aks-gpu#90"
    ubuntu(machine, "22.04", kernel="5.15.0-1081-azure", source="Azure/AKS#4868 (22.04.5 LTS, 5.15.0-1081-azure)")
    firmware(machine, "Microsoft Corporation", "Virtual Machine", guest="microsoft", source=SUPPOSED)
    gpus_at(machine, "550.144.06", Placed(A10_24Q, "0002:00:00.0"), source=f"{source}; the build is supposed",
            kind="proprietary", virtualization=2, ecc_mode=0, grid_licensable_features={"is_licensed": 0})  # fmt: skip
    cuda_works(machine, "550.144.06", A10_24Q)
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=0\nIgnoreSP=FALSE\nEnableUI=FALSE\n", source=SUPPOSED)
    unit(machine, "nvidia-gridd", state="absent", sub="dead", source=source)
    smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="Disabled",
          product="NVIDIA RTX Virtual Workstation", licence="Unlicensed (Unrestricted)")  # fmt: skip
    machine.sources["nvidia-smi -q"] = f"{source}; product name supposed"
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def aks_a10_grid_unlicensed_near_miss() -> Reconstruction:
    """The daemon runs and the licence is there."""
    machine = renamed(aks_a10_grid_unlicensed(), "The same node with nvidia-gridd running and a licence")
    reading(machine, 0, grid_licensable_features={"is_licensed": 1})
    said = ("nvidia-gridd: vGPU Software package (0)", "nvidia-gridd: License acquired successfully.")
    unit(machine, "nvidia-gridd", log=said, source=SUPPOSED)
    return smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="Disabled",
                 product="NVIDIA RTX Virtual Workstation",
                 licence="Licensed (Expiry: 2026-11-16 0:0:0 GMT)")  # fmt: skip


def vgpu_guest_older_than_host() -> Reconstruction:
    """Ubuntu's driver 470 in a guest whose host has vGPU manager 510: the host disabled the vGPU."""
    about = "vGPU guest with Ubuntu's driver 470 that the host's manager 510 refuses"
    machine = box("vgpu-guest-older-than-host", about)
    source = ("mbilker/vgpu_unlock-rs#10 (TU102GL at 06:10.0; sudo apt install nvidia-driver-470 in the guest, "
              "510.47.03 on the host: 'Guest VGX version is older than the minimum version supported')")  # fmt: skip
    ubuntu(machine, "22.04", source=f"{source} (Ubuntu guest); the release is supposed")
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    bus(machine, Placed(RTX_6000_8Q, "0000:06:10.0", "0x030000"), driver="nvidia", source=source)
    machine.file("/sys/bus/pci/devices/0000:06:10.0/subsystem_vendor", "0x10de\n", source=source)
    machine.file("/sys/bus/pci/devices/0000:06:10.0/subsystem_device", "0x1328\n", source=SUPPOSED)
    no_devices(machine, "470.129.06", source=f"{source}; the build is supposed", kind="proprietary")
    package(machine, "nvidia-driver-470", "470.129.06-0ubuntu0.22.04.1", source=source)
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=2\nServerAddress=licence-a\n", source=SUPPOSED)
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: vGPU Software package (0)",
                                       "nvidia-gridd: Failed to initialise RM client"), source=SUPPOSED)  # fmt: skip
    log(
        machine,
        "NVRM: GPU 0000:06:10.0: RmInitAdapter failed! (0x22:0x56:667)",
        "NVRM: GPU 0000:06:10.0: rm_init_adapter failed, device minor number 0",
        source=f"{source}; the guest's lines are supposed",
    )
    torch_for(machine, TorchWheel("1.13.1+cu116", "11.6", _OLD), python="3.10")
    return parts.loader_cache(machine)


def vgpu_guest_older_than_host_near_miss() -> Reconstruction:
    """A guest driver of the host's own release."""
    machine = renamed(vgpu_guest_older_than_host(), "The same guest with the driver of the host's vGPU release")
    machine.without("/sys/bus/pci/devices", "/proc/modules")
    machine.commands.pop("nvidia-smi")
    place = Placed(RTX_6000_8Q, "0000:06:10.0", "0x030000")
    machine.without("/var/lib/dpkg/info/nvidia-driver-470.list", "/var/lib/dpkg/status")
    for name in ("libcuda", "libnvidia-ml"):
        machine.without(f"/usr/lib/x86_64-linux-gnu/{name}.so.470.129.06")
    gpus_at(machine, "510.47.03", place, source=SUPPOSED, kind="proprietary", virtualization=2, ecc_mode=0)
    cuda_works(machine, "510.47.03", RTX_6000_8Q)
    log(machine, source=SUPPOSED)
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: License acquired successfully.",), source=SUPPOSED)
    smi_q(machine, virtualization="VGPU", product="NVIDIA RTX Virtual Workstation", licence="Licensed (Expiry: N/A)")
    return parts.loader_cache(machine)


def p40_vgpu_licensed() -> Reconstruction:
    """A whole P40 as a virtual GPU, licensed: it works, and the driver is the vendor portal's."""
    about = "KVM guest with the virtual GPU GRID P40-24Q and driver 535.161.08: works"
    machine = box("p40-vgpu-licensed", about, root=0)
    source = "ollama/ollama#6364 (GRID P40-24Q, 535.161.08, NVIDIA RTX Virtual Workstation, at 01:00.0)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    running(machine, "5.15.0-118-generic", source=SUPPOSED)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    gpus_at(machine, "535.161.08", Placed(P40_24Q, "0000:01:00.0", "0x030000"), source=source, kind="proprietary",
            virtualization=2, ecc_mode=0, grid_licensable_features={"is_licensed": 1})  # fmt: skip
    cuda_works(machine, "535.161.08", P40_24Q)
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: License acquired successfully.",), source=SUPPOSED)
    smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="N/A",
          product="NVIDIA RTX Virtual Workstation", licence="Licensed (Expiry: 2024-8-15 22:0:0 GMT)")  # fmt: skip
    log(machine, source=SUPPOSED)
    torch_of(machine, TorchWheel("2.4.1+cu121", "12.1", SM_50_TO_90))
    return parts.loader_cache(machine)


def p40_vgpu_licensed_near_miss() -> Reconstruction:
    """The licence ran out."""
    machine = renamed(p40_vgpu_licensed(), "The same guest with an expired licence")
    reading(machine, 0, grid_licensable_features={"is_licensed": 0})
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: Failed to acquire license from licence-a",), source=SUPPOSED)
    return smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="N/A",
                 product="NVIDIA RTX Virtual Workstation", licence="Unlicensed (Restricted)")  # fmt: skip


MACHINES = (l40_node_seven_of_eight, a100_row_remap_failed, hgx_power_brake, rke2_vm_bar1_zero, gpu_on_vfio,
            aks_a10_grid_unlicensed, vgpu_guest_older_than_host, p40_vgpu_licensed)  # fmt: skip
NEAR_MISSES = (l40_node_seven_of_eight_near_miss, a100_row_remap_failed_near_miss, hgx_power_brake_near_miss,
               rke2_vm_bar1_zero_near_miss, gpu_on_vfio_near_miss, aks_a10_grid_unlicensed_near_miss,
               vgpu_guest_older_than_host_near_miss, p40_vgpu_licensed_near_miss)  # fmt: skip
