"""Rules about starting CUDA: what cuInit answers, and the daemons and settings behind that answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_answers import LOADER
from firstlight.diagnosis.elsewhere_answers import machine_answers, restart_with_gpus
from firstlight.diagnosis.fabric_seen import does_not_start, gave_up, has_switches, spoken_for, waiting_words
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    container,
    counted_gpus,
    cuda_starts,
    has_device_nodes,
    init_code,
    init_error,
    is_pretended,
    listed,
    shown,
)
from firstlight.diagnosis.services import FABRIC_MANAGER, packages, start
from firstlight.facts.compat import driver_version_of
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.tables.system_rows import Role
from firstlight.versions import DriverVersion
from firstlight.ways import kinds
from firstlight.ways.guests import is_virtual
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.managers import of_driver
from firstlight.ways.way import Chain, Proof, Way, chain

_NO_PERMISSION, _UNKNOWN_ERROR = 4, 999  # of NVML
_NOT_INITIALIZED = 3  # of cuInit
FABRIC_WAYS: tuple[type[Way], ...] = (
    kinds.SetUpRepository,
    kinds.InstallPackages,
    kinds.StartService,
    AskPerson,
    kinds.OtherMachine,
)
_UVM_OPTIONS = "/etc/modprobe.d/nvidia-uvm.conf"


# Containers whose device rules a person writes down: these were never there, or name another number.
BY_RULES = (
    ContainerKind.LXC, ContainerKind.PROXMOX, ContainerKind.LXD, ContainerKind.INCUS, ContainerKind.NSPAWN,
)  # fmt: skip
_NOT_ALLOWED = (
    "The nodes were bound in, and the container's device rules do not allow them: the number of nvidia-uvm can change "
    "with every start of the kernel, and a rule may name an old one."
)


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
        answers=_access_again(question, kind.value),
        means=_NOT_ALLOWED if kind.value in BY_RULES else "",
    )


def _access_again(question: Question, kind: ContainerKind) -> tuple[Chain, ...]:
    """The device rules are gone and do not come back: a new container has them."""
    if kind in BY_RULES:
        return restart_with_gpus(question, Proof.DOCUMENTED)
    links = ("sudo", "nvidia-ctk", "system", "create-dev-char-symlinks", "--create-all")
    lasting = AskPerson("link-nodes-on-host", Why.HOST, (links,), cures=False, as_root=True)
    again = tuple(replace(one, ways=(*one.ways, lasting)) for one in restart_with_gpus(question, Proof.DOCUMENTED))
    host = ("sudo", "nvidia-ctk", "config", "--in-place", "--set", "nvidia-container-cli.no-cgroups=false")
    rules = AskPerson("let-toolkit-write-rules", Why.HOST, (host,), as_root=True)
    allowed = tuple(replace(one, ways=(rules, *one.ways)) for one in restart_with_gpus(question))
    by_cdi = chain(kinds.StartContainer(("--device", "nvidia.com/gpu=all"), gives_gpus=True))
    return (*again, *allowed, by_cdi) if kind is ContainerKind.DOCKER else again


def fabric_manager_missing(question: Question) -> Iterator[Seen]:
    """GPUs behind NVSwitches wait for nv-fabricmanager; until it has run, cuInit gives 802."""
    facts = question.facts
    waiting = waiting_words(facts)
    if not does_not_start(facts) or spoken_for(facts):
        return
    manager, running = facts.health.fabric_manager, facts.health.fabric_manager_running
    seen = [f"cuInit gives {init_error(question)}"] if init_error(question) else []
    seen += [f"fabric state of {waiting} (NVML)"] if waiting else []
    if container(facts) is None:
        seen.append(f"{manager.value} is there" if isinstance(manager, Known) else manager.reason)
        if isinstance(running, Known) and not running.value:
            seen.append("it does not run")
        if gave_up(facts):
            lines = value_or(facts.fleet.fabric.manager_log, ())
            seen.append("it was started and gave up" + (f": {'; '.join(lines[-3:])}" if lines else ""))
    yield Seen("; ".join(seen), answers=start_fabric_manager(question))


def start_fabric_manager(question: Question) -> tuple[Chain, ...]:
    facts, driver = question.facts, question.facts.driver.kernel_version
    other = machine_answers(question, None)
    if container(facts):
        return (chain(AskPerson("report-error-802", Why.HOST)), *other)
    if is_virtual(facts) and not has_switches(facts):
        return (
            chain(AskPerson("activate-partition", Why.HYPERVISOR)),
            *other,
        )  # the switches are the host's, and so is their manager
    missing = isinstance(facts.health.fabric_manager, Unknown)
    package = _fabric_package(question, driver.value) if missing and isinstance(driver, Known) else ()
    action = kinds.Service.RESTART if gave_up(facts) else kinds.Service.START
    return (chain(*package, start(question, FABRIC_MANAGER, action)), *other)


def _fabric_package(question: Question, driver: DriverVersion) -> tuple[Way, ...]:
    """It must be of the very version of the driver, and is in NVIDIA's repository alone."""
    return packages(question, Role.FABRIC_MANAGER, version=of_driver(driver), branch=str(driver.branch))


def fabric_manager_differs(question: Question) -> Iterator[Seen]:
    """nv-fabricmanager refuses to start beside a driver of another version."""
    facts = question.facts
    manager, driver = facts.health.fabric_manager_version, facts.driver.kernel_version
    if cuda_starts(facts) or not isinstance(manager, Known) or not isinstance(driver, Known):
        return
    if manager.value == driver.value or not (has_switches(facts) or waiting_words(facts)):
        return
    yield Seen(
        f"fabric manager {shown(manager)}; driver {shown(driver)}", answers=_of_one_version(question, driver.value)
    )


def _of_one_version(question: Question, driver: DriverVersion) -> tuple[Chain, ...]:
    package = _fabric_package(question, driver)
    if container(question.facts):
        return (chain(AskPerson("give-host-fabric-manager", Why.HOST, of=(str(driver),))),)
    same = (*package, start(question, FABRIC_MANAGER, kinds.Service.RESTART))
    held = [way.packages for way in package if isinstance(way, kinds.InstallPackages)]
    # held, so that an upgrade parts them no more
    return (chain(*same), *(chain(*same, kinds.HoldPackages(names)) for names in held))


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
        answers=_without_hmm(),
    )


def _without_hmm() -> tuple[Chain, ...]:
    option = kinds.SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", _UVM_OPTIONS)
    return (chain(option, kinds.ReloadModules(("nvidia_uvm",))), chain(option, kinds.Restart()))


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
    back = AskPerson("put-own-libcuda-back", Why.DECISION, (("dpkg", "-S", loaded.value),))
    yield Seen(
        f"{loaded.value} is of driver {version.value}, which has CUDA {real}, but answers {offered.value} "
        f"({offered.seen_in}){by}",
        answers=(
            chain(kinds.Unwire(preload, kinds.WiredBy.PRELOAD), proof=Proof.DOCUMENTED, by=LOADER)
            if preload
            else chain(back),
        ),
    )


START_RULES: tuple[Rule, ...] = (
    Rule(
        check=device_access_lost,
        severity=Severity.BLOCKS,
        depth=10,
        title="This container may not use the GPUs that it was given.",
        fires_when="In a container with device nodes, nvmlInit returns 999 (unknown error) or 4 (no permission).",
        looks_at=("driver.nvml_code", "driver.nodes", "container.kind", "libcuda.init_code"),
        means="The container's device rules do not have them: systemd on the host reloaded its units and dropped them, "
        "or the host's toolkit writes none (no-cgroups = true in its config.toml).",
        error="Failed to initialize NVML: Unknown Error",
        source="NVIDIA/nvidia-container-toolkit#48, NVIDIA/nvidia-container-toolkit#1227",
        ways=(kinds.StartContainer, kinds.InstallPackages, AskPerson),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
    Rule(
        check=fabric_manager_differs,
        severity=Severity.BLOCKS,
        depth=20,
        title="The fabric manager has another version than the driver and refuses to run.",
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
        ways=(kinds.SetUpRepository, kinds.InstallPackages, kinds.StartService, kinds.HoldPackages, AskPerson),
        explains=("fabric-manager-missing", "cuinit-fails"),
    ),
    Rule(
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
        ways=FABRIC_WAYS,
        explains=("cuinit-fails",),
    ),
    Rule(
        check=hmm_breaks_cuinit,
        severity=Severity.BLOCKS,
        depth=20,
        title="A bug in nvidia_uvm's memory management (HMM) keeps CUDA from starting.",
        fires_when="cuInit returns 3 although NVML sees the GPUs, and nvidia_uvm runs with HMM on.",
        looks_at=("libcuda.init_code", "driver.uvm_disable_hmm", "driver.nvml_code", "gpus.devices"),
        means="Every CUDA program fails while nvidia-smi works; torch loses nothing when HMM is turned off.",
        error="CUDA driver initialization failed, you might not have a CUDA gpu.",
        source="NVIDIA/open-gpu-kernel-modules#947, NVIDIA/open-gpu-kernel-modules#901",
        ways=(kinds.SetModuleOption, kinds.ReloadModules, kinds.Restart),
        explains=("cuinit-fails",),
    ),
    Rule(
        check=version_spoofed,
        severity=Severity.BLOCKS,
        depth=20,
        title="Something makes the driver library report a newer CUDA than it has.",
        fires_when="The loaded libcuda answers a CUDA major above the one that the driver in its file name has.",
        looks_at=("libcuda.driver_cuda", "libcuda.loaded_path", "libcuda.ld_preload"),
        means="The check in torch passes, and the first real call fails: the driver is as old as before.",
        error="CUDA driver version is insufficient for CUDA runtime version",
        source="CUDA Driver API, cuDriverGetVersion: the version of the driver, 1000 * major + 10 * minor",
        ways=(kinds.Unwire, AskPerson),
    ),
)
