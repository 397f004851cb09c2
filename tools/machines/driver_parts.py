"""Parts for machines whose driver, container or hardware is the point: GPUs, a driver that works or fails, logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.machines import parts, wheels
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

H200 = GpuSpec("NVIDIA H200", "9.0", 14, 139.8, "0x2335")
B200 = GpuSpec("NVIDIA B200", "10.0", 14, 179.1, "0x2901")
A100_PCIE = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 79.3, "0x20b5")
A10 = GpuSpec("NVIDIA A10", "8.6", 14, 22.0, "0x2236")
L20 = GpuSpec("NVIDIA L20", "8.9", 14, 44.5, "0x26ba")
RTX_4090 = GpuSpec("NVIDIA GeForce RTX 4090", "8.9", 5, 23.6, "0x2684")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")

SM_50_TO_90 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
TORCH_26_CU124 = TorchWheel("2.6.0+cu124", "12.4", SM_50_TO_90)
TORCH_28_CU128 = TorchWheel("2.8.0+cu128", "12.8", CU128)
TORCH_211_CU130 = TorchWheel("2.11.0+cu130", "13.0", CU130)

_CUDA_OF_BRANCH = {460: "11.2", 535: "12.2", 550: "12.4", 570: "12.8", 580: "13.0", 590: "13.1", 610: "13.3"}
ERRORS = {
    3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
    805: (
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}


def cuda_of(version: str) -> str:
    """The CUDA that a driver version offers by itself: 13.0 for 580.159.04."""
    return _CUDA_OF_BRANCH[int(version.split(".", maxsplit=1)[0])]


def works(machine: Reconstruction, version: str, *specs: GpuSpec, source: str, **options: Any) -> Reconstruction:
    """A driver of this version, GPUs that NVML lists and a libcuda that starts; options: kind, then NVML readings."""
    _driver_and_gpus(machine, version, specs, source=source, options=options)
    return parts.cuda_answers(machine, libcuda(machine, version), cuda=cuda_of(version), specs=specs)


def fails(
    machine: Reconstruction, version: str, *specs: GpuSpec, code: int, source: str, **options: Any
) -> Reconstruction:
    """The same with a cuInit that returns an error code."""
    _driver_and_gpus(machine, version, specs, source=source, options=options)
    return init_fails(machine, version, code=code)


def init_fails(machine: Reconstruction, version: str, *, code: int) -> Reconstruction:
    name, text = ERRORS[code]
    path = libcuda(machine, version)
    return parts.cuda_fails(machine, path, cuda=cuda_of(version), code=code, name=name, text=text)


def _driver_and_gpus(
    machine: Reconstruction, version: str, specs: tuple[GpuSpec, ...], *, source: str, options: dict[str, Any]
) -> None:
    kind = options.pop("kind", "open")
    parts.driver(machine, version, kind=kind, source=source)
    parts.gpus(machine, version, *specs, source=source, **options)
    for number in range(1, len(specs)):
        machine.file(f"/dev/nvidia{number}", "", source=SUPPOSED)


def libcuda(machine: Reconstruction, version: str) -> str:
    return f"/usr/lib/{parts.triplet(machine)}/libcuda.so.{version}"


def torch_of(machine: Reconstruction, wheel: TorchWheel, *, source: str = SUPPOSED) -> Reconstruction:
    """torch in the system's own Python."""
    folder = wheels.system_python(machine, source=source)
    return wheels.torch(machine, folder, wheel, source=source)


def reading(machine: Reconstruction, index: int, **fields: Any) -> Reconstruction:
    """Change what NVML says of one GPU."""
    devices: Any = machine.children["nvml"].answer["devices"]
    devices[index].update(fields)
    return machine


def nvml_fails(machine: Reconstruction, version: str, *, code: int, text: str, source: str) -> Reconstruction:
    """An NVML that does not start, and the nvidia-smi that says the same."""
    machine.sources["the nvml child"] = source
    library = f"/usr/lib/{parts.triplet(machine)}/libnvidia-ml.so.{version}"
    machine.child("nvml", {"init": {"code": code, "error": text}, "library": library})
    return machine.every_call_of("nvidia-smi", f"Failed to initialize NVML: {text}\n", status=code)


def pci(
    machine: Reconstruction, address: str, device: str, *, source: str, driver: str = "", code: str = "0x030200"
) -> Reconstruction:
    """A device on the PCI bus, bound to a kernel driver or to none; code 0x068000 is an NVSwitch."""
    folder = f"/sys/bus/pci/devices/{address}"
    machine.file(f"{folder}/vendor", "0x10de\n", source=source)
    machine.file(f"{folder}/device", f"{device}\n", source=source)
    machine.file(f"{folder}/class", f"{code}\n", source=source)
    if driver:
        machine.file(f"/sys/bus/pci/drivers/{driver}/module", "", source=source)
        machine.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}", source=source)
    return machine


def log(machine: Reconstruction, *lines: str, source: str) -> Reconstruction:
    """The driver's lines in the kernel log."""
    machine.sources["dmesg"] = source
    return machine.every_call_of("dmesg", "".join(f"{line}\n" for line in lines))


def red_hat(machine: Reconstruction, name: str, *, os_id: str, version: str, source: str) -> Reconstruction:
    """What the other parts wrote as a Red Hat system has it: its own release file, libraries in /usr/lib64."""
    machine.file(
        "/etc/os-release", f'NAME="{name}"\nPRETTY_NAME="{name} {version}"\nVERSION_ID="{version}"\nID="{os_id}"\n',
        source=source,
    )  # fmt: skip
    debian = f"/usr/lib/{parts.triplet(machine)}/"
    for kept in (machine.files, machine.links, machine.sources):
        table: dict[str, Any] = kept
        for path in [path for path in table if path.startswith(debian)]:
            table[path.replace(debian, "/usr/lib64/")] = table.pop(path)
    for script, said in machine.children.items():
        answer = {
            key: value.replace(debian, "/usr/lib64/") if isinstance(value, str) else value
            for key, value in said.answer.items()
        }
        machine.children[script] = replace(said, answer=answer)
    libraries = sorted(path for path in (*machine.files, *machine.links) if path.startswith("/usr/lib64/lib"))
    return parts.loader_cache(machine, *libraries)


def user(machine: Reconstruction, *, kernel: str = "") -> Reconstruction:
    """A plain user instead of root, and a kernel of its own name."""
    machine.host = replace(
        HOST,
        user="user-a",
        home="/home/user-a",
        cwd="/home/user-a",
        uid=1000,
        kernel_release=kernel or HOST.kernel_release,
    )
    return machine


def docker(machine: Reconstruction, *, source: str) -> Reconstruction:
    return machine.file("/.dockerenv", "", source=source)
