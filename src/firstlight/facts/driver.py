"""The kernel driver: its version and kind, the modules and device nodes around it, and the NVML library beside it."""

from __future__ import annotations

import enum
import re

from firstlight.errors import BadVersion
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.module_builds import ModuleBuilds, probe_module_builds
from firstlight.facts.nvml import NvmlAnswer
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import CudaVersion, DriverVersion

_SYS_VERSION = "/sys/module/nvidia/version"
_PROC_VERSION = "/proc/driver/nvidia/version"
_MODULES = "/sys/module"
_DPKG = "/var/lib/dpkg/info"
_SMI = "/usr/bin/nvidia-smi"
# "NVIDIA UNIX x86_64 Kernel Module  570.133.20  ..." is the proprietary one,
# "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  ..." the open one.
_NVRM_LINE = r"NVRM version:.*?(?P<open>Open )?Kernel Module(?: for \S+)?\s+(?P<version>\d[\d.]*)"
_LIBRARY_VERSION = r"/libnvidia-ml\.so\.(\d+(?:\.\d+)+)$"
_PACKAGE = (
    r"((?:nvidia-driver-|nvidia-kernel-|nvidia-open|nvidia-dkms-|libnvidia-compute-|libnvidia-ml)[^:]*)(?::\w+)?\.list"
)
_FIXED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/nvmap", "/dev/dxg")
_MODULE_FOLDERS = (
    "updates/dkms", "updates", "extra", "extra/nvidia", "weak-updates", "weak-updates/nvidia", "extramodules",
    "kernel/drivers/video", "kernel/drivers/video/nvidia",
)  # fmt: skip
# nvidia.ko; Debian calls it nvidia-current.ko, or nvidia-tesla-535-current.ko of a branch of its own.
_MODULE_FILE = r"nvidia(?:-tesla(?:-\d{3})?)?(?:-current)?\.ko(?:\.(?:xz|zst|gz))?"


class ModuleKind(enum.Enum):
    """Which of NVIDIA's two kernel modules is loaded."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A node under /dev: DeviceNode("/dev/nvidia0", "device", openable=True); kind is "absent" where there is none.

    `openable` is what owner and mode allow; a container's device rules may still refuse (NVML then says 999 or 4).
    """

    path: str
    kind: str
    openable: bool


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What there is of a driver, e.g. kernel_version 580.159.04, module_kind open."""

    kernel_version: Fact[DriverVersion]
    module_kind: Fact[ModuleKind]
    module_file: Fact[str]  # nvidia.ko of the running kernel, loaded or not
    kernels_with_module: Fact[tuple[str, ...]]  # others that lie ready; looked for where the running one has none
    kernel_replaced: Fact[bool]  # an upgrade took the modules of the running kernel away: only a restart loads any
    nouveau_loaded: Fact[bool]
    uvm_loaded: Fact[bool]
    uvm_disable_hmm: Fact[bool]
    nodes: tuple[DeviceNode, ...]
    nvml_code: Fact[int]  # of nvmlInit: 0, 9 driver not loaded, 12 no library, 18 driver/library mismatch, 999
    nvml_message: Fact[str]
    nvml_library: Fact[str]
    nvml_library_version: Fact[DriverVersion]  # from the file name; differs from kernel_version when NVML says 18
    module_on_disk: Fact[DriverVersion]  # what a restart would load; looked up where library and module differ
    module_builds: Fact[ModuleBuilds]  # looked for where the running kernel has no module, or one of another version
    nvml_version: Fact[str]
    nvml_cuda: Fact[CudaVersion]  # of the libcuda that NVML finds, which may be a compat library
    packages: Fact[tuple[str, ...]]  # names dpkg knows, removed ones whose configuration stayed included


def probe_driver(machine: Machine, nvml: NvmlAnswer) -> DriverFacts:
    """The driver of this machine, e.g. 580.159.04 (open module), with NVML's word on it."""
    # The rest of the line names who built the module and on which host.
    nvrm = machine.read(_PROC_VERSION, limit=4096, until="Release Build")
    module_file = _module_file(machine)
    kernel, library = _kernel_version(machine, nvrm, nvml), _library_version(nvml)
    on_disk = _module_on_disk(machine, kernel, library)
    return DriverFacts(
        kernel_version=kernel,
        module_kind=_module_kind(machine, nvrm),
        module_file=module_file,
        kernels_with_module=_other_kernels(machine, module_file),
        kernel_replaced=_kernel_replaced(machine),
        nouveau_loaded=_module_loaded(machine, "nouveau"),
        uvm_loaded=_module_loaded(machine, "nvidia_uvm"),
        uvm_disable_hmm=_uvm_disable_hmm(machine),
        nodes=_nodes(machine),
        nvml_code=nvml.init_code,
        nvml_message=nvml.init_message,
        nvml_library=nvml.library,
        nvml_library_version=library,
        module_on_disk=on_disk,
        module_builds=_module_builds(machine, module_file, on_disk),
        nvml_version=nvml.system.text("nvml_version"),
        nvml_cuda=_nvml_cuda(nvml),
        packages=_packages(machine, (nvml.library, module_file)),
    )


def _kernel_version(machine: Machine, nvrm: str | None, nvml: NvmlAnswer) -> Fact[DriverVersion]:
    reasons: list[str] = []
    if (text := machine.read(_SYS_VERSION, limit=4096)) is None:
        reasons.append(f"{_SYS_VERSION}: {machine.why_not(_SYS_VERSION)}")
    elif (version := _parse(text)) is not None:
        return Known(version, _SYS_VERSION)
    else:
        reasons.append(f"{_SYS_VERSION} holds no version")
    if nvrm is None:
        reasons.append(f"{_PROC_VERSION}: {machine.why_not(_PROC_VERSION)}")
    elif (match := re.search(_NVRM_LINE, nvrm)) is not None and (version := _parse(match["version"])) is not None:
        return Known(version, _PROC_VERSION)
    else:
        reasons.append(f"{_PROC_VERSION} holds no version")
    said = nvml.system.text("driver_version")
    if isinstance(said, Known) and (version := _parse(said.value)) is not None:
        return Known(version, said.seen_in)
    reasons.append(said.reason if isinstance(said, Unknown) else f"{said.seen_in}: {said.value!a} is not a version")
    return Unknown("; ".join(reasons))


def _parse(text: str) -> DriverVersion | None:
    try:
        return DriverVersion.parse(text)
    except BadVersion:
        return None


def _module_kind(machine: Machine, nvrm: str | None) -> Fact[ModuleKind]:
    if nvrm is None:
        return Unknown(f"{_PROC_VERSION}: {machine.why_not(_PROC_VERSION)}")
    match = re.search(_NVRM_LINE, nvrm)
    if match is None:
        return Unknown(f"{_PROC_VERSION} names no kernel module")
    return Known(ModuleKind.OPEN if match["open"] else ModuleKind.PROPRIETARY, _PROC_VERSION)


def _module_file(machine: Machine) -> Fact[str]:
    """nvidia.ko for the running kernel, e.g. /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko.zst."""
    return _module_of(machine, f"/lib/modules/{machine.host.kernel_release}")


def _other_kernels(machine: Machine, module_file: Fact[str]) -> Fact[tuple[str, ...]]:
    """Kernels that an nvidia.ko lies ready for, e.g. ("6.8.0-59-generic",), newest last."""
    if isinstance(module_file, Known):
        return Unknown("not looked for, since the running kernel has the module")
    if machine.stat("/lib/modules") is None:
        return Unknown("no /lib/modules")
    others = (name for name in machine.list("/lib/modules") if name != machine.host.kernel_release)
    found = [name for name in others if isinstance(_module_of(machine, f"/lib/modules/{name}"), Known)]
    return Known(tuple(sorted(found, key=_numbers)), seen_in="/lib/modules")


def _kernel_replaced(machine: Machine) -> Fact[bool]:
    """Whether /lib/modules has a kernel of the running one's kind that is no older, and nothing of the running one.

    A kernel that a host starts a guest with is of no kind that lies there, and no restart of the guest changes it.
    """
    running = machine.host.kernel_release
    own = f"/lib/modules/{running}"
    if machine.stat(own) is not None:
        return Known(value=False, seen_in=own)
    others = machine.list("/lib/modules")
    if not any(_kind(each) == _kind(running) and _numbers(each) >= _numbers(running) for each in others):
        return Unknown("/lib/modules has no kernel of the kind that runs")  # the usual thing in a container
    return Known(value=True, seen_in="/lib/modules")


def _kind(kernel: str) -> str:
    """#.#.#-#-generic of 6.8.0-59-generic."""
    return re.sub(r"\d+", "#", kernel)


def kernel_to_start(driver: DriverFacts, running: str) -> str:
    """The kernel that a restart brings where the running one was replaced, if it has the module; else ""."""
    if not value_or(driver.kernel_replaced, default=False):
        return ""
    ready = value_or(driver.kernels_with_module, ())
    return next((each for each in reversed(ready) if _kind(each) == _kind(running)), "")


def _numbers(kernel: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", kernel))


def _module_of(machine: Machine, top: str) -> Fact[str]:
    # Ubuntu's signed modules lie in a folder of their own: kernel/nvidia-580-server-open.
    ubuntu = tuple(f"kernel/{name}" for name in machine.list(f"{top}/kernel", "nvidia-*"))
    for folder in (*_MODULE_FOLDERS, *ubuntu):
        for name in machine.list(f"{top}/{folder}", "nvidia*.ko*"):
            if re.fullmatch(_MODULE_FILE, name):
                return Known(f"{top}/{folder}/{name}", top)
    if machine.stat(top) is None:
        return Unknown(f"{top}: no such folder")  # the usual thing in a container
    return Unknown(f"no nvidia.ko in the usual folders of {top}")


def _module_loaded(machine: Machine, name: str) -> Fact[bool]:
    if machine.stat(f"{_MODULES}/{name}") is not None:
        return Known(value=True, seen_in=f"{_MODULES}/{name}")
    if machine.stat(_MODULES) is None:
        return Unknown(f"no {_MODULES}")
    return Known(value=False, seen_in=_MODULES)


def _uvm_disable_hmm(machine: Machine) -> Fact[bool]:
    path = f"{_MODULES}/nvidia_uvm/parameters/uvm_disable_hmm"
    text = machine.read(path, limit=64)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    if text.strip() not in ("Y", "N", "1", "0"):
        return Unknown(f"{path} holds {text.strip()[:20]!a}")
    return Known(text.strip() in ("Y", "1"), path)


def _nodes(machine: Machine) -> tuple[DeviceNode, ...]:
    """The nodes every driver needs, there or not, then the numbered ones, MIG's and Tegra's that are there."""
    found = [f"/dev/{name}" for name in machine.list("/dev", "nvidia*") if name != "nvidia-caps"]
    found += [f"/dev/nvidia-caps/{name}" for name in machine.list("/dev/nvidia-caps", "nvidia-cap*")]
    found += [f"/dev/{name}" for name in machine.list("/dev", "nvhost-*gpu*")]
    return tuple(_node(machine, path) for path in dict.fromkeys((*_FIXED_NODES, *found)))


def _node(machine: Machine, path: str) -> DeviceNode:
    seen = machine.stat(path)
    if seen is None:
        return DeviceNode(path, "absent", openable=False)
    return DeviceNode(path, seen.kind, openable=seen.writable)


def _library_version(nvml: NvmlAnswer) -> Fact[DriverVersion]:
    if isinstance(nvml.library, Unknown):
        return nvml.library
    path = nvml.library.value
    match = re.search(_LIBRARY_VERSION, path)
    version = None if match is None else _parse(match.group(1))
    return Unknown(f"{path} carries no version in its name") if version is None else Known(version, path)


def _module_on_disk(machine: Machine, kernel: Fact[DriverVersion], library: Fact[DriverVersion]) -> Fact[DriverVersion]:
    """By modinfo: the file itself may be compressed."""
    if isinstance(kernel, Unknown) or isinstance(library, Unknown) or kernel.value == library.value:
        return Unknown("not looked up: the driver's library and its module are the same version, or it is not known")
    done = machine.run(("modinfo", "nvidia"), keep=r"^version:")
    match = re.search(r"(?m)^version:\s*(\d[\d.]*)", done.stdout)
    version = None if match is None else _parse(match.group(1))
    if version is None:
        return Unknown(done.complaint if not done.ok else "modinfo nvidia names no version")
    return Known(version, "modinfo nvidia")


def _module_builds(machine: Machine, file: Fact[str], on_disk: Fact[DriverVersion]) -> Fact[ModuleBuilds]:
    lacks = isinstance(file, Unknown) and machine.stat(f"/lib/modules/{machine.host.kernel_release}") is not None
    if lacks or isinstance(on_disk, Known):
        return probe_module_builds(machine)
    return Unknown("not looked for: the running kernel has a module that fits, or its modules are not here")


def _nvml_cuda(nvml: NvmlAnswer) -> Fact[CudaVersion]:
    number = nvml.system.number("driver_cuda")
    if isinstance(number, Unknown):
        return number
    try:
        return Known(CudaVersion.from_driver_number(number.value), number.seen_in)
    except BadVersion as error:
        return Unknown(str(error))


def _packages(machine: Machine, files: tuple[Fact[str], ...]) -> Fact[tuple[str, ...]]:
    """Driver packages by name, e.g. ("libnvidia-compute-580", "nvidia-driver-580-open"), from dpkg's folder.

    That folder has a few names for each package installed, so it is listed only where a driver left `files`.
    """
    if not any(isinstance(file, Known) for file in files) and machine.stat(_SMI) is None:
        return Unknown("not looked for, since no file of a driver was found")
    if machine.stat(_DPKG) is None:
        return Unknown(f"no {_DPKG}")
    matches = (re.fullmatch(_PACKAGE, name) for name in machine.list(_DPKG, "*nvidia*.list"))
    return Known(tuple(sorted({match.group(1) for match in matches if match is not None})), _DPKG)
