"""Parts that machines are rebuilt from: an operating system, a driver, GPUs, torch wheels, toolkits, compat libraries.

Each takes the report's line as `source`; what a part needs beyond the report is marked as supposed.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from tools.machines.elf_writer import ElfSpec
from tools.machines.reconstruction import Reconstruction

SUPPOSED = "supposed: a plain machine of this kind"
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
# Read from the libraries themselves: docs/tables.md, compat packages.
NOTES: dict[str, dict[str, Any]] = {
    "13.0": {"driver": [535, 550, 565, 570, 575, 580]},
    "12.9": {"driver": [535, 550, 560, 565, 570, 575]},
    "13.1": {"driver": [535, 550, 570, 575, 580, 590]},
}
ELIGIBLE_BRANDS = [1, 2, 7, 8, 9, 10, 11, 12, 13, 14]


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A GPU as NVML would name it."""

    name: str
    capability: str
    brand: int
    memory_gib: float
    pci_device: str = "0x2330"


H100 = GpuSpec("NVIDIA H100 80GB HBM3", "9.0", 14, 79.65)
RTX_5090 = GpuSpec("NVIDIA GeForce RTX 5090", "12.0", 5, 31.36, "0x2b85")


def triplet(machine: Reconstruction) -> str:
    return f"{machine.host.arch}-linux-gnu"


def ubuntu(machine: Reconstruction, version: str, *, source: str) -> Reconstruction:
    """Ubuntu's release file, its libc and libstdc++, and an empty loader cache to be filled by the other parts."""
    name = {"22.04": "22.04.5 LTS (Jammy Jellyfish)", "24.04": "24.04.3 LTS (Noble Numbat)"}[version]
    glibc, glibcxx = {"22.04": ("2.35", "3.4.30"), "24.04": ("2.39", "3.4.33")}[version]
    machine.file(
        "/etc/os-release",
        f'PRETTY_NAME="Ubuntu {name.split(" (")[0]}"\nVERSION_ID="{version}"\nVERSION="{name}"\nID=ubuntu\n',
        source=source,
    )
    folder = f"/usr/lib/{triplet(machine)}"
    numbers = range(17, int(glibc.split(".")[1]) + 1)
    glibc_names = tuple(f"GLIBC_2.{number}" for number in numbers)
    machine.elf(f"{folder}/libc.so.6", ElfSpec(soname="libc.so.6", defines=glibc_names), source=SUPPOSED)
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, int(glibcxx.rsplit(".", 1)[1]) + 1))
    machine.elf(f"{folder}/libstdc++.so.6", ElfSpec(soname="libstdc++.so.6", defines=stdcxx), source=SUPPOSED)
    machine.env(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return machine


def loader_cache(machine: Reconstruction, *libraries: str) -> Reconstruction:
    """/etc/ld.so.cache with every libX.so.N the tree has in the system folders, and the paths given."""
    folders = (f"/usr/lib/{triplet(machine)}/", "/usr/lib/", "/usr/local/lib/")
    known = [*machine.files, *machine.links]
    paths = sorted(path for path in known if path.startswith(folders) and ".so" in path and path.count("/") <= 4)
    paths += [path for path in libraries if path not in paths]
    strings, entries = b"", b""
    start = 48 + 24 * len(paths)
    for path in paths:
        key = start + len(strings) + path.rindex("/") + 1
        flags = _CACHE_FLAGS[machine.host.arch]
        entries += struct.pack("<iIIIQ", flags, key, start + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI", len(paths), len(strings), 2, 0) + bytes(12)
    return machine.file("/etc/ld.so.cache", header + entries + strings, source=SUPPOSED)


def driver(machine: Reconstruction, version: str, *, kind: str = "open", source: str) -> Reconstruction:
    """A loaded kernel driver with its libcuda and libnvidia-ml in the system folder, and device nodes."""
    arch = machine.host.arch
    line = {
        "open": f"NVRM version: NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build",
        "proprietary": f"NVRM version: NVIDIA UNIX {arch} Kernel Module  {version}  Release Build",
    }[kind]
    machine.file("/sys/module/nvidia/version", f"{version}\n", source=source)
    machine.file("/proc/driver/nvidia/version", line + "\n", source=source)
    machine.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n", source=SUPPOSED)
    for node in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    return user_driver(machine, version, source=source)


def user_driver(machine: Reconstruction, version: str, *, source: str) -> Reconstruction:
    """libcuda.so.1 and libnvidia-ml.so.1 of a driver version in the system folder."""
    folder = f"/usr/lib/{triplet(machine)}"
    for name in ("libcuda.so", "libnvidia-ml.so"):
        machine.elf(f"{folder}/{name}.{version}", ElfSpec(soname=f"{name}.1", needed=("libc.so.6",)), source=source)
        machine.link(f"{folder}/{name}.1", f"{name}.{version}", source=source)
    return machine


def gpus(machine: Reconstruction, version: str, *specs: GpuSpec, source: str, **fields: Any) -> Reconstruction:
    """NVML's answer for these GPUs under driver `version`; `fields` override single readings of every GPU."""
    devices = []
    for index, spec in enumerate(specs):
        major, minor = spec.capability.split(".")
        address = f"0000:{0x18 + index:02x}:00.0"
        machine.file(f"/sys/bus/pci/devices/{address}/vendor", "0x10de\n", source=SUPPOSED)
        machine.file(f"/sys/bus/pci/devices/{address}/device", f"{spec.pci_device}\n", source=SUPPOSED)
        machine.file(f"/sys/bus/pci/devices/{address}/class", "0x030200\n", source=SUPPOSED)
        machine.link(f"/sys/bus/pci/devices/{address}/driver", "/sys/bus/pci/drivers/nvidia", source=SUPPOSED)
        devices.append(
            {
                "index": index,
                "code": 0,
                "name": spec.name,
                "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
                "brand": spec.brand,
                "capability_major": int(major),
                "capability_minor": int(minor),
                "memory_bytes": int(spec.memory_gib * 2**30),
                "pci_address": f"0000{address}",
                "mig_mode": 0,
                "mig_pending": 0,
                "ecc_mode": 1,
                "persistence_mode": 1,
                "compute_mode": 0,
                **fields,
            }
        )
    machine.file("/sys/bus/pci/drivers/nvidia/module", "", source=SUPPOSED)
    machine.sources["the nvml child"] = source
    return machine.child(
        "nvml",
        {
            "init": {"code": 0},
            "library": f"/usr/lib/{triplet(machine)}/libnvidia-ml.so.{version}",
            "driver_version": version,
            "count": len(specs),
            "devices": devices,
        },
    )


def cuda_answers(machine: Reconstruction, path: str, *, cuda: str, specs: tuple[GpuSpec, ...]) -> Reconstruction:
    """The libcuda child of a driver that works: cuInit 0 and the devices."""
    major, minor = cuda.split(".")
    return machine.child(
        "libcuda",
        {
            "path": path,
            "version_code": 0,
            "version": int(major) * 1000 + int(minor) * 10,
            "init_code": 0,
            "init_name": "CUDA_SUCCESS",
            "init_text": "no error",
            "count_code": 0,
            "count": len(specs),
            "devices": [
                {
                    "code": 0,
                    "name": spec.name,
                    "major": int(spec.capability.split(".")[0]),
                    "minor": int(spec.capability.split(".")[1]),
                    "memory_bytes": int(spec.memory_gib * 2**30),
                }
                for spec in specs
            ],
        },
    )


def cuda_fails(machine: Reconstruction, path: str, *, cuda: str, code: int, name: str, text: str) -> Reconstruction:
    """The libcuda child of a driver whose cuInit gives an error."""
    major, minor = cuda.split(".")
    return machine.child(
        "libcuda",
        {
            "path": path,
            "version_code": 0,
            "version": int(major) * 1000 + int(minor) * 10,
            "init_code": code,
            "init_name": name,
            "init_text": text,
        },
    )


def compat(machine: Reconstruction, cuda: str, version: str, *, source: str) -> Reconstruction:
    """cuda-compat-X-Y as NVIDIA's package installs it: libraries in /usr/local/cuda-X.Y/compat, nothing configured."""
    folder = f"/usr/local/cuda-{cuda}/compat"
    note = {"format": 1, "CUDA version": cuda, **NOTES.get(cuda, {}), "device": ELIGIBLE_BRANDS}
    spec = ElfSpec(
        soname="libcuda.so.1",
        needed=("libc.so.6",),
        note_section=".note.cuda.fwd_compatibility" if cuda in NOTES else "",
        note=json.dumps(note, separators=(",", ":")).encode(),
    )
    machine.elf(f"{folder}/libcuda.so.{version}", spec, source=source)
    machine.link(f"{folder}/libcuda.so.1", f"libcuda.so.{version}", source=source)
    machine.link(f"{folder}/libcuda.so", "libcuda.so.1", source=source)
    dashed = cuda.replace(".", "-")
    return machine.file(f"/var/lib/dpkg/info/cuda-compat-{dashed}.list", f"{folder}\n", source=source)


def toolkit(machine: Reconstruction, version: str, *, source: str, gcc_max: int = 15) -> Reconstruction:
    """A whole toolkit at /usr/local/cuda-X.Y with nvcc on PATH; `version` is nvcc's, e.g. 13.0.88."""
    cuda = ".".join(version.split(".")[:2])
    root = f"/usr/local/cuda-{cuda}"
    number = int(cuda.split(".")[0]) * 1000 + int(cuda.split(".")[1]) * 10
    for path in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc", "lib64/libcudart_static.a",
                 "lib64/libcudadevrt.a", "include/cuda_runtime.h"):  # fmt: skip
        machine.file(f"{root}/{path}", "", source=source)
    machine.file(f"{root}/include/cuda.h", f"#define CUDA_VERSION {number}\n", source=source)
    machine.file(f"{root}/include/crt/host_config.h", f"#if __GNUC__ > {gcc_max}\n", source=SUPPOSED)
    major = cuda.split(".")[0]
    machine.elf(f"{root}/lib64/libcudart.so.{version}", ElfSpec(soname=f"libcudart.so.{major}"), source=source)
    machine.link(f"{root}/lib64/libcudart.so.{major}", f"libcudart.so.{version}", source=source)
    machine.link(f"{root}/lib64/libcudart.so", f"libcudart.so.{major}", source=source)
    machine.link("/usr/local/cuda", root, source=SUPPOSED)
    return machine.command(
        f"{root}/bin/nvcc --version", f"Cuda compilation tools, release {cuda}, V{version}\nBuild cuda_{cuda}\n"
    )
