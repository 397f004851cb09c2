"""Machines whose place or hardware is the point: containers, gates, masks, slices, WSL, lost and faulty GPUs."""

from __future__ import annotations

from tools.machines import parts
from tools.machines.driver_parts import (
    A10,
    A100_PCIE,
    RTX_3090,
    RTX_4090,
    SM_50_TO_90,
    TORCH_26_CU124,
    TORCH_28_CU128,
    TORCH_211_CU130,
    docker,
    fails,
    init_fails,
    log,
    nvml_fails,
    pci,
    reading,
    red_hat,
    torch_of,
    user,
    works,
)
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

H100_PCIE = GpuSpec("NVIDIA H100 PCIe", "9.0", 14, 79.6, "0x2331")
RTX_5080 = GpuSpec("NVIDIA GeForce RTX 5080", "12.0", 5, 15.5, "0x2c02")
RTX_5060 = GpuSpec("NVIDIA GeForce RTX 5060 Laptop GPU", "12.0", 5, 7.96, "0x2d59")
GTX_1080_TI = GpuSpec("NVIDIA GeForce GTX 1080 Ti", "6.1", 5, 11.0, "0x1b06")
A100_SXM = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.6, "0x20b0")
L4_12Q = GpuSpec("NVIDIA L4-12Q", "8.9", 10, 12.0, "0x27b8")


def docker_no_gpus() -> Reconstruction:
    """A container started without --gpus on a host that has one."""
    machine = Reconstruction("docker-no-gpus", "Docker container started without --gpus on a host with a GPU")
    source = "facebookresearch/detectron2#3107 (works on the CPU in Docker, no driver found on the GPU)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    machine.file("/sys/module/nvidia/version", "570.133.20\n", source=SUPPOSED)
    machine.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n", source=SUPPOSED)
    pci(machine, "0000:18:00.0", "0x2330", driver="nvidia", source=SUPPOSED)
    docker(machine, source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def docker_lost_gpus() -> Reconstruction:
    """A container that worked until systemd on the host reloaded."""
    machine = Reconstruction("docker-lost-gpus", "Container whose GPUs went away with a daemon-reload on the host")
    source = "NVIDIA/nvidia-container-toolkit#1227 (A10, 570.133.20, Ubuntu 22.04, Failed to initialize NVML)"
    parts.ubuntu(machine, "22.04", source=source)
    fails(machine, "570.133.20", A10, A10, code=100, source=source)
    nvml_fails(machine, "570.133.20", code=999, text="Unknown Error", source=source)
    docker(machine, source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def runpod_gate_12_8() -> Reconstruction:
    """An image whose gate says CUDA 12.8 and whose venv needs CUDA 13."""
    machine = Reconstruction(
        "runpod-gate-12-8", "RunPod RTX 4090, driver 570.195.03, image gate cuda>=12.8, torch 2.9.1+cu130 inside"
    )
    source = "artokun/comfyui-mcp#118 (driver 570.195.03, gate 12.8, cu130 torch 2.9.1)"
    parts.ubuntu(machine, "22.04", source="artokun/comfyui-mcp#98 (nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04)")
    works(machine, "570.195.03", RTX_4090, source=source)
    gate = "cuda>=12.8 " + " ".join(
        f"brand={brand},driver>={branch},driver<{branch + 1}"
        for branch in (470, 535, 550, 560, 565)
        for brand in ("unknown", "tesla", "nvidia")
    )
    machine.env(NVIDIA_REQUIRE_CUDA=gate, NVIDIA_VISIBLE_DEVICES="all", RUNPOD_POD_ID="pod-a")
    machine.sources["NVIDIA_REQUIRE_CUDA"] = "the image nvidia/cuda:12.8.1, its variable shortened to three brands"
    docker(machine, source=source)
    torch_of(machine, TorchWheel("2.9.1+cu130", "13.0", CU130), source=source)
    return parts.loader_cache(machine)


def runpod_ssh() -> Reconstruction:
    """A healthy pod, looked at from an SSH shell."""
    machine = Reconstruction("runpod-ssh", "RunPod H100 by SSH: the container's variables do not reach the shell")
    source = "runpod/containers#70 (variables missing in 'True SSH'), axolotl-ai-cloud/axolotl#2043"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "580.95.05", H100, source=SUPPOSED)
    names = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HF_HOME=/workspace/hf",
             "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "RUNPOD_POD_ID=pod-a",
             "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=13.0.2")  # fmt: skip
    machine.file("/proc/1/environ", "\0".join(names) + "\0", source=source)
    docker(machine, source=source)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def devices_masked() -> Reconstruction:
    """A variable from another machine: GPU 2 of two."""
    machine = user(Reconstruction("devices-masked", "Two RTX 4090 and CUDA_VISIBLE_DEVICES=2: CUDA sees none"))
    source = "pytorch/pytorch#1040 (CUDA_VISIBLE_DEVICES=2, no CUDA-capable device is detected)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_4090, RTX_4090, code=100, source=SUPPOSED)
    machine.env(CUDA_VISIBLE_DEVICES="2")
    machine.sources["CUDA_VISIBLE_DEVICES"] = source
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def cuda_sees_none() -> Reconstruction:
    """cuInit works and counts nothing, though NVML has the GPU and nothing masks it."""
    machine = user(Reconstruction("cuda-sees-none", "RTX 4090 that NVML shows and CUDA does not count, without a mask"))
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "570.133.20", RTX_4090, source=SUPPOSED)
    parts.cuda_answers(machine, "/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20", cuda="12.8", specs=())
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def one_of_two_masked() -> Reconstruction:
    """A mask that is meant: the second of two GPUs."""
    machine = user(Reconstruction("one-of-two-masked", "Two RTX 4090 and CUDA_VISIBLE_DEVICES=1: CUDA sees one"))
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "570.133.20", RTX_4090, RTX_4090, source=SUPPOSED)
    parts.cuda_answers(machine, "/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20", cuda="12.8", specs=(RTX_4090,))
    machine.env(CUDA_VISIBLE_DEVICES="1")
    machine.sources["CUDA_VISIBLE_DEVICES"] = SUPPOSED
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def launches_wait() -> Reconstruction:
    """A variable of a search for an error that was never taken out again."""
    machine = user(Reconstruction("launches-wait", "Two H100, and CUDA_LAUNCH_BLOCKING=1 left in the environment"))
    source = "docs.pytorch.org/docs/2.15/cuda_environment_variables.html (every launch waits)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "580.95.05", H100, H100, source=SUPPOSED)
    machine.env(CUDA_LAUNCH_BLOCKING="1")
    machine.sources["CUDA_LAUNCH_BLOCKING"] = source
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def a100_mig_empty() -> Reconstruction:
    """MIG was left on after a repair; no slice was cut."""
    machine = Reconstruction("a100-mig-empty", "A100 with MIG on and no slice: no CUDA device")
    source = "wilicc/gpu-burn#36 (A100 SXM, MIG enabled, No CUDA devices; works after nvidia-smi -mig 0)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "580.95.05", A100_SXM, code=100, source=source, mig_mode=1, mig_pending=1, mig_devices=[])
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def h100_mig_slice() -> Reconstruction:
    """One slice of an H100 in a Kubernetes pod."""
    machine = Reconstruction("h100-mig-slice", "Kubernetes pod with one 1g.10gb slice of an H100: works")
    source = "scaleway/docs-content#2165 (NVIDIA H100 PCIe, MIG 1g.10gb)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    part = {"name": "NVIDIA H100 PCIe MIG 1g.10gb", "uuid": "MIG-00000000-0000-0000-0000-000000000000",
            "memory_bytes": int(9.75 * 2**30)}  # fmt: skip
    works(machine, "580.95.05", H100_PCIE, source=source, mig_mode=1, mig_pending=1, mig_devices=[part])
    sliced = GpuSpec("NVIDIA H100 PCIe MIG 1g.10gb", "9.0", 14, 9.75)
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    parts.cuda_answers(machine, path, cuda="13.0", specs=(sliced,))
    machine.env(KUBERNETES_SERVICE_HOST="set")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def gpu_prohibited() -> Reconstruction:
    """A display GPU that an administrator closed to CUDA."""
    machine = user(Reconstruction("gpu-prohibited", "RTX 4090 in compute mode prohibited: cuInit works, contexts fail"))
    source = "tensorflow/tensorflow#526 (PROHIBITED prevents the creation of contexts)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "570.133.20", RTX_4090, source=source, compute_mode=2)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def gpu_fell_off() -> Reconstruction:
    """One of eight GPUs is gone."""
    machine = Reconstruction("gpu-fell-off", "Server with driver 535.161.07 and a GPU that fell off the bus (Xid 79)")
    source = "akash-network/support#209 (535.161.07, Xid 79, Unable to determine the device handle)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "535.161.07", *[A100_PCIE] * 4, code=999, source=source, kind="proprietary")
    devices = [*machine.children["nvml"].answer["devices"]]  # type: ignore[misc]
    devices[2] = {"index": 2, "error": "GPU is lost", "code": 15}
    machine.child("nvml", {**machine.children["nvml"].answer, "devices": devices})
    machine.sources["the nvml child"] = "leptonai/gpud#604 (ERROR_GPU_IS_LOST after Xid 79)"
    log(
        machine,
        "2024-04-05T21:29:39,000000+00:00 NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        "2024-04-05T21:29:39,000000+00:00 NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.",
        source=f"{source}; the address is that of the third GPU here",
    )
    torch_of(machine, TorchWheel("2.5.1+cu121", "12.1", SM_50_TO_90))
    return parts.loader_cache(machine)


def a100_faulty_memory() -> Reconstruction:
    """HBM that degrades faster than row remapping repairs it."""
    machine = Reconstruction("a100-faulty-memory", "Four A100 80GB, driver 580.178.04: gpu-2 has failing memory rows")
    source = "wtdcode/vllm-backport#62 (4x A100-80GB PCIe, 580.178.04, GPU2, Xid 48, 63, 94, 154, 12 remapped rows)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "580.178.04", *[A100_PCIE] * 4, source=source, rows_correctable=0, rows_uncorrectable=0,
          rows_pending=0, rows_failure=0)  # fmt: skip
    reading(machine, 2, rows_uncorrectable=12, rows_pending=1)
    stamp = "2026-09-05T{}:00,000000+08:00 NVRM: "
    log(
        machine,
        stamp.format("15:17") + "Xid (PCI:0000:1a:00): 48, pid=1, name=python, DBE (double bit error) in FBPA 9",
        stamp.format("15:17") + "Xid (PCI:0000:1a:00): 63, pid=1, name=python, Row Remapper: New row marked for "
        "remapping, reset gpu to activate.",
        stamp.format("15:37") + "Xid (PCI:0000:1a:00): 94, pid=1, name=python, Contained: FBHUB (0x1a)",
        stamp.format("15:37") + "Xid (PCI:0000:1a:00): 94, pid=1, name=python, Contained: FBHUB (0x1a)",
        source=f"{source}; wording of the lines supposed",
    )
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def rtx5080_xids() -> Reconstruction:
    """A desktop whose GPU firmware timed out and came back."""
    machine = user(Reconstruction("rtx5080-xids", "RTX 5080 with driver 590.48.01 that logged Xid 62, 45, 119 and 154"))
    source = "NVIDIA/open-gpu-kernel-modules#1045 (RTX 5080, 590.48.01; Xid 62, 45, 119, 154)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "590.48.01", RTX_5080, source=source, ecc_mode=0)
    stamp = "2026-03-01T12:4{}+01:00 NVRM: Xid (PCI:0000:18:00): "
    log(
        machine,
        stamp.format("1:30,000000") + "62, 32345dbd 00007c58 00000000",
        stamp.format("2:00,000000") + "45, pid=15041, name=zed-editor, Ch 00000006",
        stamp.format("2:15,000000") + "119, pid=15041, name=zed-editor, Timeout after 45s of waiting for RPC response "
        "from GPU0 GSP!",
        stamp.format("2:15,000000") + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        source=f"{source}; the address is that of the GPU here",
    )
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def h100_overheated() -> Reconstruction:
    """A GPU that the hardware slows down."""
    machine = Reconstruction("h100-overheated", "H100 held back by its own heat at 91 C")
    source = "leptonai/gpud#330 (hardware slowdowns: failing power supply or heat)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "580.95.05", H100, source=source, throttle_bits=0x48, temperature_c=91, clock_sm_mhz=975,
          clock_sm_max_mhz=1980)  # fmt: skip
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def small_pod() -> Reconstruction:
    """A pod with a small container disk and Docker's default shared memory."""
    machine = Reconstruction("small-pod", "RunPod L4 with 1.2 GiB of disk left and 64 MiB of shared memory")
    l4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "580.95.05", l4, source=SUPPOSED)
    machine.env(RUNPOD_POD_ID="pod-a")
    mounts = ("overlay / overlay rw 0 0", "shm /dev/shm tmpfs rw,size=65536k 0 0", "/dev/sdb /workspace ext4 rw 0 0")
    machine.file("/proc/self/mounts", "".join(f"{line}\n" for line in mounts), source=SUPPOSED)
    machine.file("/dev/shm/keep", "", source="bytedance/Protenix#2 (Docker's default shared memory is very low)")
    machine.file("/workspace/keep", "", source=SUPPOSED)
    machine.space("/", total_gib=20, free_gib=1.2)
    machine.space("/dev/shm", total_gib=0.0625, free_gib=0.0625)
    machine.space("/workspace", total_gib=100, free_gib=80)
    machine.sources["/"] = "artokun/comfyui-mcp#2016 (undersized container disk)"
    docker(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def mixed_gpus() -> Reconstruction:
    """Three generations in one host."""
    machine = user(Reconstruction("mixed-gpus", "Desktop with an RTX 5090, a 4090 and a 3090 and torch 2.7.0+cu126"))
    source = "vllm-project/vllm#19741 (RTX 5090, RTX 4090, RTX 3090; torch 2.7.0+cu126; Ubuntu 24.04)"
    parts.ubuntu(machine, "24.04", source=source)
    works(machine, "570.133.20", RTX_5090, RTX_4090, RTX_3090, source=source)
    torch_of(machine, TorchWheel("2.7.0+cu126", "12.6", SM_50_TO_90), source=source)
    return parts.loader_cache(machine)


def docker_host_no_toolkit() -> Reconstruction:
    """A host with Docker and a GPU, without the NVIDIA container toolkit."""
    machine = user(
        Reconstruction("docker-host-no-toolkit", "GTX 1080 Ti host with Docker and no NVIDIA container toolkit")
    )
    source = "TorchDSP/torchsig#329 (GTX 1080 Ti, 550.120, could not select device driver)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "550.120", GTX_1080_TI, source=source, kind="proprietary", ecc_mode=0)
    machine.socket("/var/run/docker.sock", source=source)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def l4_vgpu() -> Reconstruction:
    """Half an L4 as a virtual GPU, in an EKS node."""
    machine = Reconstruction("l4-vgpu", "EKS node with the virtual GPU L4-12Q and driver 570.172.08: works")
    source = "awslabs/amazon-eks-ami#2443 (NVIDIA L4-12Q, 570.172.08, AL2023)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.172.08", L4_12Q, source=source, virtualization=2, ecc_mode=0)
    torch_of(machine, TorchWheel("2.9.1+cu128", "12.8", CU128))
    return red_hat(machine, "Amazon Linux", os_id="amzn", version="2023", source=source)


def wsl2_healthy() -> Reconstruction:
    """WSL 2 as NVIDIA's guide wants it: the driver is in Windows alone."""
    machine = Reconstruction("wsl2-healthy", "WSL 2 with Windows driver 610.47 and an RTX 4090: works")
    _wsl(machine, RTX_4090, "610.47", source="gkyle/startrails#18 (Windows driver 610.47, CUDA UMD Version 13.3)")
    machine.child("libcuda", {})
    parts.cuda_answers(machine, "/usr/lib/wsl/lib/libcuda.so.1.1", cuda="13.3", specs=(RTX_4090,))
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_linux_libcuda() -> Reconstruction:
    """A Linux driver package inside WSL: its libcuda is found first."""
    machine = Reconstruction("wsl2-linux-libcuda", "WSL 2 with Ubuntu's driver 535.309.01 inside: cuInit gives 100")
    source = "microsoft/WSL#40680 (RTX 5060 Laptop, Windows driver 610.47, nvidia-smi 535.309.01 inside WSL)"
    _wsl(machine, RTX_5060, "610.47", source=source)
    parts.user_driver(machine, "535.309.01", source=source)
    for name in ("libnvidia-compute-535", "nvidia-driver-535"):
        machine.file(f"/var/lib/dpkg/info/{name}.list", "", source=source)
    init_fails(machine, "535.309.01", code=100)
    machine.sources["the libcuda child"] = "numba/numba#7106 (the wrong libcuda gives CUDA_ERROR_NO_DEVICE)"
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def _wsl(machine: Reconstruction, gpu: GpuSpec, driver: str, *, source: str) -> None:
    user(machine, kernel="6.6.114.1-microsoft-standard-WSL2")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        machine.elf(f"/usr/lib/wsl/lib/{name}.1.1", ElfSpec(soname=f"{name}.1", needed=("libc.so.6",)), source=source)
        machine.link(f"/usr/lib/wsl/lib/{name}.1", f"{name}.1.1", source=source)
    machine.file("/etc/ld.so.conf.d/ld.wsl.conf", "/usr/lib/wsl/lib\n", source=SUPPOSED)
    machine.file("/dev/dxg", "", source=source)
    parts.gpus(machine, driver, gpu, source=source, ecc_mode=0)
    machine.without("/sys/bus/pci/devices", "/sys/bus/pci/drivers")
    machine.child("nvml", {**machine.children["nvml"].answer, "library": "/usr/lib/wsl/lib/libnvidia-ml.so.1.1"})


MACHINES = (
    docker_no_gpus,
    docker_lost_gpus,
    runpod_gate_12_8,
    runpod_ssh,
    devices_masked,
    cuda_sees_none,
    one_of_two_masked,
    launches_wait,
    a100_mig_empty,
    h100_mig_slice,
    gpu_prohibited,
    gpu_fell_off,
    a100_faulty_memory,
    rtx5080_xids,
    h100_overheated,
    small_pod,
    mixed_gpus,
    docker_host_no_toolkit,
    l4_vgpu,
    wsl2_healthy,
    wsl2_linux_libcuda,
)
