"""Machines where libcuda.so.1 is the matter: compat stale, forbidden, unused or baked in; a stub; none at all."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.elf_writer import ElfSpec
from tools.machines.field_reports import h100_driver_570
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

H200 = GpuSpec("NVIDIA H200", "9.0", 14, 139.8, "0x2335")
L40S = GpuSpec("NVIDIA L40S", "8.9", 14, 44.99, "0x26b9")
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.49, "0x27b8")
A100 = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 80.0, "0x20b2")
RTX_4090 = GpuSpec("NVIDIA GeForce RTX 4090", "8.9", 5, 23.99, "0x2684")

_803 = "system has unsupported display driver / cuda driver combination"
_804 = "forward compatibility was attempted on non supported HW"
_LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so"


def gpu_box(name: str, about: str, *, driver: str, gpu: GpuSpec, cuda: str, source: str) -> Reconstruction:
    """A plain x86-64 machine with one GPU and a driver that works; `cuda` is what its libcuda reports."""
    machine = Reconstruction(name, about)
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    parts.driver(machine, driver, source=source)
    parts.gpus(machine, driver, gpu, source=source)
    return parts.cuda_answers(machine, f"{_LIBCUDA}.{driver}", cuda=cuda, specs=(gpu,))


def compat_package(machine: Reconstruction, cuda: str, version: str, *, source: str) -> str:
    """cuda-compat-X-Y with the file list that dpkg keeps of it; returns the folder."""
    parts.compat(machine, cuda, version, source=source)
    folder, dashed = f"/usr/local/cuda-{cuda}/compat", cuda.replace(".", "-")
    names = "\n".join(f"{folder}/{name}" for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{version}"))
    machine.file(f"/var/lib/dpkg/info/cuda-compat-{dashed}.list", f"/.\n{folder}\n{names}\n", source=source)
    return folder


def h200_compat_stale() -> Reconstruction:
    """The image nvidia/cuda:13.0.2 on driver 580.159.04 with its compat folder first in LD_LIBRARY_PATH: 803."""
    source = "measured on an NVIDIA H200 with driver 580.159.04 and the image nvidia/cuda:13.0.2"
    machine = gpu_box(
        "h200-compat-stale",
        "H200 with driver 580.159.04 and the older compat 580.95.05 first in LD_LIBRARY_PATH: cuInit gives 803",
        driver="580.159.04",
        gpu=H200,
        cuda="13.0",
        source=source,
    )
    folder = compat_package(machine, "13.0", "580.95.05", source=source)
    machine.link("/usr/local/cuda", "/usr/local/cuda-13.0", source=source)
    machine.env(LD_LIBRARY_PATH="/usr/local/cuda/compat:/usr/local/nvidia/lib64")
    name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    parts.cuda_fails(machine, f"{folder}/libcuda.so.580.95.05", cuda="13.0", code=803, name=name, text=_803)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.11.0+cu130", "13.0", CU130, recorded="2.11.0"), source=source)
    machine.file("/.dockerenv", "", source=source)
    return parts.loader_cache(machine)


def h100_driver_595_compat_580() -> Reconstruction:
    """A 580 compat library that ldconfig was told of, on a host with driver 595: 803."""
    thread = "NVIDIA-NeMo/labs-molt#44 (forcing compat 580.173.02 on a 595 host gives error 803)"
    machine = gpu_box(
        "h100-driver-595-compat-580",
        "host driver 595 with compat 580.173.02 in ld.so.conf.d: cuInit gives 803",
        driver="595.58.03",
        gpu=H100,
        cuda="13.0",
        source=f"{thread}; the build 595.58.03 and the H100 are supposed",
    )
    folder = compat_package(machine, "13.0", "580.173.02", source=thread)
    machine.file("/etc/ld.so.conf.d/cuda-compat.conf", f"{folder}\n", source=thread)
    name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    parts.cuda_fails(machine, f"{folder}/libcuda.so.580.173.02", cuda="13.0", code=803, name=name, text=_803)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.11.0+cu130", "13.0", CU130, recorded="2.11.0"), source=SUPPOSED)
    machine.file("/.dockerenv", "", source=thread)
    parts.loader_cache(machine)
    return _first_in_cache(machine, f"{folder}/libcuda.so.1")


def rtx4090_compat_image() -> Reconstruction:
    """A CUDA 12.1 image on a GeForce with driver 525: the container runtime put the image's compat library in: 804."""
    thread = "oobabooga/textgen#4407 (Error 804 with an image of CUDA 12.1)"
    smi = "Atinoda/text-generation-webui-docker#37 (525.125.06, GeForce with 24564 MiB and 450 W)"
    machine = gpu_box(
        "rtx4090-compat-image",
        "GeForce RTX 4090 with driver 525.125.06 in a CUDA 12.1 image whose compat library was mounted: 804",
        driver="525.125.06",
        gpu=RTX_4090,
        cuda="12.0",
        source=smi,
    )
    compat_package(machine, "12.1", "530.30.02", source=f"{thread}; 530.30.02 is the build of CUDA 12.1")
    spec = ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",))
    mounted = f"{thread}; how it gets there: nvidia-container-cli mounts compat libraries over the host's"
    machine.elf(f"{_LIBCUDA}.530.30.02", spec, source=mounted)
    machine.link(f"{_LIBCUDA}.1", "libcuda.so.530.30.02", source=mounted)
    name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"
    parts.cuda_fails(machine, f"{_LIBCUDA}.530.30.02", cuda="12.1", code=804, name=name, text=_804)
    site = wheels.python(machine, "/venv", version="3.10", source=SUPPOSED)
    archs = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    wheels.torch(machine, site, TorchWheel("2.1.0+cu121", "12.1", archs, recorded="2.1.0"), source=thread)
    machine.file("/.dockerenv", "", source=thread)
    return parts.loader_cache(machine)


def l40s_driver_570_compat_12_9() -> Reconstruction:
    """An NGC image with compat 12.9 on driver 570: its entry point left compat out, and CUDA 12 works without."""
    thread = "NVIDIA-NeMo/Megatron-Bridge#1553 (L40S, kernel driver 570.195.03, CUDA 12.9 driver 575.57.08)"
    machine = gpu_box(
        "l40s-driver-570-compat-12-9",
        "L40S pod with driver 570.195.03 and an NGC image of CUDA 12.9 that reports compat as unavailable: works",
        driver="570.195.03",
        gpu=L40S,
        cuda="12.8",
        source=thread,
    )
    compat_package(machine, "12.9", "575.57.08", source=thread)
    real = "/usr/local/cuda-12.9/compat"
    for name in ("libcuda.so.575.57.08", "libcuda.so.1", "libcuda.so"):  # NGC's layout; `lib` is linked at start
        moved = f"{real}/lib.real/{name}"
        if content := machine.files.pop(f"{real}/{name}", b""):
            machine.file(moved, content, source=thread)
        elif target := machine.links.pop(f"{real}/{name}", ""):
            machine.link(moved, target, source=thread)
    machine.link("/usr/local/cuda", "/usr/local/cuda-12.9", source=SUPPOSED)
    machine.env(
        LD_LIBRARY_PATH="/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        RUNPOD_POD_ID="pod-a",
    )
    folder = wheels.system_python(machine, source=SUPPOSED)
    wheel = TorchWheel("2.8.0a0+5228986c39.nv25.06", "12.9", CU128)
    wheels.torch(machine, folder, wheel, source=f"{thread}; the torch of nemo:25.09 is supposed")
    machine.file("/.dockerenv", "", source=thread)
    return parts.loader_cache(machine)


def h100_driver_570_compat() -> Reconstruction:
    """Field report 000 after its repair: cuda-compat-13-0 by LD_LIBRARY_PATH in .bashrc. It works, for now."""
    machine = h100_driver_570()
    machine.name = "h100-driver-570-compat"
    machine.about = "H100 pod with driver 570.133.20 and compat 13.0 exported in .bashrc: works today"
    folder = compat_package(machine, "13.0", "580.95.05", source="field report 000, lines 47 to 55")
    # Lines 95 to 97 prepend three times: compat ends up last of the three.
    machine.env(
        LD_LIBRARY_PATH="/usr/local/cuda-13.0/lib64:"
        "/usr/local/lib/python3.12/dist-packages/nvidia/cuda_runtime/lib:/usr/local/cuda-13.0/compat"
    )
    parts.cuda_answers(machine, f"{folder}/libcuda.so.580.95.05", cuda="13.0", specs=(H100,))
    return parts.loader_cache(machine)


def h100_driver_570_compat_unused() -> Reconstruction:
    """Field report 000 between its steps: the package is installed, LD_LIBRARY_PATH is not set yet."""
    machine = h100_driver_570()
    machine.name = "h100-driver-570-compat-unused"
    machine.about = "H100 pod with driver 570.133.20 and cuda-compat-13-0 installed but not loaded"
    compat_package(machine, "13.0", "580.95.05", source="field report 000, lines 47 to 55")
    # Line 200: with that folder in LD_LIBRARY_PATH torch sees the GPU, so cuInit returns 0 there.
    machine.child("libcuda with compat 1", {"version_code": 0, "version": 13000, "init_code": 0})
    return parts.loader_cache(machine)


def h100_driver_560_compat_13_1() -> Reconstruction:
    """A CUDA 13.1 image on driver 560: the compat library's own list lacks that branch, so the hook leaves it out."""
    thread = "NVIDIA-NeMo/Megatron-Bridge#4409 (driver 560.28.03, torch.version.cuda 13.1, found version 12060)"
    machine = gpu_box(
        "h100-driver-560-compat-13-1",
        "driver 560.28.03 in a CUDA 13.1 image: its compat library does not take branch 560",
        driver="560.28.03",
        gpu=H100,
        cuda="12.6",
        source=f"{thread}; the H100 is supposed",
    )
    note = "the build and its list: nvidia-container-toolkit v1.20.0, testdata/compat/590.44.01"
    compat_package(machine, "13.1", "590.44.01", source=f"{thread}; {note}")
    folder = wheels.system_python(machine, source=f"{thread} (Python 3.12.3)")
    wheel = TorchWheel("2.10.0a0+b558c986e8.nv25.11", "13.1", CU130)
    wheels.torch(machine, folder, wheel, source=f"{thread}; the version string is supposed")
    machine.file("/.dockerenv", "", source=thread)
    return parts.loader_cache(machine)


def h100_stub_libcuda() -> Reconstruction:
    """The toolkit's stub folder in LD_LIBRARY_PATH with a libcuda.so.1 in it, as builds in containers leave behind."""
    thread = "NVIDIA/warp#219 (CUDA_ERROR_STUB_LIBRARY: the stub folder is searched before the driver)"
    machine = gpu_box(
        "h100-stub-libcuda",
        "H100 with driver 580.95.05 and lib64/stubs first in LD_LIBRARY_PATH: cuInit gives 34",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source=SUPPOSED,
    )
    parts.toolkit(machine, "13.0.88", source=SUPPOSED)
    stubs = "/usr/local/cuda-13.0/lib64/stubs"
    machine.elf(f"{stubs}/libcuda.so", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=thread)
    machine.link(f"{stubs}/libcuda.so.1", "libcuda.so", source="supposed: the link that lets a build find -lcuda")
    machine.env(LD_LIBRARY_PATH=f"{stubs}:/usr/local/cuda-13.0/lib64")
    name, text = "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"
    parts.cuda_fails(machine, f"{stubs}/libcuda.so", cuda="13.0", code=34, name=name, text=text)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130), source=SUPPOSED)
    return parts.loader_cache(machine)


def gke_libcuda_out_of_reach() -> Reconstruction:
    """GKE mounts the driver at /usr/local/nvidia/lib64, and the image has that folder neither in a path nor cached."""
    thread = "keras-team/kinetic#269 (gpu-l4, /usr/local/nvidia/lib64/libcuda.so.1 is readable, is_available() False)"
    machine = Reconstruction(
        "gke-libcuda-out-of-reach", "L4 in a GKE pod: libcuda.so.1 is mounted where the loader does not look"
    )
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    parts.driver(machine, "580.95.05", source=f"{thread}; the version is supposed")
    for name in ("libcuda.so", "libnvidia-ml.so"):
        for end in ("580.95.05", "1"):
            machine.without(f"/usr/lib/x86_64-linux-gnu/{name}.{end}")
        spec = ElfSpec(soname=f"{name}.1", needed=("libc.so.6",))
        machine.elf(f"/usr/local/nvidia/lib64/{name}.580.95.05", spec, source=thread)
        machine.link(f"/usr/local/nvidia/lib64/{name}.1", f"{name}.580.95.05", source=thread)
    for place, text in (("vendor", "0x10de\n"), ("device", f"{L4.pci_device}\n"), ("class", "0x030200\n")):
        machine.file(f"/sys/bus/pci/devices/0000:00:04.0/{place}", text, source=f"{thread} (nvidia.com/gpu: 1)")
    site = wheels.python(machine, "/app/.venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.11.0+cu130", "13.0", CU130, recorded="2.11.0"), source=SUPPOSED)
    machine.env(KUBERNETES_SERVICE_HOST="set")
    return parts.loader_cache(machine)


def container_empty_libcuda() -> Reconstruction:
    """An image that was built with the NVIDIA runtime keeps empty files; the loader stops at the empty libcuda."""
    thread = "NVIDIA/enroot#155 (libcuda.so.515.43.04 has no bytes), NVIDIA/libnvidia-container#140"
    machine = gpu_box(
        "container-empty-libcuda",
        "container with an empty libcuda.so.515.43.04 left in the image: file too short",
        driver="515.43.04",
        gpu=A100,
        cuda="11.7",
        source=f"{thread}; the A100 is supposed",
    )
    machine.file(f"{_LIBCUDA}.515.43.04", b"\x7fELF", source=f"{thread}; four bytes here, since a recording keeps none")
    machine.children.pop("libcuda")
    folder = wheels.system_python(machine, version="3.8", source=SUPPOSED)
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
    wheels.torch(machine, folder, TorchWheel("2.0.0+cu117", "11.7", archs, recorded="2.0.0"), source=SUPPOSED)
    machine.host = replace(HOST, python_version="3.8.10")
    machine.file("/.dockerenv", "", source=thread)
    return parts.loader_cache(machine)


def _first_in_cache(machine: Reconstruction, library: str) -> Reconstruction:
    """The cache with one library before the driver's own, as ldconfig has a folder of ld.so.conf.d before /usr/lib."""
    own = [path for path in machine.links if path.startswith(f"{_LIBCUDA}.")]
    kept = {path: machine.links.pop(path) for path in own}
    parts.loader_cache(machine, library, *own)
    machine.links.update(kept)
    return machine


MACHINES = (
    h200_compat_stale,
    h100_driver_595_compat_580,
    rtx4090_compat_image,
    l40s_driver_570_compat_12_9,
    h100_driver_570_compat,
    h100_driver_570_compat_unused,
    h100_driver_560_compat_13_1,
    h100_stub_libcuda,
    gke_libcuda_out_of_reach,
    container_empty_libcuda,
)
