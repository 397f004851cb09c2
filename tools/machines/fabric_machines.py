"""Machines whose fabric, firmware or neighbourhood is the point: NVLSM, racks, MPS, GSP, several GPUs."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from tools.machines import parts
from tools.machines.driver_parts import (
    TORCH_28_CU128,
    TORCH_211_CU130,
    fails,
    init_fails,
    log,
    pci,
    reading,
    torch_of,
    user,
    works,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.server_machines import b200, unit

GB200 = GpuSpec("NVIDIA GB200", "10.0", 14, 184.3, "0x2941")
V100 = GpuSpec("Tesla V100-SXM2-16GB", "7.0", 2, 15.8, "0x1db1")
GUIDE = "docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (NVLink Subnet Manager); the machine is supposed"


def b200_no_subnet_manager() -> Reconstruction:
    """Fabric Manager runs, and the package beside it was forgotten."""
    about = "HGX B200 server with Fabric Manager and without NVLSM: cuInit gives 802"
    machine = b200("b200-no-subnet-manager", about, state=1, source=GUIDE)
    unit(machine, "nvidia-fabricmanager", "failed", "NVLSM is not installed", source=GUIDE)
    machine.file("/sys/module/ib_umad/refcnt", "0\n", source=SUPPOSED)
    return parts.loader_cache(machine)


def b200_joining() -> Reconstruction:
    """Two minutes after the start."""
    about = "HGX B200 server shortly after its start: Fabric Manager runs, the GPUs are joining"
    source = "NVIDIA/NVSentinel#883 (fabric state goes from Not Started over In Progress to Completed)"
    machine = b200("b200-joining", about, state=2, source=source)
    unit(machine, "nvidia-fabricmanager", "active", source=source)
    machine.file("/opt/nvidia/nvlsm/sbin/nvlsm", "", source=GUIDE)
    machine.file("/sys/module/ib_umad/refcnt", "0\n", source=SUPPOSED)
    return parts.loader_cache(machine)


def b200_slow_links() -> Reconstruction:
    """All joined; one GPU says that its bandwidth is degraded."""
    machine = b200("b200-slow-links", "HGX B200 server whose third GPU has degraded NVLinks", state=3, source=GUIDE)
    for index in range(8):
        reading(machine, index, fabric_health=0b01_01 if index == 2 else 0b10_10)
    machine.file("/opt/nvidia/nvlsm/sbin/nvlsm", "", source=GUIDE)
    return parts.loader_cache(machine)


def _gb200(name: str, about: str, *, state: int) -> Reconstruction:
    machine = Reconstruction(name, about, host=replace(HOST, arch="aarch64", kernel_release="6.8.0-1028-nvidia-64k"))
    source = "docs.nvidia.com/multi-node-nvlink-systems (compute trays of GB200 NVL72); the machine is supposed"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    make: Any = fails if state < 3 else works
    code = {"code": 802} if state < 3 else {}
    make(machine, "580.95.05", *[GB200] * 4, source=source, fabric_state=state, fabric_status=0, **code)
    torch_of(machine, TORCH_211_CU130)
    return machine


def gb200_waits() -> Reconstruction:
    """The switch trays have not let the node in."""
    machine = _gb200("gb200-waits", "GB200 node whose GPUs wait for the rack's fabric: cuInit gives 802", state=1)
    unit(machine, "nvidia-fabricmanager", "inactive")
    unit(machine, "nvidia-imex", "inactive")
    return parts.loader_cache(machine)


def gb200_no_imex() -> Reconstruction:
    """The GPUs are in; IMEX is of another version, does not run, and there is no channel."""
    machine = _gb200("gb200-no-imex", "GB200 node in its fabric: IMEX 570.86.15 beside driver 580.95.05", state=3)
    source = "docs.nvidia.com/multi-node-nvlink-systems/imex-guide; the machine is supposed"
    machine.file("/usr/bin/nvidia-imex", "", source=source)
    machine.command("/usr/bin/nvidia-imex --version", "IMEX version is: 570.86.15\n")
    unit(machine, "nvidia-imex", "inactive", source=source)
    machine.file("/etc/nvidia-imex/nodes_config.cfg", "# one address a line\n", source=source)
    return parts.loader_cache(machine)


def mps_dead() -> Reconstruction:
    """Somebody's MPS daemon was killed and left its folder."""
    machine = user(Reconstruction("mps-dead", "H100 server with the pipes of an MPS daemon that is gone: error 805"))
    source = "docs.nvidia.com/deploy/mps (pipe directory); the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", H100, source=source)
    init_fails(machine, "570.133.20", code=805)
    machine.file("/tmp/nvidia-mps/control", "", source=source)
    machine.file("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4711\n", source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def _gsp(name: str, about: str) -> Reconstruction:
    machine = user(Reconstruction(name, about))
    source = "NVIDIA/open-gpu-kernel-modules#789 (RTX 3090, 550.144.03, Ubuntu 22.04, the three lines)"
    parts.ubuntu(machine, "22.04", source=source)
    parts.driver(machine, "550.144.03", source=source)
    machine.without("/dev/nvidia0")
    pci(machine, "0000:98:00.0", "0x2204", driver="nvidia", code="0x030000", source=source)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.144.03"
    answer = {"init": {"code": 0}, "library": library, "driver_version": "550.144.03", "count": 0, "devices": []}
    machine.child("nvml", answer)
    init_fails(machine, "550.144.03", code=100)
    log(
        machine,
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)",
        "NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)",
        source=source,
    )
    torch_of(machine, TORCH_28_CU128)
    return machine


def gsp_no_firmware() -> Reconstruction:
    """The firmware of the version before is on disk."""
    machine = _gsp("gsp-no-firmware", "RTX 3090 whose driver 550.144.03 finds no GSP firmware of its version")
    machine.file("/lib/firmware/nvidia/550.120/gsp_ga10x.bin", "", source=SUPPOSED)
    return parts.loader_cache(machine)


def gsp_stuck() -> Reconstruction:
    """The firmware is there and does not start."""
    machine = _gsp("gsp-stuck", "RTX 3090 whose GSP does not start under driver 550.144.03")
    machine.file("/lib/firmware/nvidia/550.144.03/gsp_ga10x.bin", "", source=SUPPOSED)
    machine.file("/proc/driver/nvidia/params", "EnableGpuFirmware: 18\n", source=SUPPOSED)
    return parts.loader_cache(machine)


def v100_worn() -> Reconstruction:
    """A V100 with pages out of use, a lowered power limit and half its lanes."""
    machine = Reconstruction("v100-worn", "V100 with 11 retired pages, 150 of 300 W and 8 of 16 PCIe lanes: works")
    source = "docs.nvidia.com/deploy/dynamic-page-retirement; the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "550.120", V100, source=source, kind="proprietary", retired_pages_single=2, retired_pages_double=9,
          ecc_pending=0, power_limit_mw=150000, power_default_mw=300000, pcie_width=8, pcie_width_max=16)  # fmt: skip
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def two_gpus_on_a_network() -> Reconstruction:
    """Two GPUs behind a switch with ACS, an InfiniBand adapter, the closed module, little locked memory."""
    about = "Two H100 under the proprietary module with InfiniBand: no peermem, 64 KiB to lock, ACS on, one NUMA node"
    machine = Reconstruction("two-gpus-on-a-network", about)
    source = "docs.nvidia.com/deeplearning/nccl, troubleshooting; the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", H100, H100, source=source, kind="proprietary")
    machine.file("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n", source=source)
    machine.file("/usr/lib/x86_64-linux-gnu/libgdrapi.so.2", "", source=SUPPOSED)
    machine.file("/proc/self/limits", f"{'Max locked memory':<26}{65536:<21}{65536:<21}bytes\n", source=source)
    machine.file("/proc/self/status", "Cpus_allowed_list:\t0-31\n", source=SUPPOSED)
    for node, cores in ((0, "0-31"), (1, "32-63")):
        machine.file(f"/sys/devices/system/node/node{node}/cpulist", f"{cores}\n", source=SUPPOSED)
        _behind_bridge(machine, f"0000:{0x18 + node:02x}:00.0", node, source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def _behind_bridge(machine: Reconstruction, address: str, node: int, *, source: str) -> None:
    """The GPU's folder in the tree of devices below a bridge whose ACS redirects."""
    bridge = f"0000:{0x16 + node:02x}:01.0"
    real, folder = f"/sys/devices/pci0000:15/{bridge}/{address}", f"/sys/bus/pci/devices/{address}"
    for name in ("vendor", "device", "class"):
        machine.file(f"{real}/{name}", machine.files.pop(f"{folder}/{name}"), source=SUPPOSED)
    machine.link(f"{real}/driver", machine.links.pop(f"{folder}/driver"), source=SUPPOSED)
    machine.file(f"{real}/numa_node", f"{node}\n", source=source)
    machine.link(folder, real, source=SUPPOSED)
    config = bytearray(4096)
    struct.pack_into("<IHH", config, 0x100, 0x0001000D, 0x007F, 0x001D)  # ACS: SV, RR, CR and UF are on
    machine.file(f"/sys/bus/pci/devices/{bridge}/config", bytes(config), source=source)


MACHINES = (
    b200_no_subnet_manager,
    b200_joining,
    b200_slow_links,
    gb200_waits,
    gb200_no_imex,
    mps_dead,
    gsp_no_firmware,
    gsp_stuck,
    v100_worn,
    two_gpus_on_a_network,
)
