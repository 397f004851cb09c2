"""One way of every type, with the arguments that a rule would give it; a test holds that none is missing."""

from __future__ import annotations

from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion
from firstlight.ways import kinds
from firstlight.ways.kinds import Flavour, Manner, Package, Scope, Service, Variable, Why, WiredBy
from firstlight.ways.way import Way

TORCH_CU128 = "https://download.pytorch.org/whl/cu128"
H100 = ComputeCapability(9, 0)
CUDA_13_0 = CudaVersion(13, 0)

SAMPLES: tuple[Way, ...] = (
    kinds.MakeEnvironment(),
    kinds.InstallWheels((Package("torch", "2.9.0+cu128"), Package("torchvision", "0.24.0+cu128")), index=TORCH_CU128),
    kinds.RemoveDistributions(("torch",), copies=2),
    kinds.KeepInProject((Package("torch", "2.9.0+cu128"),), index=TORCH_CU128),
    kinds.ConstrainEnvironment("/srv/project/firstlight-constraints.txt", (Package("torch", "2.9.0+cu128"),)),
    kinds.ConstrainProject((Package("torch", "2.9.0+cu128"),)),
    kinds.PinConda((Package("pytorch", "2.5.1"), Package("cuda-nvcc", "12.4.131"))),
    kinds.CloseLibraries(("libcudss.so.0",)),
    kinds.InstallConda("cuda-toolkit=12.8", "nvidia", "~/.local/state/firstlight/conda-cuda-12.8", brings="bin/nvcc"),
    kinds.BuildFromSource("torch", "2.9.0", (H100,)),
    kinds.ClearCache("pip"),
    kinds.SetUpRepository(),
    kinds.InstallPackages(("cuda-compat-13-0",), brings=("/usr/local/cuda-13.0/compat/libcuda.so.1",)),
    kinds.RemovePackages(("cuda-compat-13-0",)),
    kinds.HoldPackages(("nvidia-driver-580-open",)),
    kinds.InstallDriver(580, Flavour.OPEN, ("nvidia-open-580",)),
    kinds.LoadModules(("nvidia_uvm",)),
    kinds.ReloadModules(("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")),
    kinds.BuildModules("6.8.0-60-generic", "linux-headers-6.8.0-60-generic"),
    kinds.ForbidModule("nouveau"),
    kinds.SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", "/etc/modprobe.d/nvidia-uvm.conf"),
    kinds.ChooseModules(Flavour.OPEN, "/etc/rpm/macros.nvidia-kmod", "%_with_kmod_nvidia_open 1"),
    kinds.StartKernel("6.8.0-1029-gcp"),
    kinds.EnrolKey("/var/lib/shim-signed/mok/MOK.der"),
    kinds.MakeDeviceNodes(),
    kinds.StartService("nvidia-fabricmanager"),
    kinds.ResetGpu("0"),
    kinds.SetComputeMode("0"),
    kinds.TurnOffMig("0"),
    kinds.SetPowerLimit("0", 300),
    kinds.MakeImexChannel(),
    kinds.AllowLockedMemory(),
    kinds.ConfigureContainers("docker"),
    kinds.FetchCompat(
        "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz",
        CudaVersion(13, 1),
        DriverVersion.parse("590.48.01"),
        "~/.local/share/firstlight/cuda-compat-13.1",
    ),
    kinds.WireCompat("/usr/local/cuda-13.0/compat", CUDA_13_0, (535, 550, 570)),
    kinds.Unwire(("/usr/local/cuda/compat",), WiredBy.LIBRARY_PATH),
    kinds.RegisterFolder("/usr/lib64/nvidia", "/etc/ld.so.conf.d/nvidia.conf"),
    kinds.RefreshLoaderCache(),
    kinds.LinkFile("/usr/local/cuda/lib64", "lib"),
    kinds.RemoveFiles(("/usr/lib/libcuda.so.1",)),
    kinds.SetVariables((Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)),
    kinds.UnsetVariables(("CUDA_VISIBLE_DEVICES",)),
    kinds.ReadEnvironment("/etc/rp_environment", ("NVIDIA_VISIBLE_DEVICES",)),
    kinds.Restart(),
    kinds.StartContainer(("--gpus", "all"), gives_gpus=True),
    kinds.UseImage("nvidia/cuda:13.0.2-devel-ubuntu24.04"),
    kinds.ChangeImage("ENV NVIDIA_REQUIRE_CUDA=cuda>=13.0", gate="cuda>=13.0"),
    kinds.OtherMachine(580, CUDA_13_0, H100),
    kinds.AskPerson("edit-by-hand", Why.HARDWARE, of=("power the machine off and on",)),
)

# The same types with other arguments, where these lead to other steps.
VARIANTS: tuple[Way, ...] = (
    kinds.MakeEnvironment(python="3.11"),
    kinds.InstallWheels((Package("numpy", bounds=">=2.1,<3"),)),
    kinds.InstallWheels((Package("torch", "2.9.0"),)),
    kinds.InstallWheels((Package("numpy"),)),
    kinds.InstallWheels((Package("nvidia-cudnn-cu12", "9.10.2.21"),), manner=Manner.AGAIN),
    kinds.InstallWheels((Package("flash-attn", "2.8.3"),), manner=Manner.COMPILED),
    kinds.InstallWheels((Package("torch"),), "https://download.pytorch.org/whl/nightly/cu130", Manner.EARLY),
    kinds.InstallWheels((Package("cuda-toolkit", "13.0.2", ("nvcc", "cudart")),)),
    kinds.RemoveDistributions(("torch",)),
    kinds.RemoveDistributions(("torch",), folder="/root/.local/lib/python3.12/site-packages", version="2.4.1+cpu"),
    kinds.InstallConda("libstdcxx-ng", "conda-forge", ""),
    kinds.ClearCache("uv"),
    kinds.InstallPackages(("g++", "ninja-build")),
    kinds.InstallPackages(("libnvidia-compute-570",), version="570.133.20*"),
    kinds.RemovePackages(("cuda-compat-13-0",), purge=True),
    kinds.RemovePackages(("nvidia-dkms-*",), alone=True),
    kinds.InstallDriver(580, Flavour.OPEN),
    kinds.BuildModules("6.8.0-60-generic", ""),
    kinds.StartService("nvidia-fabricmanager", Service.RESTART),
    kinds.ResetGpu(""),
    kinds.ConfigureContainers("podman", "/etc/cdi/nvidia.yaml"),
    kinds.ChooseModules(Flavour.OPEN, "/etc/nvidia/kernel.conf", "kernel-open", instead_of="kernel"),
    kinds.RemoveFiles(("/tmp/nvidia-mps",), as_root=True),
    kinds.Unwire(("/usr/lib/libcuda.so.1",), WiredBy.PRELOAD),
    kinds.Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.LOADER_CONF, "/etc/ld.so.conf.d/cuda.conf"),
    kinds.Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.CONTAINER_RUNTIME),
    kinds.SetVariables((Variable("CUDA_HOME", "/usr/local/cuda-12.8"),), Scope.BUILD),
    kinds.SetVariables((Variable("MAX_JOBS", "4"),), Scope.PROGRAM),
    kinds.UseImage(""),
    kinds.OtherMachine(0, None, None, ("runpodctl", "pod", "create", "--gpu-id", "NVIDIA H100 80GB HBM3")),
    kinds.AskPerson(
        "edit-by-hand", Why.HARDWARE, (("nvidia-smi", "-q", "-d", "TEMPERATURE"),), cures=False, of=("look at cooling",)
    ),
)
