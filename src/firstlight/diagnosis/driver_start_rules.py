"""Rules about starting CUDA: what cuInit answers, and the daemons and settings behind that answer."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import NVIDIAS
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    as_root,
    container,
    counted_gpus,
    cuda_starts,
    has_device_nodes,
    has_nvidia_gpu,
    init_code,
    init_error,
    install,
    is_pretended,
    listed,
    on_the_host,
    shown,
    start_with_gpus,
)
from firstlight.facts.collect import Facts
from firstlight.facts.compat import driver_version_of
from firstlight.facts.gpus import PciKind
from firstlight.facts.health import FabricState
from firstlight.facts.known import Known, Unknown, value_or

_NO_PERMISSION, _UNKNOWN_ERROR = 4, 999  # of NVML
_NOT_INITIALIZED, _NO_DEVICE, _SYSTEM_NOT_READY, _UNKNOWN = 3, 100, 802, 999  # of cuInit
_UNAVAILABLE, _OS_CALL, _NO_MPS = 46, 304, 805  # of cuInit too
_NO_ANSWER = "gave no answer within"  # how the facts word a call that hangs


def device_access_lost(question: Question) -> Iterator[Seen]:
    """A container that worked loses its GPUs when systemd on the host reloads its units."""
    facts = question.facts
    code, kind = facts.driver.nvml_code, container(facts)
    if kind is None or not has_device_nodes(facts) or cuda_starts(facts) or not isinstance(code, Known):
        return
    if code.value not in (_NO_PERMISSION, _UNKNOWN_ERROR):
        return
    message = facts.driver.nvml_message
    said = f" {message.value}" if isinstance(message, Known) else ""
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}); the device nodes are there, but nvmlInit gives "
        f"{code.value}{said}",
        do=(
            "recreate the container; its device rules are gone and do not come back",
            "so that it does not come again, on the host: sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            "or hand the GPUs over by CDI: docker run --device nvidia.com/gpu=all IMAGE",
        ),
    )


def fabric_manager_missing(question: Question) -> Iterator[Seen]:
    """GPUs behind NVSwitches wait for nv-fabricmanager; until it has run, cuInit gives 802."""
    facts = question.facts
    waiting = _waiting_for_fabric(facts)
    if cuda_starts(facts) or (init_code(facts) != _SYSTEM_NOT_READY and not waiting):
        return
    manager, running = facts.health.fabric_manager, facts.health.fabric_manager_running
    seen = [f"cuInit gives {init_error(question)}"] if init_error(question) else []
    seen += [f"fabric state of {waiting} (NVML)"] if waiting else []
    if container(facts) is None:
        seen.append(f"{manager.value} is there" if isinstance(manager, Known) else manager.reason)
        if isinstance(running, Known) and not running.value:
            seen.append("it does not run")
    yield Seen("; ".join(seen), do=_start_fabric_manager(facts))


def _waiting_for_fabric(facts: Facts) -> str:
    """'gpu-0 and gpu-1: not started' for GPUs that have not joined the NVLink fabric; '' when all have."""
    states = {gpu.id: gpu.fabric_state.value for gpu in facts.health.gpus if isinstance(gpu.fabric_state, Known)}
    waiting = {
        name: state for name, state in states.items() if state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS)
    }
    if not waiting:
        return ""
    names = listed(waiting) if len(waiting) < 4 else counted_gpus(len(waiting))
    return f"{names}: {listed(dict.fromkeys(state.value for state in waiting.values()))}"


def _start_fabric_manager(facts: Facts) -> tuple[str, ...]:
    driver = facts.driver.kernel_version
    if container(facts):
        return ("it is the host's to run: report error 802 to whoever runs the host, or take another machine",)
    steps = []
    if isinstance(facts.health.fabric_manager, Unknown) and isinstance(driver, Known):
        package = f'"nvidia-fabricmanager-{driver.value.branch}={driver.value}*"'
        steps.append(as_root(facts, install(facts, package)) + NVIDIAS)
    steps.append(as_root(facts, "systemctl enable --now nvidia-fabricmanager"))
    steps.append("wait until `nvidia-smi -q` says Fabric State: Completed")
    return tuple(steps)


def fabric_manager_differs(question: Question) -> Iterator[Seen]:
    """nv-fabricmanager refuses to start beside a driver of another version."""
    facts = question.facts
    manager, driver = facts.health.fabric_manager_version, facts.driver.kernel_version
    if cuda_starts(facts) or not isinstance(manager, Known) or not isinstance(driver, Known):
        return
    switched = any(device.kind is PciKind.NVSWITCH for device in facts.gpus.pci)
    if manager.value == driver.value or not (switched or _waiting_for_fabric(facts)):
        return
    package = f'"nvidia-fabricmanager-{driver.value.branch}={driver.value}*"'
    yield Seen(
        f"fabric manager {shown(manager)}; driver {shown(driver)}",
        do=(
            on_the_host(facts, install(facts, package)) + NVIDIAS,
            on_the_host(facts, "systemctl restart nvidia-fabricmanager"),
            f"keep the two together: {on_the_host(facts, f'apt-mark hold nvidia-fabricmanager-{driver.value.branch}')}",
        ),
    )


def hmm_breaks_cuinit(question: Question) -> Iterator[Seen]:
    """With some kernels the heterogeneous memory management of nvidia_uvm makes cuInit fail with 3."""
    facts = question.facts
    setting = facts.driver.uvm_disable_hmm
    if init_code(facts) != _NOT_INITIALIZED or not isinstance(setting, Known) or setting.value:
        return
    if value_or(facts.driver.nvml_code, -1) != 0 or not facts.gpus.devices:
        return
    driver = facts.driver.kernel_version
    version = f" under driver {driver.value}" if isinstance(driver, Known) else ""
    yield Seen(
        f"cuInit gives {init_error(question)}{version} and kernel {facts.place.kernel_release}, while NVML sees "
        f"{counted_gpus(len(facts.gpus.devices))}; HMM is on ({setting.seen_in})",
        do=(
            on_the_host(facts, "sh -c 'echo options nvidia_uvm uvm_disable_hmm=1 > /etc/modprobe.d/nvidia-uvm.conf'"),
            on_the_host(facts, "sh -c 'rmmod nvidia_uvm && modprobe nvidia_uvm'"),
            "if the module is in use: reboot",
        ),
    )


def version_spoofed(question: Question) -> Iterator[Seen]:
    """A shim that makes libcuda report a newer CUDA gets past torch's check and fails in the first real call."""
    facts = question.facts
    loaded, offered = facts.libcuda.loaded_path, facts.libcuda.driver_cuda
    if not isinstance(loaded, Known) or not isinstance(offered, Known) or is_pretended(offered):
        return
    version = driver_version_of(loaded.value)
    real = question.tables.native_cuda(version.value) if isinstance(version, Known) else None
    if isinstance(version, Unknown) or real is None or offered.value.major <= real.major:
        return
    preload = facts.libcuda.ld_preload
    by = f"; LD_PRELOAD has {listed(preload)}" if preload else ""
    steps = ("unset LD_PRELOAD",) if preload else (f"put the driver's own {loaded.value} back",)
    yield Seen(
        f"{loaded.value} is of driver {version.value}, which has CUDA {real}, but answers {offered.value} "
        f"({offered.seen_in}){by}",
        do=(*steps, "then ask again what this machine can run: firstlight doctor"),
    )


def cuinit_hangs(question: Question) -> Iterator[Seen]:
    """cuInit does not come back: the driver waits for a GPU or its firmware."""
    facts = question.facts
    code = facts.libcuda.init_code
    if isinstance(code, Known) or _NO_ANSWER not in code.reason:
        return
    xids = value_or(facts.health.xids, ())
    seen = f"; the kernel log has {xids[-1].family} {xids[-1].code} at {xids[-1].pci}" if xids else ""
    yield Seen(
        f"{code.reason}{seen}",
        do=(
            f"look for the driver's complaint: {as_root(facts, 'dmesg')} | grep -E 'NVRM|Xid'",
            f"with every program off the GPU: {on_the_host(facts, 'nvidia-smi --gpu-reset')}",
            "reboot; a rented machine: give it back and name the Xid",
        ),
    )


def cuinit_fails(question: Question) -> Iterator[Seen]:
    """cuInit returned an error; where no more particular rule names the cause, this one names the code."""
    facts = question.facts
    code = init_code(facts)
    if code <= 0 or not has_nvidia_gpu(facts):
        return
    loaded = facts.libcuda.loaded_path
    library = f" of {loaded.value}" if isinstance(loaded, Known) else ""
    messages = value_or(facts.health.driver_messages, ())
    logged = f"; the driver logged: {messages[-1]}" if messages else ""
    row = question.tables.error(code)
    meaning = row.meaning if row is not None else ""
    yield Seen(
        f"cuInit{library} gives {init_error(question)}{logged}",
        do=_after_init_error(facts, code),
        means=f"Error {code}: {meaning} torch.cuda.is_available() is False." if meaning else "",
    )


def _after_init_error(facts: Facts, code: int) -> tuple[str, ...]:
    messages = value_or(facts.health.driver_messages, ())
    if any("not supported by open" in line for line in messages):
        return ("this GPU needs the proprietary module: install the driver package without -open, then reboot",)
    if code == _UNKNOWN:
        reload = on_the_host(facts, "sh -c 'rmmod nvidia_uvm && modprobe nvidia_uvm'")
        return (f"{reload}  # after a suspend it is often enough", "if it comes back: reboot")
    if code == _NO_DEVICE:
        again = (start_with_gpus(facts),) if container(facts) else ()
        return ("look at what hides the GPUs: env | grep VISIBLE_DEVICES", *again, "nvidia-smi -L")
    log = f"see what the driver says: {as_root(facts, 'dmesg')} | grep -E 'NVRM|Xid'"
    if code == _UNAVAILABLE:
        return (
            "see who uses the GPU, and its mode: nvidia-smi; nvidia-smi --query-gpu=index,compute_mode --format=csv",
            f"let several programs in: {on_the_host(facts, 'nvidia-smi -c DEFAULT')}",
            "or stop the program that holds it",
        )
    if code == _OS_CALL:
        return ("see that this user may open the nodes: ls -l /dev/nvidia* /dev/nvidia-caps", log, "reboot if it stays")
    if code == _SYSTEM_NOT_READY:
        return _start_fabric_manager(facts)
    if code == _NO_MPS:
        return (
            "start the MPS daemon that this user's programs look for: nvidia-cuda-mps-control -d",
            "or do without it: unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY, and end a daemon that hangs: "
            "echo quit | nvidia-cuda-mps-control",
        )
    return (log, "reboot, or load the driver's modules anew; a rented machine: give it back and name the code")


START_RULES: tuple[Rule, ...] = (
    Rule(
        code="device-access-lost",
        check=device_access_lost,
        severity=Severity.BLOCKS,
        depth=10,
        title="This container has lost access to its GPUs.",
        fires_when="In a container with device nodes, nvmlInit returns 999 (unknown error) or 4 (no permission).",
        looks_at=("driver.nvml_code", "driver.nodes", "container.kind", "libcuda.init_code"),
        means="It worked until systemd on the host reloaded its units and dropped the container's device rules.",
        error="Failed to initialize NVML: Unknown Error",
        source="NVIDIA/nvidia-container-toolkit#48, NVIDIA/nvidia-container-toolkit#1227",
        remedies=("restart-with-gpus",),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
    Rule(
        code="fabric-manager-differs",
        check=fabric_manager_differs,
        severity=Severity.BLOCKS,
        depth=20,
        title="The fabric manager is of another version than the driver and refuses to run.",
        fires_when="NVSwitches or GPUs that wait for the fabric are there, CUDA does not start, and "
        "nv-fabricmanager --version names another version than the kernel driver.",
        looks_at=(
            "health.fabric_manager_version",
            "driver.kernel_version",
            "gpus.pci",
            "health.gpus",
            "libcuda.init_code",
        ),
        means="The NVSwitch fabric is never set up, so cuInit gives 802 on every GPU.",
        error="fabric manager NVIDIA GPU driver interface version ... don't match with driver version "
        "... Please update with matching NVIDIA driver package.",
        source="NVIDIA/gpu-driver-container#735, NVIDIA/gpu-operator#544",
        remedies=("start-fabric-manager",),
        explains=("fabric-manager-missing", "cuinit-fails"),
    ),
    Rule(
        code="fabric-manager-missing",
        check=fabric_manager_missing,
        severity=Severity.BLOCKS,
        depth=20,
        title="The NVSwitch fabric of these GPUs has not been set up.",
        fires_when="cuInit returns 802, or CUDA does not start while NVML says that a GPU waits for the fabric.",
        looks_at=(
            "libcuda.init_code",
            "health.gpus",
            "health.fabric_manager",
            "health.fabric_manager_running",
            "container.kind",
        ),
        means="GPUs behind NVSwitches start only after nv-fabricmanager, of the driver's version, has run on the host.",
        error="Error 802: system not yet initialized",
        source="pytorch/pytorch#35710, aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33",
        remedies=("start-fabric-manager", "other-machine"),
        explains=("cuinit-fails",),
    ),
    Rule(
        code="hmm-breaks-cuinit",
        check=hmm_breaks_cuinit,
        severity=Severity.BLOCKS,
        depth=20,
        title="A bug in nvidia_uvm's memory management (HMM) keeps CUDA from starting.",
        fires_when="cuInit returns 3 although NVML sees the GPUs, and nvidia_uvm runs with HMM on.",
        looks_at=("libcuda.init_code", "driver.uvm_disable_hmm", "driver.nvml_code", "gpus.devices"),
        means="Every CUDA program fails while nvidia-smi works; torch loses nothing when HMM is turned off.",
        error="CUDA driver initialization failed, you might not have a CUDA gpu.",
        source="NVIDIA/open-gpu-kernel-modules#947, NVIDIA/open-gpu-kernel-modules#901",
        remedies=("disable-hmm", "reboot"),
        explains=("cuinit-fails",),
    ),
    Rule(
        code="version-spoofed",
        check=version_spoofed,
        severity=Severity.BLOCKS,
        depth=20,
        title="Something makes the driver library report a newer CUDA than it has.",
        fires_when="The loaded libcuda answers a CUDA major above the one that the driver in its file name has.",
        looks_at=("libcuda.driver_cuda", "libcuda.loaded_path", "libcuda.ld_preload"),
        means="The check in torch passes, and the first real call fails: the driver is as old as before.",
        error="CUDA driver version is insufficient for CUDA runtime version",
        source="CUDA Driver API, cuDriverGetVersion: the version of the driver, 1000 * major + 10 * minor",
        remedies=("remove-preload", "install-forward-compat", "install-other-wheel"),
    ),
    Rule(
        code="cuinit-hangs",
        check=cuinit_hangs,
        severity=Severity.BLOCKS,
        depth=20,
        title="CUDA does not start: the driver never answers.",
        fires_when="A child process that calls cuInit does not come back from it within the time limit.",
        looks_at=("libcuda.init_code", "health.xids"),
        means="Every CUDA program hangs at its first call, torch.cuda.is_available() included, with no error text.",
        error="",
        source="rwth-i6/returnn#1756, NVIDIA/open-gpu-kernel-modules#446",
        remedies=("reset-gpu", "reboot", "other-machine"),
    ),
    Rule(
        code="cuinit-fails",
        check=cuinit_fails,
        severity=Severity.BLOCKS,
        depth=30,
        title="The CUDA driver library does not start.",
        fires_when="There is an NVIDIA GPU and cuInit, called in a child process, returns another code than 0.",
        looks_at=("libcuda.init_code", "libcuda.loaded_path", "health.driver_messages", "gpus.devices", "gpus.pci"),
        means="No CUDA program starts, and torch.cuda.is_available() is False.",
        error="Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error ...: ...",
        source="cuda.h of the PyPI wheel nvidia-cuda-runtime 13.4.92; ggml-org/llama.cpp#7218",
        remedies=("reload-driver", "reboot"),
    ),
)
