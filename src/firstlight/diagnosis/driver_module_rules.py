"""Rules about the kernel module: whether there is a device, a module, the right module, and its device nodes."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.boot_rules import lets_in
from firstlight.diagnosis.driver_answers import DRIVER_WAYS
from firstlight.diagnosis.driver_module_answers import (
    driver_loaded,
    given_back,
    libraries_are_newer,
    module_let_in,
    open_module,
    same_version_again,
)
from firstlight.diagnosis.driver_packages import LTS_BRANCH, open_only_gpus
from firstlight.diagnosis.elsewhere_answers import described_anew, nodes_opened, restart_with_gpus, started
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_with, summing_up
from firstlight.diagnosis.module_build_answers import said_of_failed
from firstlight.diagnosis.no_device_rules import NO_DEVICE_RULES
from firstlight.diagnosis.observed import (
    container,
    cuda_starts,
    cuda_works,
    has_device_nodes,
    has_numbered_node,
    has_own_kernel_driver,
    init_code,
    init_error,
    listed,
    pci_gpus,
    shown,
    while_nvml_works,
)
from firstlight.facts.driver import ModuleKind, kernel_to_start
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson
from firstlight.ways.platform import platform_of
from firstlight.ways.way import chain

_UVM_NODE = "/dev/nvidia-uvm"
_UNKNOWN_ERROR = (
    "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
    "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
)
_SMI_FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
_LIBRARY_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_BEHIND = (
    "The libraries and the module on disk come from packages of different versions; nothing new can use the GPU, and a "
    "restart loads the same module again."
)
_BEHIND_IN_IMAGE = (
    "The image of this system has libraries and a module of different versions; nothing new can use the GPU, and a "
    "restart starts the same image again."
)
_OLDER = (
    "Libraries of an older driver are found before those of the loaded module: it was upgraded without them, or they "
    "were put there beside it. Nothing new can use the GPU."
)
_GONE = ": the kernel was upgraded, and what the running one had not loaded by then cannot be loaded any more"
_RIVALS = ("nouveau", "nova")  # nova_core, nouveau's successor, names its PCI driver NovaCore


def driver_not_loaded(question: Question) -> Iterator[Seen]:
    """A GPU on the bus and no nvidia module in the kernel."""
    facts = question.facts
    gpus = pci_gpus(facts)
    if not gpus or isinstance(facts.driver.kernel_version, Known) or container(facts):
        return
    modules = facts.driver.uvm_loaded  # known where the kernel's list of modules was read
    if not has_own_kernel_driver(facts) or isinstance(modules, Unknown):
        return
    names = listed(f"{gpu.address} (device {value_or(gpu.device_id, 'not read')})" for gpu in gpus[:4])
    set_aside = [gpu.address for gpu in gpus if value_or(gpu.driver, "") == "vfio-pci"]
    module = facts.driver.module_file
    there = f"{module.value} is there" if isinstance(module, Known) else f"{module.reason}{said_of_failed(facts)}"
    if ready := kernel_to_start(facts.driver, facts.place.kernel_release):
        there += f", as the kernel was upgraded; {ready} has the module"
    yield Seen(
        f"NVIDIA GPU at {names} in /sys/bus/pci/devices; no nvidia module in {modules.seen_in}; {there}",
        answers=given_back(set_aside) if set_aside else driver_loaded(question),
    )


def nouveau_loaded(question: Question) -> Iterator[Seen]:
    """The open-source display driver took the GPU first; NVIDIA's module then finds no device."""
    facts = question.facts
    held = {gpu.address: value_or(gpu.driver, "") for gpu in pci_gpus(facts)}
    taken = {address: name for address, name in held.items() if name.lower().startswith(_RIVALS)}
    if not taken or cuda_works(facts):
        return  # where others work, gpu-left-out names this one
    names = listed(f"{address} is bound to {name}" for address, name in taken.items())
    nova = any(name.lower().startswith("nova") for name in taken.values())
    rivals = ("nouveau", "nova_core", "nova_drm") if nova else ("nouveau",)
    yield Seen(
        f"{names} (/sys/bus/pci/devices)",
        answers=(chain(*(kinds.ForbidModule(module) for module in rivals), kinds.Restart()),),
        lines=(*lines_with(facts, "already bound"), *summing_up(facts)),
    )


def secure_boot_blocks_module(question: Question) -> Iterator[Seen]:
    """Secure Boot is on and the module that lies ready was never loaded: its key is most likely not enrolled."""
    facts = question.facts
    module, secure = facts.driver.module_file, facts.health.secure_boot
    if not pci_gpus(facts) or isinstance(facts.driver.kernel_version, Known) or container(facts):
        return
    if not isinstance(secure, Known) or not secure.value or not isinstance(module, Known):
        return
    if value_or(facts.health.driver_messages, ()) or lets_in(facts):  # the module did start once, so it was let in
        return
    yield Seen(
        f"Secure Boot is on ({secure.seen_in.rpartition('/')[2].partition('-')[0]} variable); {module.value} is there "
        "and not loaded",
        answers=module_let_in(question),
    )


def driver_library_mismatch(question: Question) -> Iterator[Seen]:
    """The driver was upgraded on disk; the old module still runs."""
    facts = question.facts
    code, kernel, library = facts.driver.nvml_code, facts.driver.kernel_version, facts.driver.nvml_library_version
    differ = isinstance(kernel, Known) and isinstance(library, Known) and kernel.value != library.value
    refused = isinstance(code, Known) and code.value == _LIBRARY_MISMATCH
    if not refused and not (differ and isinstance(code, Unknown) and init_code(facts) > 0):
        return
    parts = []
    if isinstance(kernel, Known):
        parts.append(f"kernel module {shown(kernel)}")
    if isinstance(library, Known):
        parts.append(f"NVML library {shown(library)}")
    said = f"; nvmlInit gives {_LIBRARY_MISMATCH}" if refused else ""
    disk = facts.driver.module_on_disk
    behind = isinstance(disk, Known) and isinstance(library, Known) and disk.value != library.value
    if behind and isinstance(disk, Known):
        parts.append(f"the module on disk {shown(disk)}")
    lines = lines_with(facts, "API mismatch")
    of_image = platform_of(facts).is_image_based and libraries_are_newer(facts)
    older = isinstance(kernel, Known) and isinstance(library, Known) and library.value < kernel.value
    means = _BEHIND_IN_IMAGE if of_image else _BEHIND if behind else _OLDER if older else ""
    yield Seen(f"{', '.join(parts)}{said}", answers=same_version_again(question), means=means, lines=lines)


def blackwell_needs_open_module(question: Question) -> Iterator[Seen]:
    """NVIDIA's proprietary module does not drive Blackwell: nvidia-smi finds no device."""
    facts = question.facts
    kind = facts.driver.module_kind
    if not isinstance(kind, Known) or kind.value is not ModuleKind.PROPRIETARY or cuda_works(facts):
        return
    which = open_only_gpus(question)
    told = [line for line in value_or(facts.health.driver_messages, ()) if "open kernel modules" in line]
    if not which and not told:
        return
    driver = facts.driver.kernel_version
    version = f" {driver.value}" if isinstance(driver, Known) else ""
    branch = driver.value.branch if isinstance(driver, Known) else LTS_BRANCH
    failed = [line for line in value_or(facts.health.driver_messages, ()) if "RmInitAdapter failed" in line]
    seen = "; ".join((*which, *(f"it said: {line.rstrip('.')}" for line in told[:1]), *failed[:1]))
    yield Seen(
        f"the proprietary module{version} is loaded ({kind.seen_in}); {seen}",
        answers=open_module(question, branch),
        lines=(*lines_with(facts, "open kernel modules", "RmInitAdapter", "rm_init_adapter"), *summing_up(facts)),
    )


def device_nodes_missing(question: Question) -> Iterator[Seen]:
    """The module is loaded, but there is no /dev/nvidia0 to open, or this user may not open it."""
    facts = question.facts
    if isinstance(facts.driver.kernel_version, Unknown) or cuda_starts(facts) or not has_own_kernel_driver(facts):
        return
    failed = init_code(facts) > 0 or value_or(facts.driver.nvml_code, 0) > 0
    if not failed or not pci_gpus(facts) or (container(facts) and not has_device_nodes(facts)):
        return
    absent = [node.path for node in facts.driver.nodes if node.kind == "absent" and node.path == "/dev/nvidiactl"]
    if not has_numbered_node(facts):
        absent.append("/dev/nvidia0")
    uvm = next((node for node in facts.driver.nodes if node.path == _UVM_NODE), None)
    if uvm is not None and uvm.kind == "absent" and value_or(facts.driver.uvm_loaded, default=False):
        absent.append(uvm.path)
    closed = [n.path for n in facts.driver.nodes if n.kind == "device" and not n.openable and "/nvidia" in n.path]
    driver = f"driver {shown(facts.driver.kernel_version)}"
    if absent:
        nodes = (chain(kinds.MakeDeviceNodes()),)
        uvm_alone = absent == [_UVM_NODE]
        again = described_anew(question) if uvm_alone else restart_with_gpus(question)
        yield Seen(
            f"{driver} is loaded; there is no {listed(absent)}",
            answers=again if container(facts) else nodes,
            error=_UNKNOWN_ERROR if uvm_alone and value_or(facts.driver.nvml_code, -1) == 0 else "",
        )
    if closed:
        yield Seen(
            f"{driver} is loaded; user {facts.ability.uid} may not open {listed(closed)}",
            answers=nodes_opened(facts, closed),
        )


def uvm_not_loaded(question: Question) -> Iterator[Seen]:
    """CUDA needs nvidia_uvm beside nvidia; nvidia-smi does not, and so looks healthy."""
    facts = question.facts
    uvm = facts.driver.uvm_loaded
    if isinstance(facts.driver.kernel_version, Unknown) or not isinstance(uvm, Known) or uvm.value:
        return
    if init_code(facts) <= 0 or not has_own_kernel_driver(facts) or (container(facts) and not has_device_nodes(facts)):
        return
    kind = container(facts)
    ready = kernel_to_start(facts.driver, facts.place.kernel_release)
    gone = bool(ready) and kind is None
    lost = f"; {facts.place.kernel_release}, which runs, has no modules any more, {ready} has" if gone else ""
    anew = () if kind is None else (started(kind.value),)  # its nodes were not there when this one was started
    load = chain(kinds.LoadModules(("nvidia_uvm",)), kinds.MakeDeviceNodes(), *anew)
    yield Seen(
        f"driver {shown(facts.driver.kernel_version)} is loaded, nvidia_uvm is not ({uvm.seen_in}); "
        f"cuInit gives {init_error(question)}{lost}",
        answers=(chain(kinds.Restart()) if gone else load,),
        means=f"CUDA does not start{while_nvml_works(facts)}{_GONE if gone else ''}.",
    )


MODULE_RULES: tuple[Rule, ...] = (
    *NO_DEVICE_RULES,
    Rule(
        check=nouveau_loaded,
        severity=Severity.BLOCKS,
        depth=20,
        title="Another kernel driver (nouveau or nova) holds the GPU.",
        fires_when="An NVIDIA GPU on the PCI bus is bound to nouveau or nova_core, and no other one works.",
        looks_at=("gpus.pci", "driver.nouveau_loaded"),
        means="NVIDIA's module cannot take the GPU, so there is no CUDA.",
        error="NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
        source="negativo17/nvidia-driver#73, beclab/Olares#3963",
        ways=(kinds.ForbidModule, kinds.Restart),
        explains=(
            "driver-not-loaded",
            "secure-boot-blocks-module",
            "device-nodes-missing",
            "cuinit-fails",
            "libcuda-missing",
        ),
    ),
    Rule(
        check=secure_boot_blocks_module,
        severity=Severity.BLOCKS,
        depth=20,
        title="Secure Boot most likely keeps the NVIDIA kernel module from loading.",
        fires_when="Secure Boot is on, nvidia.ko of the running kernel is there, and the kernel has neither loaded it "
        "nor logged a word of it.",
        looks_at=(
            "health.secure_boot",
            "driver.module_file",
            "driver.kernel_version",
            "health.driver_messages",
            "gpus.pci",
        ),
        of_host=True,
        settled_by=("driver.kernel_version",),
        means="The kernel takes only modules whose key it knows; one that DKMS built has a key of this machine.",
        error="modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        source="acidanthera/bugtracker#2237, MicrosoftDocs/azure-docs#111536",
        ways=(kinds.RemovePackages, kinds.InstallPackages, kinds.LoadModules, kinds.EnrolKey, kinds.Restart, AskPerson),
        explains=("driver-not-loaded", "cuinit-fails"),
    ),
    Rule(
        check=driver_not_loaded,
        severity=Severity.BLOCKS,
        depth=20,
        title="There is an NVIDIA GPU, but its kernel driver is not loaded.",
        fires_when="An NVIDIA GPU is on the PCI bus of a plain machine and no nvidia module is in its kernel.",
        looks_at=(
            "gpus.pci",
            "driver.kernel_version",
            "driver.uvm_loaded",
            "driver.module_file",
            "driver.kernels_with_module",
            "driver.kernel_replaced",
            "driver.module_builds",
            "driver.packages",
            "container.kind",
        ),
        of_host=True,
        settled_by=("driver.kernel_version",),
        means="No program can reach the GPU: nvidia-smi fails and torch.cuda.is_available() is False.",
        error=_SMI_FAILED,
        source="GoogleCloudPlatform/compute-gpu-installation#10",
        ways=(kinds.LoadModules, kinds.StartKernel, kinds.BuildModules, *DRIVER_WAYS),
        explains=("cuinit-fails", "libcuda-missing"),
    ),
    Rule(
        check=driver_library_mismatch,
        severity=Severity.BLOCKS,
        depth=20,
        title="The driver's libraries and the loaded kernel module have different versions.",
        fires_when="NVML does not start and gives 18; or it says nothing, cuInit fails and the two versions differ.",
        looks_at=(
            "driver.nvml_code",
            "driver.kernel_version",
            "driver.nvml_library_version",
            "driver.kernel_replaced",
            "libcuda.init_code",
        ),
        means="An upgrade replaced the libraries while the old module stayed loaded; nothing new can use the GPU.",
        error="Failed to initialize NVML: Driver/library version mismatch",
        source="lyulyul/shine-cluster#30, oddmario/NVIDIA-Ubuntu-Driver-Guide#4",
        ways=(
            kinds.Restart,
            kinds.ReloadModules,
            kinds.HoldPackages,
            kinds.StartContainer,
            kinds.InstallPackages,
            kinds.BuildModules,
            AskPerson,
        ),
        explains=("cuinit-fails", "device-access-lost"),
    ),
    Rule(
        check=blackwell_needs_open_module,
        severity=Severity.BLOCKS,
        depth=20,
        title="This GPU works only with NVIDIA's open kernel module, and the proprietary one is loaded.",
        fires_when="The proprietary module is loaded, no CUDA device works, and a GPU here is Blackwell or the driver "
        "logged that it wants the open modules.",
        looks_at=("driver.module_kind", "gpus.devices", "gpus.pci", "health.driver_messages", "libcuda.device_count"),
        means="CUDA sees no GPU, and nvidia-smi says 'No devices were found'.",
        error="NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        source="getsolus/packages#5575, NVIDIA/open-gpu-kernel-modules#862",
        ways=(kinds.ChooseModules, kinds.BuildModules, *DRIVER_WAYS),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
    Rule(
        check=device_nodes_missing,
        severity=Severity.BLOCKS,
        depth=20,
        title="The driver is loaded, but its device nodes cannot be opened.",
        fires_when="The module is loaded, NVML or cuInit failed, and a node under /dev is absent or not ours to open.",
        looks_at=(
            "driver.nodes",
            "driver.kernel_version",
            "driver.nvml_code",
            "libcuda.init_code",
            "driver.uvm_loaded",
        ),
        means="Programs reach the GPU through /dev/nvidiactl, /dev/nvidia0 and /dev/nvidia-uvm.",
        error=_SMI_FAILED,
        source="docs.nvidia.com/cuda/cuda-installation-guide-linux, NVIDIA/nvidia-docker#139",
        ways=(kinds.MakeDeviceNodes, kinds.StartContainer, kinds.InstallPackages, AskPerson),
        explains=("cuinit-fails",),
    ),
    Rule(
        check=uvm_not_loaded,
        severity=Severity.BLOCKS,
        depth=20,
        title="The kernel module nvidia_uvm, which CUDA needs, is not loaded.",
        fires_when="The nvidia module is loaded, nvidia_uvm is not, and cuInit failed.",
        looks_at=(
            "driver.uvm_loaded",
            "driver.kernel_version",
            "driver.kernels_with_module",
            "driver.kernel_replaced",
            "libcuda.init_code",
        ),
        means="CUDA does not start.",
        error=_UNKNOWN_ERROR,
        source="NVIDIA/nvidia-docker#319, ggml-org/llama.cpp#7218",
        ways=(kinds.LoadModules, kinds.MakeDeviceNodes, kinds.StartContainer, kinds.Restart),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
)
