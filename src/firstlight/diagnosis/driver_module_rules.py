"""Rules about the kernel module: whether there is a device, a module, the right module, and its device nodes."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_packages import (
    LTS_BRANCH,
    branch_to_have,
    driver_package,
    open_only_gpus,
    signed_module_package,
)
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    as_root,
    container,
    cuda_starts,
    cuda_works,
    has_device_nodes,
    has_numbered_node,
    has_nvidia_gpu,
    has_own_kernel_driver,
    init_code,
    init_error,
    install,
    listed,
    on_the_host,
    pci_gpus,
    platform,
    shown,
    start_with_gpus,
    uses_rpm,
)
from firstlight.facts.collect import Facts
from firstlight.facts.driver import ModuleKind
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform

_SMI_FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
_LIBRARY_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_INSTALL_GUIDE = "docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"
_RIVALS = ("nouveau", "nova")  # nova_core, nouveau's successor, names its PCI driver NovaCore


def no_nvidia_device(question: Question) -> Iterator[Seen]:
    """A laptop or a build machine without an NVIDIA GPU: nothing is wrong, and nothing of CUDA can run."""
    facts = question.facts
    if platform(facts) is Platform.WSL1:
        yield Seen(
            f"this is WSL 1 (kernel {facts.place.kernel_release}), which reaches no GPU",
            do=("in Windows: wsl --set-version DISTRIBUTION 2",),
        )
    elif not has_nvidia_gpu(facts) and isinstance(facts.driver.kernel_version, Unknown):
        yield Seen(
            "no NVIDIA GPU on the PCI bus (/sys/bus/pci/devices), no /dev/nvidia0, no driver",
            do=(f"if the host has one, {start_with_gpus(facts)}",) if container(facts) else (),
        )


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
    there = f"{module.value} is there" if isinstance(module, Known) else module.reason
    yield Seen(
        f"NVIDIA GPU at {names} in /sys/bus/pci/devices; no nvidia module in {modules.seen_in}; {there}",
        do=(f"give {listed(set_aside)} back from the virtual machines: it is bound to vfio-pci",)
        if set_aside
        else _ways_to_load(question),
    )


def _ways_to_load(question: Question) -> tuple[str, ...]:
    facts = question.facts
    release = facts.place.kernel_release
    if isinstance(facts.driver.module_file, Known):
        return (as_root(facts, "modprobe nvidia"), "if it refuses, read why: dmesg | tail")
    if any("dkms" in name for name in value_or(facts.driver.packages, ())):
        headers = as_root(facts, install(facts, f"linux-headers-{release}"))
        return (f"{headers}, then {as_root(facts, 'dkms autoinstall')} and {as_root(facts, 'modprobe nvidia')}",)
    if value_or(facts.place.os_id, "") == "ubuntu":
        package = driver_package(question, branch_to_have(question) or LTS_BRANCH)
        return (f"{as_root(facts, install(facts, package))}, then reboot",)
    return (f"install a driver ({_INSTALL_GUIDE}), then reboot",)


def nouveau_loaded(question: Question) -> Iterator[Seen]:
    """The open-source display driver took the GPU first; NVIDIA's module then finds no device."""
    facts = question.facts
    held = {gpu.address: value_or(gpu.driver, "") for gpu in pci_gpus(facts)}
    taken = {address: name for address, name in held.items() if name.lower().startswith(_RIVALS)}
    if not taken:
        return
    names = listed(f"{address} is bound to {name}" for address, name in taken.items())
    lines = r"blacklist nouveau\noptions nouveau modeset=0\n"
    if any(name.lower().startswith("nova") for name in taken.values()):
        lines += r"blacklist nova_core\nblacklist nova_drm\n"
    rebuild = "dracut --force" if uses_rpm(facts) else "update-initramfs -u"
    yield Seen(
        f"{names} (/sys/bus/pci/devices)",
        do=(
            f"printf '{lines}' | {on_the_host(facts, 'tee /etc/modprobe.d/blacklist-nouveau.conf')}",
            f"{on_the_host(facts, rebuild)}, then reboot",
        ),
    )


def secure_boot_blocks_module(question: Question) -> Iterator[Seen]:
    """Secure Boot is on and the module that lies ready was never loaded: its key is most likely not enrolled."""
    facts = question.facts
    module, secure = facts.driver.module_file, facts.health.secure_boot
    if not pci_gpus(facts) or isinstance(facts.driver.kernel_version, Known) or container(facts):
        return
    if not isinstance(secure, Known) or not secure.value or not isinstance(module, Known):
        return
    if value_or(facts.health.driver_messages, ()):  # the module did start once, so it was let in
        return
    signed = signed_module_package(question, branch_to_have(question) or LTS_BRANCH)
    ubuntu = value_or(facts.place.os_id, "") == "ubuntu"
    enrol = f"enrol the key and reboot: {as_root(facts, 'mokutil --import /var/lib/shim-signed/mok/MOK.der')}"
    yield Seen(
        f"Secure Boot is on ({secure.seen_in.rpartition('/')[2].partition('-')[0]} variable); {module.value} is there "
        "and not loaded",
        do=(
            f"{as_root(facts, 'modprobe nvidia')}  # 'Key was rejected by service' proves it",
            *(
                (f"install a module that Ubuntu signed: {as_root(facts, install(facts, signed))}", f"or {enrol}")
                if ubuntu
                else (enrol,)
            ),
            "or without a console to confirm the key: turn Secure Boot off in the firmware or the cloud's settings",
        ),
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
    reload = "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia"
    if container(facts):
        steps: tuple[str, ...] = ("recreate the container: the host's driver changed while it ran",)
    else:
        steps = (
            as_root(facts, "reboot"),
            f"or without a reboot, with every program off the GPU: {as_root(facts, f'sh -c {reload!r}')}",
            f"so that it does not come again: {as_root(facts, 'apt-mark hold')} {_driver_package(facts)}",
        )
    yield Seen(f"{', '.join(parts)}{said}", do=steps)


def _driver_package(facts: Facts) -> str:
    names = value_or(facts.driver.packages, ())
    return next((name for name in names if name.startswith("nvidia-driver-")), "the nvidia-driver package")


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
        do=(
            f"{on_the_host(facts, install(facts, driver_package(question, branch)))}, then reboot",
            f"or with NVIDIA's installer: {as_root(facts, 'sh NVIDIA-Linux-*.run -m=kernel-open')}",
        ),
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
    uvm = next((node for node in facts.driver.nodes if node.path == "/dev/nvidia-uvm"), None)
    if uvm is not None and uvm.kind == "absent" and value_or(facts.driver.uvm_loaded, default=False):
        absent.append(uvm.path)
    closed = [n.path for n in facts.driver.nodes if n.kind == "device" and not n.openable and "/nvidia" in n.path]
    driver = f"driver {shown(facts.driver.kernel_version)}"
    if absent:
        step = start_with_gpus(facts) if container(facts) else as_root(facts, "nvidia-modprobe -u -c=0")
        yield Seen(f"{driver} is loaded; there is no {listed(absent)}", do=(step,))
    if closed:
        yield Seen(
            f"{driver} is loaded; user {facts.ability.uid} may not open {listed(closed)}",
            do=(
                f"look at owner and mode: ls -l {closed[0]}",
                f"where a group may open it: {as_root(facts, 'usermod -aG video $USER')}, then log in again",
            ),
        )


def uvm_not_loaded(question: Question) -> Iterator[Seen]:
    """CUDA needs nvidia_uvm beside nvidia; nvidia-smi does not, and so looks healthy."""
    facts = question.facts
    uvm = facts.driver.uvm_loaded
    if isinstance(facts.driver.kernel_version, Unknown) or not isinstance(uvm, Known) or uvm.value:
        return
    if init_code(facts) <= 0 or not has_own_kernel_driver(facts) or (container(facts) and not has_device_nodes(facts)):
        return
    yield Seen(
        f"driver {shown(facts.driver.kernel_version)} is loaded, nvidia_uvm is not ({uvm.seen_in}); "
        f"cuInit gives {init_error(question)}",
        do=(on_the_host(facts, "modprobe nvidia_uvm"), on_the_host(facts, "nvidia-modprobe -u -c=0")),
    )


MODULE_RULES: tuple[Rule, ...] = (
    Rule(
        code="no-nvidia-device",
        check=no_nvidia_device,
        severity=Severity.NOTE,
        depth=10,
        title="There is no NVIDIA GPU here.",
        fires_when="No NVIDIA GPU is on the PCI bus, in the chip or behind a device node, and no driver is loaded.",
        looks_at=("gpus.pci", "gpus.devices", "gpus.tegra_chip", "driver.nodes", "driver.kernel_version"),
        means="Nothing is wrong with that; CUDA cannot run here, and torch works on the CPU.",
        error="Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        source="the string in libc10_cuda.so of the PyPI wheel torch 2.15.0",
        remedies=("other-machine",),
        when_wanted=Severity.BLOCKS,
    ),
    Rule(
        code="nouveau-loaded",
        check=nouveau_loaded,
        severity=Severity.BLOCKS,
        depth=20,
        title="Another kernel driver (nouveau or nova) holds the GPU.",
        fires_when="An NVIDIA GPU on the PCI bus is bound to nouveau or nova_core.",
        looks_at=("gpus.pci", "driver.nouveau_loaded"),
        means="NVIDIA's module cannot take the GPU, so there is no CUDA.",
        error="NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
        source="negativo17/nvidia-driver#73, beclab/Olares#3963",
        remedies=("blacklist-nouveau", "reboot"),
        explains=(
            "driver-not-loaded",
            "secure-boot-blocks-module",
            "device-nodes-missing",
            "cuinit-fails",
            "libcuda-missing",
        ),
    ),
    Rule(
        code="secure-boot-blocks-module",
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
        means="The kernel takes only modules whose key it knows; one that DKMS built has a key of this machine.",
        error="modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        source="acidanthera/bugtracker#2237, MicrosoftDocs/azure-docs#111536",
        remedies=("enrol-module-key", "install-signed-module", "turn-off-secure-boot"),
        explains=("driver-not-loaded", "cuinit-fails"),
    ),
    Rule(
        code="driver-not-loaded",
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
            "driver.packages",
            "container.kind",
        ),
        means="No program can reach the GPU: nvidia-smi fails and torch.cuda.is_available() is False.",
        error=_SMI_FAILED,
        source="GoogleCloudPlatform/compute-gpu-installation#10",
        remedies=("load-driver", "install-driver", "reboot"),
        explains=("cuinit-fails", "libcuda-missing"),
    ),
    Rule(
        code="driver-library-mismatch",
        check=driver_library_mismatch,
        severity=Severity.BLOCKS,
        depth=20,
        title="The driver's libraries and the loaded kernel module are of different versions.",
        fires_when="NVML does not start and gives 18; or it says nothing, cuInit fails and the two versions differ.",
        looks_at=("driver.nvml_code", "driver.kernel_version", "driver.nvml_library_version", "libcuda.init_code"),
        means="An upgrade replaced the libraries while the old module stayed loaded; nothing new can use the GPU.",
        error="Failed to initialize NVML: Driver/library version mismatch",
        source="lyulyul/shine-cluster#30, oddmario/NVIDIA-Ubuntu-Driver-Guide#4",
        remedies=("reboot", "reload-driver", "hold-driver"),
        explains=("cuinit-fails", "device-access-lost"),
    ),
    Rule(
        code="blackwell-needs-open-module",
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
        remedies=("install-open-module", "reboot"),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
    Rule(
        code="device-nodes-missing",
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
        remedies=("create-device-nodes", "restart-with-gpus"),
        explains=("cuinit-fails",),
    ),
    Rule(
        code="uvm-not-loaded",
        check=uvm_not_loaded,
        severity=Severity.BLOCKS,
        depth=20,
        title="The kernel module nvidia_uvm, which CUDA needs, is not loaded.",
        fires_when="The nvidia module is loaded, nvidia_uvm is not, and cuInit failed.",
        looks_at=("driver.uvm_loaded", "driver.kernel_version", "libcuda.init_code"),
        means="CUDA does not start, while nvidia-smi works.",
        error="CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
        "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
        source="NVIDIA/nvidia-docker#319, ggml-org/llama.cpp#7218",
        remedies=("load-uvm",),
        explains=("cuinit-fails", "device-nodes-missing"),
    ),
)
