"""Parts for WSL, Jetson, MIG, and compiled extensions with the symbols they ask for."""

from __future__ import annotations

import struct
from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.elf_writer import ElfSpec
from tools.machines.guest_parts import package, smi_list
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

# Fields of ELF files: see elf(5).
_MACHINE = {"x86_64": 62, "aarch64": 183}
WSL_FOLDER = "/usr/lib/wsl/lib"


def wsl(machine: Reconstruction, gpu: GpuSpec, driver: str, *, kernel: str, cuda: str, source: str) -> Reconstruction:
    """What Windows puts into WSL 2: /dev/dxg, its libcuda (copies, not links) and NVML; nothing on the PCI bus."""
    machine.host = replace(machine.host, kernel_release=kernel)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=source)
    machine.file("/proc/version", f"Linux version {kernel} (root@builder) (gcc)\n", source=source)
    machine.without(f"/lib/modules/{kernel}")
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1", "libnvidia-ml.so.1", "libdxcore.so"):
        soname = name.removesuffix(".1") if name.endswith(".1.1") else name
        machine.elf(f"{WSL_FOLDER}/{name}", ElfSpec(soname=soname, needed=("libc.so.6",)),
                    source="microsoft/WSL#5663 (libcuda.so, .so.1 and .so.1.1 are separate copies)")  # fmt: skip
    machine.file(f"{WSL_FOLDER}/nvidia-smi", "", source=SUPPOSED)
    machine.file("/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/nvidia-smi", "", source=SUPPOSED)
    machine.file("/etc/ld.so.conf.d/ld.wsl.conf", f"{WSL_FOLDER}\n", source=SUPPOSED)
    machine.file("/proc/sys/fs/binfmt_misc/WSLInterop", "enabled\ninterpreter /init\n", source=SUPPOSED)
    machine.file("/proc/self/mounts", "/dev/sdc / ext4 rw 0 0\ndrivers /usr/lib/wsl/drivers 9p ro 0 0\n"
                 "lib /usr/lib/wsl/lib overlay rw 0 0\nC:\\134 /mnt/c 9p rw 0 0\n", source=SUPPOSED)  # fmt: skip
    machine.file("/dev/dxg", "", source=source)
    machine.env(WSL_DISTRO_NAME="Ubuntu", WSL_INTEROP="/run/WSL/1_interop")
    parts.gpus(machine, driver, gpu, source=source, ecc_mode=0, persistence_mode=1)
    machine.without("/sys/bus/pci/devices", "/sys/bus/pci/drivers")
    machine.child("nvml", {**machine.children["nvml"].answer, "library": f"{WSL_FOLDER}/libnvidia-ml.so.1"})
    smi_list(machine)
    return parts.cuda_answers(machine, f"{WSL_FOLDER}/libcuda.so.1.1", cuda=cuda, specs=(gpu,))


def jetson(
    machine: Reconstruction, l4t: str, *, board: str, chip: str, kernel: str, date: str, source: str
) -> Reconstruction:
    """A Jetson's marks: release file, device tree, nodes of its GPU, the packages of Jetson Linux."""
    major, revision = l4t.split(".", 1)
    text = f"# R{major} (release), REVISION: {revision}, GCID: 33958178, BOARD: generic, EABI: aarch64, DATE: {date}\n"
    machine.file("/etc/nv_tegra_release", text, source=source)
    machine.file("/proc/device-tree/model", f"{board}\0", source=source)
    machine.file("/proc/device-tree/compatible", f"nvidia,{chip}\0", source=source)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=SUPPOSED)
    machine.host = replace(machine.host, kernel_release=kernel)
    for node in ("nvhost-ctrl-gpu", "nvhost-gpu", "nvmap"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    package(machine, "nvidia-l4t-core", f"{l4t}-1", source=SUPPOSED)
    return package(machine, "nvidia-l4t-cuda", f"{l4t}-1", source=SUPPOSED)


def jetson_cuda(machine: Reconstruction, gpu: GpuSpec, *, cuda: str, folder: str, source: str) -> Reconstruction:
    """The board's libcuda in its own folder, the toolkit of its JetPack, and what libcuda answers."""
    machine.elf(f"{folder}/libcuda.so.1.1", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=source)
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.1.1", source=source)
    machine.link(f"{folder}/libcuda.so", "libcuda.so.1.1", source=source)
    machine.file("/etc/ld.so.conf.d/nvidia-tegra.conf", f"{folder}\n", source=SUPPOSED)
    runtime = {"10.2": "libcudart.so.10.2", "11.4": "libcudart.so.11.0", "12.6": "libcudart.so.12",
               "13.0": "libcudart.so.13"}[cuda]  # fmt: skip
    lib = f"/usr/local/cuda-{cuda}/targets/aarch64-linux/lib"
    machine.elf(f"{lib}/{runtime}", ElfSpec(soname=runtime, needed=("libc.so.6",)), source=SUPPOSED)
    machine.link("/usr/local/cuda", f"/usr/local/cuda-{cuda}", source=SUPPOSED)
    return parts.cuda_answers(machine, f"{folder}/libcuda.so.1.1", cuda=cuda, specs=(gpu,))


def jetson_cache(machine: Reconstruction, *, cuda: str, folder: str) -> Reconstruction:
    """ld.so.cache with the board's libcuda and the CUDA of its JetPack."""
    lib = f"/usr/local/cuda-{cuda}/targets/aarch64-linux/lib/"
    runtimes = [path for path in machine.files if path.startswith(lib)]
    return parts.loader_cache(machine, f"{folder}/libcuda.so.1", *runtimes)


def torch_of_board(machine: Reconstruction, site: str, wheel: TorchWheel, *, runtime: str, source: str) -> None:
    """A Jetson wheel of NVIDIA's: linked to the CUDA of the system, no libraries of its own."""
    wheels.torch(machine, site, wheel, source=source)
    machine.without(f"{site}/nvidia")
    for name, needed in (("libtorch_cuda.so", (runtime, "libc10_cuda.so", "libc.so.6")),
                         ("libc10_cuda.so", (runtime, "libc.so.6"))):  # fmt: skip
        machine.elf(f"{site}/torch/lib/{name}", ElfSpec(rpath="$ORIGIN", needed=needed), source=source)


def slices(machine: Reconstruction, index: int, profile: str, *uuids: str, gib: float, source: str) -> Reconstruction:
    """MIG on for one GPU, with a slice for each UUID; their nodes under /dev/nvidia-caps."""
    devices = machine.children["nvml"].answer["devices"]
    assert isinstance(devices, list)
    device = devices[index]
    listed = [{"name": f"{device['name']} MIG {profile}", "uuid": uuid, "memory_bytes": int(gib * 2**30)}
              for uuid in uuids]  # fmt: skip
    device.update(mig_mode=1, mig_pending=1, mig_devices=listed)
    for number in (1, 2, *(30 + 9 * place for place in range(len(uuids)))):
        machine.file(f"/dev/nvidia-caps/nvidia-cap{number}", "", source=source)
    machine.file("/proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\n", source=SUPPOSED)
    for place in range(len(uuids)):
        path = f"/proc/driver/nvidia/capabilities/gpu{index}/mig/gi{7 + place}/access"
        machine.file(path, f"DeviceFileMinor: {30 + 9 * place}\nDeviceFileMode: 292\n", source=SUPPOSED)
    return smi_list(machine)


def extension(
    machine: Reconstruction, path: str, *, needed: tuple[str, ...], asks: tuple[str, ...], gives: tuple[str, ...] = (),
    text: bytes = b"", source: str,
) -> Reconstruction:  # fmt: skip
    """A compiled library with a real symbol table: names it asks for and names it gives."""
    return machine.file(path, symbol_elf(machine.host.arch, needed, asks, gives, text), source=source)


def symbol_elf(
    arch: str, needed: tuple[str, ...], asks: tuple[str, ...], gives: tuple[str, ...], text: bytes = b""
) -> bytes:
    """A shared library with .dynsym, .dynstr, a hash table and .dynamic, and section headers for all of them."""
    strings, places = b"\0", {}
    for name in (*needed, *asks, *gives):
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    at_symbols = 0x40 + 2 * 56
    symbols = bytes(24)
    for name in asks:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 0, 0, 0)
    for name in gives:
        symbols += struct.pack("<IBBHQQ", places[name], 0x12, 0, 5, 0x1000, 16)
    count = 1 + len(asks) + len(gives)
    at_hash = at_symbols + len(symbols)
    table = struct.pack("<II", 1, count) + struct.pack("<I", 1 if count > 1 else 0)
    table += b"".join(struct.pack("<I", number + 1 if 0 < number < count - 1 else 0) for number in range(count))
    at_strings = (at_hash + len(table) + 7) & ~7
    at_dynamic = (at_strings + len(strings) + 7) & ~7
    tags = [(1, places[name]) for name in needed]
    tags += [(4, at_hash), (5, at_strings), (6, at_symbols), (10, len(strings)), (11, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in tags)
    at_text = at_dynamic + len(dynamic)
    names = b"\0.dynsym\0.hash\0.dynstr\0.dynamic\0.text\0.shstrtab\0"
    at_names = at_text + len(text)
    at_sections = (at_names + len(names) + 7) & ~7
    rows = (
        (".dynsym", 11, at_symbols, len(symbols), 3, 1, 24), (".hash", 5, at_hash, len(table), 1, 0, 4),
        (".dynstr", 3, at_strings, len(strings), 0, 0, 0), (".dynamic", 6, at_dynamic, len(dynamic), 3, 0, 16),
        (".text", 1, at_text, len(text), 0, 0, 0), (".shstrtab", 3, at_names, len(names), 0, 0, 0),
    )  # fmt: skip
    sections = bytes(64)
    for name, kind, place, size, link, info, entry in rows:
        sections += struct.pack("<IIQQQQIIQQ", names.index(name.encode() + b"\0"), kind, 2, place, place, size, link,
                                info, 8, entry)  # fmt: skip
    end = at_sections + len(sections)
    body = bytearray(end)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINE[arch], 1, 0, 0x40, at_sections, 0, 64, 56, 2, 64, 7, 6)
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end, end, 4096)
    header += struct.pack("<IIQQQQQQ", 2, 6, at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8)
    pieces = ((0, header), (at_symbols, symbols), (at_hash, table), (at_strings, strings), (at_dynamic, dynamic),
              (at_text, text), (at_names, names), (at_sections, sections))  # fmt: skip
    for place, data in pieces:
        body[place : place + len(data)] = data
    return bytes(body)
