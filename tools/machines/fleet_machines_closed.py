"""Servers of fleets: fabrics, IMEX, MPS, nouveau in the initrd, peer memory; from public threads: second half."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import B200, TORCH_26_CU124, TORCH_211_CU130, log, torch_of
from tools.machines.fleet_parts import fabric_manager, hgx, nvlsm, switch_managers
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_fails,
    cuda_works,
    firmware,
    gpus_at,
    modules,
    other,
    package,
    renamed,
    running,
    ubuntu,
    unit,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.wheels import CU130_ARM, TorchWheel

T4 = GpuSpec("Tesla T4", "7.5", 14, 14.6, "0x1eb8")
GB200 = GpuSpec("NVIDIA GB200", "10.0", 14, 184.0, "0x2941")
GTX_1650 = GpuSpec("NVIDIA GeForce GTX 1650", "7.5", 5, 3.8, "0x1f82")


def _p5(name: str, about: str, *, state: int, code: int) -> Reconstruction:
    machine = box(name, about)
    source = "pytorch/ci-infra#552 (p5.48xlarge, AL2023 EKS image, Fabric Manager started during cloud-init)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    running(machine, "6.12.40-64.114.amzn2023.x86_64", source=SUPPOSED)
    firmware(machine, "Amazon EC2", "p5.48xlarge", guest="amazon", source=source)
    hgx(machine, "580.95.05", H100, state=state, code=code, source=source, virtualization=1)
    machine.file("/proc/uptime", "94.12 8100.00\n", source="supposed: one and a half minutes after the start")
    log(machine, source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_211_CU130, source=SUPPOSED)
    return machine


def p5_manager_too_early() -> Reconstruction:
    """The Fabric Manager was started while the GPUs' own part of it was not up yet, and gave up after 30 s."""
    machine = _p5("p5-manager-too-early", "p5.48xlarge just started: Fabric Manager gave up, cuInit gives 802", state=2,
                  code=802)  # fmt: skip
    lines = (
        "[ERROR] not all local fabric manager instances finished their configuration",
        "[ERROR] fabric manager error handler is called for unhandled config error type 8",
        "[ERROR] failed to configure all the available GPUs or NVSwitches",
    )
    fabric_manager(machine, "580.95.05", log=lines, failed=1, source="pytorch/ci-infra#552")
    return other(machine, "amzn-2023", source="pytorch/ci-infra#552")


def p5_manager_too_early_near_miss() -> Reconstruction:
    """It runs, and the GPUs are still being registered: a wait, no fault."""
    machine = _p5("p5-manager-too-early", "", state=2, code=802)
    renamed(machine, "The same machine with the Fabric Manager running and the fabric still in progress")
    fabric_manager(machine, "580.95.05", log=("Starting NVIDIA fabric manager service...",), source=SUPPOSED)
    return other(machine, "amzn-2023", source="pytorch/ci-infra#552")


def _gb200(name: str, about: str) -> Reconstruction:
    machine = box(name, about, arch="aarch64")
    source = ("Azure/AgentBaker#8839 (GB200: no Fabric Manager on the host, IMEX is the host's piece), "
              "microsoft/mscclpp#467, NVIDIA/nvidia-modprobe#9 (channel0 made by mknod)")  # fmt: skip
    ubuntu(machine, "24.04", kernel="6.11.0-1016-nvidia-64k", source=SUPPOSED)
    firmware(machine, "NVIDIA", "GB200 NVL", guest="", source=SUPPOSED)
    places = [Placed(GB200, address) for address in ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")]
    gpus_at(machine, "580.95.05", *places, source=source, fabric_state=3, fabric_status=0)
    machine.file("/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n234 nvidia-caps-imex-channels\n"
                 "507 nvidia-uvm\n", source="NVIDIA/nvidia-modprobe#9 (234 nvidia-caps-imex-channels)")  # fmt: skip
    machine.file("/etc/nvidia-imex/nodes_config.cfg", "10.0.0.11\n10.0.0.12\n10.0.0.13\n10.0.0.14\n", source=SUPPOSED)
    machine.file("/usr/bin/nvidia-imex", "", source=SUPPOSED)
    machine.command("nvidia-imex --version", "IMEX version is: 580.95.05\n")
    unit(machine, "nvidia-imex", log=("Connection established to node 0 through 3", "IMEX domain is READY"),
         source=SUPPOSED)  # fmt: skip
    cuda_works(machine, "580.95.05", *[GB200] * 4)
    smi_q(machine, fabric="Completed", fabric_status="Success")
    log(machine, source=SUPPOSED)
    machine.env(NCCL_MNNVL_ENABLE="1")
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheel = TorchWheel("2.11.0+cu130", "13.0", CU130_ARM, tag="cp312-cp312-manylinux_2_28_aarch64")
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return parts.loader_cache(machine)


def gb200_no_imex_channel() -> Reconstruction:
    """One tray of an NVL72: torch works on it, memory cannot be shared with other trays without a channel."""
    about = "GB200 compute tray with nvidia-imex running and no /dev/nvidia-caps-imex-channels/channel0"
    return _gb200("gb200-no-imex-channel", about)


def gb200_no_imex_channel_near_miss() -> Reconstruction:
    """The channel is there."""
    machine = _gb200("gb200-no-imex-channel", "")
    renamed(machine, "The same tray with channel0")
    machine.file("/etc/modprobe.d/nvidia-imex.conf", "options nvidia NVreg_CreateImexChannel0=1\n", source=SUPPOSED)
    return machine.file("/dev/nvidia-caps-imex-channels/channel0", "", source=SUPPOSED)


def mps_left_behind() -> Reconstruction:
    """The MPS daemon is dead, its pipes and the exclusive mode are still there."""
    machine = box("mps-left-behind", "T4 with the pipes of an MPS daemon that does not run any more: error 805", root=0)
    source = ("NVIDIA/nvidia-container-toolkit#714 (Error 805: MPS client failed to connect), "
              "NVIDIA/nvidia-container-toolkit#277 (Tesla T4, Exclusive_Process, /tmp/nvidia-mps/control)")  # fmt: skip
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "Amazon EC2", "g4dn.xlarge", guest="amazon", source="#277 (00:1E.0 of an AWS machine)")
    gpus_at(machine, "550.127.05", Placed(T4, "0000:00:1e.0"), source=source, compute_mode=3, virtualization=1)
    cuda_fails(machine, "550.127.05", 805)
    for name in ("control", "control_lock", "log"):
        machine.socket(f"/tmp/nvidia-mps/{name}", source=source)
    machine.file("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "2241\n", source=SUPPOSED)
    line = "[2024-09-26 10:02:11.120 Control  2241] Starting control daemon using socket /tmp/nvidia-mps/control\n"
    machine.file("/var/log/nvidia-mps/control.log", line, source=f"{source}; the form of the line")
    smi_q(machine, compute="Exclusive_Process", virtualization="Pass-Through")
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def mps_left_behind_near_miss() -> Reconstruction:
    """The daemon runs and is meant."""
    machine = renamed(mps_left_behind(), "The same machine with the MPS daemon running: works")
    machine.file("/proc/2241/comm", "nvidia-cuda-mps\n", source=SUPPOSED)
    machine.file("/proc/2241/cmdline", "nvidia-cuda-mps-control\0-d\0", source=SUPPOSED)
    return cuda_works(machine, "550.127.05", T4)


def _sles(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    source = "openSUSE/nvidia-driver-G06#62 (6.4.0-150600.23.25-default, blacklist nouveau in 50-nvidia.conf)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    kernel = "6.4.0-150600.23.25-default"
    running(machine, kernel, source=source)
    firmware(machine, "Micro-Star International Co., Ltd.", "MS-7D18", guest="", source=SUPPOSED)
    machine.file("/etc/modprobe.d/50-nvidia.conf", "blacklist nouveau\n", source=source)
    machine.file(f"/lib/modules/{kernel}/updates/nvidia.ko.zst", "", source=SUPPOSED)
    machine.file(f"/lib/modules/{kernel}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst", "", source=SUPPOSED)
    machine.file(f"/boot/initrd-{kernel}", "", source=source)
    machine.command("modinfo nvidia", f"filename: /lib/modules/{kernel}/updates/nvidia.ko.zst\nversion: 550.127.05\n"
                    "license: Dual MIT/GPL\nsigner: SUSE Linux Enterprise Secure Boot CA\n")  # fmt: skip
    machine.command(f"rpm -qf /lib/modules/{kernel}/updates/nvidia.ko.zst",
                    "nvidia-open-driver-G06-signed-kmp-default-550.127.05_k6.4.0_150600.21-1.x86_64\n")  # fmt: skip
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_26_CU124, source=SUPPOSED)
    return machine


def sles_nouveau_in_initrd() -> Reconstruction:
    """The blacklist holds in the root file system; the initrd was made before it and loads nouveau."""
    machine = _sles("sles-nouveau-in-initrd", "SLES 15 SP6: nouveau is blacklisted and still loaded from the initrd")
    bus(machine, Placed(GTX_1650, "0000:01:00.0", "0x030000"), driver="nouveau", source=SUPPOSED)
    modules(machine, "nouveau", "drm_ttm_helper", "mxm_wmi")
    line = "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 splash=silent mitigations=auto quiet security=apparmor\n"
    machine.file("/proc/cmdline", line, source="openSUSE/nvidia-driver-G06#62 (without rd.driver.blacklist)")
    parts.user_driver(machine, "550.127.05", source=SUPPOSED)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.127.05"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    cuda_fails(machine, "550.127.05", 100)
    log(machine, "[    2.112345] nouveau 0000:01:00.0: NVIDIA TU117 (167000a1)",
        "[   11.402211] NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
        "[   11.402390] NVRM: The NVIDIA probe routine was not called for 1 device(s).",
        "[   11.402391] NVRM: No NVIDIA devices probed.",
        source="supposed: both drivers' own words; nouveau comes before the root file system")  # fmt: skip
    return other(machine, "sles-15.6", source="openSUSE/nvidia-driver-G06#62")


def sles_nouveau_in_initrd_near_miss() -> Reconstruction:
    """The initrd was made anew."""
    machine = _sles("sles-nouveau-in-initrd", "")
    renamed(machine, "The same machine after dracut --force and a reboot: works")
    place = Placed(GTX_1650, "0000:01:00.0", "0x030000")
    gpus_at(machine, "550.127.05", place, source=SUPPOSED, ecc_mode=0)
    cuda_works(machine, "550.127.05", GTX_1650)
    log(machine, source=SUPPOSED)
    return other(machine, "sles-15.6", source="openSUSE/nvidia-driver-G06#62")


def _b200_cluster(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    source = "spectrocloud/CanvOS#700, comment of 2026-07-20 (nvidia_peermem built by DKMS, not loaded; 580.159.03)"
    ubuntu(machine, "24.04", kernel="6.17.0-14-generic", source=source)
    firmware(machine, "Supermicro", "SYS-A22GA-NBRT", guest="", source=SUPPOSED)
    hgx(machine, "580.159.03", B200, state=3, switches=0, source=source)
    switch_managers(machine, source=SUPPOSED)
    for number in range(8):
        machine.file(f"/sys/class/infiniband/mlx5_{number}/ports/1/link_layer", "InfiniBand\n", source=SUPPOSED)
        machine.file(f"/sys/class/infiniband/mlx5_{number}/ports/1/state", "4: ACTIVE\n", source=SUPPOSED)
    modules(machine, "ib_umad", "mlx5_ib", "ib_uverbs", "ib_core", "mlx5_core", source=source)
    machine.file("/dev/infiniband/umad0", "", source=source)
    machine.file("/lib/modules/6.17.0-14-generic/updates/dkms/nvidia-peermem.ko.zst", "", source=source)
    machine.file("/lib/modules/6.17.0-14-generic/updates/dkms/nvidia.ko.zst", "", source=source)
    text = "Limit                     Soft Limit           Hard Limit           Units\n"
    text += "Max locked memory         unlimited            unlimited            bytes\n"
    machine.file("/proc/self/limits", text, source=SUPPOSED)
    nvlsm(machine, source=SUPPOSED)
    fabric_manager(machine, "580.159.03", log=("Detected NVL5+ system",), source=source)
    package(machine, "nvidia-dkms-580-open", "580.159.03-0ubuntu1", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def b200_peermem_not_loaded() -> Reconstruction:
    """All works on the one server; GPUDirect RDMA to others is off for want of one module."""
    about = "HGX B200 with eight InfiniBand adapters and nvidia_peermem not loaded: works, no GPUDirect RDMA"
    return _b200_cluster("b200-peermem-not-loaded", about)


def b200_peermem_not_loaded_near_miss() -> Reconstruction:
    """The module is loaded."""
    machine = _b200_cluster("b200-peermem-not-loaded", "")
    renamed(machine, "The same server with nvidia_peermem loaded")
    return modules(machine, "nvidia_peermem")


MACHINES = (p5_manager_too_early, gb200_no_imex_channel, mps_left_behind, sles_nouveau_in_initrd,
            b200_peermem_not_loaded)  # fmt: skip
NEAR_MISSES = (p5_manager_too_early_near_miss, gb200_no_imex_channel_near_miss, mps_left_behind_near_miss,
               sles_nouveau_in_initrd_near_miss, b200_peermem_not_loaded_near_miss)  # fmt: skip
