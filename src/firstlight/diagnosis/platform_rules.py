"""Rules about what the system is: its C library, an image it comes as, a label or a description that a GPU needs."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_start_rules import BY_RULES
from firstlight.diagnosis.elsewhere_answers import WHOLE_SYSTEMS, machine_answers, started
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    container,
    cuda_starts,
    cuda_works,
    has_device_nodes,
    init_code,
    init_error,
    is_wanted,
    listed,
    shown,
)
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.runtime_libraries import Libc
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.platform import platform_of
from firstlight.ways.way import Chain, Proof, cannot, chain

_NO_PERMISSION, _UNKNOWN_ERROR = 4, 999  # of NVML
_CONFINED = ("container_t", "container_init_t", "container_kvm_t", "svirt_lxc_net_t")
_CDI = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
_UVM_THREADS = "lxc.container.conf(5); gist.github.com/paul-chambers/26a111e8f5206aab38c14be35bc3964e"
_GROUPS = "NVIDIA/nvidia-container-toolkit#210, NVIDIA/nvidia-docker#1608"
_NO_CGROUPS = "NVIDIA/nvidia-container-toolkit#381, NVIDIA/nvidia-container-toolkit#85"
_MAKE_NODES = ("sudo", "nvidia-modprobe", "-c", "0", "-u")
_GLIBC_IMAGE = "python:{python}-slim-bookworm"
_MUSL_LACKS = "pthread_attr_setaffinity_np: symbol not found"
_NO_WHEEL = "ERROR: No matching distribution found for torch"
_MUSL_THREADS = "pytorch/pytorch#102592, pytorch/pytorch#71381, astral-sh/uv#9901"


def musl_has_no_cuda(question: Question) -> Iterator[Seen]:
    """A system with musl: no CUDA wheel is built for it, and the driver's libraries are built for glibc."""
    facts = question.facts
    if platform_of(facts).libc is not Libc.MUSL or cuda_works(facts) or question.wants_no_cuda:
        return
    libc = facts.runtime.libc
    seen_in = libc.seen_in if isinstance(libc, Known) else "/etc/os-release"
    name = f" of {facts.place.os_name.value}" if isinstance(facts.place.os_name, Known) else ""
    torch = facts.torch.value if isinstance(facts.torch, Known) and not is_wanted(facts) else None
    error = f"Error relocating {torch.folder}/lib/libgomp.so.1: {_MUSL_LACKS}" if torch is not None else _NO_WHEEL
    yield Seen(f"the C library{name} is musl ({seen_in})", answers=_with_glibc(question), error=error)


def _with_glibc(question: Question) -> tuple[Chain, ...]:
    """Another image, where programs come in images; on a machine of its own another system."""
    facts = question.facts
    no_wheel = cannot("a torch wheel for this system", "PyTorch builds none for musl")
    layer = cannot("a glibc beside musl, such as gcompat", "torch and libcuda use symbols that these do not have")
    image = chain(kinds.UseImage(_GLIBC_IMAGE.format(python=_python(facts))), proof=Proof.REPORTED, by=_MUSL_THREADS)
    kind = container(facts)
    if kind is not None and kind.value in WHOLE_SYSTEMS:
        anew = chain(kinds.UseImage("debian:12"), proof=Proof.REPORTED, by=_MUSL_THREADS)
        return (anew, no_wheel, layer)
    if kind is not None:
        return (image, no_wheel, layer)
    system = chain(AskPerson("install-glibc-system", Why.DECISION), proof=Proof.DOCUMENTED)
    return (system, *machine_answers(question, None), no_wheel, layer)


def _python(facts: Facts) -> str:
    """The judged Python's release, so that what is installed stays the same; 3.12 where there is none."""
    environment = facts.environment
    version = "" if environment is None else value_or(environment.python_version, "")
    return ".".join(version.split(".")[:2]) or "3.12"


def system_comes_as_image(question: Question) -> Iterator[Seen]:
    """A system whose programs come with an image or a description: what is installed beside them does not stay."""
    facts, image = question.facts, question.facts.place.image_based
    if container(facts) is not None or isinstance(image, Unknown) or image.value is ImageSystem.NONE:
        return
    name = f"{facts.place.os_name.value}: " if isinstance(facts.place.os_name, Known) else ""
    yield Seen(f"{name}{shown(Known(image.value.value, image.seen_in))}")


def label_refuses_gpu(question: Question) -> Iterator[Seen]:
    """SELinux keeps a container from device nodes that were handed in."""
    facts, kind = question.facts, container(question.facts)
    code, label = facts.driver.nvml_code, facts.container.label
    if kind is None or cuda_starts(facts) or not has_device_nodes(facts) or not isinstance(label, Known):
        return
    if not isinstance(code, Known) or code.value not in (_NO_PERMISSION, _UNKNOWN_ERROR):
        return
    if label.value not in _CONFINED or not value_or(facts.container.label_enforced, default=True):
        return
    said = f" {facts.driver.nvml_message.value}" if isinstance(facts.driver.nvml_message, Known) else ""
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}); device nodes are there, nvmlInit gives {code.value}{said}; "
        f"this process runs as {shown(label)}",
        answers=_unlabelled(kind.value),
    )


def _unlabelled(kind: ContainerKind) -> tuple[Chain, ...]:
    allow = (("sudo", "setsebool", "-P", "container_use_devices=true"),)
    allowed = chain(AskPerson("allow-devices-on-host", Why.HOST, allow, as_root=True))
    if kind not in (ContainerKind.DOCKER, ContainerKind.PODMAN):
        return (allowed,)
    return (chain(started(kind, "--security-opt", "label=disable"), proof=Proof.DOCUMENTED, by=_CDI), allowed)


def groups_left_outside(question: Question) -> Iterator[Seen]:
    """Nodes of a group that the user is in outside, and not in the user namespace of a rootless container."""
    facts, kind = question.facts, container(question.facts)
    closed = [node.path for node in facts.driver.nodes if node.kind == "device" and not node.openable]
    if kind is None or kind.value is not ContainerKind.PODMAN or cuda_starts(facts) or not closed:
        return
    rootless = facts.container.rootless
    if not isinstance(rootless, Known) or not rootless.value:
        return
    yield Seen(
        f"podman container without root outside ({rootless.seen_in}); user {facts.ability.uid} may not open "
        f"{listed(closed)}",
        answers=(chain(started(kind.value, "--group-add", "keep-groups"), proof=Proof.REPORTED, by=_GROUPS),),
    )


def node_is_no_device(question: Question) -> Iterator[Seen]:
    """A plain file where a device node belongs: the host had no such node when the container was started."""
    facts, kind = question.facts, container(question.facts)
    files = [node.path for node in facts.driver.nodes if node.kind == "file"]
    if kind is None or not files or cuda_starts(facts):
        return
    made = AskPerson("make-nodes-on-host", Why.HOST, (_MAKE_NODES,), as_root=True)
    are = "is a file, not a device" if len(files) == 1 else "are files, not devices"
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}): {listed(files)} {are}",
        answers=(chain(made, started(kind.value)),),
    )


def uvm_not_allowed(question: Question) -> Iterator[Seen]:
    """NVML works and CUDA does not: the container's device rules have the GPU's number, and not that of nvidia-uvm."""
    facts, kind = question.facts, container(question.facts)
    uvm = any(node.path == "/dev/nvidia-uvm" and node.kind == "device" for node in facts.driver.nodes)
    if kind is None or kind.value not in BY_RULES or not uvm or init_code(facts) != _UNKNOWN_ERROR:
        return
    if value_or(facts.driver.nvml_code, -1) != 0:
        return  # device-access-lost speaks for all nodes
    numbers = {each.name: each.major for each in facts.container.device_numbers}
    today = f"; the kernel's number of nvidia-uvm is {numbers['nvidia-uvm']} now" if "nvidia-uvm" in numbers else ""
    yield Seen(
        f"{kind.value.value} container ({kind.seen_in}): NVML answers, and cuInit gives {init_error(question)}{today}",
        answers=(chain(started(kind.value), proof=Proof.REPORTED, by=_UVM_THREADS),),
    )


def description_of_other_driver(question: Question) -> Iterator[Seen]:
    """The description of the GPUs names the files of a driver that is no longer here."""
    facts, runtime = question.facts, question.facts.container.runtime
    kernel = facts.driver.kernel_version
    if container(facts) or isinstance(runtime.cdi_driver, Unknown) or isinstance(kernel, Unknown):
        return
    if runtime.cdi_driver.value == str(kernel.value):
        return
    yield Seen(
        f"the description names driver {shown(runtime.cdi_driver)}; the one here is {shown(kernel)}",
        answers=(
            chain(kinds.ConfigureContainers("podman", runtime.cdi_driver.seen_in), proof=Proof.DOCUMENTED, by=_CDI),
        ),
    )


def podman_knows_no_gpus(question: Question) -> Iterator[Seen]:
    """podman is here, and nothing describes the GPUs to it."""
    facts, runtime = question.facts, question.facts.container.runtime
    if container(facts) or "podman" not in runtime.engines or not facts.gpus.devices or runtime.cdi_specs:
        return
    if isinstance(runtime.docker_socket, Known) or isinstance(runtime.container_toolkit, Unknown):
        return  # container-runtime-missing speaks for Docker; without nvidia-ctk nothing can write the description
    yield Seen(
        f"podman is on PATH and nvidia-ctk {shown(runtime.container_toolkit)}; no file in /etc/cdi or /var/run/cdi",
        answers=(chain(kinds.ConfigureContainers("podman"), proof=Proof.DOCUMENTED, by=_CDI),),
    )


def toolkit_writes_no_rules(question: Question) -> Iterator[Seen]:
    """The setting that an engine without root needs, on a host whose Docker runs as root."""
    facts, runtime = question.facts, question.facts.container.runtime
    setting = runtime.no_cgroups
    if container(facts) or isinstance(setting, Unknown) or not setting.value or not facts.gpus.devices:
        return
    if isinstance(runtime.docker_socket, Unknown) or value_or(runtime.runtime_mode, "") in ("cdi", "jit-cdi"):
        return  # Docker without root listens elsewhere and needs the setting; with a description it does not count
    command = ("sudo", "nvidia-ctk", "config", "--in-place", "--set", "nvidia-container-cli.no-cgroups=false")
    write = AskPerson("let-toolkit-write-rules", Why.DECISION, (command,), as_root=True)
    yield Seen(
        f"no-cgroups = true ({setting.seen_in}); Docker runs as root ({runtime.docker_socket.seen_in})",
        answers=(chain(write, proof=Proof.REPORTED, by=_NO_CGROUPS),),
    )


def _symptoms_of_musl() -> tuple[str, ...]:
    return (
        "libcuda-missing", "libcuda-damaged", "stub-libcuda-wins", "cuinit-fails", "compat-unused", "compat-stale",
        "torch-not-installed", "torch-not-as-wanted", "torch-cpu-only", "no-wheel-for-python", "glibc-too-old",
        "libstdcxx-too-old", "missing-library", "library-path-breaks", "driver-library-mismatch", "arch-not-in-wheel",
        "driver-too-old-for-wheel",
        # The driver's own programs are built for glibc too: nobody installs it into such a system.
        "nouveau-loaded", "nouveau-in-early-image", "driver-not-loaded", "secure-boot-blocks-module",
        "module-key-not-enrolled",
    )  # fmt: skip


PLATFORM_RULES: tuple[Rule, ...] = (
    Rule(
        check=musl_has_no_cuda,
        severity=Severity.BLOCKS,
        depth=10,
        title="The C library here is musl, and CUDA is not built for musl.",
        fires_when="The system's own programs run with musl, and CUDA was not seen to work.",
        looks_at=("runtime.libc", "place.os_id", "libcuda.device_count"),
        means="No torch with CUDA is found by pip or uv for this system, and a libcuda that a container runtime puts "
        "in does not load: both need glibc.",
        error=_NO_WHEEL,
        source=_MUSL_THREADS,
        ways=(kinds.UseImage, AskPerson, kinds.OtherMachine),
        explains=_symptoms_of_musl(),
    ),
    Rule(
        check=system_comes_as_image,
        severity=Severity.NOTE,
        depth=20,
        title="The programs of this system come with its image.",
        fires_when="On a plain machine, os-release or /run/ostree-booted names a system that is not changed in place.",
        looks_at=("place.image_based", "place.os_id", "place.os_variant", "container.kind"),
        of_host=True,
        means=(
            "Packages, modules and settings are changed in the image or in its description, and a new one is started: "
            "no step is offered that would change them in place. Python environments are not affected."
        ),
        source="ostreedev.github.io/ostree; nixos.org/manual; docs.siderolabs.com/talos",
        ways=(),
    ),
    Rule(
        check=label_refuses_gpu,
        severity=Severity.BLOCKS,
        depth=10,
        title="SELinux keeps this container from the GPU it was given.",
        fires_when="In a container the device nodes are there, nvmlInit says that it may not use them, and the process "
        "runs under a container's label that is enforced.",
        looks_at=("container.label", "container.label_enforced", "driver.nodes", "driver.nvml_code", "container.kind"),
        means="The nodes are handed in and their modes allow it; the host's SELinux policy does not.",
        error="Failed to initialize NVML: Insufficient Permissions",
        source=f"NVIDIA/nvidia-container-toolkit#33; {_CDI}",
        ways=(kinds.StartContainer, AskPerson),
        explains=("device-access-lost", "cuinit-fails"),
    ),
    Rule(
        check=groups_left_outside,
        severity=Severity.BLOCKS,
        depth=10,
        title="Rootless podman left out the user's groups, and one of them owns the GPU's nodes.",
        fires_when="In a rootless podman container a device node of the GPU is there, its mode does not let this user "
        "open it, and CUDA does not start.",
        looks_at=("driver.nodes", "container.kind", "container.rootless", "libcuda.init_code"),
        means="On the host the user may open them by group, mostly video; in the container's user namespace they "
        "belong to nobody.",
        error="Failed to initialize NVML: Insufficient Permissions",
        source=_GROUPS,
        ways=(kinds.StartContainer,),
        explains=("device-access-lost", "device-nodes-missing", "cuinit-fails"),
    ),
    Rule(
        check=node_is_no_device,
        severity=Severity.BLOCKS,
        depth=10,
        title="A plain file is where a device node of the GPU belongs.",
        fires_when="In a container a path such as /dev/nvidia-uvm is a plain file, and CUDA does not start.",
        looks_at=("driver.nodes", "container.kind", "libcuda.init_code"),
        means="The host had no such node when the container was started, so an empty file was made to bind it to; "
        "nvidia-smi may work, and CUDA does not.",
        error="CUDA unknown error - this may be due to an incorrectly set up environment",
        source="man lxc.container.conf: create=file of lxc.mount.entry",
        ways=(AskPerson, kinds.StartContainer),
        explains=("cuinit-fails", "uvm-not-loaded", "device-nodes-missing", "cuda-sees-no-device"),
    ),
    Rule(
        check=uvm_not_allowed,
        severity=Severity.BLOCKS,
        depth=10,
        title="The container's device rules leave nvidia-uvm out.",
        fires_when="In a container whose device rules are written by hand NVML answers, /dev/nvidia-uvm is a device, "
        "and cuInit returns 999.",
        looks_at=(
            "libcuda.init_code",
            "driver.nvml_code",
            "driver.nodes",
            "container.kind",
            "container.device_numbers",
        ),
        means=(
            "Programs such as nvidia-smi work, and CUDA does not: it needs nvidia-uvm, whose number can change at "
            "every start, so a rule may name an old one."
        ),
        error="CUDA unknown error - this may be due to an incorrectly set up environment",
        source=_UVM_THREADS,
        ways=(kinds.StartContainer,),
        explains=("cuinit-fails", "uvm-not-loaded"),
    ),
    Rule(
        check=description_of_other_driver,
        severity=Severity.NOTE,
        depth=10,
        title="The description of the GPUs for containers (CDI) is for another driver.",
        fires_when="On a plain machine a CDI file names a libcuda of another version than the driver.",
        looks_at=("container.runtime", "container.kind", "driver.kernel_version"),
        of_host=True,
        means="The machine itself is not affected; containers that are given GPUs by it do not start, or start "
        "without the driver's libraries.",
        source=_CDI,
        ways=(kinds.ConfigureContainers,),
    ),
    Rule(
        check=podman_knows_no_gpus,
        severity=Severity.NOTE,
        depth=10,
        title="Nothing describes the GPUs to podman.",
        fires_when="On a plain machine with GPUs podman and nvidia-ctk are on PATH, there is no Docker socket, and "
        "neither /etc/cdi nor /var/run/cdi has a file.",
        looks_at=("container.runtime", "container.kind", "gpus.devices"),
        of_host=True,
        means="The machine itself is not affected; podman run --device nvidia.com/gpu=all fails.",
        error="Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        source=_CDI,
        ways=(kinds.ConfigureContainers,),
    ),
    Rule(
        check=toolkit_writes_no_rules,
        severity=Severity.NOTE,
        depth=10,
        title="Containers are handed GPUs that they may not open.",
        fires_when="On a plain machine with GPUs NVIDIA's container toolkit has no-cgroups = true, and Docker runs as "
        "root.",
        looks_at=("container.runtime", "container.kind", "gpus.devices"),
        of_host=True,
        means="The machine itself is not affected. An engine without root needs the setting; containers that "
        "Docker starts as root with --gpus see the GPUs and get NVML's Unknown Error.",
        error="Failed to initialize NVML: Unknown Error",
        source=_NO_CGROUPS,
        ways=(AskPerson,),
    ),
)
