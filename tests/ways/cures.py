"""Recorded machines with the ways that mend them, and the findings that are gone then."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.diagnosis.finding import Goal
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways.kinds import (
    AllowLockedMemory,
    BuildModules,
    ChangeImage,
    CloseLibraries,
    ConfigureContainers,
    EnrolKey,
    FetchCompat,
    Flavour,
    ForbidModule,
    InstallConda,
    InstallDriver,
    InstallPackages,
    InstallWheels,
    KeepInProject,
    LinkFile,
    LoadModules,
    MakeDeviceNodes,
    Manner,
    Package,
    ReadEnvironment,
    RegisterFolder,
    ReloadModules,
    RemoveDistributions,
    RemoveFiles,
    RemovePackages,
    ResetGpu,
    Restart,
    Scope,
    Service,
    SetComputeMode,
    SetModuleOption,
    SetPowerLimit,
    SetVariables,
    StartContainer,
    StartKernel,
    StartService,
    TurnOffMig,
    UnsetVariables,
    Unwire,
    Variable,
    WireCompat,
    WiredBy,
)
from firstlight.ways.way import Way

_INDEX = "https://download.pytorch.org/whl/"
_SIGNED = (
    "linux-modules-nvidia-580-server-open-6.8.0-60-generic", "linux-modules-nvidia-580-server-open-generic-6.8",
)  # fmt: skip
_RUNNING = "libcuda.init_code"  # what is open wherever only starting CUDA can tell


@dataclass(frozen=True, slots=True)
class Cure:
    """Ways that mend a machine: the codes that are gone then, and the facts that only running can tell."""

    machine: str
    ways: tuple[Way, ...]
    gone: tuple[str, ...]
    opens: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()  # codes that must not be claimed
    goal: Goal = Goal.INFER


def _wheels(*pinned: str, build: str = "", manner: Manner = Manner.PLAIN) -> InstallWheels:
    packages = (each.partition("==") for each in pinned)
    index = f"{_INDEX}{build}" if build else ""
    return InstallWheels(tuple(Package(name, version) for name, _, version in packages), index, manner)


def _set(name: str, value: str) -> SetVariables:
    return SetVariables((Variable(name, value),), Scope.BUILD)


_COMPAT_13 = "/usr/local/cuda-13.0/compat"
_BRANCHES = (535, 550, 570, 575)
_WIRE_13 = WireCompat(_COMPAT_13, CudaVersion(13, 0), _BRANCHES)
_ABSENT = (_RUNNING, "libcuda.device_count")

CURES: tuple[Cure, ...] = (
    Cure("a100-faulty-memory", (ResetGpu("2"),), ("gpu-memory-faulty", "xid-seen"), ("health.xids",)),
    Cure("a100-mig-empty", (TurnOffMig("0"),), ("mig-without-slices", "cuinit-fails"), _ABSENT),
    Cure(
        "a100-no-driver",
        (
            BuildModules("6.8.0-1030-gcp", "linux-headers-6.8.0-1030-gcp"),
            LoadModules(("nvidia", "nvidia_uvm")),
            MakeDeviceNodes(),
        ),
        ("driver-not-loaded", "cuinit-fails"),
        (_RUNNING,),
    ),
    Cure("a100-no-driver", (StartKernel("6.8.0-1029-gcp"), Restart()), ("driver-not-loaded", "cuinit-fails"),
         (_RUNNING,)),
    Cure("after-suspend", (ReloadModules(("nvidia_uvm",)),), ("cuinit-fails",), _ABSENT),
    Cure(
        "blackwell-proprietary",
        (InstallDriver(570, Flavour.OPEN), Restart()),
        ("blackwell-needs-open-module", "device-nodes-missing", "cuinit-fails"),
        (_RUNNING,),
    ),
    Cure("conda-without-libstdcxx-link", (InstallConda("libstdcxx-ng", "conda-forge", ""),), ("libstdcxx-too-old",),
         ("torch_libraries.libstdcxx_offered",)),
    Cure("conda-without-libstdcxx-link",
         (LinkFile("/home/user/miniconda3/envs/torch/lib/libstdc++.so.6", "libstdc++.so.6.0.34"),),
         ("libstdcxx-too-old",)),
    Cure(
        "container-empty-libcuda",
        (
            RemoveFiles(("/usr/lib/x86_64-linux-gnu/libcuda.so.515.43.04",)),
            StartContainer(("--gpus", "all"), gives_gpus=True),
        ),
        ("libcuda-damaged",),
        (_RUNNING,),
    ),
    Cure("cuda-lib64-first", (UnsetVariables(("LD_LIBRARY_PATH",)),), ("library-path-breaks",)),
    Cure("cuda-lib64-newer-first", (UnsetVariables(("LD_LIBRARY_PATH",)),), ("library-path-shadows",)),
    Cure("cudnn-mix", (RemovePackages(("libcudnn9-*",), alone=True),), ("cudnn-mix",)),
    Cure("cudnn-mix", (_wheels("torch==2.15.0"),), ("cudnn-mix",)),
    Cure("devices-masked", (UnsetVariables(("CUDA_VISIBLE_DEVICES",)),), ("devices-masked", "cuinit-fails"), _ABSENT),
    Cure("devices-masked", (_set("CUDA_VISIBLE_DEVICES", "0,1"),), ("devices-masked", "cuinit-fails"), _ABSENT),
    Cure("cdi-of-older-driver", (ConfigureContainers("podman", "/etc/cdi/nvidia.yaml"),),
         ("description-of-other-driver",)),
    Cure("docker-host-no-toolkit", (InstallPackages(("nvidia-container-toolkit",)), ConfigureContainers("docker")),
         ("container-runtime-missing",)),
    Cure("docker-lost-gpus", (StartContainer(("--gpus", "all"), gives_gpus=True),),
         ("device-access-lost", "cuinit-fails"), (_RUNNING, "driver.nvml_code")),
    Cure("docker-no-gpus", (StartContainer(("--gpus", "all"), gives_gpus=True),),
         ("no-gpu-in-container", "libcuda-missing"), (_RUNNING,)),
    Cure("duplicate-torch", (RemoveDistributions(("torch",), copies=2), _wheels("torch==2.6.0+cu124", build="cu124")),
         ("duplicate-distributions",)),
    Cure("duplicate-torch", (_wheels("torch==2.6.0+cu124", "torchvision==0.21.0+cu124", build="cu124"),),
         ("duplicate-distributions", "companion-wants-other-torch")),
    Cure("flash-attn-cu12", (_wheels("flash-attn==2.8.3", manner=Manner.COMPILED),),
         ("extension-for-other-cuda", "extension-for-other-torch")),
    Cure("gb10-triton-3-5", (_set("TRITON_PTXAS_PATH", "/usr/local/cuda-13.0/bin/ptxas"),),
         ("triton-too-old-for-gpu",)),
    Cure("gb10-triton-3-5", (_wheels("torch==2.14.1+cu130", build="cu130"),), (), stays=("triton-too-old-for-gpu",)),
    Cure("gh200-torch-pypi", (_wheels("torch==2.9.0+cu128", build="cu128"),), ("aarch64-wheel-without-cuda",)),
    Cure("gke-libcuda-out-of-reach", (RegisterFolder("/usr/local/nvidia/lib64", "/etc/ld.so.conf.d/nvidia.conf"),),
         ("libcuda-missing",), (_RUNNING,)),
    Cure("gke-libcuda-out-of-reach", (_set("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),), ("libcuda-missing",),
         (_RUNNING,)),
    Cure("gpu-box-cpu-wheel", (_wheels("torch==2.2.0+cu121", build="cu121"),), ("torch-cpu-only",)),
    Cure("gpu-prohibited", (SetComputeMode("0"),), ("gpu-prohibited",)),
    Cure("h100-cudnn-off-pin", (_wheels("nvidia-cudnn-cu12==9.1.0.70"),), ("nvidia-wheel-off-pin",)),
    Cure("h100-cuinit-hangs", (ResetGpu(""),), ("cuinit-hangs",), (_RUNNING,)),
    Cure("h100-cuinit-hangs", (Restart(),), ("cuinit-hangs",), (_RUNNING,)),
    Cure("h100-driver-550-cu130",
         (InstallPackages(("cuda-compat-13-0",), (f"{_COMPAT_13}/libcuda.so.1",)), _WIRE_13),
         ("driver-too-old-for-wheel",), (_RUNNING,)),
    Cure("h100-driver-550-cu130", (_wheels("torch==2.10.0+cu128", build="cu128"),), ("driver-too-old-for-wheel",)),
    Cure("h100-driver-560-compat-13-1", (_wheels("torch==2.10.0+cu126", build="cu126"),),
         ("driver-too-old-for-wheel", "compat-branch-not-accepted")),
    Cure("h100-driver-570",
         (FetchCompat("cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz", CudaVersion(13, 1),
                      DriverVersion.parse("590.48.01"), "~/compat-13.1"),
          WireCompat("~/compat-13.1", CudaVersion(13, 1), (535, 570))),
         ("driver-too-old-for-wheel",), (_RUNNING,), ("companion-wants-other-torch",)),
    Cure("h100-driver-570", (InstallDriver(580, Flavour.OPEN), Restart()), ("driver-too-old-for-wheel",), (_RUNNING,)),
    Cure("h100-driver-570-compat", (Unwire((_COMPAT_13,), WiredBy.LIBRARY_PATH), _WIRE_13), ("compat-baked-in",)),
    Cure("h100-driver-570-compat-unused", (_WIRE_13,), ("compat-unused", "driver-too-old-for-wheel")),
    Cure("h100-driver-595-compat-580",
         (Unwire((_COMPAT_13,), WiredBy.LOADER_CONF, "/etc/ld.so.conf.d/cuda-compat.conf"),),
         ("compat-stale", "cuinit-fails"), (_RUNNING,)),
    Cure("h100-driver-595-compat-580", (RemovePackages(("cuda-compat-13-0",)),), ("compat-stale", "cuinit-fails"),
         (_RUNNING,)),
    Cure("h100-no-fabric-manager",
         (InstallPackages(("nvidia-fabricmanager-570",), version="570.133.20*"), StartService("nvidia-fabricmanager")),
         ("fabric-manager-missing", "cuinit-fails"), _ABSENT),
    Cure("h100-spoofed-version", (UnsetVariables(("LD_PRELOAD",)),), ("version-spoofed",), (_RUNNING,)),
    Cure("h100-stub-libcuda",
         (Unwire(("/usr/local/cuda-13.0/lib64/stubs",), WiredBy.LIBRARY_PATH),),
         ("stub-libcuda-wins", "cuinit-fails"), (_RUNNING,)),
    Cure("h100-triton-3-4", (_wheels("triton==3.5.0"),), ("companions-disagree",)),
    Cure("h200-compat-first", (Unwire(("/usr/local/cuda/compat",), WiredBy.LIBRARY_PATH),),
         ("compat-stale", "cuinit-fails"), (_RUNNING,)),
    Cure("h200-compat-stale", (RemovePackages(("cuda-compat-13-0",)),), ("compat-stale", "cuinit-fails"), (_RUNNING,)),
    Cure("h200-no-torch", (_wheels("torch==2.15.0"),), ("torch-not-installed",)),
    Cure("h200-other-fabric-manager",
         (InstallPackages(("nvidia-fabricmanager-580",), version="580.126.09*"),
          StartService("nvidia-fabricmanager", Service.RESTART)),
         ("fabric-manager-differs", "fabric-manager-missing", "cuinit-fails"), _ABSENT),
    Cure("h200-other-fabric-manager", (StartService("nvidia-fabricmanager"),), (),
         stays=("fabric-manager-differs", "fabric-manager-missing", "cuinit-fails")),
    Cure("l20-hmm",
         (SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", "/etc/modprobe.d/nvidia-uvm.conf"),
          ReloadModules(("nvidia_uvm",))),
         ("hmm-breaks-cuinit", "cuinit-fails"), _ABSENT),
    Cure("mixed-gpus", (_wheels("torch==2.7.0+cu128", build="cu128"),), ("arch-not-in-wheel",)),
    Cure("nccl-of-two-majors",
         (RemoveDistributions(("nvidia-nccl-cu12",)), _wheels("nvidia-nccl-cu13==2.29.7", manner=Manner.AGAIN)),
         ("two-cuda-majors",)),
    Cure("nodes-missing", (MakeDeviceNodes(),), ("device-nodes-missing", "cuinit-fails"), _ABSENT),
    Cure("nouveau-holds-gpu",
         (ForbidModule("nouveau"), InstallDriver(580, Flavour.OPEN), Restart()),
         ("nouveau-loaded", "driver-not-loaded", "cuinit-fails"), (_RUNNING,)),
    Cure("nvcc-wrapper", (_set("CUDA_HOME", "/usr/local/cuda-13.0"),), ("nvcc-is-wrapper",)),
    Cure("one-of-two-masked", (UnsetVariables(("CUDA_VISIBLE_DEVICES",)),), ("cuda-sees-fewer-devices",),
         ("libcuda.device_count",)),
    Cure("orin-flash-attention", (_set("MAX_JOBS", "1"),), ("too-little-memory-per-job",)),
    Cure("pytorch-checkout-shadows", (_wheels("torch==2.9.0+cu128", build="cu128"),), (), stays=("torch-shadowed",)),
    Cure("rocm-torch-on-nvidia", (_wheels("torch==2.9.0+cu130", build="cu130"),), ("torch-for-other-vendor",)),
    Cure("rtx4090-compat-image", (Unwire(("/usr/local/cuda-12.1/compat",), WiredBy.CONTAINER_RUNTIME),),
         ("compat-not-eligible", "cuinit-fails"), (_RUNNING,)),
    Cure("rtx4090-compat-image", (_wheels("torch==2.4.0+cu118", build="cu118"),), (),
         stays=("compat-not-eligible", "cuinit-fails")),
    Cure("rtx5080-xids", (ResetGpu("0"),), ("xid-seen",), ("health.xids",)),
    Cure("runpod-gate-12-8",
         (ChangeImage("ENV NVIDIA_REQUIRE_CUDA=cuda>=13.0", gate="cuda>=13.0"),), ("container-gate-differs",),
         stays=("driver-too-old-for-wheel",)),
    Cure("runpod-gate-12-8", (_wheels("torch==2.9.1+cu128", build="cu128"),),
         ("container-gate-differs", "driver-too-old-for-wheel")),
    Cure("runpod-ssh", (ReadEnvironment("/etc/rp_environment", ("HF_HOME",)),), ("shell-lacks-container-env",)),
    Cure("secure-boot", (LoadModules(("nvidia",)),), (), stays=("secure-boot-blocks-module", "driver-not-loaded")),
    Cure("secure-boot",
         (InstallPackages(_SIGNED),
          LoadModules(("nvidia", "nvidia_uvm"))),
         (), stays=("secure-boot-blocks-module", "driver-not-loaded")),  # updates/dkms/nvidia.ko comes before it
    Cure("secure-boot",
         (InstallPackages(_SIGNED),
          RemovePackages(("nvidia-dkms-*",), alone=True),
          LoadModules(("nvidia", "nvidia_uvm"))),
         ("secure-boot-blocks-module", "driver-not-loaded", "cuinit-fails"), (_RUNNING,)),
    Cure("secure-boot", (RemovePackages(("nvidia-dkms-*",), alone=True), LoadModules(("nvidia", "nvidia_uvm"))),
         (), stays=("driver-not-loaded",)),  # nothing is left to load
    Cure("secure-boot", (EnrolKey("/var/lib/shim-signed/mok/MOK.der"), Restart()),
         ("secure-boot-blocks-module", "driver-not-loaded", "cuinit-fails"), (_RUNNING,)),
    Cure("small-pod", (StartContainer(("--shm-size=8g",)),), ("shm-too-small",)),
    Cure("thor-missing-libraries",
         (CloseLibraries(("libcudss.so.0", "libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0")),),
         ("missing-library",)),
    Cure("thor-source-build", (_wheels("torch==2.14.1+cu130", build="cu130"),),
         ("torch-not-installed", "externally-managed-python", "prefix-not-writable")),
    Cure("thor-torch-cu128", (_wheels("torch==2.14.1+cu130", build="cu130"),), ("arch-not-in-wheel",)),
    Cure("ubuntu-half-upgraded", (Restart(),), ("driver-library-mismatch", "cuinit-fails"), (_RUNNING,)),
    Cure("ubuntu-half-upgraded", (ReloadModules(("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")),),
         ("driver-library-mismatch", "cuinit-fails"), (_RUNNING,)),
    Cure("uv-lock-would-undo", (KeepInProject((Package("torch", "2.9.0+cu130"),), f"{_INDEX}cu130"),),
         ("project-would-undo",)),
    Cure("uvm-missing", (LoadModules(("nvidia_uvm",)),), ("uvm-not-loaded", "cuinit-fails"), _ABSENT),
    Cure("v100-torch-cu130", (_wheels("torch==2.9.0+cu126", build="cu126"),), ("arch-not-in-wheel",)),
    Cure("vllm-torch-2-9",
         (_wheels("torch==2.8.0+cu128", "torchvision==0.23.0+cu128", "torchaudio==2.8.0+cu128", build="cu128"),),
         ("companion-wants-other-torch", "extension-for-other-torch")),
    Cure("wsl2-linux-libcuda", (RemovePackages(("libnvidia-compute-535", "nvidia-driver-535"), purge=True),),
         ("wsl-libcuda-shadowed", "cuinit-fails"), (_RUNNING,)),
    Cure("h100-nvcc-13-torch-cu128",
         (InstallPackages(("cuda-toolkit-12-8",), ("/usr/local/cuda-12.8/bin/nvcc",)),
          _set("CUDA_HOME", "/usr/local/cuda-12.8")),
         ("nvcc-major-differs",), goal=Goal.BUILD_EXTENSIONS),
    Cure("fedora-44-cuda-12-8", (InstallPackages(("gcc14", "gcc14-c++")), _set("CC", "gcc-14"), _set("CXX", "g++-14")),
         ("host-compiler-out-of-range",), goal=Goal.BUILD_EXTENSIONS),
    Cure("mps-dead", (RemoveFiles(("/tmp/nvidia-mps",)),), ("mps-left-behind", "cuinit-fails"), _ABSENT[:1]),
    Cure("two-gpus-on-a-network", (AllowLockedMemory(),), ("locked-memory-small",), goal=Goal.TRAIN),
    Cure("v100-worn", (SetPowerLimit("0", 300),), ("power-limit-low",)),
)  # fmt: skip
