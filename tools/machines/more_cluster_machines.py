"""More machines inside pods, Apptainer images and enroot containers."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

A10G = GpuSpec("NVIDIA A10G", "8.6", 14, 22.0, "0x2237")
RTX_3070 = GpuSpec("NVIDIA GeForce RTX 3070", "8.6", 5, 7.99, "0x2484")
V100_16 = GpuSpec("Tesla V100-SXM2-16GB", "7.0", 2, 15.8, "0x1db1")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")
A100_40 = GpuSpec("NVIDIA A100-PCIE-40GB", "8.0", 14, 39.4, "0x20f1")
_LIBS = "/.singularity.d/libs"
_UUID = "GPU-00000000-0000-0000-0000-000000000000"


def k8s_no_runtime_class() -> Reconstruction:
    """A pod that was given a GPU by name and started by a runtime that knows nothing of GPUs."""
    machine = _microk8s("k8s-no-runtime-class", "Pod with a GPU limit and without runtimeClassName: nvidia")
    thread = ("canonical/microk8s#4408 (works with runtimeClassName: nvidia in the pod), k3s-io/k3s#4391 (nvidia is "
              "not the default runtime), NVIDIA/k8s-device-plugin#1304 (show a RuntimeClass for that)")  # fmt: skip
    inside.bus(machine, RTX_3070)
    inside.no_nvml(machine, source=thread)
    marks.kubernetes(machine, source=thread, NVIDIA_VISIBLE_DEVICES=_UUID)
    return inside.cache(machine)


def k8s_no_runtime_class_near_miss() -> Reconstruction:
    """The same pod with the runtime class."""
    machine = _microk8s("k8s-no-runtime-class-near-miss", "Pod with a GPU limit and runtimeClassName: nvidia: works")
    inside.given(machine, "525.147.05", RTX_3070, source="NVIDIA/k8s-device-plugin#479 (525.147.05, 8192 MiB)",
                 kind="proprietary", ecc_mode=0)  # fmt: skip
    marks.kubernetes(machine, *bound(machine), source=SUPPOSED, NVIDIA_VISIBLE_DEVICES=_UUID)
    return inside.cache(machine)


def _microk8s(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="6.5.0-26-generic")
    inside.module(machine, "525.147.05", source="NVIDIA/k8s-device-plugin#479 (525.147.05)", kind="proprietary")
    return inside.torch(machine, "2.1.2+cu121", python="3.11")


def k8s_bottlerocket() -> Reconstruction:
    """A pod on a Bottlerocket node with its GPU: works."""
    machine = _bottlerocket("k8s-bottlerocket", "Fedora pod with an A10G on a Bottlerocket node: works")
    thread = "bottlerocket-os/bottlerocket#3849 (aws-k8s-1.29-nvidia v1.19.0 works; A10G, GPU Firmware 535.161.07)"
    inside.given(machine, "535.161.07", A10G, source=thread)
    marks.kubernetes(machine, *bound(machine), source=thread, NVIDIA_VISIBLE_DEVICES=_UUID)
    return inside.cache(machine)


def k8s_bottlerocket_near_miss() -> Reconstruction:
    """The same image on v1.19.1 without a limit: /proc names the GPU, and nothing else of it is there."""
    machine = _bottlerocket("k8s-bottlerocket-near-miss", "Fedora pod without a limit on a Bottlerocket node")
    thread = "bottlerocket-os/bottlerocket#3849 (v1.19.1: no nvidia-smi; /proc/driver/nvidia/gpus names the A10G)"
    inside.bus(machine, A10G)
    inside.no_nvml(machine, source=thread)
    marks.kubernetes(machine, source=thread, NVIDIA_VISIBLE_DEVICES="all")
    return inside.cache(machine)


def _bottlerocket(name: str, about: str) -> Reconstruction:
    thread = "bottlerocket-os/bottlerocket#3849 (Model: NVIDIA A10G, 0000:00:1e.0; here at another address)"
    machine = inside.start(name, about, "fedora-43", source=SUPPOSED, kernel="6.1.77")
    inside.module(machine, "535.161.07", source=thread)
    machine.file("/proc/driver/nvidia/gpus/0000:18:00.0/information",
                 "Model: \t\tNVIDIA A10G\nIRQ:   \t\t10\nBus Type: \tPCIe\nBus Location: \t0000:18:00.0\n"
                 "Device Minor: \t0\nGPU Firmware: \t535.161.07\nGPU Excluded:\tNo\n", source=thread)  # fmt: skip
    return inside.torch(machine, "2.4.1+cu121", python="3.12")


def apptainer_gl_glibc() -> Reconstruction:
    """--nv also binds the host distribution's GL libraries; those want a newer glibc, NVIDIA's own do not."""
    return _vtk("apptainer-gl-glibc", "ubuntu-20.04")


def apptainer_gl_glibc_near_miss() -> Reconstruction:
    """The same host with an image whose glibc is as new as the host's."""
    return _vtk("apptainer-gl-glibc-near-miss", "ubuntu-22.04")


def _vtk(name: str, image: str) -> Reconstruction:
    thread = ("apptainer/apptainer#2421 (GLIBC_2.34 not found, required by /.singularity.d/libs/libGLdispatch.so.0; "
              "host Ubuntu 22.04 with glibc 2.35, Apptainer 1.3.2)")  # fmt: skip
    machine = inside.start(name, f"{image} image under Apptainer --nv on an Ubuntu 22.04 host", image,
                           source=f"{thread}; the image's release is supposed", kernel="5.15.0-117-generic",
                           user="user-a")  # fmt: skip
    inside.given(machine, "550.90.07", RTX_3090, source=SUPPOSED, folder=_LIBS, ecc_mode=0)
    for library in ("libGLdispatch.so.0", "libGLX.so.0"):
        needs = (("libc.so.6", ("GLIBC_2.2.5", "GLIBC_2.34")),)
        machine.elf(f"{_LIBS}/{library}", ElfSpec(soname=library, needed=("libc.so.6",), needs=needs), source=thread)
    handed_in = (f"/dev/nvme0n1p2 {_LIBS}/{file} ext4 ro,nosuid,nodev,relatime"
                 for file in ("libcuda.so.1", "libnvidia-ml.so.1", "libGLdispatch.so.0", "libGLX.so.0"))  # fmt: skip
    marks.apptainer(machine, *handed_in, image="/home/user-a/container.sif", source=thread, LD_LIBRARY_PATH=_LIBS)
    inside.torch(machine, "2.4.1+cu121", python="3.8" if image == "ubuntu-20.04" else "3.10")
    return inside.cache(machine)


def apptainer_v100() -> Reconstruction:
    """A pulled pytorch image with --nv on AWS: works."""
    machine = _pytorch_image("apptainer-v100", "pytorch/pytorch image under Singularity --nv on a p3.2xlarge: works")
    thread = "sylabs/singularity#1961 (AWS p3.2xlarge, --nv: Tesla V100-SXM2, 525.85.12)"
    inside.given(machine, "525.85.12", V100_16, source=thread, kind="proprietary", folder=_LIBS)
    handed_in = (f"/dev/xvda1 {_LIBS}/lib{name}.so.1 ext4 ro,nosuid,nodev,relatime" for name in ("cuda", "nvidia-ml"))
    marks.apptainer(machine, *handed_in, image="/home/user-a/pytorch.oci.sif", old=1, source=thread,
                    LD_LIBRARY_PATH=_LIBS)  # fmt: skip
    return inside.cache(machine)


def apptainer_v100_near_miss() -> Reconstruction:
    """The same with a mask in the variable that Singularity passes on."""
    machine = _pytorch_image("apptainer-v100-near-miss", "The same with CUDA_VISIBLE_DEVICES=2 and one GPU")
    inside.given(machine, "525.85.12", V100_16, source=SUPPOSED, kind="proprietary", folder=_LIBS)
    inside.cuda_says(machine, "525.85.12", 100, folder=_LIBS)
    handed_in = (f"/dev/xvda1 {_LIBS}/lib{name}.so.1 ext4 ro,nosuid,nodev,relatime" for name in ("cuda", "nvidia-ml"))
    marks.apptainer(machine, *handed_in, image="/home/user-a/pytorch.oci.sif", old=1, LD_LIBRARY_PATH=_LIBS,
                    CUDA_VISIBLE_DEVICES="2",
                    source="apptainer/apptainer#2203 (APPTAINERENV_CUDA_VISIBLE_DEVICES=2)")  # fmt: skip
    return inside.cache(machine)


def _pytorch_image(name: str, about: str) -> Reconstruction:
    thread = "sylabs/singularity#1961 (pytorch/pytorch:latest, NVIDIA GPU Optimized AMI, Ubuntu 20.04)"
    machine = inside.start(name, about, "ubuntu-20.04", source=thread, kernel="5.15.0-1031-aws", user="user-a")
    machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", source=thread)
    return inside.conda(machine, "/opt/conda", "2.0.1+cu117", python="3.10", source=SUPPOSED)


def enroot_tools_alone() -> Reconstruction:
    """A slim image with NVIDIA_VISIBLE_DEVICES alone: enroot's hook then hands in the tools and no libcuda."""
    return _bookworm("enroot-tools-alone", "")


def enroot_tools_alone_near_miss() -> Reconstruction:
    """The same with NVIDIA_DRIVER_CAPABILITIES=compute,utility."""
    return _bookworm("enroot-tools-alone-near-miss", "compute,utility")


def _bookworm(name: str, wanted: str) -> Reconstruction:
    thread = ("NVIDIA/enroot#258 (enroot start --env NVIDIA_VISIBLE_DEVICES=all debian+bookworm-slim), "
              "conf/hooks/98-nvidia.sh of enroot (capabilities are 'utility' where none are named)")  # fmt: skip
    machine = inside.start(name, f"Debian 12 image under enroot, NVIDIA_DRIVER_CAPABILITIES '{wanted}'", "debian-12",
                           source=thread, kernel="5.15.0-119-generic", user="user-a")  # fmt: skip
    inside.module(machine, "570.172.08", source=SUPPOSED)
    inside.nodes(machine, 1, source=SUPPOSED)
    names = ("cuda", "nvidia-ml") if wanted else ("nvidia-ml",)
    inside.libraries(machine, "570.172.08", source=thread, names=names)
    inside.nvml_lists(machine, "570.172.08", A100_40, source=SUPPOSED)
    if wanted:
        inside.cuda_starts(machine, "570.172.08", A100_40)
    variables = {"NVIDIA_VISIBLE_DEVICES": "all", **({"NVIDIA_DRIVER_CAPABILITIES": wanted} if wanted else {})}
    marks.enroot(machine, *bound(machine), source=thread, **variables)
    inside.torch(machine, "2.8.0+cu128", python="3.11")
    return inside.cache(machine)


def enroot_four_h100() -> Reconstruction:
    """NVIDIA's own image under pyxis with four GPUs: works."""
    machine = _slinky("enroot-four-h100", "nvidia/pytorch:25.04 under pyxis with four H100: works")
    inside.cuda_starts(machine, "570.133.20", *[H100] * 4)
    return inside.cache(machine)


def enroot_four_h100_near_miss() -> Reconstruction:
    """The same job, but one of its four GPUs answers that it is lost."""
    machine = _slinky("enroot-four-h100-near-miss", "nvidia/pytorch:25.04 under pyxis, one of four H100 lost")
    devices = [*machine.children["nvml"].answer["devices"]]  # type: ignore[misc]
    devices[3] = {"index": 3, "error": "GPU is lost", "code": 15}
    machine.child("nvml", {**machine.children["nvml"].answer, "devices": devices})
    inside.cuda_says(machine, "570.133.20", 999)
    return inside.cache(machine)


def _slinky(name: str, about: str) -> Reconstruction:
    thread = "SlinkyProject/containers#2 (nvidia+pytorch+25.04-py3.sqsh, --gres=gpu:4, pyxis and enroot)"
    machine = inside.start(name, about, "ubuntu-24.04", source=thread, kernel="6.8.0-1029-nvidia", user="user-a")
    inside.given(machine, "570.133.20", *[H100] * 4, source=f"{thread}; GPU and driver supposed")
    marks.enroot(machine, *bound(machine), source=thread, CUDA_VISIBLE_DEVICES="0,1,2,3", NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility,video", NVIDIA_PRODUCT_NAME="PyTorch",
                 NVIDIA_PYTORCH_VERSION="25.04")  # fmt: skip
    return inside.torch(machine, "2.8.0+cu128", python="3.12")


MACHINES = (
    k8s_no_runtime_class,
    k8s_bottlerocket,
    apptainer_gl_glibc,
    apptainer_v100,
    enroot_tools_alone,
    enroot_four_h100,
)
NEAR_MISSES = (
    k8s_no_runtime_class_near_miss,
    k8s_bottlerocket_near_miss,
    apptainer_gl_glibc_near_miss,
    apptainer_v100_near_miss,
    enroot_tools_alone_near_miss,
    enroot_four_h100_near_miss,
)
