"""Machines whose evidence disagrees: one GPU fewer than on the bus, libraries of the image's own, another torch."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.driver_parts import (
    H200,
    TORCH_28_CU128,
    docker,
    fails,
    init_fails,
    log,
    nvml_fails,
    pci,
    torch_of,
    works,
)
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

L40S = GpuSpec("NVIDIA L40S", "8.9", 14, 44.5, "0x26b9")
RTX_2060 = GpuSpec("NVIDIA GeForce RTX 2060", "7.5", 5, 5.8, "0x1f08")
TITAN_V = "0x1d81"


def l40_seven_of_eight() -> Reconstruction:
    """One GPU fell off the bus before the driver could start it; no Xid was logged."""
    machine = Reconstruction(
        "l40-seven-of-eight", "Eight L40 on the bus, seven in nvidia-smi: one fell off, without an Xid"
    )
    source = "NVIDIA/NVSentinel#155 (GPU 0000:b3:00.0, PCI ID 10de:26b5, Open Kernel Module 570.158.01)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    card = replace(L40S, name="NVIDIA L40", pci_device="0x26b5")
    works(machine, "570.158.01", *(card,) * 7, source=source)
    pci(machine, "0000:b3:00.0", "0x26b5", source=source)
    log(
        machine,
        "2026-11-14T09:12:03,308145+00:00 NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "2026-11-14T09:12:03,439662+00:00 NVRM: The NVIDIA probe routine failed for 1 device(s).",
        source=source,
    )
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def gtx1070_under_open_module() -> Reconstruction:
    """The open module drives the RTX 2060 and refuses the GTX 1070 Ti beside it."""
    machine = Reconstruction(
        "gtx1070-under-open-module", "RTX 2060 and GTX 1070 Ti with the open module 560.35.03: the second is left out"
    )
    source = "NVIDIA/open-gpu-kernel-modules#696 (RTX 2060 and GTX 1070 Ti, open 560.35.03; the log's lines)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    parts.driver(machine, "560.35.03", source=source)
    parts.gpus(machine, "560.35.03", RTX_2060, source=source)
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.560.35.03"
    parts.cuda_answers(machine, path, cuda="12.6", specs=(RTX_2060,))
    pci(machine, "0000:02:00.0", "0x1b82", source=source)
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
        source=source,
    )
    torch_of(
        machine, TorchWheel("2.8.0+cu126", "12.6", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    )
    return parts.loader_cache(machine)


def titan_v_does_not_start() -> Reconstruction:
    """The driver is loaded, and its only GPU does not come up."""
    machine = Reconstruction(
        "titan-v-does-not-start", "TITAN V on the bus, RmInitAdapter fails: nvidia-smi finds no device"
    )
    source = "illinois-scicomp/machine-shop-maintenance#76 (GPU 0000:81:00.0, RmInitAdapter failed! (0x25:0x40:1470))"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    parts.driver(machine, "535.161.07", kind="proprietary", source=SUPPOSED)
    pci(machine, "0000:81:00.0", TITAN_V, driver="nvidia", source=source)
    machine.child(
        "nvml",
        {
            "init": {"code": 0},
            "library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.161.07",
            "driver_version": "535.161.07",
            "count": 0,
            "devices": [],
        },
    )
    init_fails(machine, "535.161.07", code=100)
    log(
        machine,
        "2026-11-14T12:48:42,000000+00:00 NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x25:0x40:1470)",
        "2026-11-14T12:48:42,000000+00:00 NVRM: GPU 0000:81:00.0: rm_init_adapter failed, device minor number 0",
        "2026-11-14T12:48:43,000000+00:00 NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x25:0x40:1470)",
        source=source,
    )
    torch_of(
        machine, TorchWheel("2.6.0+cu124", "12.4", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    )
    return parts.loader_cache(machine)


def image_with_driver_packages() -> Reconstruction:
    """A recipe of the image ran an installer that brought the driver's own packages."""
    machine = Reconstruction(
        "image-with-driver-packages", "Docker on a host with driver 580.95.05; the image has libraries of 610.43.02"
    )
    source = (
        "E4S-Project/e4s#172 (NVML library version: 610.43; an installer in the recipe brings the driver's packages)"
    )
    parts.ubuntu(machine, "24.04", source=source)
    fails(machine, "580.95.05", H200, code=803, source=SUPPOSED)
    parts.user_driver(machine, "610.43.02", source=source)
    nvml_fails(machine, "610.43.02", code=18, text="Driver/library version mismatch", source=source)
    init_fails(machine, "610.43.02", code=803)
    folder = "/usr/lib/x86_64-linux-gnu"
    for name, files in (
        ("libnvidia-compute-610:amd64", ("libcuda.so.610.43.02", "libcuda.so.1", "libnvidia-ml.so.610.43.02")),
        ("nvidia-utils-610", ()),
    ):
        lines = "".join(f"{folder}/{each}\n" for each in files)
        machine.file(f"/var/lib/dpkg/info/{name}.list", f"/.\n/usr\n{folder}\n{lines}", source=source)
    docker(machine, source=source)
    machine.env(NVIDIA_VISIBLE_DEVICES="all")
    torch_of(machine, TorchWheel("2.9.0+cu130", "13.0", CU130))
    return parts.loader_cache(machine)


def user_site_hides_torch() -> Reconstruction:
    """An old torch under ~/.local comes before the one that was just installed for all."""
    machine = Reconstruction(
        "user-site-hides-torch", "H200 whose user has torch 2.4.1+cpu under ~/.local before the system's 2.8.0+cu128"
    )
    source = "cloveranon/Clover-Edition#128 (an old torch under ~/.local/lib/python3.7/site-packages is imported)"
    machine.host = replace(HOST, user="user-a", home="/home/user-a", cwd="/home/user-a", uid=1000)
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "580.95.05", H200, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    old = TorchWheel("2.4.1+cpu", "")
    wheels.torch(machine, "/home/user-a/.local/lib/python3.12/site-packages", old, source=source)
    return parts.loader_cache(machine)


def python_path_hides_torch() -> Reconstruction:
    """PYTHONPATH names a folder with another torch, made for a newer CUDA than the driver runs."""
    machine = Reconstruction(
        "python-path-hides-torch",
        "H200, driver 570: the venv's torch 2.8.0+cu128 fits, PYTHONPATH leads to 2.9.0+cu130",
    )
    source = "docs.python.org/3/using/cmdline.html, PYTHONPATH (its folders come before the installed packages)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.158.01", H200, source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.8.0+cu128", "12.8", CU128), source=SUPPOSED)
    wheels.torch(machine, "/shared/modules/torch", TorchWheel("2.9.0+cu130", "13.0", CU130), source=source)
    machine.env(PYTHONPATH="/shared/modules/torch")
    return parts.loader_cache(machine)


def conda_before_venv() -> Reconstruction:
    """conda's start-up lines put its folder before that of the venv: `python` is conda's, whose torch has no CUDA."""
    machine = Reconstruction(
        "conda-before-venv",
        "A venv with torch 2.8.0+cu128 is active, and python on PATH is conda's with torch 2.5.1 for CPU",
    )
    source = "codelv/enaml-native-cli#4, pyenv/pyenv#1452 (with a venv active, python is still that of conda)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "580.95.05", H200, source=SUPPOSED)
    site = wheels.python(machine, "/root/app/.venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.8.0+cu128", "12.8", CU128), source=SUPPOSED)
    conda = "/root/miniconda3"
    machine.file(f"{conda}/conda-meta/history", "", source=source)
    machine.file(f"{conda}/bin/python3.12", "#!", source=source)
    for name in ("python", "python3"):
        machine.link(f"{conda}/bin/{name}", "python3.12", source=source)
    folder = f"{conda}/lib/python3.12/site-packages"
    wheels.torch(machine, folder, TorchWheel("2.5.1+cpu", ""), source=source)
    machine.environ["PATH"] = f"{conda}/bin:/root/app/.venv/bin:{machine.environ['PATH']}"
    machine.env(CONDA_PREFIX=conda)
    return parts.loader_cache(machine)


MACHINES = (
    l40_seven_of_eight,
    gtx1070_under_open_module,
    titan_v_does_not_start,
    image_with_driver_packages,
    user_site_hides_torch,
    python_path_hides_torch,
    conda_before_venv,
)
