"""What is answered outside of this system: the host, another machine, an image, a container started anew."""

from __future__ import annotations

from collections.abc import Sequence

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import at, container, has_device_nodes, typed
from firstlight.diagnosis.wheel_answers import cuda_of_torch
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.tables.system_rows import Role
from firstlight.versions import CudaVersion
from firstlight.ways.arguments import CDI_FILE
from firstlight.ways.kinds import AskPerson, InstallPackages, OtherMachine, StartContainer, UseImage, Why
from firstlight.ways.managers import of_driver
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, Way, cannot, chain

_FLOORS = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_TOOLKIT = "docs.nvidia.com/datacenter/cloud-native/container-toolkit"
_OF_THIS_ONE = "the fault is of this machine; another one need not have it"
# How each kind is told to hand its GPUs over; Kubernetes reads it in the pod. The rest is configured on the host, in
# words that ways/container_argv.py makes of the platform.
_WITH_GPUS: dict[ContainerKind, tuple[str, ...]] = {
    ContainerKind.DOCKER: ("--gpus", "all"),
    ContainerKind.PODMAN: ("--device", "nvidia.com/gpu=all"),
    ContainerKind.KUBERNETES: ('resources: {limits: {"nvidia.com/gpu": 1}}',),
    ContainerKind.APPTAINER: ("--nv",),
    ContainerKind.ENROOT: (
        "--env",
        "NVIDIA_VISIBLE_DEVICES=all",
        "--env",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
}
# What says so of each kind.
_SAID_BY: dict[ContainerKind, str] = {
    ContainerKind.APPTAINER: "apptainer.org/docs/user/main/gpu.html",
    ContainerKind.ENROOT: "github.com/NVIDIA/enroot, doc/standard-hooks.md",
    ContainerKind.KUBERNETES: "github.com/NVIDIA/k8s-device-plugin",
    ContainerKind.LXC: "man lxc.container.conf",
    ContainerKind.PROXMOX: "pve.proxmox.com/wiki/Linux_Container",
    ContainerKind.LXD: "documentation.ubuntu.com/lxd, gpu devices",
    ContainerKind.INCUS: "linuxcontainers.org/incus/docs, gpu devices",
    ContainerKind.NSPAWN: "wiki.archlinux.org/title/Systemd-nspawn",
    ContainerKind.CHROOT: "man mount, bind mounts",
}
_CLASS = "runtimeClassName: nvidia"
_K3S = "docs.k3s.io/advanced, NVIDIA container runtime"
_BY_DEFAULT = (
    ("sudo", "nvidia-ctk", "runtime", "configure", "--runtime=containerd", "--set-as-default"),
    ("sudo", "systemctl", "restart", "containerd"),
)


def machine_answers(question: Question, cuda: CudaVersion | None) -> tuple[Chain, ...]:
    """A machine whose driver and GPU fit, with the provider's filter; None: this one itself is at fault."""
    runs = cuda or cuda_of_torch(question)
    tables = question.tables
    whole = runs is None or tables.has_minor_compat(runs)
    floor = None if runs is None else CudaVersion(runs.major, 0) if whole else runs.release
    driver = None if floor is None else tables.oldest_driver(floor)
    other = OtherMachine(
        min_driver=0 if driver is None else driver.branch,
        cuda=floor,
        capability=min((gpu.capability for gpu in gpus_of(question)), default=None),
        command=_filter(question, floor),
    )
    proof, by = (Proof.GUESSED, _OF_THIS_ONE) if cuda is None else (Proof.DOCUMENTED, _FLOORS)
    return (chain(other, proof=proof, by=by),)


def _filter(question: Question, floor: CudaVersion | None) -> tuple[str, ...]:
    """The command of the provider that this machine is from: hosts are filtered by what their driver offers."""
    facts, gpus = question.facts, gpus_of(question)
    if at(facts, Provider.RUNPOD):
        gpu = ("--gpu-id", min(gpu.name for gpu in gpus)) if gpus else ()
        cuda = () if floor is None else ("--min-cuda-version", str(floor))
        return ("runpodctl", "pod", "create", *gpu, *cuda)
    if at(facts, Provider.VAST):
        capability = min((gpu.capability for gpu in gpus), default=None)
        # Vast counts a capability in hundreds: 8.9 is 890.
        cap = () if capability is None else (f"compute_cap>={capability.major * 100 + capability.minor * 10}",)
        good = () if floor is None else (f"cuda_max_good>={floor}",)
        return ("vastai", "search", "offers", " ".join((*good, *cap)))
    return ()


def image_answers(question: Question, needed: CudaVersion) -> tuple[Chain, ...]:
    """An nvidia/cuda image: it holds the compat library, and the container toolkit wires it at start."""
    facts, kernel = question.facts, question.facts.driver.kernel_version
    of_major = [row for row in question.tables.images if row.cuda_at_least.major == needed.major]
    rows = sorted((row for row in of_major if row.cuda_at_least >= needed.release), key=lambda row: row.cuda_at_least)
    fitting = [row for row in rows if isinstance(kernel, Known) and kernel.value.branch in row.branches]
    runtime = facts.container.runtime
    branch = kernel.value.branch if isinstance(kernel, Known) else "of no known number"
    if container(facts) is not None:
        why = "this is a container already; its image is chosen where it is started"
    elif not fitting:
        why = f"no image on record for CUDA {needed.release} lets in driver branch {branch}"
    elif isinstance(runtime.container_toolkit, Unknown) and isinstance(runtime.nvidia_runtime, Unknown):
        why = "no NVIDIA container runtime was found on this host"
    else:
        image = UseImage(f"{fitting[0].image}-devel-ubuntu22.04")  # a tag without a system is not there
        return (chain(image, proof=Proof.REPORTED, by=fitting[0].source),)
    return (cannot("a container image that holds the compat library", why),)


def restart_with_gpus(question: Question, proof: Proof = Proof.GUESSED) -> tuple[Chain, ...]:
    """The container around us started with the GPUs of the host; () where there is none."""
    facts, kind = question.facts, container(question.facts)
    if kind is None:
        return ()
    by = _SAID_BY.get(kind.value, _TOOLKIT)
    inside = libraries_inside(question)
    if inside and has_device_nodes(facts) and not _is_refused(facts):
        return (chain(*inside, proof=proof, by=by),)  # the nodes are here: the driver's libraries alone are missing
    given = chain(started(kind.value), *inside, proof=proof, by=by)
    if kind.value is ContainerKind.KUBERNETES and value_or(facts.container.visible_devices, "") == "by name":
        # The device plugin gave this pod a GPU, so its limits are right; the runtime that would have brought it in was
        # not the one used.
        node = AskPerson("make-default-runtime", Why.HOST, _BY_DEFAULT, as_root=True)
        return (chain(StartContainer((_CLASS,), gives_gpus=True), proof=proof, by=_K3S), chain(node, by=by))
    return (given,)


def described_anew(question: Question) -> tuple[Chain, ...]:
    """The GPUs came in without nvidia-uvm: podman goes by a file of the host's, written before that node was there."""
    kind = container(question.facts)
    if kind is None or kind.value is not ContainerKind.PODMAN:
        return restart_with_gpus(question)
    commands = (("sudo", "nvidia-modprobe", "-c", "0", "-u"),
                ("sudo", "nvidia-ctk", "cdi", "generate", f"--output={CDI_FILE}"))  # fmt: skip
    write = AskPerson("write-host-cdi", Why.HOST, commands, as_root=True)
    return (chain(write, started(kind.value), proof=Proof.REPORTED, by="NVIDIA/nvidia-container-toolkit#50"),)


def nodes_opened(facts: Facts, closed: Sequence[str]) -> tuple[Chain, ...]:
    """Nodes that this user may not open: by group, or by the mode that the container's configuration gives them."""
    kind = container(facts)
    look = ("ls", "-l", *closed)
    join = typed(facts, "usermod", "-aG", "video", "YOUR_NAME")
    group = AskPerson("join-group", Why.DECISION, (look, join), as_root=True)
    given = _MODES.get(kind.value, ()) if kind is not None else ()
    if kind is None or not given:
        return (chain(group),)
    mode = AskPerson("have-nodes-opened", Why.HOST, given, as_root=True)
    return (chain(mode, proof=Proof.DOCUMENTED, by=_SAID_BY[kind.value]),)  # they are root's: no group opens them


# Where the container's own configuration makes the nodes, it makes them 0660 for root unless it is told otherwise.
_MODES: dict[ContainerKind, tuple[tuple[str, ...], ...]] = {
    ContainerKind.INCUS: (
        ("incus", "config", "device", "set", "NAME", "gpu0", "mode=0666"),
        ("incus", "restart", "NAME"),
    ),
    ContainerKind.LXD: (("lxc", "config", "device", "set", "NAME", "gpu0", "mode=0666"), ("lxc", "restart", "NAME")),
    ContainerKind.PROXMOX: (("pct", "set", "VMID", "-dev0", "/dev/nvidia0,mode=0666"), ("pct", "reboot", "VMID")),
}


def _is_refused(facts: Facts) -> bool:
    """Whether nodes are here that the kernel does not let us use: the device rules of the container."""
    return value_or(facts.driver.nvml_code, 0) in (4, 999)


def libraries_inside(question: Question) -> tuple[Way, ...]:
    """The driver's libraries without its kernel module, of the host's very version; () where the host brings them."""
    facts, kind = question.facts, container(question.facts)
    if kind is None or kind.value not in _BRINGS_ITS_OWN or isinstance(facts.libcuda.would_load, Known):
        return ()
    return libraries_of_host(question)


def libraries_of_host(question: Question) -> tuple[Way, ...]:
    """The same in the place of those that are here; () where the host's version is not known."""
    facts, driver = question.facts, question.facts.driver.kernel_version
    if isinstance(driver, Unknown):
        return ()
    packages = names_for(Role.DRIVER_LIBRARIES, platform_of(facts), question.tables, branch=str(driver.value.branch))
    if packages:
        return (InstallPackages(packages, version=of_driver(driver.value)),)
    installer = typed(facts, "sh", f"NVIDIA-Linux-{facts.place.arch}-{driver.value}.run", "--no-kernel-module")
    return (
        AskPerson("install-libraries-by-installer", Why.INSTALLER, (installer,), as_root=True, of=(str(driver.value),)),
    )


# Containers that are systems of their own: what they have installed is not changed by starting them anew.
WHOLE_SYSTEMS = (
    ContainerKind.LXC, ContainerKind.LXD, ContainerKind.INCUS, ContainerKind.PROXMOX, ContainerKind.NSPAWN,
    ContainerKind.CHROOT,
)  # fmt: skip
# Nothing of the host's is mounted into these but what their configuration names.
_BRINGS_ITS_OWN = (ContainerKind.LXC, ContainerKind.PROXMOX, ContainerKind.NSPAWN, ContainerKind.CHROOT)


def started(kind: ContainerKind, *more: str) -> StartContainer:
    """A container of a kind started with its GPUs, and with more arguments."""
    return StartContainer((*_WITH_GPUS.get(kind, ()), *more), gives_gpus=True)
