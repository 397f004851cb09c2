"""Rules about the place: the container, its gate and shell, what masks or slices the GPUs, WSL."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    as_root,
    at,
    container,
    cuda_starts,
    has_device_nodes,
    init_error,
    install,
    listed,
    pci_gpus,
    platform,
    shown,
    start_with_gpus,
)
from firstlight.diagnosis.visible_gpu_rules import VISIBLE_GPU_RULES
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.versions import CudaVersion

# What programs in a shell use; NVIDIA_REQUIRE_CUDA and its like only steer the container runtime.
_USED_IN_A_SHELL = ("LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_GATE_BRANDS = ("tesla", "nvidia")  # of the longer list in NVIDIA_REQUIRE_CUDA of the CUDA images
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
        do=(*_gates(question, needs), *pod, f"or install a wheel for CUDA {floor.major} in the image"),
    )


def _gates(question: Question, needs: CudaVersion) -> Iterator[str]:
    """The gate that fits the wheel: NVIDIA's own form, which lets older data-centre hosts in, else the bare one."""
    rows = (row for row in question.tables.images if row.cuda_at_least == needs)
    branches = next((row.branches for row in rows), ())
    bare = f'in the Dockerfile: ENV NVIDIA_REQUIRE_CUDA="cuda>={needs}"'
    if not branches:
        yield bare
        return
    older = " ".join(f"brand={brand},driver>={each},driver<{each + 1}" for each in branches for brand in _GATE_BRANDS)
    yield f"{bare}  # shuts out data-centre hosts that would run it through a cuda-compat library"
    yield (
        f"with cuda-compat-{needs.major}-{needs.minor} in the image, as NVIDIA's own images do (two of the brands they "
        f'list): ENV NVIDIA_REQUIRE_CUDA="cuda>={needs} {older}"'
    )


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
    if cuda_starts(facts):  # then this shell finds the driver without it
        lost = [name for name in lost if name != _LIBRARY_PATH]
    if kind is None or not lost:
        return
    runpod = (". /etc/rp_environment",) if at(facts, Provider.RUNPOD) else ()
    kept = [name for name in lost if name != _LIBRARY_PATH]
    ways = [*runpod, f"for one program: {_with_variables_of_pid_1(lost)}", *_for_this_shell(kept)]
    yield Seen(
        f"{listed(lost)}: set for the container (/proc/1/environ), not in this shell",
        do=tuple(f"or {way}" if number else way for number, way in enumerate(ways)),
    )


def _with_variables_of_pid_1(names: list[str]) -> str:
    """A command with variables of pid 1, whatever is in their values: grep and xargs pass them on cut at the NULs."""
    return f"grep -zE '^({'|'.join(names)})=' /proc/1/environ | xargs -0 sh -c 'exec env \"$@\" COMMAND' sh"


def _for_this_shell(names: list[str]) -> tuple[str, ...]:
    """The same for the shell itself; never LD_LIBRARY_PATH, which would change every program started from it."""
    if not names:
        return ()
    pattern = "|".join(names)
    loop = f"while IFS= read -r -d '' each; do export \"$each\"; done < <(grep -zE '^({pattern})=' /proc/1/environ)"
    return (f"for this shell (bash): {loop}",)


def wsl_libcuda_shadowed(question: Question) -> Iterator[Seen]:
    """A Linux driver package inside WSL puts its libcuda before the one that Windows provides."""
    facts = question.facts
    folder, loads = facts.place.wsl_libraries, facts.libcuda.would_load
    if platform(facts) is not Platform.WSL2 or isinstance(folder, Unknown) or isinstance(loads, Unknown):
        return
    if cuda_starts(facts) or loads.value.path.startswith(f"{folder.value}/"):
        return
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    packages = [name for name in value_or(facts.driver.packages, ()) if name.startswith(("libnvidia-", "nvidia-"))]
    yield Seen(
        f"the loader takes {loads.value.real_path} ({loads.seen_in}), not {folder.value}/libcuda.so.1{error}",
        do=(
            f"take the Linux driver out of WSL: {as_root(facts, 'apt-get purge')} "
            f"{' '.join(packages) or 'libnvidia-compute-*'}, then {as_root(facts, 'ldconfig')}",
            f"until then, for one process: LD_LIBRARY_PATH={shlex.quote(folder.value)} python3 your_script.py",
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
    *VISIBLE_GPU_RULES,
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
)
