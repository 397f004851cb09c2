"""Machines whose driver is the point: too old, not loaded, half-upgraded, of the wrong kind, or not starting."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import (
    B200,
    H200,
    L20,
    RTX_4090,
    TORCH_26_CU124,
    TORCH_28_CU128,
    TORCH_211_CU130,
    docker,
    fails,
    init_fails,
    libcuda,
    log,
    nvml_fails,
    pci,
    red_hat,
    torch_of,
    user,
    works,
)
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU130, TorchWheel

REPORT = "field report 001"


def h100_driver_550_cu130() -> Reconstruction:
    """Field report 001's pod with the wheel that failed on it."""
    machine = Reconstruction(
        "h100-driver-550-cu130", "H100 pod with driver 550.163.01 and a torch 2.10 nightly for CUDA 13.0: sees no GPU"
    )
    wheel = TorchWheel("2.10.0.dev20251030+cu130", "13.0", CU130)
    return _report_001(machine, wheel, source=f"{REPORT}, lines 65 and 162 (2.10.0+cu130 from the nightly index)")


def h100_driver_550_cu128() -> Reconstruction:
    """Field report 001's pod with the wheel that worked on it."""
    machine = Reconstruction("h100-driver-550-cu128", "H100 pod with driver 550.163.01 and torch 2.8.0+cu128: works")
    return _report_001(machine, TORCH_28_CU128, source=f"{REPORT}, line 62 (PyTorch: 2.8.0+cu128)")


def _report_001(machine: Reconstruction, wheel: TorchWheel, *, source: str) -> Reconstruction:
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "550.163.01", H100, source=f"{REPORT}, lines 39 and 42 (GPU, Driver: 550.163.01)")
    parts.toolkit(machine, "13.0.88", source=f"{REPORT}, line 14 (Version: 13.0.88)")
    torch_of(machine, wheel, source=source)
    machine.env(RUNPOD_POD_ID="pod-a")
    machine.environ["PATH"] = f"/usr/local/cuda-13.0/bin:{machine.environ['PATH']}"  # lines 20 to 22: nvcc --version
    docker(machine, source=f"{REPORT}, line 4 (Pod)")
    return parts.loader_cache(machine)


def h200_healthy() -> Reconstruction:
    """The H200 of the compatibility reference with nothing wired wrongly."""
    machine = Reconstruction("h200-healthy", "H200 with driver 580.159.04 (open module) and torch 2.11.0+cu130: works")
    source = "an H200 with driver 580.159.04 in the image nvidia/cuda:13.0.2, measured by this project"
    parts.ubuntu(machine, "22.04", source=source)
    works(machine, "580.159.04", H200, source=source)
    parts.compat(machine, "13.0", "580.95.05", source=source)  # in the image, on no path
    torch_of(machine, TORCH_211_CU130, source=source)
    docker(machine, source=source)
    return parts.loader_cache(machine)


def b200_driver_610() -> Reconstruction:
    """A driver whose nvidia-smi prints a new banner; NVML cannot be asked, so nvidia-smi --query-gpu is."""
    machine = Reconstruction(
        "b200-driver-610",
        "Two B200 with driver 610.43.02, whose nvidia-smi says KMD Version and CUDA UMD Version: works",
    )
    source = "sgl-project/sglang#27487 (NVIDIA-SMI 610.43.02, KMD Version, CUDA UMD Version: 13.3; NVIDIA B200)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "610.43.02", B200, B200, source=source)
    machine.child("nvml", {"unusable": "pynvml cannot be imported (ModuleNotFoundError)"})
    rows = (
        f"{index}, NVIDIA B200, 10.0, 183359, 610.43.02, GPU-00000000-0000-0000-0000-{index:012d}, "
        f"00000000:{0x18 + index:02X}:00.0, Disabled, Enabled, 1000.00, 1965, 1965, Enabled\n"
        for index in range(2)
    )
    machine.every_call_of("nvidia-smi", "".join(rows))
    torch_of(machine, TorchWheel("2.14.1+cu130", "13.0", CU130))
    return parts.loader_cache(machine)


def ubuntu_half_upgraded() -> Reconstruction:
    """The packages went to 550.107.02 while the module 550.90.07 stayed loaded."""
    machine = user(Reconstruction(
        "ubuntu-half-upgraded", "Ubuntu after an unattended upgrade: module 550.90.07 loaded, libraries 550.107.02"
    ))  # fmt: skip
    source = "oddmario/NVIDIA-Ubuntu-Driver-Guide#4 (nvidia-driver-550 550.107.02, module 550.90.07)"
    parts.ubuntu(machine, "24.04", source=source)
    parts.driver(machine, "550.90.07", kind="proprietary", source=source)
    machine.without(*(f"/usr/lib/x86_64-linux-gnu/{name}.so.550.90.07" for name in ("libcuda", "libnvidia-ml")))
    parts.user_driver(machine, "550.107.02", source=source)
    pci(machine, "0000:01:00.0", "0x2684", driver="nvidia", source=SUPPOSED)
    nvml_fails(machine, "550.107.02", code=18, text="Driver/library version mismatch", source=source)
    init_fails(machine, "550.107.02", code=803)
    for name in ("nvidia-driver-550", "libnvidia-compute-550"):
        machine.file(f"/var/lib/dpkg/info/{name}.list", "", source=source)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def a100_no_driver() -> Reconstruction:
    """A cloud machine that came up with a new kernel, for which nobody built the module."""
    machine = user(Reconstruction(
        "a100-no-driver", "Cloud machine with an A100 on the bus and no module for its new kernel"
    ), kernel="6.8.0-1030-gcp")  # fmt: skip
    source = "GoogleCloudPlatform/compute-gpu-installation#10 (10de:20b0, driver gone after a restart)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    pci(machine, "0000:00:04.0", "0x20b0", source=source)
    machine.file("/lib/modules/6.8.0-1030-gcp/modules.dep", "", source=SUPPOSED)
    machine.file("/lib/modules/6.8.0-1029-gcp/updates/dkms/nvidia.ko", "", source=SUPPOSED)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    parts.user_driver(machine, "535.161.07", source=SUPPOSED)
    nvml_fails(machine, "535.161.07", code=9, text="Driver Not Loaded", source=source)
    init_fails(machine, "535.161.07", code=100)
    machine.file("/var/lib/dpkg/info/nvidia-dkms-535.list", "", source=SUPPOSED)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine)


def nouveau_holds_gpu() -> Reconstruction:
    """The driver is installed, but nouveau took the card at boot."""
    machine = user(
        Reconstruction("nouveau-holds-gpu", "GTX 970 bound to nouveau with NVIDIA's driver installed beside")
    )
    source = "negativo17/nvidia-driver#73 (GTX 970, Kernel driver in use: nouveau)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    pci(machine, "0000:01:00.0", "0x13c2", driver="nouveau", code="0x030000", source=source)
    machine.file("/sys/module/nouveau/version", "1.0\n", source=source)
    kernel = machine.host.kernel_release
    machine.file(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", "", source=source)
    parts.user_driver(machine, "580.95.05", source=SUPPOSED)
    nvml_fails(machine, "580.95.05", code=9, text="Driver Not Loaded", source=SUPPOSED)
    init_fails(machine, "580.95.05", code=100)
    log(machine, "NVRM: GPU 0000:01:00.0 is already bound to nouveau.", "NVRM: No NVIDIA devices probed.",
        source="NixOS/nixpkgs#16711; the first line as newer drivers word it")  # fmt: skip
    torch_of(
        machine, TorchWheel("2.13.0+cu126", "12.6", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    )
    return parts.loader_cache(machine)


def secure_boot() -> Reconstruction:
    """A cloud machine with Secure Boot: DKMS built the module, and the kernel does not know its key."""
    machine = user(
        Reconstruction("secure-boot", "Azure machine with Secure Boot on: nvidia.ko is there and not loaded")
    )
    source = "MicrosoftDocs/azure-docs#111536 (MOK screen cannot be reached over SSH)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    pci(machine, "0000:00:05.0", "0x2236", source=SUPPOSED)
    kernel = machine.host.kernel_release
    machine.file(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", "", source=source)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    machine.file(variable, b"\x06\0\0\0\x01", source=source)
    parts.user_driver(machine, "580.95.05", source=SUPPOSED)
    nvml_fails(machine, "580.95.05", code=9, text="Driver Not Loaded", source=source)
    init_fails(machine, "580.95.05", code=100)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def blackwell_proprietary() -> Reconstruction:
    """An RTX 5090 under the proprietary module: loaded, and no device."""
    machine = user(
        Reconstruction("blackwell-proprietary", "RTX 5090 with the proprietary module 570.144: No devices were found")
    )
    source = "getsolus/packages#5575 (5090, 570.144, nvidia-smi: No devices were found)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    parts.driver(machine, "570.144", kind="proprietary", source=source)
    machine.without("/dev/nvidia0")
    pci(
        machine, "0000:01:00.0", "0x2b85", driver="nvidia", code="0x030000", source="NVIDIA/open-gpu-kernel-modules#862"
    )
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.144"
    machine.child(
        "nvml", {"init": {"code": 0}, "library": library, "driver_version": "570.144", "count": 0, "devices": []}
    )
    init_fails(machine, "570.144", code=100)
    log(
        machine,
        "2025-05-04T10:00:05,559842+00:00 NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        "2025-05-04T10:00:05,559858+00:00 NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)",
        source="NVIDIA/open-gpu-kernel-modules#862, comment of 2025-07-26; getsolus/packages#5575",
    )
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def blackwell_and_pascal() -> Reconstruction:
    """An RTX 5090 that works under the open module, beside a GTX 1070 Ti that this module leaves alone."""
    machine = user(Reconstruction("blackwell-and-pascal", "RTX 5090 and GTX 1070 Ti under the open module 570.133.20"))
    source = "NVIDIA/open-gpu-kernel-modules#696 (the open driver ignores a GTX 1070 Ti beside a newer GPU)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "570.133.20", parts.RTX_5090, source=SUPPOSED)
    pci(machine, "0000:c1:00.0", "0x1b82", driver="", code="0x030000", source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def nodes_missing() -> Reconstruction:
    """A minimal system without udev rules and nvidia-modprobe: the module is loaded, /dev has nothing."""
    machine = Reconstruction(
        "nodes-missing", "Minimal server: driver 570.133.20 loaded, no /dev/nvidia0 and no nvidiactl"
    )
    source = "docs.nvidia.com/cuda/cuda-installation-guide-linux (device node verification)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", H100, code=100, source=source)
    machine.without("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
    nvml_fails(machine, "570.133.20", code=9, text="Driver Not Loaded", source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def uvm_missing() -> Reconstruction:
    """nvidia is loaded and nvidia_uvm is not."""
    machine = user(
        Reconstruction("uvm-missing", "RTX 4090 after a kernel update: nvidia-smi works, nvidia_uvm is not loaded")
    )
    source = "NVIDIA/nvidia-docker#139 (lstat /dev/nvidia-uvm: no such file or directory); ggml-org/llama.cpp#7218"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_4090, code=999, source=source)
    machine.without("/sys/module/nvidia_uvm", "/dev/nvidia-uvm")
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def after_suspend() -> Reconstruction:
    """A laptop that was asleep: everything is loaded, and cuInit gives 999."""
    machine = user(Reconstruction("after-suspend", "RTX 4090 workstation after a suspend: cuInit gives 999"))
    source = "ggml-org/llama.cpp#7218 (CUDA unknown error after suspend)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_4090, code=999, source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def h100_no_fabric_manager() -> Reconstruction:
    """An HGX server on which nobody installed the fabric manager."""
    machine = Reconstruction("h100-no-fabric-manager", "HGX H100 server without nvidia-fabricmanager: cuInit gives 802")
    source = "aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33, pytorch/pytorch#35710"
    parts.ubuntu(machine, "22.04", source=source)
    fails(machine, "570.133.20", *[H100] * 8, code=802, source=source, fabric_state=1, fabric_status=0)
    for bus in range(4):
        pci(
            machine, f"0000:{0x60 + bus:02x}:00.0", "0x22a3", driver="nvidia-nvswitch", code="0x068000", source=SUPPOSED
        )
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def h200_other_fabric_manager() -> Reconstruction:
    """A driver image that got the fabric manager of another branch."""
    machine = Reconstruction(
        "h200-other-fabric-manager",
        "HGX H200 server with driver 580.126.09 and fabric manager 590.48.01: cuInit gives 802",
    )
    source = "NVIDIA/gpu-driver-container#735 (driver 580.126.09, nv-fabricmanager 590.48.01, Ubuntu 22.04)"
    parts.ubuntu(machine, "22.04", source=source)
    fails(machine, "580.126.09", *[H200] * 8, code=802, source=source, fabric_state=1, fabric_status=0)
    for bus in range(4):
        pci(
            machine, f"0000:{0x60 + bus:02x}:00.0", "0x22a3", driver="nvidia-nvswitch", code="0x068000", source=SUPPOSED
        )
    machine.file("/usr/bin/nv-fabricmanager", "", source=source)
    machine.command("/usr/bin/nv-fabricmanager --version", "Fabric Manager version is : 590.48.01\n")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def l20_hmm() -> Reconstruction:
    """The open module on EL10: nvidia-smi works, cuInit gives 3."""
    machine = user(Reconstruction("l20-hmm", "AlmaLinux 10 with an L20 and driver 580.95.05: cuInit gives 3"),
                   kernel="6.12.0-55.37.1.el10_0.x86_64")  # fmt: skip
    source = "NVIDIA/open-gpu-kernel-modules#947 (580.95.05, Alma Linux 10.0, NVIDIA L20, cuInit returns 3)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    fails(machine, "580.95.05", L20, code=3, source=source)
    folder = wheels.python(machine, "/home/user-a/venv", source=SUPPOSED)
    wheels.torch(machine, folder, TORCH_211_CU130, source=SUPPOSED)
    return red_hat(machine, "AlmaLinux", os_id="almalinux", version="10.0", source=source)


def h100_spoofed_version() -> Reconstruction:
    """Field report 000's first attempt: a preloaded shim that reports a newer driver."""
    report = "field report 000"
    machine = Reconstruction(
        "h100-spoofed-version", "H100 pod, driver 570.133.20, a preloaded shim that reports CUDA 13.0"
    )
    parts.ubuntu(machine, "24.04", source=f"{report}, line 66 (OS: Ubuntu 24.04.3 LTS)")
    works(machine, "570.133.20", H100, source=f"{report}, lines 67 and 83 (driver, GPU)")
    shim = "/workspace/libfake_driver.so"
    machine.elf(shim, ElfSpec(needed=("libc.so.6",)), source=f"{report}, line 156 (LD_PRELOAD shim)")
    parts.cuda_answers(machine, libcuda(machine, "570.133.20"), cuda="13.0", specs=(H100,))
    machine.sources["the libcuda child"] = f"{report}, line 156 (fake driver version reporting)"
    machine.env(LD_PRELOAD=shim, RUNPOD_POD_ID="pod-a")
    docker(machine, source=f"{report}, line 4 (Pod)")
    torch_of(machine, TorchWheel("2.9.0+cu130", "13.0", CU130), source=f"{report}, line 70 (PyTorch: 2.9.0+cu130)")
    return parts.loader_cache(machine)


def h100_cuinit_hangs() -> Reconstruction:
    """A node on which torch.cuda.is_available() never comes back."""
    machine = user(Reconstruction("h100-cuinit-hangs", "H100 node with driver 570.172.08: cuInit never returns"))
    source = "rwth-i6/returnn#1756 (torch.cuda.is_available() hangs; NVIDIA H100, 570.172.08)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.172.08", H100, source=source)
    machine.child(
        "libcuda", {"path": libcuda(machine, "570.172.08"), "version_code": 0, "version": 12080, "hung": "cuInit"}
    )
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


MACHINES = (
    h100_driver_550_cu130,
    h100_driver_550_cu128,
    h200_healthy,
    b200_driver_610,
    ubuntu_half_upgraded,
    a100_no_driver,
    nouveau_holds_gpu,
    secure_boot,
    blackwell_proprietary,
    blackwell_and_pascal,
    nodes_missing,
    uvm_missing,
    after_suspend,
    h100_no_fabric_manager,
    h200_other_fabric_manager,
    l20_hmm,
    h100_spoofed_version,
    h100_cuinit_hangs,
)
