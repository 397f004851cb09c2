"""Rules about the place: the container, its gate and shell, what masks or slices the GPUs, WSL."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import machine_answers, restart_with_gpus, started
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    at,
    container,
    cuda_starts,
    has_device_nodes,
    init_code,
    init_error,
    kernel_unseen,
    listed,
    pci_gpus,
    platform,
    shown,
)
from firstlight.diagnosis.visible_gpu_rules import VISIBLE_GPU_RULES
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, torch_answers
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.managers import installed as manager_install
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import filled, name_row, names_for
from firstlight.ways.way import Chain, Proof, Way, chain

# What programs in a shell use; NVIDIA_REQUIRE_CUDA and its like only steer the container runtime.
_USED_IN_A_SHELL = ("LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_STUB = 34  # CUDA_ERROR_STUB_LIBRARY
_GATE_BRANDS = ("tesla", "nvidia")  # of the longer list in NVIDIA_REQUIRE_CUDA of the CUDA images
_CHECK_DOCKER = ("docker", "run", "--rm", "--gpus", "all", "ubuntu", "nvidia-smi", "-L")
_JETSON = "docs.nvidia.com/datacenter/cloud-native/container-toolkit, Tegra: the nvidia runtime in csv mode"
_BY_NODE = "custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu"
_CHECKS: dict[ContainerKind, tuple[tuple[str, ...], ...]] = {
    ContainerKind.DOCKER: (_CHECK_DOCKER,),
    ContainerKind.PODMAN: (("nvidia-ctk", "cdi", "list"),),
    ContainerKind.KUBERNETES: (("kubectl", "get", "nodes", "-o", _BY_NODE), ("kubectl", "get", "runtimeclass")),
    ContainerKind.LXC: (("ls", "-l", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),),
    ContainerKind.PROXMOX: (("ls", "-l", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),),
    ContainerKind.NSPAWN: (("ls", "-l", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),),
    ContainerKind.APPTAINER: (("nvidia-smi", "-L"),),
    ContainerKind.ENROOT: (("nvidia-container-cli", "info"),),
    ContainerKind.INCUS: (("nvidia-container-cli", "info"),),
    ContainerKind.LXD: (("nvidia-container-cli", "info"),),
}
_GATE = (
    "The container starts on any host that satisfies the gate; on those with an older driver torch then sees no GPU. "
    "It depends on the host."
)
_OF_A_POD = (
    "Nothing inside the container can reach a GPU, whatever is installed in it. The pod asked for none; one that asks "
    "and then stays pending has no node with NVIDIA's device plugin."
)


def no_gpu_in_container(question: Question) -> Iterator[Seen]:
    """The host has a GPU and a driver; this container was started without them."""
    facts, kind = question.facts, container(question.facts)
    if kind is None or has_device_nodes(facts) or cuda_starts(facts):
        return
    if platform(facts) is Platform.WSL2:
        yield from _without_windows_gpu(question, kind)
        return
    driver, gpus = facts.driver.kernel_version, pci_gpus(facts)
    if platform(facts) is Platform.JETSON:
        yield from _without_boards_gpu(question, kind)
        return
    if isinstance(driver, Unknown) and not gpus:
        yield from _without_kernels_files(question, kind)
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
        answers=(*restart_with_gpus(question, Proof.DOCUMENTED), *_look_at_host(kind.value)),
        means=_OF_A_POD if kind.value is ContainerKind.KUBERNETES else "",
    )


def _without_kernels_files(question: Question, kind: Known[ContainerKind]) -> Iterator[Seen]:
    """A chroot without /sys and without the GPU's nodes: what the host has cannot be seen from here."""
    facts, modules = question.facts, question.facts.driver.uvm_loaded
    if not kernel_unseen(facts) or isinstance(modules, Known):
        return
    yield Seen(
        f"{kind.value.value} ({kind.seen_in}) with {modules.reason} and no /dev/nvidiactl: whether the host has a GPU "
        "and a driver cannot be seen from here",
        answers=restart_with_gpus(question, Proof.DOCUMENTED),
        means="Nothing in here reaches a driver: /proc, /sys and /dev of the host have to be mounted first.",
        severity=None if isinstance(facts.libcuda.would_load, Known) else Severity.NOTE,
    )


def _without_windows_gpu(question: Question, kind: Known[ContainerKind]) -> Iterator[Seen]:
    """A container under WSL 2 that has neither the node nor the folder of Windows' libraries."""
    facts = question.facts
    node = any(each.path == "/dev/dxg" and each.kind == "device" for each in facts.driver.nodes)
    if node or isinstance(facts.place.wsl_libraries, Known) or isinstance(facts.libcuda.would_load, Known):
        return
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}) under WSL 2 (kernel {facts.place.kernel_release}); there is "
        "neither /dev/dxg nor /usr/lib/wsl/lib",
        answers=restart_with_gpus(question, Proof.DOCUMENTED),
    )


def _without_boards_gpu(question: Question, kind: Known[ContainerKind]) -> Iterator[Seen]:
    """A container on a Jetson: its runtime mounts what the board's own files list, and --gpus does not."""
    facts = question.facts
    nodes = [node.path for node in facts.driver.nodes if node.kind == "device"]
    if nodes or isinstance(facts.libcuda.would_load, Known):
        return
    ways = (
        (kinds.StartContainer(("--runtime", "nvidia"), gives_gpus=True),) if kind.value is ContainerKind.DOCKER else ()
    )
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}) on a Jetson ({facts.place.kernel_release}); there is neither "
        "/dev/nvmap nor a libcuda.so.1",
        answers=(chain(*(ways or (started(kind.value),)), proof=Proof.DOCUMENTED, by=_JETSON),),
    )


def _look_at_host(kind: ContainerKind) -> Iterator[Chain]:
    commands = _CHECKS.get(kind)
    if commands:
        yield chain(AskPerson("see-host-hands-out", Why.HOST, commands, cures=False))


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
    version = f" {torch.version.value}" if isinstance(torch.version, Known) else ""
    yield Seen(
        f"the image's gate is cuda>={floor} ({gate.seen_in}); torch{version} inside it is built with CUDA {wheel}",
        answers=(*_gates(question, needs), *machine_answers(question, needs), *torch_answers(question)),
        means=f"{_GATE} A bare cuda>={needs} shuts out data-centre hosts that would run it through a compat library.",
    )


def _gates(question: Question, needs: CudaVersion) -> Iterator[Chain]:
    """The gate that fits the wheel: the bare one, or NVIDIA's own form, which lets older data-centre hosts in."""
    yield chain(_gate(f"cuda>={needs}"))
    rows = (row for row in question.tables.images if row.cuda_at_least == needs)
    branches = next((row.branches for row in rows), ())
    older = " ".join(f"brand={brand},driver>={each},driver<{each + 1}" for each in branches for brand in _GATE_BRANDS)
    if older:
        platform = platform_of(question.facts)
        packages = names_for(Role.COMPAT, platform, question.tables, major=str(needs.major), minor=str(needs.minor))
        if not packages:
            return
        library = f"RUN {' '.join(manager_install(packages, platform))}"
        yield chain(kinds.ChangeImage(library), _gate(f"cuda>={needs} {older}"))


def _gate(requirement: str) -> kinds.ChangeImage:
    return kinds.ChangeImage(f'ENV NVIDIA_REQUIRE_CUDA="{requirement}"', gate=requirement)


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
        answers=(_toolkit_for_docker(question),),
    )


def _toolkit_for_docker(question: Question) -> Chain:
    platform, tables = platform_of(question.facts), question.tables
    row = name_row(Role.CONTAINER_TOOLKIT, platform, tables)
    if row is None or platform.is_image_based:
        toolkit: tuple[Way, ...] = (AskPerson("install-container-toolkit", Why.DECISION),)
    else:
        repository = (kinds.SetUpRepository(row.from_repository),) if row.from_repository else ()
        toolkit = (*repository, kinds.InstallPackages(filled(row, platform)))
    units = names_for(Role.SERVICE, platform, tables, of="docker")
    again = (kinds.StartService(each, kinds.Service.RESTART) for each in units)
    return chain(*toolkit, kinds.ConfigureContainers("docker"), *again)


def shell_lacks_container_env(question: Question) -> Iterator[Seen]:
    """sshd starts a shell without the variables that the image and the pod set."""
    facts, kind = question.facts, container(question.facts)
    names = value_or(facts.container.only_in_pid_1, ())
    lost = [name for name in names if name in _USED_IN_A_SHELL]
    if cuda_starts(facts):  # then this shell finds the driver without it
        lost = [name for name in lost if name != _LIBRARY_PATH]
    if kind is None or not lost:
        return
    kept = tuple(name for name in lost if name != _LIBRARY_PATH)  # it would change every program of a shell
    file = "/etc/rp_environment" if at(facts, Provider.RUNPOD) else "/proc/1/environ"
    yield Seen(
        f"{listed(lost)}: set for the container (/proc/1/environ), not in this shell",
        answers=(*((chain(kinds.ReadEnvironment(file, kept)),) if kept else ()), chain(_for_one_program(lost))),
    )


def _for_one_program(names: list[str]) -> AskPerson:
    """A command with variables of pid 1, whatever is in their values: grep and xargs pass them on cut at the NULs."""
    line = f"grep -zE '^({'|'.join(names)})=' /proc/1/environ | xargs -0 sh -c 'exec env \"$@\" COMMAND' sh"
    return AskPerson("start-with-variables", Why.PROGRAM, (("sh", "-c", line),))


def wsl_libcuda_shadowed(question: Question) -> Iterator[Seen]:
    """A Linux driver package inside WSL puts its libcuda before the one that Windows provides."""
    facts = question.facts
    folder, loads = facts.place.wsl_libraries, facts.libcuda.would_load
    if platform(facts) is not Platform.WSL2 or isinstance(folder, Unknown) or isinstance(loads, Unknown):
        return
    if cuda_starts(facts) or loads.value.path.startswith(f"{folder.value}/"):
        return
    if loads.value.is_stub or init_code(facts) == _STUB:
        return  # stub-libcuda-wins speaks for the toolkit's
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    packages = [name for name in value_or(facts.driver.packages, ()) if name.startswith(("libnvidia-", "nvidia-"))]
    yield Seen(
        f"the loader takes {loads.value.real_path} ({loads.seen_in}), not {folder.value}/libcuda.so.1{error}",
        answers=(
            chain(
                kinds.RemovePackages(tuple(packages) or _any_libraries(question), purge=True),
                proof=Proof.DOCUMENTED,
                by="docs.nvidia.com/cuda/wsl-user-guide: no Linux driver in WSL",
            ),
            chain(kinds.SetVariables((kinds.Variable(_LIBRARY_PATH, folder.value),), kinds.Scope.PROGRAM)),
        ),
    )


def _any_libraries(question: Question) -> tuple[str, ...]:
    """The packages of a driver's libraries, of whatever branch: those that dpkg was not asked about."""
    return names_for(Role.DRIVER_LIBRARIES, platform_of(question.facts), question.tables, branch="*") or ("*nvidia*",)


PLACE_RULES: tuple[Rule, ...] = (
    Rule(
        check=no_gpu_in_container,
        severity=Severity.BLOCKS,
        depth=10,
        title="This container was started without the host's GPUs.",
        fires_when="In a container, the host's driver or GPU can be seen but no NVIDIA device node is there; or a "
        "chroot has no /sys to see them by.",
        looks_at=("container.kind", "driver.nodes", "driver.kernel_version", "gpus.pci", "container.visible_devices"),
        means="Nothing inside the container can reach a GPU, whatever is installed in it.",
        error="Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        source="facebookresearch/detectron2#3107",
        ways=(kinds.StartContainer, kinds.InstallPackages, AskPerson),
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
        check=container_gate_differs,
        severity=Severity.DEGRADES,
        depth=10,
        title="The image's driver gate lets in hosts that cannot run the torch inside it.",
        fires_when="The CUDA floor in NVIDIA_REQUIRE_CUDA has an earlier major than the torch wheel.",
        looks_at=("container.cuda_requirement", "torch.wheel_cuda"),
        means=_GATE,
        error="CUDA initialization: The NVIDIA driver on your system is too old (found version ...)",
        source="artokun/comfyui-mcp#118",
        ways=(kinds.ChangeImage, kinds.OtherMachine, *TORCH_WAYS),
    ),
    Rule(
        check=container_runtime_missing,
        severity=Severity.NOTE,
        depth=10,
        title="Docker is installed, but cannot give GPUs to containers.",
        fires_when="On a plain machine with GPUs there is a Docker socket and neither nvidia-ctk, a runtime called "
        "nvidia, nor a CDI file.",
        looks_at=("container.runtime", "container.kind", "gpus.devices"),
        of_host=True,
        means="The machine itself is not affected; docker run --gpus fails.",
        error='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        source="NVIDIA/nvidia-docker#1034, TorchDSP/torchsig#329",
        ways=(kinds.SetUpRepository, kinds.InstallPackages, kinds.ConfigureContainers, kinds.StartService),
    ),
    Rule(
        check=shell_lacks_container_env,
        severity=Severity.DEGRADES,
        depth=10,
        title="This shell lacks variables that the container was started with.",
        fires_when="Variables that programs use are set for pid 1 of a container and not in this shell.",
        looks_at=("container.only_in_pid_1", "container.kind"),
        means="Programs behave differently here than in the container's own start command or in Jupyter: other "
        "libraries, other caches, other GPUs.",
        source="runpod/containers#70, skypilot-org/skypilot#5451",
        ways=(kinds.ReadEnvironment, AskPerson),
    ),
    *VISIBLE_GPU_RULES,
    Rule(
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
        ways=(kinds.RemovePackages, kinds.SetVariables),
        explains=("cuinit-fails", "driver-library-mismatch", "libcuda-missing"),
    ),
)
