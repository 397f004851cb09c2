"""Machines that somebody described, with the right answers, who had seen neither rules nor tests."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import distro_parts as distro
from tools.machines import parts, wheels
from tools.machines.container_marks import bound
from tools.machines.distro_gpus import L4, RTX_4070
from tools.machines.distro_releases import AL2023, ARCH, DEBIAN_13, LEAP_15, NIXOS, ROCKY_9
from tools.machines.driver_parts import (
    RTX_3090,
    RTX_4090,
    SM_50_TO_90,
    TORCH_26_CU124,
    TORCH_28_CU128,
    TORCH_211_CU130,
    log,
    torch_of,
)
from tools.machines.extension_parts import LINKED, NEW_ABI, nvidia_wheel, torch_with_abi
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_works,
    firmware,
    gpus_at,
    no_devices,
    package,
    ubuntu,
    unit,
)
from tools.machines.parts import GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.special_parts import extension, jetson, jetson_cache, jetson_cuda, slices, wsl
from tools.machines.wheels import CU128, TorchWheel

TOLD = "as it was described"
A100_SXM = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 79.2, "0x20b2")
A100_PCIE = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 79.3, "0x20b5")
GH200 = GpuSpec("NVIDIA GH200 480GB", "9.0", 14, 95.6, "0x2342")
L40S = GpuSpec("NVIDIA L40S", "8.9", 14, 44.9, "0x26b9")
L40S_24Q = GpuSpec("NVIDIA L40S-24Q", "8.9", 10, 24.0, "0x26b9")
RTX_4080 = GpuSpec("NVIDIA GeForce RTX 4080", "8.9", 5, 15.99, "0x2704")
RTX_5090 = GpuSpec("NVIDIA GeForce RTX 5090", "12.0", 5, 31.8, "0x2b85")
RTX_A4000 = GpuSpec("NVIDIA RTX A4000", "8.6", 1, 16.0, "0x24b0")
GTX_1080_TI = GpuSpec("NVIDIA GeForce GTX 1080 Ti", "6.1", 5, 11.0, "0x1b06")
THOR = GpuSpec("NVIDIA Thor", "11.0", 9, 122.0, "")
TORCH_29_CU128 = TorchWheel("2.9.1+cu128", "12.8", CU128)
_LIB = "/usr/lib/x86_64-linux-gnu"
_SLICE = "MIG-5a8f3f0e-9f0a-5a26-9b3e-0d7a6fd1c2b4"
_ALPINE = 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.1\nPRETTY_NAME="Alpine Linux v3.22"\n'


def rtx5090_closed_module() -> Reconstruction:
    kernel = "6.14.0-33-generic"
    machine = ubuntu(box("rtx5090-closed-module", TOLD), "24.04", kernel=kernel, source=TOLD)
    bus(machine, Placed(RTX_5090, "0000:01:00.0", "0x030000"), driver="nvidia", source=TOLD)
    no_devices(machine, "570.195.03", source=TOLD, kind="proprietary")
    distro.module_file(machine, f"/lib/modules/{kernel}/updates/dkms/nvidia.ko.zst", "570.195.03", licence="NVIDIA",
                       source=TOLD)  # fmt: skip
    log(machine, "[   11.204118] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)",
        "               NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        "[   11.204900] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)",
        "[   11.205611] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        source=TOLD)  # fmt: skip
    for name in ("nvidia-driver-570", "nvidia-dkms-570", "libnvidia-compute-570", "nvidia-utils-570"):
        package(machine, name, "570.195.03-0ubuntu0.24.04.1", source=TOLD)
    torch_of(machine, TORCH_29_CU128)
    return parts.loader_cache(machine)


def debian13_dkms_key_not_enrolled() -> Reconstruction:
    kernel = "6.12.48+deb13-amd64"
    machine = distro.start("debian13-dkms-key-not-enrolled", TOLD, DEBIAN_13, kernel=kernel, source=TOLD)
    distro.card(machine, RTX_4090, "0000:01:00.0", source=TOLD)
    distro.module_file(machine, f"/lib/modules/{kernel}/updates/dkms/nvidia-current.ko.xz", "550.163.01",
                       signer="DKMS module signing key", licence="NVIDIA", source=TOLD)  # fmt: skip
    machine.file("/var/lib/dkms/mok.pub", "", source=TOLD)
    machine.file("/var/lib/dkms/mok.key", "", source=TOLD)
    machine.command("dkms status", f"nvidia-current/550.163.01, {kernel}, x86_64: installed\n")
    listed = dict.fromkeys(("nvidia-driver", "nvidia-kernel-dkms", "libcuda1", "nvidia-smi"), "550.163.01-2")
    distro.packages(machine, DEBIAN_13, {**listed, f"linux-headers-{kernel}": "6.12.48-1"}, source=TOLD)
    distro.secure_boot(machine, "Debian Secure Boot CA", source=TOLD)
    distro.unloaded(machine, "550.163.01", source=TOLD)
    distro.rejected(machine, source=TOLD)
    distro.torch(machine, TORCH_26_CU124, python="3.13")
    return distro.done_debian(machine, DEBIAN_13)


def rocky9_l40s_seven_of_eight() -> Reconstruction:
    machine = distro.start("rocky9-l40s-seven-of-eight", TOLD, ROCKY_9, kernel="5.14.0-570.49.1.el9_6.x86_64",
                           source=TOLD)  # fmt: skip
    places = [f"0000:{place}:00.0" for place in ("16", "38", "49", "5a", "82", "98", "ac")]
    distro.works(machine, "570.158.01", *((L40S, place) for place in places), source=TOLD, ecc_mode=0)
    distro.card(machine, L40S, "0000:b3:00.0", source=TOLD)
    log(machine, "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b9) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 1843.412020] nvidia 0000:b3:00.0: probe with driver nvidia failed with error -1",
        "[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "[ 1843.439669] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
        source=TOLD)  # fmt: skip
    listed = dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-persistenced"), "570.158.01-1.el9")
    distro.packages(machine, ROCKY_9, listed, source=TOLD)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, ROCKY_9)


def fedora42_podman_denied() -> Reconstruction:
    machine = inside.start(
        "fedora42-podman-denied", TOLD, "ubuntu-22.04", source=TOLD, kernel="6.16.10-200.fc42.x86_64"
    )
    inside.module(machine, "580.95.05", source=TOLD)
    inside.bus(machine, RTX_4070)
    inside.nodes(machine, 1, source=TOLD)
    inside.libraries(machine, "580.95.05", source=TOLD, folder="/usr/lib64")
    inside.nvml_says(machine, 4, "Insufficient Permissions", source=TOLD,
                     library="/usr/lib64/libnvidia-ml.so.580.95.05")  # fmt: skip
    inside.cuda_says(machine, "580.95.05", 100, folder="/usr/lib64")
    marks.podman(machine, *bound(machine), source=TOLD, rootless=1, version="5.6.1",
                 label="system_u:system_r:container_t:s0:c211,c903", ids="0 1000 1\n1 524288 65536\n",
                 NVIDIA_VISIBLE_DEVICES="void", NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.9.1+cu128")
    return inside.cache(machine, "/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-ml.so.1")


def leap156_kmp_missing() -> Reconstruction:
    kernel = "6.4.0-150600.23.70-default"
    machine = distro.start("leap156-kmp-missing", TOLD, LEAP_15, kernel=kernel, source=TOLD)
    distro.card(machine, RTX_A4000, "0000:41:00.0", source=TOLD, driver="nouveau")
    machine.file("/sys/module/nouveau/version", "1.0\n", source=TOLD)
    machine.file("/proc/modules", "nouveau 1 3 - Live 0x0\n", source=TOLD)
    distro.packages(machine, LEAP_15, {"nvidia-compute-G06": "580.95.05-1", "nvidia-compute-utils-G06": "580.95.05-1",
                                       "libOpenCL1": "2.3.2-1"}, source=TOLD)  # fmt: skip
    machine.file("/etc/zypp/repos.d/cuda.repo", "[cuda]\nenabled=1\nbaseurl=https://developer.download.nvidia.com/"
                 "compute/cuda/repos/opensuse15/x86_64/\n", source=TOLD)  # fmt: skip
    distro.secure_boot(machine, "openSUSE Secure Boot CA", source=TOLD)
    distro.unloaded(machine, "580.95.05", source=TOLD)
    log(machine, "[    3.102] nouveau 0000:41:00.0: NVIDIA GA104 (174000a1)", source=TOLD)
    distro.torch(machine, TORCH_29_CU128, python="3.11")
    return distro.done(machine, LEAP_15)


def al2023_flash_attn_of_other_torch() -> Reconstruction:
    machine = distro.start("al2023-flash-attn-of-other-torch", TOLD, AL2023, kernel="6.12.46-66.121.amzn2023.x86_64",
                           source=TOLD)  # fmt: skip
    distro.dmi(machine, "Amazon EC2", "g6e.2xlarge", source=TOLD)
    distro.works(machine, "580.95.05", (L40S, "0000:30:00.0"), source=TOLD)
    log(machine, "[ 5.0] nvidia-uvm: Loaded the UVM driver, major device number 240.", source=TOLD)
    site = wheels.python(machine, f"{machine.host.home}/venv", version="3.11", source=TOLD)
    pins = ('nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux" and platform_machine == "x86_64"',)
    wheel = TorchWheel("2.8.0+cu128", "12.8", CU128, requires=pins, tag="cp311-cp311-manylinux_2_28_x86_64")
    torch_with_abi(machine, site, wheel, abi=NEW_ABI, source=TOLD)
    extension(machine, f"{site}/torch/lib/libc10_cuda.so", needed=("libc10.so",), asks=(),
              gives=("_ZN3c104cuda9SetDeviceEab",), source=TOLD)  # fmt: skip
    nvidia_wheel(machine, site, "nvidia-cudnn-cu12", "9.10.2.21", "nvidia/cudnn/lib/libcudnn.so.9", source=TOLD)
    wheels.distribution(machine, site, "flash-attn", "2.8.3", requires=("torch", "einops"), source=TOLD)
    machine.file(f"{site}/flash_attn-2.8.3.dist-info/direct_url.json", '{"archive_info": {}, "url": "https://github.com/'
                 "Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.7cxx11abiTRUE-cp311-"
                 'cp311-linux_x86_64.whl"}', source=TOLD)  # fmt: skip
    machine.file(f"{site}/flash_attn/__init__.py", '__version__ = "2.8.3"\n', source=TOLD)
    extension(machine, f"{site}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", needed=(*LINKED, "libcudart.so.12"),
              asks=("_ZN3c104cuda9SetDeviceEa",), gives=("PyInit_flash_attn_2_cuda",), text=b"\0sm_80\0sm_90\0",
              source=TOLD)  # fmt: skip
    wheels.distribution(machine, site, "jax", "0.6.2", requires=("jaxlib==0.6.2",), source=TOLD)
    for name in ("jaxlib", "jax-cuda12-pjrt", "jax-cuda12-plugin"):
        needs = ('nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"',) if name.endswith("plugin") else ()
        wheels.distribution(machine, site, name, "0.6.2", requires=needs, source=TOLD)
    return distro.done(machine, AL2023)


def aks_pod_without_gpu() -> Reconstruction:
    machine = inside.start("aks-pod-without-gpu", TOLD, "debian-12", source=TOLD, kernel="6.6.96.2-2.azl3")
    inside.module(machine, "570.172.08", source=TOLD)
    inside.bus(machine, A100_PCIE)
    inside.no_nvml(machine)
    marks.kubernetes(machine, source=TOLD)
    inside.torch(machine, "2.9.1+cu128")
    return inside.cache(machine)


def arch_pascal_beside_ada() -> Reconstruction:
    kernel = "6.17.9-arch1-1"
    machine = distro.start("arch-pascal-beside-ada", TOLD, ARCH, kernel=kernel, source=TOLD)
    distro.works(machine, "590.48.01", (RTX_4070, "0000:01:00.0"), source=TOLD)
    distro.card(machine, GTX_1080_TI, "0000:02:00.0", source=TOLD)
    log(machine, "[1.0] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1b06)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU", "NVRM: System Processor (GSP).",
        "NVRM: Please see the 'Open Linux Kernel Modules' and 'GSP",
        "NVRM: Firmware' sections in the driver README, available on",
        "NVRM: the Linux graphics driver download page at", "NVRM: www.nvidia.com.",
        "[1.0] nvidia 0000:02:00.0: probe with driver nvidia failed with error -1",
        "[1.0] NVRM: The NVIDIA probe routine failed for 1 device(s).", source=TOLD)  # fmt: skip
    listed = {"linux": "6.17.9.arch1-1", "linux-headers": "6.17.9.arch1-1", "nvidia-open": "590.48.01-3",
              "nvidia-utils": "590.48.01-2"}  # fmt: skip
    distro.packages(machine, ARCH, listed, source=TOLD)
    distro.torch(machine, TorchWheel("2.9.1+cu126", "12.6", SM_50_TO_90), python="3.13")
    return distro.done(machine, ARCH)


def nixos_libcuda_out_of_reach() -> Reconstruction:
    machine = distro.start("nixos-libcuda-out-of-reach", TOLD, NIXOS, kernel="6.12.58", source=TOLD)
    distro.nixos(machine, "6.12.58", source=TOLD)
    distro.works(machine, "580.119.02", (RTX_4080, "0000:01:00.0"), source=TOLD)
    nix_ld = "/run/current-system/sw/share/nix-ld/lib"
    machine.env(NIX_LD=f"{nix_ld}/ld.so", NIX_LD_LIBRARY_PATH=nix_ld)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, NIXOS, folder="/run/opengl-driver/lib")


def wsl2_noisy_log() -> Reconstruction:
    machine = ubuntu(box("wsl2-noisy-log", TOLD), "24.04", source=TOLD)
    wsl(machine, RTX_4080, "581.42", kernel="6.6.87.2-microsoft-standard-WSL2", cuda="13.0", source=TOLD)
    parts.toolkit(machine, "12.6", source=TOLD)
    log(machine, "[    0.529547] hv_vmbus: registering driver dxgkrnl",
        "[    1.564415] misc dxg: dxgk: dxgkio_is_feature_enabled: Ioctl failed: -22",
        "[    1.568518] misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22",
        "[    1.569584] misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -2", source=TOLD)  # fmt: skip
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def proxmox_libraries_went_ahead() -> Reconstruction:
    machine = inside.start("proxmox-libraries-went-ahead", TOLD, "debian-12", source=TOLD, kernel="6.14.11-5-pve")
    inside.module(machine, "580.95.05", source=TOLD)
    inside.bus(machine, RTX_3090)
    inside.nodes(machine, 1, source=TOLD)
    inside.libraries(machine, "580.105.08", source=TOLD)
    for name, file in (("libcuda1", "cuda"), ("libnvidia-ml1", "nvidia-ml")):
        marks.dpkg_owns(machine, name, "580.105.08-1", f"{_LIB}/lib{file}.so.580.105.08", source=TOLD)
    marks.dpkg_owns(machine, "nvidia-smi", "580.105.08-1", "/usr/bin/nvidia-smi", source=TOLD)
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=TOLD,
                     library=f"{_LIB}/libnvidia-ml.so.580.105.08", more="NVML library version: 580.105\n")  # fmt: skip
    inside.cuda_says(machine, "580.105.08", 803)
    log(machine, "[1.0] NVRM: API mismatch: the client has the version 580.105.08, but",
        "[1.0] NVRM: this kernel module has the version 580.95.05.  Please",
        "[1.0] NVRM: make sure that this kernel module and all NVIDIA driver",
        "[1.0] NVRM: components have the same version.", source=TOLD)  # fmt: skip
    handed_in = (f"udev /dev/{name} devtmpfs rw,nosuid" for name in ("nvidia0", "nvidiactl", "nvidia-uvm"))
    marks.lxc(machine, *handed_in, source=TOLD, manager="proxmox", root="rpool/subvol-101-disk-0 / zfs rw,relatime")
    inside.torch(machine, "2.9.1+cu128", python="3.11")
    return inside.cache(machine)


def slurm_apptainer_one_slice() -> Reconstruction:
    machine = inside.start("slurm-apptainer-one-slice", TOLD, "ubuntu-22.04", source=TOLD, user="user-a",
                           kernel="4.18.0-553.56.1.el8_10.x86_64")  # fmt: skip
    libs = "/.singularity.d/libs"
    inside.given(machine, "570.172.08", A100_SXM, source=TOLD, kind="proprietary", folder=libs)
    inside.nodes(machine, 4, source=TOLD)
    inside.bus(machine, *[A100_SXM] * 4)
    slices(machine, 0, "2g.20gb", _SLICE, gib=19.5, source=TOLD)
    inside.cuda_starts(machine, "570.172.08", replace(A100_SXM, name=f"{A100_SXM.name} MIG 2g.20gb", memory_gib=19.5),
                       folder=libs)  # fmt: skip
    machine.file("/proc/self/cgroup", "11:devices:/slurm/uid_5012/job_881220/step_0/task_0\n", source=TOLD)
    handed_in = (f"/dev/sda1 {libs}/lib{name}.so.1 ext4 ro,nosuid,nodev,relatime" for name in ("cuda", "nvidia-ml"))
    marks.apptainer(machine, *handed_in, image="/scratch/u/pytorch.sif", source=TOLD, LD_LIBRARY_PATH=libs,
                    SLURM_JOB_ID="881220", SLURM_JOB_GPUS="1", SLURM_STEP_GPUS="1",
                    CUDA_VISIBLE_DEVICES=_SLICE)  # fmt: skip
    inside.torch(machine, "2.7.1+cu126", python="3.11")
    return inside.cache(machine)


def vgpu_without_licence() -> Reconstruction:
    machine = ubuntu(box("vgpu-without-licence", TOLD), "22.04", kernel="5.15.0-153-generic", source=TOLD)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=TOLD)
    gpus_at(machine, "550.144.03", Placed(L40S_24Q, "0000:06:10.0", "0x030000"), source=TOLD, kind="proprietary",
            virtualization=2, ecc_mode=0, grid_licensable_features={"is_licensed": 0})  # fmt: skip
    cuda_works(machine, "550.144.03", L40S_24Q)
    package(machine, "nvidia-linux-grid-550", "550.144.03", source=TOLD)
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=2\n", source=TOLD)
    machine.file("/usr/bin/nvidia-gridd", "", source=TOLD)
    unit(machine, "nvidia-gridd", log=("Valid GRID license not found. GPU features and performance will be fully "
                                       "degraded. To enable full functionality please configure licensing details.",),
         source=TOLD)  # fmt: skip
    smi_q(machine, virtualization="VGPU", product="NVIDIA RTX Virtual Workstation", ecc="N/A",
          licence="Unlicensed (Restricted)")  # fmt: skip
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def thor_server_wheel() -> Reconstruction:
    machine = ubuntu(box("thor-server-wheel", TOLD, arch="aarch64", root=0), "24.04", source=TOLD)
    jetson(machine, "38.2.1", board="NVIDIA Jetson AGX Thor Developer Kit", chip="tegra264", kernel="6.8.12-tegra",
           date="Thu Sep 25 10:00:00 UTC 2025", source=TOLD)  # fmt: skip
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    jetson_cuda(machine, THOR, cuda="13.0", folder=folder, source=TOLD)
    machine.file("/sys/module/nvidia/version", "580.00\n", source=TOLD)
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.00  "
                 "Release Build\n", source=TOLD)  # fmt: skip
    for node in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        machine.file(f"/dev/{node}", "", source=TOLD)
    site = wheels.python(machine, f"{machine.host.home}/venv", source=TOLD)
    wheel = TorchWheel("2.9.1+cu129", "12.9", ("sm_80", "sm_90", "sm_100", "sm_120"),
                       tag="cp312-cp312-manylinux_2_28_aarch64")  # fmt: skip
    wheels.torch(machine, site, wheel, source=TOLD)
    return jetson_cache(machine, cuda="13.0", folder=folder)


def gh200_cpu_torch_hides_good_one() -> Reconstruction:
    kernel = "6.8.0-1013-nvidia-64k"
    machine = box("gh200-cpu-torch-hides-good-one", TOLD, arch="aarch64", root=0, python="3.10.12")
    ubuntu(machine, "22.04", kernel=kernel, source=TOLD)
    gpus_at(machine, "570.148.08", Placed(GH200, "0009:01:00.0"), source=TOLD)
    cuda_works(machine, "570.148.08", GH200)
    wheels.system_python(machine, version="3.10", source=TOLD)
    good = TorchWheel("2.7.0", "12.8", ("sm_90",), tag="cp310-cp310-linux_aarch64")
    wheels.torch(machine, "/usr/lib/python3/dist-packages", good, source=TOLD)
    own = f"{machine.host.home}/.local/lib/python3.10/site-packages"
    tag = "cp310-cp310-manylinux_2_28_aarch64"
    wheels.torch(machine, own, TorchWheel("2.9.1+cpu", "", recorded="2.9.1", tag=tag), source=TOLD)
    wheels.distribution(machine, own, "torchvision", "0.24.1", requires=("torch==2.9.1",), source=TOLD)
    return parts.loader_cache(machine)


def docker_alpine_image() -> Reconstruction:
    machine = inside.start("docker-alpine-image", TOLD, "ubuntu-24.04", source=TOLD, kernel="6.8.0-71-generic")
    inside.module(machine, "580.95.05", source=TOLD)
    inside.bus(machine, L4)
    inside.nodes(machine, 1, source=TOLD)
    inside.libraries(machine, "580.95.05", source=TOLD)
    machine.file("/etc/os-release", _ALPINE, source=TOLD)
    machine.file("/lib/ld-musl-x86_64.so.1", "", source=TOLD)
    machine.file("/sbin/apk", "#!", source=TOLD)
    machine.without(f"{_LIB}/libc.so.6", f"{_LIB}/libstdc++.so.6", "/usr/bin/apt-get", "/usr/bin/apt", "/usr/bin/dpkg")
    machine.every_call_of("nvidia-smi", "", status=127)
    inside.no_nvml(machine)
    machine.child("libcuda", {"load_error": "libcuda.so.1: cannot open shared object file: No such file or directory"})
    marks.docker(machine, *bound(machine), source=TOLD, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility", PYTHON_VERSION="3.12.11")  # fmt: skip
    return machine


MACHINES = (rtx5090_closed_module, debian13_dkms_key_not_enrolled, rocky9_l40s_seven_of_eight, fedora42_podman_denied,
            leap156_kmp_missing, al2023_flash_attn_of_other_torch, aks_pod_without_gpu, arch_pascal_beside_ada,
            nixos_libcuda_out_of_reach, wsl2_noisy_log, proxmox_libraries_went_ahead, slurm_apptainer_one_slice,
            vgpu_without_licence, thor_server_wheel, gh200_cpu_torch_hides_good_one, docker_alpine_image)  # fmt: skip
