"""Machines described by somebody who knows such machines and had not seen this code, built as they were described."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import distro_parts as distro
from tools.machines import parts, wheels
from tools.machines.container_marks import bound
from tools.machines.distro_releases import (
    AL2023,
    AZL3,
    CENTOS_7,
    DEBIAN_12,
    DEBIAN_13,
    ROCKY_9,
    ROCKY_10,
    Release,
    fedora,
)
from tools.machines.driver_parts import TORCH_28_CU128, TORCH_211_CU130, log, reading, torch_of
from tools.machines.fleet_parts import fabric_manager, hgx
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_fails,
    cuda_works,
    firmware,
    gpus_at,
    package,
    ubuntu,
    unit,
)
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.special_parts import slices
from tools.machines.wheels import TorchWheel

TOLD = "as the examiner describes it"
H200 = GpuSpec("NVIDIA H200", "9.0", 14, 139.8, "0x2335")
A100 = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 79.3, "0x20b5")
A100_SXM = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 79.2, "0x20b2")
A10G = GpuSpec("NVIDIA A10G", "8.6", 14, 22.3, "0x2237")
H100_NVL = GpuSpec("NVIDIA H100 NVL", "9.0", 14, 93.6, "0x2321")
H100_PCIE = GpuSpec("NVIDIA H100 PCIe", "9.0", 14, 79.6, "0x2331")
V100 = GpuSpec("Tesla V100-PCIE-32GB", "7.0", 2, 31.7, "0x1db6")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")
RTX_4060 = GpuSpec("NVIDIA GeForce RTX 4060 Laptop GPU", "8.9", 5, 7.99, "0x28a0")
RTX_4090 = GpuSpec("NVIDIA GeForce RTX 4090", "8.9", 5, 23.6, "0x2684")
RTX_5090 = GpuSpec("NVIDIA GeForce RTX 5090", "12.0", 5, 31.8, "0x2b85")
A16_16C = GpuSpec("NVIDIA A16-16C", "8.6", 10, 16.0, "0x25b6")
_OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CU126 = TorchWheel("2.9.1+cu126", "12.6", _OLD)
_LIB = "/usr/lib/x86_64-linux-gnu"
_ALPINE = 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.0\nPRETTY_NAME="Alpine Linux v3.22"\n'


def hgx_h100_fabricmanager_older() -> Reconstruction:
    machine = ubuntu(box("hgx-h100-fabricmanager-older", TOLD), "24.04", kernel="6.8.0-88-generic", source=TOLD)
    hgx(machine, "580.126.20", H100, state=2, source=TOLD, code=802)
    said = ("fabric manager NVIDIA GPU driver interface version 580.105.08 don't match with driver version 580.126.20. "
            "Please update with matching NVIDIA driver package.")  # fmt: skip
    fabric_manager(machine, "580.105.08", source=TOLD, log=(said,), failed=1)
    package(machine, "nvidia-driver-580-server-open", "580.126.20-0ubuntu0.24.04.1", source=TOLD)
    package(machine, "nvidia-fabricmanager-580", "580.105.08-0ubuntu0.24.04.1", source=TOLD)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def hgx_a100_one_off_the_bus() -> Reconstruction:
    machine = ubuntu(box("hgx-a100-one-off-the-bus", TOLD), "22.04", source=SUPPOSED)
    places = [f"0000:{number:02x}:00.0" for number in (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)]
    gpus_at(machine, "535.274.02", *(Placed(A100_SXM, place) for place in places if "b7" not in place), source=TOLD,
            fabric_state=0, fabric_status=0)  # fmt: skip
    cuda_works(machine, "535.274.02", *[A100_SXM] * 7)
    bus(machine, Placed(A100_SXM, "0000:b7:00.0"), driver="nvidia", source=TOLD)
    machine.file("/dev/nvidia7", "", source=TOLD)
    log(machine, "[1.0] NVRM: Xid (PCI:0000:b7:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "[1.0] NVRM: GPU 0000:b7:00.0: GPU has fallen off the bus.", source=TOLD)  # fmt: skip
    smi_q(machine)
    torch_of(machine, TorchWheel("2.6.0+cu124", "12.4", _OLD))
    return parts.loader_cache(machine)


def _rpm(name: str, release: Release, kernel: str, card: GpuSpec, address: str) -> Reconstruction:
    machine = distro.start(name, TOLD, release, kernel=kernel, source=TOLD)
    return distro.card(machine, card, address, source=TOLD)


def rhel10_h200_secure_boot_dkms() -> Reconstruction:
    kernel = "6.12.0-124.16.1.el10_1.x86_64"
    machine = _rpm("rhel10-h200-secure-boot-dkms", ROCKY_10, kernel, H200, "0000:19:00.0")
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia.ko.xz", "595.71.05", signer="DKMS module signing "
                       "key", source=TOLD)  # fmt: skip
    machine.file("/var/lib/dkms/mok.pub", "", source=TOLD)
    machine.command("dkms status", f"nvidia-open/595.71.05, {kernel}, x86_64: installed\n")
    distro.packages(machine, ROCKY_10, {"nvidia-open": "595.71.05-1.el10", "kmod-nvidia-open-dkms":
                                        "595.71.05-1.el10"}, source=TOLD)  # fmt: skip
    distro.secure_boot(machine, "Rocky Linux Secure Boot CA", source=TOLD)
    distro.unloaded(machine, "595.71.05", source=TOLD)
    distro.rejected(machine, source=TOLD)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, ROCKY_10)


def rocky9_a100_kernel_without_headers() -> Reconstruction:
    kernel, old = "5.14.0-611.9.1.el9_7.x86_64", "5.14.0-570.58.1.el9_6.x86_64"
    machine = _rpm("rocky9-a100-kernel-without-headers", ROCKY_9, kernel, A100, "0000:17:00.0")
    machine.file("/usr/src/nvidia-open-580.126.20/dkms.conf", 'PACKAGE_NAME="nvidia-open"\n', source=TOLD)
    machine.file(f"/var/lib/dkms/nvidia-open/580.126.20/{old}/x86_64/module/nvidia.ko.xz", "", source=TOLD)
    machine.file(f"/lib/modules/{old}/extra/nvidia.ko.xz", "", source=TOLD)
    machine.command("dkms status", f"nvidia-open/580.126.20, {old}, x86_64: installed\n")
    listed = {"kmod-nvidia-open-dkms": "580.126.20-1.el9", "nvidia-open": "580.126.20-1.el9",
              "kernel-devel": "5.14.0-570.58.1.el9_6"}  # fmt: skip
    distro.packages(machine, ROCKY_9, listed, source=TOLD)
    machine.file("/usr/sbin/dkms", "", source=SUPPOSED)
    distro.unloaded(machine, "580.126.20", source=TOLD)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, ROCKY_9)


def amazonlinux2023_kernel612_devel() -> Reconstruction:
    kernel, old = "6.12.55-74.119.amzn2023.x86_64", "6.1.158-178.288.amzn2023.x86_64"
    machine = _rpm("amazonlinux2023-kernel612-devel", AL2023, kernel, A10G, "0000:00:1e.0")
    distro.dmi(machine, "Amazon EC2", "g5.2xlarge", source=TOLD)
    machine.file("/usr/src/nvidia-open-580.126.20/dkms.conf", 'PACKAGE_NAME="nvidia-open"\n', source=TOLD)
    machine.file(f"/lib/modules/{old}/extra/nvidia.ko.xz", "", source=TOLD)
    machine.command("dkms status", f"nvidia-open/580.126.20, {old}, x86_64: installed\n")
    listed = {"kernel6.12": "6.12.55-74.119.amzn2023", "kernel-devel": "6.1.158-178.288.amzn2023",
              "kmod-nvidia-open-dkms": "580.126.20-1.amzn2023", "nvidia-open": "580.126.20-1.amzn2023"}  # fmt: skip
    distro.packages(machine, AL2023, listed, source=TOLD)
    machine.file("/usr/sbin/dkms", "", source=SUPPOSED)
    distro.unloaded(machine, "580.126.20", source=TOLD)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, AL2023)


def azurelinux3_h100_no_driver() -> Reconstruction:
    machine = _rpm("azurelinux3-h100-no-driver", AZL3, "6.6.112.1-2.azl3", H100_NVL, "0001:00:00.0")
    distro.dmi(machine, "Microsoft Corporation", "Virtual Machine", source=TOLD)
    distro.nothing_installed(machine)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, AZL3)


def debian12_rtx4090_torch_cu130() -> Reconstruction:
    machine = distro.start("debian12-rtx4090-torch-cu130", TOLD, DEBIAN_12, kernel="6.1.0-41-amd64", source=TOLD)
    listed = {"nvidia-driver": "535.261.03-1", "nvidia-kernel-dkms": "535.261.03-1"}
    distro.packages(machine, DEBIAN_12, listed, source=TOLD)
    distro.works(machine, "535.261.03", (RTX_4090, "0000:01:00.0"), kind="proprietary", source=TOLD)
    wheel = TorchWheel("2.14.1", "13.0", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))
    distro.torch(machine, wheel, python="3.11")
    return distro.done_debian(machine, DEBIAN_12)


def debian13_v100_open_module() -> Reconstruction:
    machine = distro.start("debian13-v100-open-module", TOLD, DEBIAN_13, kernel="6.12.57+deb13-amd64", source=TOLD)
    listed = dict.fromkeys(("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1"), "595.71.05-1")
    distro.packages(machine, DEBIAN_13, listed, source=TOLD)
    distro.card(machine, V100, "0000:3b:00.0", source=TOLD)
    distro.no_devices(machine, "595.71.05", source=TOLD)
    log(machine, "[1.0] NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1db6)",
        "[1.0] NVRM: installed in this system is not supported by open",
        "[1.0] NVRM: nvidia.ko because it does not include the required GPU",
        "[1.0] NVRM: System Processor (GSP).",
        "[1.0] nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1",
        "[1.0] NVRM: None of the NVIDIA devices were initialized.", source=TOLD)  # fmt: skip
    distro.torch(machine, TorchWheel("2.14.1", "13.0", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")))
    return distro.done(machine, DEBIAN_13)


def docker_image_ships_own_driver_libs() -> Reconstruction:
    machine = inside.start("docker-image-ships-own-driver-libs", TOLD, "ubuntu-22.04", source=TOLD,
                           kernel="6.8.0-60-generic")  # fmt: skip
    inside.module(machine, "580.126.20", source=TOLD)
    inside.bus(machine, H100)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.libraries(machine, "580.126.20", source=TOLD)
    inside.libraries(machine, "550.163.01", source=TOLD)
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=TOLD,
                     library=f"{_LIB}/libnvidia-ml.so.550.163.01", more="NVML library version: 550.163\n")  # fmt: skip
    inside.cuda_says(machine, "550.163.01", 803)
    ours = [f"{_LIB}/lib{name}.so.550.163.01" for name in ("cuda", "nvidia-ml")]
    marks.dpkg_owns(machine, "libnvidia-compute-550", "550.163.01-0ubuntu0.22.04.1", *ours, source=TOLD)
    marks.dpkg_owns(machine, "nvidia-utils-550", "550.163.01-0ubuntu0.22.04.1", "/usr/bin/nvidia-smi", source=TOLD)
    handed_in = (f"/dev/nvme0n1p2 {_LIB}/lib{name}.so.580.126.20 ext4 ro,nosuid,nodev,relatime"
                 for name in ("cuda", "nvidia-ml"))  # fmt: skip
    marks.docker(machine, *handed_in, source=TOLD, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.11.0+cu130")
    return inside.cache(machine)


def fedora43_akmods_key_not_enrolled() -> Reconstruction:
    kernel, release = "6.17.9-300.fc43.x86_64", fedora(43, 42)
    machine = _rpm("fedora43-akmods-key-not-enrolled", release, kernel, RTX_4060, "0000:01:00.0")
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz", "580.119.02",
                       signer="localhost-live-3921", licence="NVIDIA", source=TOLD)  # fmt: skip
    listed = dict.fromkeys(("akmod-nvidia", "xorg-x11-drv-nvidia-cuda", f"kmod-nvidia-{kernel}"), "580.119.02-1.fc43")
    distro.packages(machine, release, listed, source=TOLD)
    machine.file("/etc/pki/akmods/certs/public_key.der", "", source=TOLD)
    distro.secure_boot(machine, "Fedora Secure Boot CA", source=TOLD)
    distro.unloaded(machine, "580.119.02", source=TOLD)
    distro.rejected(machine, source=TOLD)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, release)


def fedora44_rtx5090_nouveau() -> Reconstruction:
    kernel, release = "6.19.8-200.fc44.x86_64", fedora(44, 43)
    machine = distro.start("fedora44-rtx5090-nouveau", TOLD, release, kernel=kernel, source=TOLD)
    distro.card(machine, RTX_5090, "0000:01:00.0", source=TOLD, driver="nouveau")
    machine.file("/sys/module/nouveau/version", "1.0\n", source=TOLD)
    machine.file("/proc/modules", "nouveau 1 0 - Live 0x0\ndrm_gpuvm 1 1 nouveau, Live 0x0\n", source=TOLD)
    distro.packages(machine, release, {"nvidia-gpu-firmware": "20260101-1.fc44"}, source=TOLD)
    distro.nothing_installed(machine)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, release)


def centos7_glibc217() -> Reconstruction:
    machine = distro.start("centos7-glibc217", TOLD, CENTOS_7, kernel="3.10.0-1160.119.1.el7.x86_64", source=TOLD)
    distro.works(machine, "550.163.01", (replace(V100, pci_device="0x1db5"), "0000:17:00.0"), kind="proprietary",
                 source=TOLD)  # fmt: skip
    distro.torch(machine, TorchWheel("2.5.1+cu121", "12.1", _OLD, tag="cp311-cp311-linux_x86_64"), python="3.11")
    return distro.done(machine, CENTOS_7)


def mig_enabled_no_instances() -> Reconstruction:
    machine = ubuntu(box("mig-enabled-no-instances", TOLD), "22.04", source=SUPPOSED)
    gpus_at(machine, "570.195.03", Placed(A100_SXM, "0000:07:00.0"), source=TOLD)
    reading(machine, 0, mig_mode=1, mig_pending=1, mig_devices=[])
    cuda_fails(machine, "570.195.03", 100)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def mig_stale_uuid() -> Reconstruction:
    machine = ubuntu(box("mig-stale-uuid", TOLD), "22.04", source=SUPPOSED)
    gpus_at(machine, "580.126.20", Placed(H100_PCIE, "0000:17:00.0"), source=TOLD)
    made = ("MIG-7d2b0c6e-1c11-5d0e-9b7c-30f5a2e4c901", "MIG-91f0a5d3-1c11-5d0e-9b7c-30f5a2e4c902")
    slices(machine, 0, "3g.40gb", *made, gib=39.5, source=TOLD)
    machine.env(CUDA_VISIBLE_DEVICES="MIG-2f8a4f2d-1c11-5d0e-9b7c-30f5a2e4c9aa")
    cuda_fails(machine, "580.126.20", 100)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def rtx5090_torch113_py310() -> Reconstruction:
    machine = ubuntu(box("rtx5090-torch113-py310", TOLD), "22.04", source=TOLD)
    gpus_at(machine, "580.126.20", Placed(RTX_5090, "0000:01:00.0", "0x030000"), source=TOLD, ecc_mode=0)
    cuda_works(machine, "580.126.20", RTX_5090)
    machine.host = replace(machine.host, python_version="3.10.12")
    folder = wheels.system_python(machine, version="3.10", source=SUPPOSED)
    old = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
    wheel = TorchWheel("1.13.1+cu117", "11.7", old, tag="cp310-cp310-linux_x86_64")
    wheels.torch(machine, folder, wheel, source=TOLD)
    return parts.loader_cache(machine)


def k8s_pod_no_gpu_request() -> Reconstruction:
    machine = inside.start("k8s-pod-no-gpu-request", TOLD, "ubuntu-22.04", source=TOLD, kernel="5.15.0-143-generic")
    inside.module(machine, "570.195.03", source=TOLD)
    inside.bus(machine, *[H100] * 8)
    inside.no_nvml(machine)
    marks.kubernetes(machine, source=TOLD, NVIDIA_VISIBLE_DEVICES="all")
    inside.torch(machine, "2.9.1+cu128")
    return inside.cache(machine)


def pyxis_visible_devices_void() -> Reconstruction:
    machine = inside.start("pyxis-visible-devices-void", TOLD, "ubuntu-24.04", source=TOLD,
                           kernel="5.15.0-143-generic", user="user-a")  # fmt: skip
    inside.module(machine, "580.126.20", source=TOLD)
    inside.bus(machine, *[H100] * 8)
    inside.no_nvml(machine)
    marks.enroot(machine, source=TOLD)
    machine.env(SLURM_JOB_GPUS="5")
    inside.torch(machine, "2.11.0+cu130")
    return inside.cache(machine)


def nspawn_no_devices() -> Reconstruction:
    machine = inside.start("nspawn-no-devices", TOLD, "ubuntu-24.04", source=TOLD, kernel="6.8.0-88-generic")
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  "
                 "Release Build\n", source=TOLD)  # fmt: skip
    inside.libraries(machine, "580.126.20", source=TOLD)
    ours = [f"{_LIB}/libcuda.so.580.126.20"]
    marks.dpkg_owns(machine, "libnvidia-compute-580", "580.126.20-0ubuntu0.24.04.1", *ours, source=TOLD)
    inside.cuda_says(machine, "580.126.20", 100)
    marks.nspawn(machine, source=TOLD)
    inside.torch(machine, "2.11.0+cu130")
    return inside.cache(machine)


def healthy_h200_ubuntu2404() -> Reconstruction:
    machine = inside.start("healthy-h200-ubuntu2404", TOLD, "ubuntu-24.04", source=TOLD, kernel="6.8.0-88-generic")
    inside.bus(machine, *[H200] * 8)
    inside.given(machine, "580.126.20", H200, source=TOLD)
    given = "GPU-00000000-0000-0000-0000-000000000000"
    marks.docker(machine, *bound(machine), source=TOLD, NVIDIA_VISIBLE_DEVICES=given,
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.11.0+cu130")
    return inside.cache(machine)


def healthy_rocky9_l4_old_but_right() -> Reconstruction:
    kernel = "5.14.0-503.40.1.el9_5.x86_64"
    machine = distro.start("healthy-rocky9-l4-old-but-right", TOLD, ROCKY_9, kernel=kernel, source=TOLD)
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz", "570.195.03", signer="NVIDIA",
                       source=TOLD)  # fmt: skip
    distro.secure_boot(machine, "Rocky Linux Secure Boot CA", "NVIDIA", source=TOLD)
    distro.works(machine, "570.195.03", (GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8"), "0000:17:00.0"), source=TOLD)
    distro.torch(machine, CU126, python="3.11")
    return distro.done(machine, ROCKY_9)


def healthy_vgpu_licensed() -> Reconstruction:
    machine = ubuntu(box("healthy-vgpu-licensed", TOLD), "22.04", source=TOLD)
    firmware(machine, "VMware, Inc.", "VMware7,1", guest="vmware", source=SUPPOSED)
    gpus_at(machine, "535.261.03", Placed(A16_16C, "0000:03:00.0"), source=TOLD, kind="proprietary", virtualization=2,
            ecc_mode=0, grid_licensable_features={"is_licensed": 1})  # fmt: skip
    cuda_works(machine, "535.261.03", A16_16C)
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=0\n", source=SUPPOSED)
    machine.file("/usr/bin/nvidia-gridd", "", source=SUPPOSED)
    unit(machine, "nvidia-gridd", log=("License acquired successfully.",), source=TOLD)
    smi_q(machine, virtualization="VGPU", brand="NVIDIA Virtual Compute Server", ecc="N/A",
          product="NVIDIA Virtual Compute Server", licence="Licensed (Expiry: 2026-11-19 8:12:4 GMT)")  # fmt: skip
    torch_of(machine, TorchWheel("2.6.0+cu126", "12.6", _OLD))
    return parts.loader_cache(machine)


def a100_row_remap_failed_examined() -> Reconstruction:
    machine = ubuntu(box("a100-row-remap-failed-examined", TOLD), "22.04", source="the system was RHEL 8")
    gpus_at(machine, "550.163.01", Placed(A100_SXM, "0000:07:00.0"), source=TOLD, kind="proprietary",
            rows_correctable=0, rows_uncorrectable=8, rows_pending=0, rows_failure=1)  # fmt: skip
    cuda_works(machine, "550.163.01", A100_SXM)
    log(machine, "[1.0] NVRM: Xid (PCI:0000:07:00): 64, Row Remapper Error: (0x0) - All reserved rows for bank are "
        "remapped", "[2.0] NVRM: Xid (PCI:0000:07:00): 94, pid=99, name=python, Contained ECC error",
        "[3.0] NVRM: Xid (PCI:0000:07:00): 95, pid=99, name=python, Uncontained ECC error", source=TOLD)  # fmt: skip
    torch_of(machine, TorchWheel("2.7.1+cu126", "12.6", _OLD))
    return parts.loader_cache(machine)


def h100_row_remap_pending() -> Reconstruction:
    machine = ubuntu(box("h100-row-remap-pending", TOLD), "22.04", source="the system was Rocky 9")
    hgx(machine, "580.126.20", H100, state=3, source=TOLD, rows_correctable=0, rows_uncorrectable=0, rows_pending=0,
        rows_failure=0)  # fmt: skip
    reading(machine, 3, rows_uncorrectable=1, rows_pending=1)
    fabric_manager(machine, "580.126.20", source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


MACHINES = (hgx_h100_fabricmanager_older, hgx_a100_one_off_the_bus, rhel10_h200_secure_boot_dkms,
            rocky9_a100_kernel_without_headers, amazonlinux2023_kernel612_devel, azurelinux3_h100_no_driver,
            debian12_rtx4090_torch_cu130, debian13_v100_open_module,
            docker_image_ships_own_driver_libs, fedora43_akmods_key_not_enrolled, fedora44_rtx5090_nouveau,
            centos7_glibc217, mig_enabled_no_instances, mig_stale_uuid, rtx5090_torch113_py310, k8s_pod_no_gpu_request,
            pyxis_visible_devices_void, nspawn_no_devices, healthy_h200_ubuntu2404, healthy_rocky9_l4_old_but_right,
            healthy_vgpu_licensed, a100_row_remap_failed_examined, h100_row_remap_pending,
            )  # fmt: skip
