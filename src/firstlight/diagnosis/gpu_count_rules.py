"""Rules about GPUs that are on the bus and that the driver does not run: one of several, or all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.driver_answers import DRIVER_WAYS, installed
from firstlight.diagnosis.driver_module_answers import open_module, rebuilt_as
from firstlight.diagnosis.driver_packages import LTS_BRANCH, branch_on_disk, open_only_gpus, why_not_branch
from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.finding import LogLine, Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_about, lines_with, log_lines, summing_up
from firstlight.diagnosis.observed import (
    at,
    container,
    counted_gpus,
    cuda_works,
    has_own_kernel_driver,
    is_numbered,
    kernel_log,
    listed,
    pci_gpus,
    shown,
    typed,
)
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.gpus import PciDevice
from firstlight.facts.kernel_log import address_in
from firstlight.facts.known import Known, Origin, Unknown, value_or
from firstlight.ways import kinds
from firstlight.ways.guests import is_virtual
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, chain

_NVIDIA, _FOR_GUESTS = "nvidia", "vfio-pci"  # kernel drivers of PCI devices
_RIVALS = ("nouveau", "nova")
_BY_BUS = "/sys/bus/pci/devices"
_OFF_THE_BUS = "fallen off the bus"
_TOO_OLD_FOR_OPEN, _NEEDS_OPEN, _LEGACY = "not supported by open", "open kernel modules", "will ignore"
_LEGACY_BRANCH = r"NVIDIA (\d{3})\.xx Legacy drivers"
_NO_ROOM = "PCI I/O region"
_MOST_LINES = 3
_SUPPOSED_BYTES, _LEAST_ROOM_MIB = 80 << 30, 65536  # of a GPU that does not start; LXD's pages begin with 65536
_ALL = "all"


def gpu_left_out(question: Question) -> Iterator[Seen]:
    """Some GPUs work and one on the bus is not among them: seven of eight."""
    facts = question.facts
    missing = _left_out(facts)
    if not missing or not facts.gpus.devices:
        yield from _left_out_by_cuda(question)
        return
    counts = _counts(facts)
    for device in missing:
        lines = _lines_of(facts, device, alone=len(missing) == 1)
        yield Seen(
            f"{counts}; left out: {_described(device)}{_quoted(lines)}",
            answers=_brought_back(question, device, lines),
            error=_as_logged(lines),
            lines=(*lines, *summing_up(facts)),
        )


def _counts(facts: Facts) -> str:
    """'8 GPUs on the bus (/sys/bus/pci/devices), 7 bound to nvidia, 7 in NVML, 7 under /dev, 7 in CUDA'."""
    on_bus, listed_by, cuda = _counted(facts), facts.gpus.count, facts.libcuda.device_count
    bound = sum(value_or(each.driver, "") == _NVIDIA for each in on_bus)
    nodes = sum(each.kind == "device" and is_numbered(each.path) for each in facts.driver.nodes)
    parts = [f"{counted_gpus(len(on_bus))} on the bus ({_BY_BUS})", f"{bound} bound to {_NVIDIA}"]
    parts.append(f"{len(facts.gpus.devices)} in {listed_by.seen_in if isinstance(listed_by, Known) else 'NVML'}")
    parts.append(f"{nodes} under /dev")
    return ", ".join((*parts, *((f"{cuda.value} in CUDA",) if isinstance(cuda, Known) else ())))


def _left_out_by_cuda(question: Question) -> Iterator[Seen]:
    """CUDA counts fewer than NVML lists, and neither a mask nor MIG says that it is meant."""
    facts, count = question.facts, question.facts.libcuda.device_count
    if not cuda_works(facts) or not isinstance(count, Known) or count.origin is not Origin.SEEN:
        return
    masks = (facts.gpus.cuda_visible_devices, facts.container.visible_devices)
    masked = any(isinstance(mask, Known) and mask.value != _ALL for mask in masks)
    sliced = any(value_or(gpu.mig_mode, default=False) for gpu in facts.gpus.devices)
    if masked or sliced or count.value >= len(facts.gpus.devices):
        return
    odd = [gpu for gpu in facts.gpus.devices if lines_about(facts, value_or(gpu.pci_address, ""))]
    lines = tuple(line for gpu in odd for line in lines_about(facts, value_or(gpu.pci_address, "")))
    named = f"; {listed(gpu.id for gpu in odd)} is in the log{_quoted(lines)}" if odd else ""
    again = chain(kinds.ResetGpu(odd[0].id.removeprefix("gpu-") if len(odd) == 1 else ""))
    yield Seen(
        f"NVML lists {counted_gpus(len(facts.gpus.devices))}, CUDA counts {count.value} ({count.seen_in}), and no mask "
        f"is set{named}",
        answers=(again, chain(kinds.Restart()), *machine_answers(question, None)),
        lines=lines,
    )


def gpu_does_not_start(question: Question) -> Iterator[Seen]:
    """The driver is loaded, and its log says that it could not start the GPUs: none of them is listed."""
    facts = question.facts
    driver = facts.driver.kernel_version
    pretended = isinstance(driver, Known) and driver.origin is not Origin.SEEN
    if pretended or facts.gpus.devices or cuda_works(facts) or container(facts) is not None:
        return
    if isinstance(facts.driver.module_kind, Known) and lines_with(facts, _NEEDS_OPEN):
        return  # the rule about the open module knows that one
    words = "no driver is loaded now" if isinstance(driver, Unknown) else f"driver {shown(driver)} is loaded"
    for device in pci_gpus(facts):
        lines = _lines_of(facts, device, alone=len(pci_gpus(facts)) == 1)
        said = [each for each in lines if _tells_why(each) or (each.pci and isinstance(driver, Known))]
        if value_or(device.driver, _NVIDIA) == _NVIDIA and said:
            yield Seen(
                f"{words}, and no GPU is listed; on the bus: {_described(device)}{_quoted(lines)}",
                answers=_brought_back(question, device, lines),
                error=_as_logged(lines),
                lines=(*lines, *summing_up(facts)),
            )


def _tells_why(line: LogLine) -> bool:
    """Whether a line is reason enough for a module that went away again: not that another driver came first."""
    words = (_TOO_OLD_FOR_OPEN, _NEEDS_OPEN, _LEGACY, _OFF_THE_BUS, _NO_ROOM, "RmInitAdapter")
    return any(word in line.text for word in words)


def _counted(facts: Facts) -> tuple[PciDevice, ...]:
    """The GPUs on the bus that are meant for this system: not those set aside for virtual machines."""
    return tuple(each for each in pci_gpus(facts) if value_or(each.driver, "") != _FOR_GUESTS)


def _left_out(facts: Facts) -> tuple[PciDevice, ...]:
    """GPUs on the bus that NVML does not list, where it must list all: a container may have been given some."""
    count, code = facts.gpus.count, facts.driver.nvml_code
    if not isinstance(count, Known) or count.origin is not Origin.SEEN or not has_own_kernel_driver(facts):
        return ()
    if not _was_given_all(facts):
        return ()
    if count.seen_in.startswith("/proc/") or value_or(code, 0) != 0:
        return ()  # the driver's own list has those that failed as well
    known = [address_in(gpu.pci_address.value) for gpu in facts.gpus.devices if isinstance(gpu.pci_address, Known)]
    if len(known) < len(facts.gpus.devices):
        return ()
    missing = (each for each in _counted(facts) if address_in(each.address) not in known)
    if at(facts, Provider.SLURM) or isinstance(facts.gpus.cuda_visible_devices, Known):
        # A scheduler gives a job some of the GPUs: NVML lists those, and the bus shows all. The log knows better.
        return tuple(each for each in missing if lines_about(facts, each.address))
    return tuple(missing)


def _was_given_all(facts: Facts) -> bool:
    """Whether this place has every GPU of the machine: a plain one, or a container that was started with all."""
    kind = container(facts)
    if kind is None:
        return True
    by_runtime = kind.value in (ContainerKind.DOCKER, ContainerKind.PODMAN)
    return by_runtime and value_or(facts.container.visible_devices, "") == _ALL


def _described(device: PciDevice) -> str:
    """'0000:b3:00.0 (device 0x26b5, bound to nvidia)'."""
    bound = f"bound to {device.driver.value}" if isinstance(device.driver, Known) else "bound to no driver"
    return f"{device.address} (device {value_or(device.device_id, 'not read')}, {bound})"


def _lines_of(facts: Facts, device: PciDevice, *, alone: bool) -> tuple[LogLine, ...]:
    """What the log says of a GPU; lines of older drivers name none, and belong to the one that failed alone."""
    place, only = address_in(device.address), len(pci_gpus(facts)) == 1
    of_a_start = lines_with(facts, "RmInitAdapter", "rm_init_adapter", "Gsp", "kgsp", _LEGACY)
    of_libraries = lines_with(facts, "API mismatch")  # of another version than the module
    return tuple(
        line
        for line in log_lines(facts)
        if line.pci == place or (not line.pci and line not in of_libraries and (only or (alone and line in of_a_start)))
    )


def _quoted(lines: tuple[LogLine, ...]) -> str:
    if not lines:
        return "; the log that was read says nothing about it"
    texts = list(dict.fromkeys(line.text.rstrip(".") for line in lines))
    more = f" (and {len(texts) - _MOST_LINES} more lines)" if len(texts) > _MOST_LINES else ""
    return f"; {lines[0].seen_in} says: {'; '.join(texts[:_MOST_LINES])}{more}"


def _as_logged(lines: tuple[LogLine, ...]) -> str:
    """The line that somebody looks for, as the kernel log has it."""
    said = [line.text for line in lines if not line.text.startswith(("Xid", "SXid", "nvidia"))]
    return f"NVRM: {said[-1]}" if said else ""


def _brought_back(question: Question, device: PciDevice, lines: tuple[LogLine, ...]) -> tuple[Chain, ...]:
    """By what the log says of it: the other modules, power off and on, else the same in steps that cost more."""
    facts, driver = question.facts, question.facts.driver.kernel_version
    branch = driver.value.branch if isinstance(driver, Known) else LTS_BRANCH
    if container(facts) is not None:
        return (chain(AskPerson("have-host-gpus-counted", Why.HOST)), *_elsewhere(question))
    if any(_TOO_OLD_FOR_OPEN in line.text for line in lines):
        return _with_proprietary(question, branch)
    if any(_NEEDS_OPEN in line.text for line in lines):
        return open_module(question, branch)
    rival = value_or(device.driver, "").lower()
    if rival.startswith(_RIVALS):
        return (chain(kinds.ForbidModule("nova_core" if rival.startswith("nova") else "nouveau"), kinds.Restart()),)
    if any(_LEGACY in line.text for line in lines):
        return _legacy_driver(question, lines)
    if any(_NO_ROOM in line.text for line in lines):
        return _more_room(facts)
    return (*_power_cycled(facts, device), *_elsewhere(question))


def _legacy_driver(question: Question, lines: tuple[LogLine, ...]) -> tuple[Chain, ...]:
    """The branch that the log itself names for this GPU."""
    match = next((found for line in lines if (found := re.search(_LEGACY_BRANCH, line.text)) is not None), None)
    if match is None or open_only_gpus(question):
        return (chain(AskPerson("leave-gpu-to-other-machine", Why.HARDWARE)),)
    return (chain(*installed(question, int(match[1]), kinds.Flavour.PROPRIETARY).ways),)


def _more_room(facts: Facts) -> tuple[Chain, ...]:
    """A GPU with an empty memory region: the address space above 4 GiB is too small, or is not given out."""
    if is_virtual(facts):
        if value_or(facts.place.system_vendor, "") == "QEMU":  # raw.qemu of LXD, args of Proxmox, libvirt's own element
            return (chain(AskPerson("start-qemu", Why.OUTSIDE, of=(str(_room_mib(facts)),))),)
        return (chain(AskPerson("give-more-mmio", Why.OUTSIDE)),)
    into_it = (typed(facts, "systemctl", "reboot", "--firmware-setup"),)
    return (chain(AskPerson("turn-on-above-4g", Why.FIRMWARE, into_it)),)


def _room_mib(facts: Facts) -> int:
    """Twice what the memory regions of all GPUs take, each as large as the next power of two: 262144 for four A30."""
    sizes = [gpu.memory_bytes.value for gpu in facts.gpus.devices if isinstance(gpu.memory_bytes, Known)]
    each = 1 << (max(sizes, default=_SUPPOSED_BYTES) - 1).bit_length()
    return max(2 * each * len(pci_gpus(facts)) >> 20, _LEAST_ROOM_MIB)


def _with_proprietary(question: Question, branch: int) -> tuple[Chain, ...]:
    """The proprietary modules, which know older GPUs; not beside a GPU that works with the open ones alone."""
    if needing := open_only_gpus(question):
        return (chain(AskPerson("take-one-kind-out", Why.HARDWARE, of=(needing[0],))),)
    life = question.tables.branch_life(branch)
    alive = life is not None and question.facts.collected_at[:7] <= life.supported_until
    kept = branch if alive and branch <= LTS_BRANCH else LTS_BRANCH  # the last one for Maxwell, Pascal and Volta
    here = branch_on_disk(question.facts)
    drives_it = bool(here) and not why_not_branch(question, here)
    rebuilt = rebuilt_as(question, kinds.Flavour.PROPRIETARY) if drives_it else ()
    return (*rebuilt, chain(*installed(question, kept, kinds.Flavour.PROPRIETARY).ways))


def _power_cycled(facts: Facts, device: PciDevice) -> tuple[Chain, ...]:
    """The driver's report first: what it knows is lost with the power; then the slot, if the same one fails again."""
    report = (typed(facts, "nvidia-bug-report.sh"), kernel_log(facts))
    if is_virtual(facts):
        return (chain(AskPerson("have-gpu-looked-at", Why.OUTSIDE, report, as_root=True, of=(device.address,))),)
    off_and_on = AskPerson("power-cycle-after-report", Why.HARDWARE, report, as_root=True)
    seat = AskPerson("have-reseated", Why.HARDWARE, cures=False, of=(device.address,))
    return (chain(off_and_on, seat),)


def _elsewhere(question: Question) -> tuple[Chain, ...]:
    return machine_answers(question, None)


_SOURCES = (
    "microsoft/pai#4344, NVIDIA/NVSentinel#155, NVIDIA/open-gpu-kernel-modules#696, "
    "illinois-scicomp/machine-shop-maintenance#76, canonical/lxd#14381"
)
_LOOKED_AT = (
    "gpus.pci",
    "driver.nodes",
    "gpus.devices",
    "gpus.count",
    "libcuda.device_count",
    "health.driver_messages",
    "health.xids",
    "place.hypervisor",
)
_WAYS = (*DRIVER_WAYS, kinds.BuildModules, kinds.ChooseModules, kinds.ForbidModule, kinds.ResetGpu, kinds.OtherMachine)

GPU_COUNT_RULES: tuple[Rule, ...] = (
    Rule(
        check=gpu_left_out,
        severity=Severity.DEGRADES,
        depth=10,
        title="Not all GPUs of this machine can be used.",
        fires_when="NVML lists at least one GPU, and a GPU on the PCI bus that is not set aside for virtual machines "
        "is not among them; in a container only where it was given all GPUs, in a job only where the log names it. Or "
        "CUDA counts fewer GPUs than NVML, and neither a mask nor MIG is the reason.",
        looks_at=_LOOKED_AT,
        of_host=True,
        means="Programs run only on the others; a job that expects all of them fails or waits for ever.",
        error="NVRM: GPU ...: RmInitAdapter failed! (...)",
        source=_SOURCES,
        ways=_WAYS,
        explains=("gpu-lost", "xid-seen", "cuda-sees-fewer-devices"),
    ),
    Rule(
        check=gpu_does_not_start,
        severity=Severity.BLOCKS,
        depth=25,  # behind the rules that know what a particular line means
        title="The driver cannot start the GPU.",
        fires_when="No GPU is listed, and the kernel log has a complaint about a GPU that is on the bus; where the "
        "driver is not loaded, one that says why it went away again.",
        looks_at=_LOOKED_AT,
        of_host=True,
        means="No CUDA program starts, and nvidia-smi finds no device.",
        error="NVRM: GPU ...: RmInitAdapter failed! (...)",
        source=_SOURCES,
        ways=_WAYS,
        explains=(
            "driver-not-loaded",
            "secure-boot-blocks-module",
            "xid-seen",
            "cuinit-fails",
            "device-nodes-missing",
            "cuda-sees-no-device",
        ),
    ),
)
