"""Machines inside pods, Apptainer images and enroot containers, as clusters run them."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.driver_parts import A100_PCIE
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

A10G = GpuSpec("NVIDIA A10G", "8.6", 14, 22.0, "0x2237")
V100_SXM = GpuSpec("Tesla V100-SXM2-32GB", "7.0", 2, 31.7, "0x1db5")
A100_SXM = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.6, "0x20b0")
A40 = GpuSpec("NVIDIA A40", "8.6", 14, 44.4, "0x2235")
SLICE = GpuSpec("NVIDIA A100 80GB PCIe MIG 1g.10gb", "8.0", 14, 9.5, "0x20b5")
_LIBS = "/.singularity.d/libs"


def k8s_no_limit() -> Reconstruction:
    """A pod on a GPU node that asks for no GPU; its image says NVIDIA_VISIBLE_DEVICES=all all the same."""
    machine = _ubi_pod("k8s-no-limit", "Pod of nvidia/cuda:12.3.1-devel-ubi8 on a GPU node without a GPU limit")
    thread = "vllm-project/vllm#3019 (nvidia/cuda:12.3.1-devel-ubi8, pod on the GPU node, No CUDA GPUs are available)"
    inside.bus(machine, A10G)
    inside.no_nvml(machine, source=thread)
    marks.kubernetes(machine, source=thread, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility",
                     NVIDIA_REQUIRE_CUDA="cuda>=12.3 brand=tesla,driver>=535,driver<536")  # fmt: skip
    return inside.cache(machine)


def k8s_no_limit_near_miss() -> Reconstruction:
    """The same pod with the limit nvidia.com/gpu: 1."""
    machine = _ubi_pod("k8s-no-limit-near-miss", "Pod of nvidia/cuda:12.3.1-devel-ubi8 with a GPU limit")
    inside.given(machine, "545.23.08", A10G, source=SUPPOSED)
    marks.kubernetes(machine, *bound(machine), source=SUPPOSED,
                     NVIDIA_VISIBLE_DEVICES="GPU-00000000-0000-0000-0000-000000000000",
                     NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    return inside.cache(machine)


def _ubi_pod(name: str, about: str) -> Reconstruction:
    thread = "vllm-project/vllm#3019 (nvidia/cuda:12.3.1-devel-ubi8)"
    machine = inside.start(name, about, "ubi-8", source=thread, kernel="5.15.0-1057-aws")
    inside.module(machine, "545.23.08", source="supposed: the driver of CUDA 12.3")
    return inside.torch(machine, "2.1.2+cu121", python="3.11")


def k8s_mig_whole_gpu() -> Reconstruction:
    """A pod that asked for a whole GPU and got an A100 whose MIG mode is on, without a slice of it."""
    machine = _mig_pod("k8s-mig-whole-gpu", "Pod with nvidia.com/gpu: 1 on a node whose A100 is cut into MIG slices")
    thread = "NVIDIA/gpu-operator#637 (nvidia.com/gpu and mig-1g.10gb both allocatable; the former gives no GPU)"
    inside.nvml_lists(machine, "535.104.12", A100_PCIE, source=thread, mig_mode=1, mig_pending=1, mig_devices=[])
    machine.command("nvidia-smi -L", "GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000000-0000-0000-0000-000000000000)\n")
    inside.cuda_says(machine, "535.104.12", 100)
    marks.kubernetes(machine, *bound(machine), source=thread,
                     NVIDIA_VISIBLE_DEVICES="GPU-00000000-0000-0000-0000-000000000000")  # fmt: skip
    return inside.cache(machine)


def k8s_mig_whole_gpu_near_miss() -> Reconstruction:
    """The same pod with the limit nvidia.com/mig-1g.10gb: 1."""
    machine = _mig_pod("k8s-mig-whole-gpu-near-miss", "Pod with nvidia.com/mig-1g.10gb: 1 on the same node: works")
    uuid = "MIG-00000000-0000-0000-0000-000000000000"
    slices = [{"name": SLICE.name, "uuid": uuid, "memory_bytes": int(9.5 * 2**30)}]
    inside.nvml_lists(machine, "535.104.12", A100_PCIE, source=SUPPOSED, mig_mode=1, mig_pending=1, mig_devices=slices)
    machine.command("nvidia-smi -L", "GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
                    f"  MIG 1g.10gb     Device  0: (UUID: {uuid})\n")  # fmt: skip
    for number in (66, 67):
        machine.file(f"/dev/nvidia-caps/nvidia-cap{number}", "", source=SUPPOSED)
    inside.cuda_starts(machine, "535.104.12", SLICE)
    marks.kubernetes(machine, *bound(machine), source=SUPPOSED, NVIDIA_VISIBLE_DEVICES=uuid)
    return inside.cache(machine)


def _mig_pod(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/gpu-operator#637 (Ubuntu 22.04, 6.2.0-37-generic, containerd 1.7.7, RKE2 1.27.8, A100, 1g.10gb)"
    machine = inside.start(name, about, "ubuntu-22.04", source=thread, kernel="6.2.0-37-generic")
    inside.module(machine, "535.104.12", source="supposed: the driver of GPU Operator 23.9.1")
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.libraries(machine, "535.104.12", source=SUPPOSED)
    return inside.torch(machine, "2.4.1+cu121", python="3.10")


def k8s_no_plugin() -> Reconstruction:
    """A pod on an EKS node whose GPU Kubernetes does not know of."""
    machine = _eks_pod("k8s-no-plugin", "Amazon Linux pod on a g5 node that offers no nvidia.com/gpu")
    thread = "NVIDIA/k8s-device-plugin#344 (EKS 1.23, g5.2xlarge, allocatable nvidia.com/gpu: none)"
    inside.bus(machine, A10G)
    inside.no_nvml(machine, source=thread)
    marks.kubernetes(machine, source=thread)
    return inside.cache(machine)


def k8s_no_plugin_near_miss() -> Reconstruction:
    """A pod on a node without any GPU: there is nothing to hand in."""
    machine = _eks_pod("k8s-no-plugin-near-miss", "Amazon Linux pod on a node without a GPU")
    machine.without("/proc/driver/nvidia", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
    machine.without("/proc/modules", "/proc/devices")
    inside.no_nvml(machine)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    marks.kubernetes(machine, source=SUPPOSED)
    return inside.cache(machine)


def _eks_pod(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/k8s-device-plugin#344 (G5.2xlarge, us-west-2.compute.internal)"
    machine = inside.start(name, about, "amazon-2023", source=SUPPOSED, kernel="5.15.0-1022-aws")
    inside.module(machine, "525.85.12", source=SUPPOSED)
    machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", source=thread)
    return inside.torch(machine, "2.1.2+cu121", python="3.11")


def apptainer_no_nv() -> Reconstruction:
    """An image run without --nv: the host's nodes are there, as its whole /dev is, but not its libraries."""
    machine = _cellbender("apptainer-no-nv", "CellBender image under Singularity on a GPU node, run without --nv")
    inside.no_nvml(machine)
    marks.apptainer(machine, image="/risapps/singularity/repo/cellbender/0.3.0/cellbender.sif", old=1,
                    source="broadinstitute/CellBender#280 (singularity run cellbender.sif, no --nv)")  # fmt: skip
    return inside.cache(machine)


def apptainer_no_nv_near_miss() -> Reconstruction:
    """The same image run with --nv."""
    machine = _cellbender("apptainer-no-nv-near-miss", "CellBender image under Singularity, run with --nv: works")
    inside.libraries(machine, "515.65.01", source=SUPPOSED, folder=_LIBS)
    inside.nvml_lists(machine, "515.65.01", V100_SXM, source=SUPPOSED, folder=_LIBS)
    inside.cuda_starts(machine, "515.65.01", V100_SXM, folder=_LIBS)
    handed_in = (f"/dev/sda2 {_LIBS}/lib{name}.so.1 xfs ro,nosuid,nodev,relatime" for name in ("cuda", "nvidia-ml"))
    marks.apptainer(machine, *handed_in, image="/risapps/singularity/repo/cellbender/0.3.0/cellbender.sif", old=1,
                    source=SUPPOSED, LD_LIBRARY_PATH=_LIBS)  # fmt: skip
    return inside.cache(machine)


def _cellbender(name: str, about: str) -> Reconstruction:
    thread = "broadinstitute/CellBender#280 (/opt/conda/lib/python3.7, torch.cuda.is_available() is False)"
    machine = inside.start(name, about, "ubuntu-18.04", source=SUPPOSED, kernel="3.10.0-1160.el7.x86_64", user="user-a")
    inside.module(machine, "515.65.01", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, V100_SXM)
    inside.nodes(machine, 1, source="Apptainer's user guide: /dev of the host is mounted unless --contain is given")
    return inside.conda(machine, "/opt/conda", "1.13.1+cu117", python="3.7", source=thread)


def apptainer_cleared_path() -> Reconstruction:
    """--nv was given, but a shell inside threw LD_LIBRARY_PATH away."""
    machine = _eessi("apptainer-cleared-path", "EESSI prefix shell inside Apptainer --nv, without LD_LIBRARY_PATH")
    thread = "EESSI/software-layer#231 (libraries in /.singularity.d/libs; the prefix shell clears the environment)"
    inside.no_nvml(machine, source=thread)
    marks.apptainer(machine, *_eessi_mounts(), image="/scratch/eessi.sif", source=thread)
    return inside.cache(machine)


def apptainer_cleared_path_near_miss() -> Reconstruction:
    """The same with Apptainer's own LD_LIBRARY_PATH."""
    machine = _eessi("apptainer-cleared-path-near-miss", "The same container with LD_LIBRARY_PATH=/.singularity.d/libs")
    inside.nvml_lists(machine, "525.60.13", A40, source=SUPPOSED, folder=_LIBS)
    inside.cuda_starts(machine, "525.60.13", A40, folder=_LIBS)
    marks.apptainer(machine, *_eessi_mounts(), image="/scratch/eessi.sif", source=SUPPOSED, LD_LIBRARY_PATH=_LIBS)
    return inside.cache(machine)


def _eessi_mounts() -> tuple[str, ...]:
    return tuple(f"/dev/sda2 {_LIBS}/lib{name}.so.1 xfs ro,nosuid,nodev,relatime" for name in ("cuda", "nvidia-ml"))


def _eessi(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "debian-11", source=SUPPOSED, kernel="4.18.0-425.el8.x86_64", user="user-a")
    inside.module(machine, "525.60.13", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, A40)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.libraries(machine, "525.60.13", folder=_LIBS, source="EESSI/software-layer#231 (/.singularity.d/libs)")
    return inside.torch(machine, "2.1.2+cu121", python="3.10", prefix="/home/user-a/venv")


def enroot_not_asked() -> Reconstruction:
    """A plain image under pyxis: enroot's hook hands nothing in without NVIDIA_VISIBLE_DEVICES."""
    machine = _pyxis("enroot-not-asked", "Ubuntu image under pyxis without NVIDIA_VISIBLE_DEVICES", "ubuntu-22.04")
    thread = "NVIDIA/enroot#205 (srun --gpus=2 --container-image: Found no NVIDIA driver; set NVIDIA_VISIBLE_DEVICES)"
    inside.no_nvml(machine, source=thread)
    marks.enroot(machine, source=thread, CUDA_VISIBLE_DEVICES="0,1", SLURM_GPUS="2", SLURM_JOB_GPUS="0,1")
    inside.torch(machine, "2.4.1+cu121", python="3.10", source=thread)
    return inside.cache(machine)


def enroot_not_asked_near_miss() -> Reconstruction:
    """The same with NVIDIA_VISIBLE_DEVICES=all."""
    machine = _pyxis("enroot-not-asked-near-miss", "The same with NVIDIA_VISIBLE_DEVICES=all: works", "ubuntu-22.04")
    inside.given(machine, "550.90.07", A40, A40, source=SUPPOSED)
    marks.enroot(machine, *bound(machine), source=SUPPOSED, CUDA_VISIBLE_DEVICES="0,1", SLURM_JOB_GPUS="0,1",
                 NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.4.1+cu121", python="3.10")
    return inside.cache(machine)


def _pyxis(name: str, about: str, image: str) -> Reconstruction:
    machine = inside.start(name, about, image, source="NVIDIA/enroot#205 (ubuntu and a python toolchain)",
                           kernel="5.15.0-119-generic", user="user-a")  # fmt: skip
    inside.module(machine, "550.90.07", source=SUPPOSED)
    inside.bus(machine, A40, A40)
    return inside.nodes(machine, 2, source="NVIDIA/enroot#55 (by default enroot exposes all devices)")


def enroot_gpu_numbered_twice() -> Reconstruction:
    """Slurm named GPU 2 of the node, and the container has that one alone, which is number 0 there."""
    machine = _one_of_eight("enroot-gpu-numbered-twice", "2")
    inside.cuda_says(machine, "460.73.01", 100)
    return inside.cache(machine)


def enroot_gpu_numbered_twice_near_miss() -> Reconstruction:
    """The same with CUDA_VISIBLE_DEVICES=0."""
    machine = _one_of_eight("enroot-gpu-numbered-twice-near-miss", "0")
    inside.cuda_starts(machine, "460.73.01", A100_SXM)
    return inside.cache(machine)


def _one_of_eight(name: str, visible: str) -> Reconstruction:
    thread = "NVIDIA/pyxis#47 (A100, CUDA_VISIBLE_DEVICES=2, of /dev/nvidia0 to 7 only nvidia2: no CUDA-capable device)"
    machine = inside.start(name, f"cuda-11.2.2 image under pyxis with /dev/nvidia2 and CUDA_VISIBLE_DEVICES={visible}",
                           "ubuntu-20.04", source=SUPPOSED, kernel="5.4.0-73-generic", user="user-a")  # fmt: skip
    inside.module(machine, "460.73.01", source="supposed: a driver of CUDA 11.2", kind="proprietary")
    inside.bus(machine, *[A100_SXM] * 8)
    for node in ("nvidiactl", "nvidia2", "nvidia-uvm", "nvidia-uvm-tools"):
        machine.file(f"/dev/{node}", "", source=thread)
    inside.libraries(machine, "460.73.01", source=SUPPOSED)
    inside.nvml_lists(machine, "460.73.01", A100_SXM, source=thread, pci_address="00000000:1a:00.0")
    marks.enroot(machine, *bound(machine), source=thread, CUDA_VISIBLE_DEVICES=visible, SLURM_JOB_GPUS="2",
                 NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
    return inside.torch(machine, "1.12.1+cu113", python="3.8", archs=archs)


MACHINES = (
    k8s_no_limit,
    k8s_mig_whole_gpu,
    k8s_no_plugin,
    apptainer_no_nv,
    apptainer_cleared_path,
    enroot_not_asked,
    enroot_gpu_numbered_twice,
)
NEAR_MISSES = (
    k8s_no_limit_near_miss,
    k8s_mig_whole_gpu_near_miss,
    k8s_no_plugin_near_miss,
    apptainer_no_nv_near_miss,
    apptainer_cleared_path_near_miss,
    enroot_not_asked_near_miss,
    enroot_gpu_numbered_twice_near_miss,
)
