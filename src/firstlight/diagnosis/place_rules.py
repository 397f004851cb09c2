"""Rules about the place: the container, its gate and shell, what masks or slices the GPUs, WSL."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    as_root,
    at,
    container,
    counted_gpus,
    cuda_starts,
    cuda_works,
    gpu_label,
    has_device_nodes,
    init_code,
    init_error,
    install,
    listed,
    pci_gpus,
    platform,
    shown,
    start_with_gpus,
)
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.gpus import ComputeMode, Gpu
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.versions import CudaVersion

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
# What programs in a shell use; NVIDIA_REQUIRE_CUDA and its like only steer the container runtime.
_USED_IN_A_SHELL = ("LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
_GIB = 1 << 30
_CHECK_DOCKER = ("to see that the host can: docker run --rm --gpus all ubuntu nvidia-smi -L",)


def no_gpu_in_container(question: Question) -> Iterator[Seen]:
    """The host has a GPU and a driver; this container was started without them."""
    facts, kind = question.facts, container(question.facts)
    if kind is None or has_device_nodes(facts) or cuda_starts(facts) or platform(facts) is Platform.WSL2:
        return
    driver, gpus = facts.driver.kernel_version, pci_gpus(facts)
    if isinstance(driver, Unknown) and not gpus:
        return
    host = f"the host's driver is {shown(driver)}" if isinstance(driver, Known) else "the host has a GPU"
    if gpus:
        host += f", its GPU at {listed(gpu.address for gpu in gpus[:4])} (/sys/bus/pci/devices)"
    asked = facts.container.visible_devices
    masked = (
        f"; {asked.seen_in} is {asked.value}" if isinstance(asked, Known) and asked.value in ("none", "void") else ""
    )
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}); {host}, but there is no /dev/nvidiactl and no /dev/nvidia0"
        f"{masked}",
        do=(start_with_gpus(facts), *(_CHECK_DOCKER if kind.value is ContainerKind.DOCKER else ())),
    )


def container_gate_differs(question: Question) -> Iterator[Seen]:
    """The image says it runs from CUDA 12.8 on; the wheels inside need a driver for CUDA 13."""
    facts = question.facts
    gate = facts.container.cuda_requirement
    if isinstance(gate, Unknown) or isinstance(gate.value.cuda_floor, Unknown) or isinstance(facts.torch, Unknown):
        return
    torch, floor = facts.torch.value, gate.value.cuda_floor.value
    if isinstance(torch.wheel_cuda, Unknown) or torch.wheel_cuda.value.major <= floor.major:
        return
    wheel = torch.wheel_cuda.value
    needs = CudaVersion(wheel.major, 0)
    pod = (f"when renting: runpodctl pod create --min-cuda-version {needs}",) if at(facts, Provider.RUNPOD) else ()
    version = f" {torch.version.value}" if isinstance(torch.version, Known) else ""
    yield Seen(
        f"the image's gate is cuda>={floor} ({gate.seen_in}); torch{version} inside it is built with CUDA {wheel}",
        do=(f'in the Dockerfile: ENV NVIDIA_REQUIRE_CUDA="cuda>={needs}"', *pod,
            f"or install a wheel for CUDA {floor.major} in the image"),
    )  # fmt: skip


def container_runtime_missing(question: Question) -> Iterator[Seen]:
    """Docker is here, the NVIDIA container toolkit is not: containers get no GPU."""
    facts = question.facts
    runtime = facts.container.runtime
    if container(facts) or isinstance(runtime.docker_socket, Unknown) or not facts.gpus.devices:
        return
    if isinstance(runtime.container_toolkit, Known) or runtime.cdi_specs:
        return
    if value_or(runtime.nvidia_runtime, default=False):
        return
    yield Seen(
        f"Docker listens at {runtime.docker_socket.seen_in}; {runtime.container_toolkit.reason}, no CDI file",
        do=(
            f"{as_root(facts, install(facts, 'nvidia-container-toolkit'))} (from NVIDIA's repository)",
            as_root(facts, "nvidia-ctk runtime configure --runtime=docker"),
            as_root(facts, "systemctl restart docker"),
        ),
    )


def shell_lacks_container_env(question: Question) -> Iterator[Seen]:
    """sshd starts a shell without the variables that the image and the pod set."""
    facts, kind = question.facts, container(question.facts)
    names = value_or(facts.container.only_in_pid_1, ())
    lost = [name for name in names if name in _USED_IN_A_SHELL]
    if kind is None or not lost:
        return
    pattern = "|".join(lost)
    from_pid_1 = f"export $(tr '\\0' '\\n' < /proc/1/environ | grep -E '^({pattern})=' | xargs)"
    runpod = (". /etc/rp_environment",) if at(facts, Provider.RUNPOD) else ()
    yield Seen(
        f"{listed(lost)}: set for the container (/proc/1/environ), not in this shell",
        do=(*runpod, from_pid_1, "to keep it, put that line into ~/.profile"),
    )


def devices_masked(question: Question) -> Iterator[Seen]:
    """CUDA_VISIBLE_DEVICES hides every GPU."""
    facts = question.facts
    mask = facts.gpus.cuda_visible_devices
    if isinstance(mask, Unknown) or not facts.gpus.devices or cuda_works(facts):
        return
    if not _hides_all(mask.value, len(facts.gpus.devices), error=init_code(facts)):
        return
    count = len(facts.gpus.devices)
    error = f", and cuInit gives {init_error(facts)}" if init_error(facts) else ""
    every = ",".join(str(number) for number in range(count))
    slurm = ("ask Slurm for one: srun --gres=gpu:1 COMMAND",) if at(facts, Provider.SLURM) else ()
    yield Seen(
        f"CUDA_VISIBLE_DEVICES is {mask.value[:40]!r}; NVML sees {counted_gpus(count)}, numbered from 0{error}",
        do=(*slurm, "unset CUDA_VISIBLE_DEVICES", f"or name GPUs that are there: export CUDA_VISIBLE_DEVICES={every}"),
    )


def _hides_all(mask: str, count: int, *, error: int) -> bool:
    """Whether a mask leaves no GPU: CUDA stops at the first entry that names none, so the first one decides.

    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    first = mask.partition(",")[0].strip()
    if first.lower().startswith(("gpu-", "mig-")):
        return error == _NO_DEVICE  # by name; whether that name is here is what cuInit says
    return not (first.isascii() and first.isdecimal() and int(first) < count)


def mig_without_slices(question: Question) -> Iterator[Seen]:
    """MIG is on and the GPU has no slice: CUDA has nothing to run on."""
    facts = question.facts
    if cuda_works(facts):
        return
    for gpu in facts.gpus.devices:
        if not value_or(gpu.mig_mode, default=False) or gpu.mig_devices:
            continue
        number = gpu.id.removeprefix("gpu-")
        inside = ("ask for a slice when the container starts: docker run --gpus '\"device=0:0\"' IMAGE",)
        outside = (
            f"cut slices: {as_root(facts, f'nvidia-smi mig -i {number} -lgip')} lists the sizes, "
            f"{as_root(facts, f'nvidia-smi mig -i {number} -cgi PROFILE -C')} makes one",
            f"or turn MIG off: {as_root(facts, f'nvidia-smi -i {number} -mig 0')}",
        )
        yield Seen(
            f"{gpu_label(gpu)}: MIG is on, no slice is to be seen (NVML)", do=inside if container(facts) else outside
        )


def mig_slice(question: Question) -> Iterator[Seen]:
    """A slice of a GPU: its memory and its share of the processors, one slice a process."""
    for gpu in question.facts.gpus.devices:
        if value_or(gpu.mig_mode, default=False) and gpu.mig_devices:
            yield Seen(f"{gpu_label(gpu)} is cut into {listed(_slices(gpu))} (NVML)")


def _slices(gpu: Gpu) -> Iterator[str]:
    for each in gpu.mig_devices:
        size = f" with {each.memory_bytes.value / _GIB:.1f} GiB" if isinstance(each.memory_bytes, Known) else ""
        yield f"{value_or(each.profile, 'a slice')}{size}"


def gpu_prohibited(question: Question) -> Iterator[Seen]:
    """Compute mode 'prohibited' lets cuInit pass and refuses every context."""
    for gpu in question.facts.gpus.devices:
        if isinstance(gpu.compute_mode, Known) and gpu.compute_mode.value is ComputeMode.PROHIBITED:
            command = f"nvidia-smi -i {gpu.id.removeprefix('gpu-')} -c DEFAULT"
            yield Seen(
                f"{gpu_label(gpu)}: compute mode is prohibited ({gpu.compute_mode.seen_in})",
                do=(as_root(question.facts, command),),
            )


def mixed_gpus(question: Question) -> Iterator[Seen]:
    """GPUs of different kinds in one host: CUDA counts them otherwise than nvidia-smi."""
    facts = question.facts
    kinds = {(value_or(gpu.name, ""), str(value_or(gpu.capability, ""))): None for gpu in facts.gpus.devices
             if isinstance(gpu.name, Known)}  # fmt: skip
    if len(kinds) < 2:
        return
    found = [gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)]
    targets = ";".join(str(each) for each in sorted(set(found)))
    order = () if isinstance(facts.gpus.cuda_device_order, Known) else ("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)
    names = (
        f"{gpu_label(gpu)} ({gpu.capability.value})" if isinstance(gpu.capability, Known) else gpu_label(gpu)
        for gpu in facts.gpus.devices
    )
    build = (f'build extensions for all of them: export TORCH_CUDA_ARCH_LIST="{targets}"',) if ";" in targets else ()
    yield Seen(f"{listed(names)} (NVML)", do=(*order, *build))


def wsl_libcuda_shadowed(question: Question) -> Iterator[Seen]:
    """A Linux driver package inside WSL puts its libcuda before the one that Windows provides."""
    facts = question.facts
    folder, loads = facts.place.wsl_libraries, facts.libcuda.would_load
    if platform(facts) is not Platform.WSL2 or isinstance(folder, Unknown) or isinstance(loads, Unknown):
        return
    if cuda_starts(facts) or loads.value.path.startswith(f"{folder.value}/"):
        return
    error = f"; cuInit gives {init_error(facts)}" if init_error(facts) else ""
    packages = [name for name in value_or(facts.driver.packages, ()) if name.startswith(("libnvidia-", "nvidia-"))]
    yield Seen(
        f"the loader takes {loads.value.real_path} ({loads.seen_in}), not {folder.value}/libcuda.so.1{error}",
        do=(
            f"take the Linux driver out of WSL: {as_root(facts, 'apt-get purge')} "
            f"{' '.join(packages) or 'libnvidia-compute-*'}, then {as_root(facts, 'ldconfig')}",
            f"until then, for one process: LD_LIBRARY_PATH={folder.value} python3 your_script.py",
        ),
    )


PLACE_RULES: tuple[Rule, ...] = (
    Rule(
        code="no-gpu-in-container",
        check=no_gpu_in_container,
        severity=Severity.BLOCKS,
        depth=10,
        title="This container was started without the host's GPUs.",
        fires_when="In a container, the host's driver or GPU can be seen but no NVIDIA device node is there.",
        looks_at=("container.kind", "driver.nodes", "driver.kernel_version", "gpus.pci", "container.visible_devices"),
        means="Nothing inside the container can reach a GPU, whatever is installed in it.",
        error="Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        source="facebookresearch/detectron2#3107",
        remedies=("restart-with-gpus",),
        explains=(
            "libcuda-missing",
            "libcuda-damaged",
            "cuinit-fails",
            "device-nodes-missing",
            "uvm-not-loaded",
            "driver-library-mismatch",
            "stub-libcuda-wins",
        ),
    ),
    Rule(
        code="container-gate-differs",
        check=container_gate_differs,
        severity=Severity.DEGRADES,
        depth=10,
        title="The image's driver gate lets in hosts that cannot run the torch inside it.",
        fires_when="The CUDA floor in NVIDIA_REQUIRE_CUDA is of an earlier major than the torch wheel.",
        looks_at=("container.cuda_requirement", "torch.wheel_cuda"),
        means="The container starts on any host that satisfies the gate; on those with an older driver torch then "
        "sees no GPU. Where it lands decides.",
        error="CUDA initialization: The NVIDIA driver on your system is too old (found version ...)",
        source="artokun/comfyui-mcp#118",
        remedies=("fix-gate", "install-other-wheel"),
    ),
    Rule(
        code="container-runtime-missing",
        check=container_runtime_missing,
        severity=Severity.NOTE,
        depth=10,
        title="Docker is here, but cannot hand GPUs to containers.",
        fires_when="On a plain machine with GPUs there is a Docker socket and neither nvidia-ctk, a runtime called "
        "nvidia, nor a CDI file.",
        looks_at=("container.runtime", "container.kind", "gpus.devices"),
        means="The machine itself is not touched by that; docker run --gpus fails.",
        error='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        source="NVIDIA/nvidia-docker#1034, TorchDSP/torchsig#329",
        remedies=("install-container-toolkit",),
    ),
    Rule(
        code="shell-lacks-container-env",
        check=shell_lacks_container_env,
        severity=Severity.DEGRADES,
        depth=10,
        title="This shell lacks variables that the container was started with.",
        fires_when="Variables that programs use are set for pid 1 of a container and not in this shell.",
        looks_at=("container.only_in_pid_1", "container.kind"),
        means="Programs behave otherwise here than in the container's own start command or in Jupyter: other "
        "libraries, other caches, other GPUs.",
        error="",
        source="runpod/containers#70, skypilot-org/skypilot#5451",
        remedies=("export-container-env",),
    ),
    Rule(
        code="devices-masked",
        check=devices_masked,
        severity=Severity.BLOCKS,
        depth=10,
        title="CUDA_VISIBLE_DEVICES hides every GPU.",
        fires_when="CUDA_VISIBLE_DEVICES is set, its first entry names no GPU that is here, and CUDA lists no device.",
        looks_at=("gpus.cuda_visible_devices", "gpus.devices", "libcuda.init_code", "libcuda.device_count"),
        means="CUDA programs see no GPU; nvidia-smi, which does not look at the variable, shows them.",
        error="RuntimeError: No CUDA GPUs are available",
        source="pytorch/pytorch#1040; docs.nvidia.com/cuda/cuda-programming-guide, environment variables",
        remedies=("unset-mask",),
        explains=("cuinit-fails",),
    ),
    Rule(
        code="mig-without-slices",
        check=mig_without_slices,
        severity=Severity.BLOCKS,
        depth=10,
        title="MIG is on, and there is no slice to run on.",
        fires_when="A GPU is in MIG mode, no MIG device of it can be seen, and CUDA lists no device.",
        looks_at=("gpus.devices", "libcuda.device_count", "libcuda.init_code"),
        means="A GPU in MIG mode is used through its slices alone; without one CUDA finds no device.",
        error="RuntimeError: No CUDA GPUs are available",
        source="wilicc/gpu-burn#36, owl-project/owl#94",
        remedies=("create-mig-slices", "turn-off-mig"),
        explains=("cuinit-fails",),
    ),
    Rule(
        code="mig-slice",
        check=mig_slice,
        severity=Severity.NOTE,
        depth=10,
        title="The GPU is a MIG slice.",
        fires_when="A GPU is in MIG mode and has MIG devices.",
        looks_at=("gpus.devices",),
        means="A process sees one slice, torch.cuda.device_count() is 1 however many there are, and slices of one "
        "GPU cannot train together by NCCL. Memory and speed are the slice's.",
        error="",
        source="pytorch/pytorch#102715, pytorch/pytorch#130181",
        remedies=("other-machine",),
    ),
    Rule(
        code="gpu-prohibited",
        check=gpu_prohibited,
        severity=Severity.BLOCKS,
        depth=10,
        title="The GPU is set to refuse every program.",
        fires_when="NVML says that the compute mode of a GPU is prohibited.",
        looks_at=("gpus.devices",),
        means="The first tensor on the GPU fails, although torch.cuda.is_available() is True.",
        error="CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        source="tensorflow/tensorflow#526; CUDA programming guide, compute modes",
        remedies=("set-compute-mode",),
    ),
    Rule(
        code="wsl-libcuda-shadowed",
        check=wsl_libcuda_shadowed,
        severity=Severity.BLOCKS,
        depth=30,
        title="A Linux driver library hides the one that Windows provides.",
        fires_when="In WSL 2 the loader takes a libcuda outside /usr/lib/wsl/lib, and cuInit does not work.",
        looks_at=(
            "place.platform",
            "place.wsl_libraries",
            "libcuda.would_load",
            "libcuda.init_code",
            "driver.packages",
        ),
        means="WSL has no NVIDIA kernel module; only Windows' own libcuda reaches the GPU.",
        error="RuntimeError: No CUDA GPUs are available",
        source="numba/numba#7106, NVIDIA/cuml#6218; docs.nvidia.com/cuda/wsl-user-guide",
        remedies=("remove-linux-driver", "remove-from-library-path"),
        explains=("cuinit-fails", "driver-library-mismatch", "libcuda-missing"),
    ),
    Rule(
        code="mixed-gpus",
        check=mixed_gpus,
        severity=Severity.NOTE,
        depth=10,
        title="The GPUs of this host are of different kinds.",
        fires_when="NVML names GPUs with different names or compute capabilities.",
        looks_at=("gpus.devices", "gpus.cuda_device_order"),
        means="CUDA counts the fastest GPU as 0, nvidia-smi counts along the PCI bus: the same number may mean two "
        "GPUs. A wheel or an extension must have code for each of them.",
        error="Detected different devices in the system",
        source="vllm-project/vllm#19741",
        remedies=("set-device-order",),
    ),
)
