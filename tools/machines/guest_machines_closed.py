"""Bare machines, passed-through GPUs and virtual GPUs with a fault of their kind, from public threads: second half."""

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
    torch_for,
    ubuntu,
    unit,
)
from tools.machines.parts import RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.wheels import TorchWheel

RTX_2060 = GpuSpec("NVIDIA GeForce RTX 2060", "7.5", 5, 5.8, "0x1f08")
GTX_1070_TI = GpuSpec("NVIDIA GeForce GTX 1070 Ti", "6.1", 5, 8.0, "0x1b82")
V100 = GpuSpec("Tesla V100-SXM2-32GB", "7.0", 2, 31.7, "0x1db5")
H100_PCIE = GpuSpec("NVIDIA H100 PCIe", "9.0", 14, 79.6, "0x2331")
L40S = GpuSpec("NVIDIA L40S", "8.9", 14, 44.99, "0x26b9")
L40S_24Q = GpuSpec("NVIDIA L40S-24Q", "8.9", 10, 24.0, "0x26b9")
A40_16C = GpuSpec("NVIDIA A40-16C", "8.6", 10, 16.0, "0x2235")
A30 = GpuSpec("NVIDIA A30", "8.0", 14, 23.6, "0x20b7")
A100_VM = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 79.3, "0x20b5")

_TWO = (Placed(RTX_2060, "0000:01:00.0", "0x030000"), Placed(GTX_1070_TI, "0000:02:00.0", "0x030000"))


def pascal_beside_turing_open() -> Reconstruction:
    """The open module takes the RTX 2060 and leaves the GTX 1070 Ti beside it alone."""
    machine = box("pascal-beside-turing-open", "RTX 2060 and GTX 1070 Ti under the open module 560.35.03", root=0)
    source = "NVIDIA/open-gpu-kernel-modules#696 (560.35.03 open, Ubuntu 20.04.6, RTX 2060 and GTX 1070 Ti 10de:1b82)"
    ubuntu(machine, "20.04", kernel="5.15.0-119-generic", source=source)
    firmware(machine, "ASUS", "System Product Name", guest="", source=SUPPOSED)
    gpus_at(machine, "560.35.03", _TWO[0], source=source, ecc_mode=0)
    bus(machine, _TWO[1], source=source)
    cuda_works(machine, "560.35.03", RTX_2060)
    package(machine, "nvidia-driver-560-open", "560.35.03-0ubuntu1", source=SUPPOSED)
    log(
        machine,
        "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1b82)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        "NVRM: System Processor (GSP).",
        "NVRM: Please see the 'Open Linux Kernel Modules' and 'GSP",
        "NVRM: Firmware' sections in the driver README, available on",
        "NVRM: the Linux graphics driver download page at",
        "NVRM: www.nvidia.com.",
        source=f"{source}, comment of 2024-08-26",
    )
    torch_for(machine, TorchWheel("2.4.1+cu121", "12.1", SM_50_TO_90), python="3.8")
    return parts.loader_cache(machine)


def pascal_beside_turing_open_near_miss() -> Reconstruction:
    """The proprietary module of the same version takes both."""
    machine = renamed(pascal_beside_turing_open(), "The same two GPUs under the proprietary module 560.35.03")
    machine.without("/sys/bus/pci/devices", "/proc/modules", "/var/lib/dpkg/info/nvidia-driver-560-open.list")
    gpus_at(machine, "560.35.03", *_TWO, source="NVIDIA/open-gpu-kernel-modules#696 (closed driver detects both)",
            kind="proprietary", ecc_mode=0)  # fmt: skip
    cuda_works(machine, "560.35.03", RTX_2060, GTX_1070_TI)
    log(machine, source=SUPPOSED)
    return parts.loader_cache(machine)


def v100_retired_pages_pending() -> Reconstruction:
    """Double-bit errors retired pages of one GPU; the retirement takes effect at the next start of the driver."""
    machine = box("v100-retired-pages-pending", "Four V100 of which gpu-1 has pages pending retirement (Xid 48, 63)")
    source = "Azure/azhpc-diagnostics#75 (pages pending retirement: a reboot mends it), Azure/azhpc-diagnostics#40"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "Supermicro", "SYS-1029GQ-TVRT", guest="", source=SUPPOSED)
    places = [Placed(V100, f"0000:{bus_number}:00.0") for bus_number in ("1a", "1c", "1d", "1e")]
    gpus_at(machine, "535.183.06", *places, source=SUPPOSED, kind="proprietary", retired_pages_pending=0)
    reading(machine, 1, retired_pages_pending=1, ecc_uncorrected_volatile=2, ecc_uncorrected_aggregate=3)
    cuda_works(machine, "535.183.06", *[V100] * 4)
    stamp = "2026-03-23T08:1{}:00,000000+00:00 NVRM: Xid (PCI:0000:1c:00): "
    log(
        machine,
        stamp.format(1) + "48, pid=2211, name=python, An uncorrectable double bit error (DBE) has been detected on GPU "
        "in the framebuffer at partition 5, subpartition 0.",
        stamp.format(1) + "63, pid=2211, name=python, Dynamic Page Retirement: New page retired, reboot to activate "
        "(0x00000000000a3f41).",
        source=f"{source}; the lines as NVIDIA's Xid catalogue words them",
    )
    smi_q(machine, each={1: {"retired": "3", "retired_pending": "Yes", "dram": "2", "dram_all": "3"}}, retired="0")
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def v100_retired_pages_pending_near_miss() -> Reconstruction:
    """After the reboot: three pages are retired, none is pending."""
    machine = renamed(v100_retired_pages_pending(), "The same server after a reboot: pages retired, none pending")
    reading(machine, 1, retired_pages_pending=0, ecc_uncorrected_volatile=0, ecc_uncorrected_aggregate=3)
    log(machine, source=SUPPOSED)
    return smi_q(machine, each={1: {"retired": "3", "retired_pending": "No", "dram_all": "3"}}, retired="0")


def rtx5090_lost_at_runtime() -> Reconstruction:
    """A desktop GPU that fell off the bus during normal work; the driver wants the machine restarted."""
    machine = box("rtx5090-lost-at-runtime", "RTX 5090 with driver 580.159.04 that fell off the bus (Xid 79)", root=0)
    source = "NVIDIA/open-gpu-kernel-modules#1151, comment of 2026-05-23 (RTX 5090, 580.159.04, 6.17.0-29-generic)"
    ubuntu(machine, "24.04", kernel="6.17.0-29-generic", source=source)
    firmware(machine, "Gigabyte Technology Co., Ltd.", "X870E AORUS MASTER", guest="", source=SUPPOSED)
    gpus_at(machine, "580.159.04", Placed(RTX_5090, "0000:06:00.0", "0x030000"), source=source, ecc_mode=0)
    machine.child("nvml", {**machine.children["nvml"].answer,
                           "devices": [{"index": 0, "error": "GPU is lost", "code": 15}]})  # fmt: skip
    machine.command("nvidia-smi -L", "Unable to determine the device handle for GPU0: 0000:06:00.0: GPU is lost.  "
                    "Reboot the system to recover this GPU\n", status=15)  # fmt: skip
    cuda_fails(machine, "580.159.04", 999)
    log(
        machine,
        "NVRM: GPU at PCI:0000:06:00: GPU-0b6b7808-c002-f593-ac86-cd8e57757b94",
        "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.",
        "NVRM: kgspRcAndNotifyAllChannels_IMPL: RC all channels for critical error 79.",
        "NVRM: _threadNodeCheckTimeout: API_GPU_ATTACHED_SANITY_CHECK failed!",
        "NVRM: _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78 sequence 7869!",
        "NVRM: Xid (PCI:0000:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        source=f"{source}; the last line from its words 'Node Reboot Required'",
    )
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def rtx5090_lost_at_runtime_near_miss() -> Reconstruction:
    """After the reboot, with a clean log."""
    machine = renamed(rtx5090_lost_at_runtime(), "The same desktop after a reboot: the GPU answers, the log is clean")
    machine.without("/proc/modules")
    machine.commands.pop("nvidia-smi -L")
    gpus_at(machine, "580.159.04", Placed(RTX_5090, "0000:06:00.0", "0x030000"), source=SUPPOSED, ecc_mode=0)
    cuda_works(machine, "580.159.04", RTX_5090)
    log(machine, source=SUPPOSED)
    return parts.loader_cache(machine)


def h100_vm_gsp_dead() -> Reconstruction:
    """A passed-through H100 whose firmware does not start after a reset gone wrong on the host."""
    machine = box("h100-vm-gsp-dead", "KVM guest with an H100 whose GSP firmware does not start: No devices were found")
    source = "NVIDIA/nvtrust#77 (H100 at 01:00.0 in a guest, RmInitAdapter failed! (0x62:0x1a:1792))"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    bus(machine, Placed(H100_PCIE, "0000:01:00.0"), driver="nvidia", source=source)
    no_devices(machine, "550.144.03", source=f"{source}; the build is supposed")
    machine.file("/lib/firmware/nvidia/550.144.03/gsp_ga10x.bin", "", source=SUPPOSED)
    log(
        machine,
        "[  299.097884] NVRM: nvCheckOkFailedNoLog: Check failed: Ran out of a critical resource, other than memory "
        "[NV_ERR_INSUFFICIENT_RESOURCES] (0x0000001A) returned from kfspSendBootCommands_HAL(pGpu, pKernelFsp) @ "
        "kernel_gsp_gh100.c:756",
        "[  299.098320] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "[  300.121727] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x1a:1792)",
        "[  300.123176] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        "[  305.396848] NVRM: kfspPollForQueueEmpty_IMPL: Timed out waiting for FSP command queue to be empty.",
        source=source,
    )
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def h100_vm_gsp_dead_near_miss() -> Reconstruction:
    """The host reset the GPU before the guest started: it works, as a passed-through GPU."""
    machine = renamed(h100_vm_gsp_dead(), "The same guest after the host reset the GPU: works")
    machine.without("/sys/bus/pci/devices", "/proc/modules")
    machine.commands.pop("nvidia-smi")
    gpus_at(machine, "550.144.03", Placed(H100_PCIE, "0000:01:00.0"), source=SUPPOSED, virtualization=1)
    cuda_works(machine, "550.144.03", H100_PCIE)
    log(machine, source=SUPPOSED)
    smi_q(machine, virtualization="Pass-Through")
    return parts.loader_cache(machine)


def openstack_l40s_public_driver() -> Reconstruction:
    """A vGPU guest in which the public data-center driver was installed."""
    about = "OpenStack guest with a vGPU of an L40S and the public driver 570.86.15"
    machine = box("openstack-l40s-public-driver", about)
    source = "NVIDIA/gpu-operator#1371 (10de:26b9 at 05:00.0, 570.86.15, OpenStack, vGPU)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "OpenStack Foundation", "OpenStack Nova", guest="kvm", source=f"{source}; DMI words supposed")
    bus(machine, Placed(L40S_24Q, "0000:05:00.0"), source=source)
    folder = "/sys/bus/pci/devices/0000:05:00.0"
    machine.file(f"{folder}/subsystem_vendor", "0x10de\n", source=SUPPOSED)
    machine.file(f"{folder}/subsystem_device", "0x1873\n", source="supposed: a vGPU type's own number")
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    machine.file(f"/lib/modules/{machine.host.kernel_release}/updates/dkms/nvidia.ko", "", source=SUPPOSED)
    package(machine, "nvidia-driver-570-server", "570.86.15-0ubuntu0.22.04.1", source=source)
    parts.user_driver(machine, "570.86.15", source=source)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    cuda_fails(machine, "570.86.15", 100)
    log(
        machine,
        "[99083.966246] NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:26b9)",
        "               NVRM: installed in this system is not supported by the",
        "               NVRM: NVIDIA 570.86.15 driver release.",
        "               NVRM: Please see 'Appendix A - Supported NVIDIA GPU Products'",
        "               NVRM: in this release's README, available on the operating system",
        "               NVRM: specific graphics driver download page at www.nvidia.com.",
        "[99083.967530] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "[99083.967531] NVRM: None of the NVIDIA devices were initialized.",
        source=source,
    )
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def openstack_l40s_public_driver_near_miss() -> Reconstruction:
    """A whole L40S passed through instead: the public driver is the right one."""
    machine = renamed(openstack_l40s_public_driver(), "The same guest with a whole L40S passed through: works")
    machine.without("/sys/bus/pci/devices")
    machine.commands.pop("nvidia-smi")
    thread = "NVIDIA/gpu-operator#1371 (the driver would only work with GPU Passthrough)"
    gpus_at(machine, "570.86.15", Placed(L40S, "0000:05:00.0"), source=thread, virtualization=1)
    cuda_works(machine, "570.86.15", L40S)
    log(machine, source=SUPPOSED)
    smi_q(machine, virtualization="Pass-Through")
    return parts.loader_cache(machine)


def gridd_cannot_register() -> Reconstruction:
    """The licence daemon runs and the licence server does not take the client."""
    about = "Kubernetes worker with a vGPU and driver 525.105.17: the licence server refuses"
    machine = box("gridd-cannot-register", about)
    source = "NVIDIA/nvidia-docker#1787 (525.105.17, gridd.conf, Failed to register client (2), DLS)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "VMware, Inc.", "VMware20,1", guest="vmware", source=SUPPOSED)
    gpus_at(machine, "525.105.17", Placed(A40_16C, "0000:02:00.0"), source=f"{source}; the vGPU type is supposed",
            kind="proprietary", virtualization=2, ecc_mode=0, grid_licensable_features={"is_licensed": 0})  # fmt: skip
    cuda_fails(machine, "525.105.17", 46)
    settings = ("ServerAddress=licence-a", "ServerPort=443", "BackupServerAddress=licence-b", "BackupServerPort=443",
                "FeatureType=1", "EnableUI=FALSE", "LicenseInterval=1440")  # fmt: skip
    machine.file("/etc/nvidia/gridd.conf", "".join(f"{line}\n" for line in settings), source=source)
    machine.file("/etc/nvidia/ClientConfigToken/client_configuration_token.tok", "x", source=source)
    unit(
        machine,
        "nvidia-gridd",
        log=(
            "nvidia-gridd: Failed to update local trusted store - Maximum buffer size exceeded",
            "nvidia-gridd: Failed to register client (2)",
            "nvidia-gridd: Failed to acquire license from licence-a",
        ),
        source=source,
    )
    smi_q(machine, virtualization="VGPU", brand="NVIDIA Virtual Compute Server", ecc="Enabled",
          product="NVIDIA Virtual Compute Server", licence="Unlicensed (Restricted)")  # fmt: skip
    machine.sources["nvidia-smi -q"] = "NVIDIA/gpu-operator#628 (Virtual Compute Server, Unlicensed (Restricted))"
    machine.sources["the libcuda child"] = "DDMAL/Rodan#1332 (all CUDA-capable devices are busy or unavailable)"
    log(machine, source=SUPPOSED)
    torch_for(machine, TorchWheel("2.0.1+cu118", "11.8", SM_50_TO_90), python="3.10")
    return parts.loader_cache(machine)


def gridd_cannot_register_near_miss() -> Reconstruction:
    """The licence was given."""
    machine = renamed(gridd_cannot_register(), "The same worker with its licence: works")
    reading(machine, 0, grid_licensable_features={"is_licensed": 1})
    cuda_works(machine, "525.105.17", A40_16C)
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: License acquired successfully.",), source=SUPPOSED)
    return smi_q(machine, virtualization="VGPU", brand="NVIDIA Virtual Compute Server", ecc="Enabled",
                 product="NVIDIA Virtual Compute Server",
                 licence="Licensed (Expiry: 2026-11-17 8:0:0 GMT)")  # fmt: skip


def openstack_a100_passthrough() -> Reconstruction:
    """A passed-through A100 that works: named as a guest with a whole GPU."""
    machine = box("openstack-a100-passthrough", "OpenStack guest with a whole A100 and driver 580.95.05: works", root=0)
    source = "NVIDIA/gpu-operator#1371 (OpenStack guests; the data-center driver works with passthrough)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    firmware(machine, "OpenStack Foundation", "OpenStack Nova", guest="kvm", source=f"{source}; DMI words supposed")
    gpus_at(machine, "580.95.05", Placed(A100_VM, "0000:00:05.0"), source=SUPPOSED, virtualization=1)
    cuda_works(machine, "580.95.05", A100_VM)
    package(machine, "nvidia-driver-580-server-open", "580.95.05-0ubuntu0.24.04.1", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    smi_q(machine, virtualization="Pass-Through")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def openstack_a100_passthrough_near_miss() -> Reconstruction:
    """The GPU was taken away at the last restart: nothing of NVIDIA is on the guest's bus."""
    machine = renamed(openstack_a100_passthrough(), "The same guest started with a flavour that has no GPU")
    machine.without("/sys/bus/pci/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm", "/proc/driver", "/dev",
                    "/proc/modules")  # fmt: skip
    modules(machine, "virtio_net")
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.commands.pop("nvidia-smi -q")
    machine.commands.pop("nvidia-smi -L")
    cuda_fails(machine, "580.95.05", 100)
    return parts.loader_cache(machine)


def _lxd_vm(name: str, about: str, *, working: tuple[str, ...], broken: tuple[str, ...]) -> Reconstruction:
    machine = box(name, about)
    source = "canonical/lxd#14381, comment of 2025-04-07 (four GPUs, BAR0 is 0M @ 0x0 at 07:00.0 and 08:00.0, open 570)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    machine.file("/run/lxd_agent/agent.conf", "", source="supposed: the agent in LXD's virtual machines")
    places = [Placed(A30, address) for address in working]
    gpus_at(machine, "570.124.06", *places, source=f"{source}; model and build supposed", virtualization=1)
    cuda_works(machine, "570.124.06", *[A30] * len(working))
    for address in broken:
        bus(machine, Placed(A30, address), source=source)
    smi_q(machine, virtualization="Pass-Through")
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def lxd_vm_bar0_zero() -> Reconstruction:
    """An LXD virtual machine whose firmware has too little room for four GPUs."""
    about = "LXD virtual machine with four GPUs passed through: two have BAR0 0M @ 0x0"
    machine = _lxd_vm("lxd-vm-bar0-zero", about, working=("0000:05:00.0", "0000:06:00.0"),
                      broken=("0000:07:00.0", "0000:08:00.0"))  # fmt: skip
    return log(
        machine,
        "[    7.583454] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "               NVRM: BAR0 is 0M @ 0x0 (PCI:0000:07:00.0)",
        "[    7.649151] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "               NVRM: BAR0 is 0M @ 0x0 (PCI:0000:08:00.0)",
        "[    7.652477] NVRM: The NVIDIA probe routine failed for 2 device(s).",
        source="canonical/lxd#14381, comment of 2025-04-07",
    )


def lxd_vm_bar0_zero_near_miss() -> Reconstruction:
    """The firmware was given more room."""
    four = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")
    machine = _lxd_vm("lxd-vm-bar0-zero", "", working=four, broken=())
    renamed(machine, "The same virtual machine with room for four GPUs: works")
    return log(machine, source=SUPPOSED)


MACHINES = (pascal_beside_turing_open, v100_retired_pages_pending, rtx5090_lost_at_runtime, h100_vm_gsp_dead,
            openstack_a100_passthrough, lxd_vm_bar0_zero, openstack_l40s_public_driver,
            gridd_cannot_register)  # fmt: skip
NEAR_MISSES = (pascal_beside_turing_open_near_miss, v100_retired_pages_pending_near_miss,
               rtx5090_lost_at_runtime_near_miss, h100_vm_gsp_dead_near_miss, openstack_a100_passthrough_near_miss,
               lxd_vm_bar0_zero_near_miss,
               openstack_l40s_public_driver_near_miss, gridd_cannot_register_near_miss)  # fmt: skip
