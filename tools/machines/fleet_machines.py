"""Servers of fleets: NVSwitch fabrics, confidential computing, Secure Boot, shared memory; from public threads."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import (
    B200,
    SM_50_TO_90,
    TORCH_26_CU124,
    TORCH_28_CU128,
    TORCH_211_CU130,
    log,
    torch_of,
)
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
    secure_boot,
    ubuntu,
    unit,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.wheels import TorchWheel

H100_PCIE = GpuSpec("NVIDIA H100 PCIe", "9.0", 14, 79.6, "0x2331")
RTX_4070 = GpuSpec("NVIDIA GeForce RTX 4070", "8.9", 5, 11.99, "0x2786")
T4 = GpuSpec("Tesla T4", "7.5", 14, 14.6, "0x1eb8")
_AKASH = "akash-network/website#632 (Fabric Manager 550.127.05, driver 550.120, node1, Nov 05)"
_CANVOS = "spectrocloud/CanvOS#700 (HGX B200, 580.159.03, kernel 6.17, ib_umad not loaded)"


def _hgx_550(name: str, about: str, *, manager: str, code: int) -> Reconstruction:
    machine = box(name, about)
    ubuntu(machine, "22.04", source=_AKASH)
    firmware(machine, "Supermicro", "SYS-821GE-TNHR", guest="", source=SUPPOSED)
    hgx(machine, "550.120", H100, state=2 if code else 3, code=code, source=_AKASH)
    package(machine, "nvidia-driver-550-open", "550.120-0ubuntu0.22.04.1", source=f"{_AKASH}; Ubuntu's package")
    package(machine, "nvidia-fabricmanager-550", f"{manager}-1", "/usr/bin/nv-fabricmanager", source=_AKASH)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def hgx_manager_newer() -> Reconstruction:
    """Ubuntu's driver and NVIDIA's Fabric Manager: the same branch, not the same version."""
    about = "HGX H100 with Ubuntu's driver 550.120 and NVIDIA's Fabric Manager 550.127.05: cuInit gives 802"
    machine = _hgx_550("hgx-manager-newer", about, manager="550.127.05", code=802)
    lines = (
        "Starting NVIDIA fabric manager service...",
        "fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with driver version 550.120. Please "
        "update with matching NVIDIA driver package.",
        "nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE",
    )
    return fabric_manager(machine, "550.127.05", log=lines, failed=1, source=_AKASH)


def hgx_manager_newer_near_miss() -> Reconstruction:
    """The same version of both."""
    machine = _hgx_550("hgx-manager-newer", "", manager="550.120", code=0)
    renamed(machine, "The same server with Fabric Manager 550.120: works")
    return fabric_manager(machine, "550.120", log=("Connected to 1 node.",), source=SUPPOSED)


def _b200(name: str, about: str, *, state: int, code: int) -> Reconstruction:
    machine = box(name, about)
    ubuntu(machine, "24.04", kernel="6.17.0-14-generic", source=_CANVOS)
    firmware(machine, "Supermicro", "SYS-A22GA-NBRT", guest="", source=SUPPOSED)
    hgx(machine, "580.159.03", B200, state=state, code=code, switches=0, source=_CANVOS)
    switch_managers(machine, source=_CANVOS)
    modules(machine, "mlx5_ib", "ib_uverbs", "ib_core", "mlx5_core", source=_CANVOS)
    nvlsm(machine, source=SUPPOSED)
    package(machine, "nvidia-fabricmanager", "580.159.03-1", "/usr/bin/nv-fabricmanager", source=_CANVOS)
    package(machine, "nvlsm", "2025.10.11-1", "/opt/nvidia/nvlsm/sbin/nvlsm", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def b200_ib_umad_missing() -> Reconstruction:
    """The Fabric Manager of NVLink5 systems wants ib_umad, which nothing loaded."""
    about = "HGX B200 with driver 580.159.03 on which ib_umad is not loaded: the Fabric Manager does not start"
    machine = _b200("b200-ib-umad-missing", about, state=2, code=802)
    machine.without("/var/run/nvlsm.pid")
    lines = (
        "Polling for at least one Infiniband device before starting Fabric Manager...",
        "Checking mlx5_10...",
        "Using device mlx5_10, port 0x0820e703007b9d9a",
        "Detected NVL5+ system",
        'Kernel module "ib_umad" has not been loaded, fabric manager cannot be started',
    )
    return fabric_manager(machine, "580.159.03", log=lines, failed=1, source=_CANVOS)


def b200_ib_umad_missing_near_miss() -> Reconstruction:
    """ib_umad is loaded: all runs."""
    machine = _b200("b200-ib-umad-missing", "", state=3, code=0)
    renamed(machine, "The same server with ib_umad loaded: works")
    modules(machine, "ib_umad")
    machine.file("/dev/infiniband/umad0", "", source=_CANVOS)
    machine.file("/etc/modules-load.d/nvidia-fabricmanager.conf", "ib_umad\n", source=_CANVOS)
    return fabric_manager(machine, "580.159.03", log=("Detected NVL5+ system",), source=SUPPOSED)


def _talos(name: str, about: str, *, state: int, code: int) -> Reconstruction:
    machine = box(name, about)
    source = "siderolabs/extensions#717 (HGX B200 without NVLSM: NV_WARN_NOTHING_TO_DO, fabric In Progress)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    running(machine, "6.12.57-talos", source=SUPPOSED)
    firmware(machine, "Supermicro", "SYS-A22GA-NBRT", guest="", source=SUPPOSED)
    hgx(machine, "570.148.08", B200, state=state, code=code, switches=0, source=source)
    switch_managers(machine, source=SUPPOSED)
    modules(machine, "ib_umad", "mlx5_ib", "ib_uverbs", "ib_core", "mlx5_core")
    machine.file("/dev/infiniband/umad0", "", source=SUPPOSED)
    machine.file("/proc/self/mounts", "/dev/loop0 / squashfs ro,relatime 0 0\n", source=SUPPOSED)
    machine.without("/usr/bin/systemctl", "/proc/1/comm")
    machine.file("/proc/1/comm", "machined\n", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_28_CU128, source=SUPPOSED)
    machine.sources["the fabric manager"] = source
    return machine


def talos_b200_no_nvlsm() -> Reconstruction:
    """Talos with an older extension: the Fabric Manager came without the subnet manager of NVLink5."""
    machine = _talos("talos-b200-no-nvlsm", "Talos on HGX B200 without NVLSM: cuInit gives 802", state=2, code=802)
    said = ("request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do "
            "[NV_WARN_NOTHING_TO_DO]")  # fmt: skip
    fabric_manager(machine, "570.148.08", log=(said,), failed=1, source="siderolabs/extensions#717, "
                   "data-infra/cube-studio#29 (the line)")  # fmt: skip
    return _without_systemd(machine)


def talos_b200_no_nvlsm_near_miss() -> Reconstruction:
    """The extension of today brings both."""
    machine = _talos("talos-b200-no-nvlsm", "", state=3, code=0)
    renamed(machine, "The same server with the extension that has NVLSM: works")
    nvlsm(machine, source="siderolabs/extensions#893 (/opt/nvidia/nvlsm/sbin/nvlsm)")
    fabric_manager(machine, "570.148.08", source=SUPPOSED)
    return _without_systemd(machine)


def _without_systemd(machine: Reconstruction) -> Reconstruction:
    """Talos has neither systemctl nor journalctl: its extension services are asked by talosctl from outside."""
    machine.without("/usr/lib/systemd", "/usr/bin/systemctl")
    for line in [line for line in machine.commands if line.startswith(("systemctl", "journalctl"))]:
        machine.commands.pop(line)
    return other(machine, "talos-1.11", source="siderolabs/extensions#717")


def h100_cc_not_ready() -> Reconstruction:
    """A confidential guest whose GPU was attested and not set ready: cuInit gives 802 without any NVSwitch."""
    machine = box("h100-cc-not-ready", "Confidential VM (SEV-SNP) with an H100 that is not set ready: cuInit gives 802")
    source = "NVIDIA/nvtrust#39, #37 (H100 PCIe 10de:2331 at 01:00.0, 535.86.10, Ready state: not-ready)"
    ubuntu(machine, "22.04", kernel="5.19.0-rc6-snp-guest-c4daeffce56e", source=source)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    gpus_at(machine, "535.86.10", Placed(H100_PCIE, "0000:01:00.0"), source=source, virtualization=1, fabric_state=0)
    machine.child("nvml", {**machine.children["nvml"].answer, "conf_compute_gpus_ready_state": 0})
    cuda_fails(machine, "535.86.10", 802)
    machine.file("/dev/sev-guest", "", source=SUPPOSED)
    machine.command("nvidia-smi conf-compute -f", "CC status: ON\n")
    machine.command("nvidia-smi conf-compute -grs", "Confidential Compute GPUs Ready state: not-ready\n")
    machine.command("nvidia-smi conf-compute -e", "CC Environment: PRODUCTION\n")
    unit(machine, "nvidia-persistenced", source="NVIDIA/nvtrust#53 (nvidia-persistenced must run)")
    smi_q(machine, virtualization="Pass-Through", protected="81226 MiB")
    log(machine, source=SUPPOSED)
    torch_of(machine, TorchWheel("2.1.2+cu121", "12.1", SM_50_TO_90), source="NVIDIA/nvtrust#39 (pip3 install torch)")
    return parts.loader_cache(machine)


def h100_cc_not_ready_near_miss() -> Reconstruction:
    """nvidia-smi conf-compute -srs 1 was run."""
    machine = renamed(h100_cc_not_ready(), "The same guest after nvidia-smi conf-compute -srs 1: works")
    machine.child("nvml", {**machine.children["nvml"].answer, "conf_compute_gpus_ready_state": 1})
    machine.command("nvidia-smi conf-compute -grs", "Confidential Compute GPUs Ready state: ready\n")
    return cuda_works(machine, "535.86.10", H100_PCIE)


def _fedora(name: str, about: str) -> Reconstruction:
    machine = box(name, about, root=0)
    source = "NVIDIA/open-gpu-kernel-modules#915 (Fedora 42, 6.15.9-201.fc42, akmod-nvidia, 575.64.05)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    running(machine, "6.15.9-201.fc42.x86_64", source=source)
    firmware(machine, "LENOVO", "82JQ", guest="", source=SUPPOSED)
    ko = "/lib/modules/6.15.9-201.fc42.x86_64/extra/nvidia/nvidia.ko.xz"
    machine.file(ko, "", source="supposed: where RPM Fusion's kmod lies")
    machine.command("modinfo nvidia", f"filename:       {ko}\nversion:        575.64.05\nlicense:        Dual MIT/GPL\n"
                    "sig_id:         PKCS#7\nsigner:         fedora_1754800000_3f6d2c1a\n"
                    "sig_key:        51:2A:0C:77:90:11:6B:AE\nsig_hashalgo:   sha256\n")  # fmt: skip
    machine.file("/etc/pki/akmods/certs/public_key.der", b"0\x82\x03\x10", source=SUPPOSED)
    machine.command(f"rpm -qf {ko}", "kmod-nvidia-6.15.9-201.fc42.x86_64-575.64.05-1.fc42.x86_64\n")
    secure_boot(machine, on=1, source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_28_CU128, source=SUPPOSED)
    return machine


def fedora_key_not_enrolled() -> Reconstruction:
    """akmods built and signed the module with its own key, which the firmware does not know."""
    machine = _fedora("fedora-key-not-enrolled", "Fedora 42 with Secure Boot: akmods' key is not enrolled")
    bus(machine, Placed(RTX_4070, "0000:01:00.0", "0x030000"), source=SUPPOSED)
    source = "lcp/mokutil#61, secureblue/secureblue#1043 (form of mokutil --list-enrolled: 2bb010e24d fedoraca)"
    machine.command("mokutil --list-enrolled --short", "2bb010e24d fedoraca\n")
    machine.sources["mokutil"] = source
    parts.user_driver(machine, "575.64.05", source=SUPPOSED)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.575.64.05"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    cuda_fails(machine, "575.64.05", 100)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    log(machine, "Loading of module with unavailable key is rejected", source="supposed: the kernel's words")
    return other(machine, "fedora-42", source="NVIDIA/open-gpu-kernel-modules#915")


def fedora_key_not_enrolled_near_miss() -> Reconstruction:
    """The key is enrolled."""
    machine = _fedora("fedora-key-not-enrolled", "")
    renamed(machine, "The same machine with akmods' key enrolled: works")
    machine.command("mokutil --list-enrolled --short", "2bb010e24d fedoraca\n512a0c7790 fedora_1754800000_3f6d2c1a\n")
    place = Placed(RTX_4070, "0000:01:00.0", "0x030000")
    gpus_at(machine, "575.64.05", place, source=SUPPOSED, ecc_mode=0)
    cuda_works(machine, "575.64.05", RTX_4070)
    log(machine, source=SUPPOSED)
    return other(machine, "fedora-42", source="NVIDIA/open-gpu-kernel-modules#915")


def pod_four_t4_small_shm() -> Reconstruction:
    """Four GPUs without NVLink in a pod with 64 MiB of shared memory: NCCL cannot make its segments."""
    machine = box("pod-four-t4-small-shm", "Kubernetes pod with four T4 and 64 MiB of /dev/shm: NCCL fails")
    source = "NVIDIA/nccl#525 (4 x T4, Kubernetes, posix_fallocate: No space left on device), pytorch/ci-infra#490"
    ubuntu(machine, "22.04", source=SUPPOSED)
    machine.without("/proc/1/comm", "/usr/bin/systemctl", f"/lib/modules/{machine.host.kernel_release}")
    machine.file("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n", source=SUPPOSED)
    machine.env(KUBERNETES_SERVICE_HOST="set")
    places = [Placed(T4, f"0000:00:{number}.0") for number in ("1b", "1c", "1d", "1e")]
    gpus_at(machine, "570.133.20", *places, source=source, virtualization=1)
    cuda_works(machine, "570.133.20", *[T4] * 4)
    mounts = ("overlay / overlay rw 0 0", "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,size=65536k 0 0")
    machine.file("/proc/self/mounts", "".join(f"{line}\n" for line in mounts), source=source)
    machine.file("/dev/shm/keep", "", source=source)
    machine.space("/", total_gib=100, free_gib=60).space("/dev/shm", total_gib=0.0625, free_gib=0.0625)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def pod_four_t4_small_shm_near_miss() -> Reconstruction:
    """An emptyDir in memory is mounted at /dev/shm."""
    machine = renamed(pod_four_t4_small_shm(), "The same pod with 16 GiB of memory at /dev/shm: works")
    mounts = ("overlay / overlay rw 0 0", "tmpfs /dev/shm tmpfs rw,relatime,size=16777216k 0 0")
    machine.file("/proc/self/mounts", "".join(f"{line}\n" for line in mounts), source=SUPPOSED)
    return machine.space("/dev/shm", total_gib=16, free_gib=16)


MACHINES = (hgx_manager_newer, b200_ib_umad_missing, talos_b200_no_nvlsm, h100_cc_not_ready, fedora_key_not_enrolled,
            pod_four_t4_small_shm)  # fmt: skip
NEAR_MISSES = (hgx_manager_newer_near_miss, b200_ib_umad_missing_near_miss, talos_b200_no_nvlsm_near_miss,
               h100_cc_not_ready_near_miss, fedora_key_not_enrolled_near_miss,
               pod_four_t4_small_shm_near_miss)  # fmt: skip
