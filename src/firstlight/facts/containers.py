"""The container we are in, who rents it out, its driver gate, and the container runtime of a host.

Only names of variables are taken from pid 1, never their values, except the few NVIDIA ones that steer the runtime.
"""

from __future__ import annotations

import enum
import re

from firstlight.facts.container_kind import ContainerKind, is_rootless, probe_container_kind, root_is_mapped
from firstlight.facts.device_numbers import DeviceNumber, probe_device_numbers
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which
from firstlight.versions import CudaVersion

__all__ = ["ContainerKind"]  # besides what is here

_PID_1 = "/proc/1/environ"
# What an SSH shell misses most often, because sshd does not pass the container's variables on.
_COMPARED = (
    "PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VERSION", "HF_HOME", "NVIDIA_REQUIRE_CUDA", "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", "CUDA_VISIBLE_DEVICES", "PYTHONPATH",
)  # fmt: skip
_KEPT_VALUES = ("NVIDIA_REQUIRE_CUDA", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE")
_ENGINES = ("docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "incus", "lxc", "systemd-nspawn")
_RUNTIME_CONFIG = "/etc/nvidia-container-runtime/config.toml"
_FLOOR = r"cuda>=(\d{1,2}\.\d{1,2})(?![\d.])"
_BRANCH = r"driver>=(\d{3,4}),driver<(\d{3,4})(?!\d)"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # what the NVIDIA runtime takes for true


class Provider(enum.Enum):
    """Who hands the machine out, or what schedules it."""

    RUNPOD = "runpod"
    VAST = "vast"
    LAMBDA = "lambda"
    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"
    ORACLE = "oracle"
    COLAB = "colab"
    KAGGLE = "kaggle"
    MODAL = "modal"
    PAPERSPACE = "paperspace"
    LIGHTNING = "lightning"
    CODESPACES = "codespaces"
    GITHUB_ACTIONS = "github-actions"
    SKYPILOT = "skypilot"
    DSTACK = "dstack"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


_MARKERS: tuple[tuple[Provider, tuple[str, ...]], ...] = (
    (Provider.RUNPOD, ("RUNPOD_POD_ID", "RUNPOD_DC_ID", "RUNPOD_ENDPOINT_ID")),
    (Provider.VAST, ("VAST_CONTAINERLABEL", "VAST_TCP_PORT_22")),
    (Provider.AWS, ("AWS_EXECUTION_ENV", "ECS_CONTAINER_METADATA_URI_V4", "SM_CURRENT_HOST")),
    (Provider.AZURE, ("AZUREML_RUN_ID",)),
    (Provider.COLAB, ("COLAB_RELEASE_TAG", "COLAB_GPU")),
    (Provider.KAGGLE, ("KAGGLE_KERNEL_RUN_TYPE",)),
    (Provider.MODAL, ("MODAL_TASK_ID", "MODAL_IS_REMOTE")),
    (Provider.PAPERSPACE, ("PAPERSPACE_FQDN", "PAPERSPACE_NOTEBOOK_REPO_ID")),
    (Provider.CODESPACES, ("CODESPACES",)),
    (Provider.GITHUB_ACTIONS, ("GITHUB_ACTIONS",)),
    (Provider.SKYPILOT, ("SKYPILOT_TASK_ID",)),
    (Provider.DSTACK, ("DSTACK_RUN_ID", "DSTACK_RUN_NAME")),
    (Provider.SLURM, ("SLURM_JOB_ID", "SLURM_JOBID")),
    (Provider.KUBERNETES, ("KUBERNETES_SERVICE_HOST",)),
)
# Variables asked for presence alone: a recording may keep "set" in place of their values.
PRESENCE_ONLY = (*(name for _, names in _MARKERS for name in names), "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


@dataclass(frozen=True, slots=True)
class ProviderSeen:
    """A provider and what gave it away, e.g. RunPod by the name RUNPOD_POD_ID in pid 1."""

    provider: Provider
    seen_in: str


@dataclass(frozen=True, slots=True)
class CudaRequirement:
    """NVIDIA_REQUIRE_CUDA taken apart: 'cuda>=13.0 brand=tesla,driver>=535,driver<536' is 13.0 and branch 535."""

    text: str
    cuda_floor: Fact[CudaVersion]
    driver_branches: tuple[int, ...]  # accepted below the floor, by forward compatibility


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """Docker and the NVIDIA container toolkit on a host."""

    docker_socket: Fact[bool]  # whether we may write to it
    nvidia_runtime: Fact[bool]  # daemon.json has a runtime called nvidia
    default_runtime: Fact[str]
    container_toolkit: Fact[str]  # 1.17.8
    runtime_mode: Fact[str]  # auto, legacy, cdi, csv
    cuda_compat_mode: Fact[str]  # ldconfig, hook, mount, disabled
    cdi_specs: tuple[str, ...]
    engines: tuple[str, ...]  # on PATH: docker, podman, ...
    cdi_driver: Fact[str]  # the driver whose files the description of the GPUs names: 570.133.20
    no_cgroups: Fact[bool]  # the toolkit leaves device rules alone, as an engine without root wants it


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The container around us, e.g. Docker at RunPod with a gate of CUDA 13.0."""

    kind: Fact[ContainerKind]
    providers: tuple[ProviderSeen, ...]
    only_in_pid_1: Fact[tuple[str, ...]]  # names set for the container but not in this shell
    library_path: Fact[tuple[str, ...]]  # LD_LIBRARY_PATH that the container was started with
    cuda_requirement: Fact[CudaRequirement]
    requirement_disabled: Fact[bool]
    visible_devices: Fact[str]  # all, none, void, 0,1 or 'by name'
    driver_capabilities: Fact[str]
    runtime: RuntimeFacts
    rootless: Fact[bool]  # root in here is a plain user outside
    label: Fact[str]  # the SELinux type that this process runs under, e.g. container_t
    label_enforced: Fact[bool]
    device_numbers: tuple[DeviceNumber, ...]


def probe_containers(machine: Machine) -> ContainerFacts:
    """Container kind, providers, the image's driver gate and the host's container runtime."""
    pid_1 = _pid_1_variables(machine)
    return ContainerFacts(
        kind=probe_container_kind(machine, pid_1_says="" if isinstance(pid_1, Unknown) else pid_1.get("container", "")),
        providers=_providers(machine, pid_1),
        only_in_pid_1=_only_in_pid_1(machine, pid_1),
        library_path=_library_path(machine, pid_1),
        cuda_requirement=_requirement(machine, pid_1),
        requirement_disabled=_disabled(_value(machine, pid_1, "NVIDIA_DISABLE_REQUIRE")),
        visible_devices=_visible_devices(_value(machine, pid_1, "NVIDIA_VISIBLE_DEVICES")),
        driver_capabilities=_value(machine, pid_1, "NVIDIA_DRIVER_CAPABILITIES"),
        runtime=_runtime(machine),
        rootless=is_rootless(machine, root_is_mapped(machine)),
        label=_label(machine),
        label_enforced=_enforced(machine),
        device_numbers=probe_device_numbers(machine),
    )


def parse_requirement(text: str) -> CudaRequirement:
    """The gate of an image: its CUDA floor and the older driver branches it lets through."""
    floors = [CudaVersion.parse(number) for number in re.findall(_FLOOR, text)]
    branches = {int(low) for low, high in re.findall(_BRANCH, text) if int(high) == int(low) + 1}
    floor: Fact[CudaVersion] = Unknown("names no cuda>= number")
    if floors:
        floor = Known(min(floors), seen_in="NVIDIA_REQUIRE_CUDA")
    return CudaRequirement(text, floor, tuple(sorted(branches)))


def _pid_1_variables(machine: Machine) -> dict[str, str] | Unknown:
    """Names set in pid 1 that mean something to us; 'by name' for a value that is not taken (UUIDs of devices)."""
    names = "|".join(dict.fromkeys((*_COMPARED, *PRESENCE_ONLY)))
    pattern = (
        rf"(?<![^\0])(?:(?:{'|'.join(_KEPT_VALUES)})=[^\0]*"
        rf"|NVIDIA_VISIBLE_DEVICES=(?:all|none|void|[\d,:]+)?(?![^\0])|container=[a-z-]+|(?:{names})(?==))"
    )
    found = machine.search(_PID_1, pattern.encode("ascii"), limit=200)
    if found is None:
        return Unknown(f"{_PID_1}: {machine.why_not(_PID_1)}")
    pairs = (item.decode("utf-8", "replace").partition("=") for item in found)
    return {name: value if equals else "by name" for name, equals, value in pairs}


def _value(machine: Machine, pid_1: dict[str, str] | Unknown, name: str) -> Fact[str]:
    """The value here, else in pid 1."""
    if here := machine.env(name):
        return Known(here, seen_in=name)
    if not isinstance(pid_1, Unknown) and pid_1.get(name):
        return Known(pid_1[name], seen_in=f"{name} of pid 1")
    return Unknown(f"{name} is not set")


def _providers(machine: Machine, pid_1: dict[str, str] | Unknown) -> tuple[ProviderSeen, ...]:
    found: dict[Provider, str] = {}
    for provider, names in _MARKERS:
        for name in names:
            if machine.env(name) is not None:
                found.setdefault(provider, name)
            elif not isinstance(pid_1, Unknown) and name in pid_1:
                found.setdefault(provider, f"{name} of pid 1")
    for provider, path, pattern in (
        (Provider.AWS, "/sys/class/dmi/id/sys_vendor", "Amazon EC2"),
        (Provider.GCP, "/sys/class/dmi/id/product_name", "Google Compute Engine"),
        # The same on every Azure machine: 'MSFT AZURE VM' in decimal.
        (Provider.AZURE, "/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),
        (Provider.ORACLE, "/sys/class/dmi/id/chassis_asset_tag", "OracleCloud.com"),
    ):
        if (machine.read(path, limit=128) or "").strip() == pattern:
            found.setdefault(provider, path)
    for provider, path in (
        (Provider.LAMBDA, "/var/lib/dpkg/info/lambda-stack-cuda.list"),
        (Provider.LIGHTNING, "/teamspace/studios"),
    ):
        if machine.stat(path) is not None:
            found.setdefault(provider, path)
    return tuple(ProviderSeen(provider, seen_in) for provider, seen_in in found.items())


def _only_in_pid_1(machine: Machine, pid_1: dict[str, str] | Unknown) -> Fact[tuple[str, ...]]:
    if isinstance(pid_1, Unknown):
        return pid_1
    return Known(tuple(name for name in _COMPARED if name in pid_1 and machine.env(name) is None), seen_in=_PID_1)


def _library_path(machine: Machine, pid_1: dict[str, str] | Unknown) -> Fact[tuple[str, ...]]:
    if isinstance(pid_1, Unknown):
        return pid_1
    if "LD_LIBRARY_PATH" not in pid_1:
        return Known((), seen_in=_PID_1)
    found = machine.search(_PID_1, rb"(?<![^\0])LD_LIBRARY_PATH=[^\0]*", limit=1)
    if not found:
        return Unknown(f"{_PID_1}: {machine.why_not(_PID_1)}")
    value = found[0].decode("utf-8", "replace").partition("=")[2]
    return Known(tuple(each for each in value.split(":") if each), seen_in=_PID_1)


def _requirement(machine: Machine, pid_1: dict[str, str] | Unknown) -> Fact[CudaRequirement]:
    text = _value(machine, pid_1, "NVIDIA_REQUIRE_CUDA")
    if isinstance(text, Unknown):
        return text
    return Known(parse_requirement(text.value[:16384]), seen_in=text.seen_in)


def _disabled(value: Fact[str]) -> Fact[bool]:
    return value if isinstance(value, Unknown) else Known(value.value in _TRUE, seen_in=value.seen_in)


def _visible_devices(value: Fact[str]) -> Fact[str]:
    """all, none, void and numbers as they are; UUIDs are only counted as 'by name'."""
    if isinstance(value, Known) and not re.fullmatch(r"all|none|void|[\d,:]+", value.value):
        return Known("by name", seen_in=value.seen_in)
    return value


def _runtime(machine: Machine) -> RuntimeFacts:
    socket = machine.stat("/var/run/docker.sock")
    settings = _found(machine, _RUNTIME_CONFIG, rb'(?m)^[ \t]*(?:cuda-compat-)?mode[ \t]*=[ \t]*"[a-z]{1,20}"')
    runtimes = _found(machine, "/etc/docker/daemon.json", rb'"nvidia"\s*:\s*\{|"default-runtime"\s*:\s*"[\w.-]{1,60}"')
    specs = tuple(
        f"{folder}/{name}"
        for folder in ("/etc/cdi", "/var/run/cdi")
        for pattern in ("*.yaml", "*.json")
        for name in machine.list(folder, pattern)
    )
    return RuntimeFacts(
        docker_socket=Unknown("no /var/run/docker.sock")
        if socket is None or socket.kind != "socket"
        else Known(socket.writable, seen_in="/var/run/docker.sock"),
        nvidia_runtime=runtimes
        if isinstance(runtimes, Unknown)
        else Known(any(item.startswith('"nvidia"') for item in runtimes.value), seen_in=runtimes.seen_in),
        default_runtime=_setting(runtimes, '"default-runtime"'),
        container_toolkit=_container_toolkit(machine),
        runtime_mode=_setting(settings, "mode"),
        cuda_compat_mode=_setting(settings, "cuda-compat-mode"),
        cdi_specs=specs,
        engines=tuple(name for name in _ENGINES if which(machine, name) is not None),
        cdi_driver=_cdi_driver(machine, specs),
        no_cgroups=_no_cgroups(machine),
    )


def _cdi_driver(machine: Machine, specs: tuple[str, ...]) -> Fact[str]:
    """The version in the name of the libcuda that a description hands in; it is written once, and drivers change."""
    for path in specs:
        found = machine.search(path, rb"libcuda\.so\.\d{3,4}\.\d{1,4}(?:\.\d{1,4})?(?![\d.])", limit=1)
        if found:
            return Known(found[0].decode("ascii", "replace").removeprefix("libcuda.so."), seen_in=path)
    return Unknown("no file in /etc/cdi or /var/run/cdi names a libcuda")


def _no_cgroups(machine: Machine) -> Fact[bool]:
    """What config.toml sets; where it sets nothing, the toolkit writes device rules."""
    found = _found(machine, _RUNTIME_CONFIG, rb"(?m)^[ \t]*no-cgroups[ \t]*=[ \t]*(?:true|false)")
    if isinstance(found, Unknown):
        return found
    return Known(any(each.endswith("true") for each in found.value), seen_in=found.seen_in)


def _label(machine: Machine) -> Fact[str]:
    """The type out of user:role:type:level; a process without SELinux has no such word."""
    path = "/proc/self/attr/current"
    text = machine.read(path, limit=512)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    parts = text.strip("\0\n ").split(":")
    return Known(parts[2], seen_in=path) if len(parts) >= 4 else Unknown(f"{path} holds no SELinux label")


def _enforced(machine: Machine) -> Fact[bool]:
    path = "/sys/fs/selinux/enforce"
    text = machine.read(path, limit=16)
    if text is None or text.strip() not in ("0", "1"):
        return Unknown(f"{path}: {machine.why_not(path) if text is None else 'holds neither 0 nor 1'}")
    return Known(text.strip() == "1", seen_in=path)


def _found(machine: Machine, path: str, pattern: bytes) -> Fact[tuple[str, ...]]:
    found = machine.search(path, pattern)
    if found is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    return Known(tuple(item.decode("utf-8", "replace").strip() for item in found), seen_in=path)


def _setting(found: Fact[tuple[str, ...]], name: str) -> Fact[str]:
    """The value of `name = "value"` or `name: "value"` among the matches."""
    if isinstance(found, Unknown):
        return found
    for item in found.value:
        if re.match(rf"{re.escape(name)}\s*[=:]", item):
            return Known(item.rstrip('"').rpartition('"')[2], seen_in=found.seen_in)
    return Unknown(f"{found.seen_in} does not set {name}".replace('"', ""))


def _container_toolkit(machine: Machine) -> Fact[str]:
    path = which(machine, "nvidia-ctk")
    if path is None:
        return Unknown("no nvidia-ctk on PATH")
    done = machine.run((path, "--version"))
    match = re.search(r"version v?(\d+\.\d+\.\d+(?:-rc\.\d+)?)", done.stdout)
    if match is None:
        return Unknown(f"{path} --version names no version" if done.ok else done.complaint)
    return Known(match.group(1), seen_in=f"{path} --version")
