"""Rules about the hardware's health and the room there is: lost or faulty GPUs, throttling, disk, shared memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import as_root, container, listed, on_the_host, start_with_gpus
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.gpus import Gpu
from firstlight.facts.health import GpuHealth, XidEvent
from firstlight.facts.known import Fact, Known, value_or

_LOST, _RESET_REQUIRED = 15, 16  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
# Xids after which the GPU, not the program, is to be looked at. 13, 31, 43 and 45 are mostly a program's own faults.
# docs.nvidia.com/deploy/xid-errors; NVIDIA/open-gpu-kernel-modules#1045 (62, 119, 154), Azure/azurehpc#714 (120),
# wtdcode/vllm-backport#62 (171).
_OF_THE_GPU = (46, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 154, 171)
_FELL_OFF = 79
_HELD_BACK = ("hardware-slowdown", "hardware-thermal", "hardware-power-brake", "software-thermal")
_GIB = 1 << 30
_LITTLE_DISK = 5 * _GIB  # torch 2.15 with its NVIDIA wheels unpacks to more than 4 GB
_LITTLE_SHM = 1 * _GIB  # Docker gives 64 MiB unless told otherwise
_NOT_A_STORE = ("tmpfs", "devtmpfs", "ramfs", "squashfs", "proc", "sysfs")


def gpu_lost(question: Question) -> Iterator[Seen]:
    """A GPU that the driver can no longer reach, e.g. after Xid 79."""
    facts = question.facts
    fallen = {event.pci: event for event in value_or(facts.health.xids, ()) if event.code == _FELL_OFF}
    for gpu in facts.gpus.devices:
        code = value_or(gpu.nvml_code, 0)
        if code not in (_LOST, _RESET_REQUIRED):
            continue
        address = value_or(gpu.pci_address, "")
        event = next((each for pci, each in fallen.items() if address.startswith(pci)), None)
        event = event or (next(iter(fallen.values()), None) if not address else None)
        logged = "" if event is None else f"; the kernel log has Xid {event.code} at {event.pci} ({event.text})"
        word = "lost" if code == _LOST else "in need of a reset"
        yield Seen(f"{gpu.id}: NVML says {code}, the GPU is {word}{logged}", do=_ways_for_lost(facts))


def _ways_for_lost(facts: Facts) -> tuple[str, ...]:
    return (
        "keep what the driver knows for the report: " + on_the_host(facts, "nvidia-bug-report.sh"),
        "stop what runs on it and power the machine off and on; a reboot alone may not bring it back",
        "a rented machine: give it back and name Xid 79; your own: look at power, cooling and the slot",
    )


def gpu_memory_faulty(question: Question) -> Iterator[Seen]:
    """Memory rows that failed: repaired at the next reset, or past repair."""
    facts = question.facts
    for gpu in facts.health.gpus:
        signs = [sign for sign in _memory_signs(gpu) if sign]
        if not signs:
            continue
        number = gpu.id.removeprefix("gpu-")
        reset = on_the_host(facts, f"nvidia-smi --gpu-reset -i {number}")
        if value_or(gpu.row_remap_failure, default=False):
            steps: tuple[str, ...] = (
                "take it out of use: NVIDIA replaces a GPU whose row remapping failed",
                "a rented machine: give it back",
            )
        else:
            steps = (
                f"with every program off the GPU: {reset}",
                f"then look again: nvidia-smi -q -i {number} -d ECC,ROW_REMAPPER",
                "if errors come back after the reset, have the GPU replaced or give the machine back",
            )
        yield Seen(f"{gpu.id}: {', '.join(signs)} (NVML)", do=steps)


def _memory_signs(gpu: GpuHealth) -> Iterator[str]:
    if value_or(gpu.row_remap_failure, default=False):
        yield "a row of its memory could not be remapped"
    if value_or(gpu.row_remap_pending, default=False):
        rows = value_or(gpu.rows_remapped_uncorrectable, 0)
        yield "a row remapping is pending" + (f" after {rows} rows with uncorrectable errors" if rows else "")
    if value_or(gpu.retired_pages_pending, default=False):
        yield "a page waits to be retired"
    if errors := value_or(gpu.ecc_uncorrected_volatile, 0):
        yield f"{errors} uncorrectable ECC error(s) since the driver was loaded"


def xid_seen(question: Question) -> Iterator[Seen]:
    """The driver logged a fault of the GPU itself."""
    facts = question.facts
    events = value_or(facts.health.xids, ())
    grave = [event for event in events if event.family == "SXid" or event.code in _OF_THE_GPU]
    groups: dict[tuple[str, int, str], list[XidEvent]] = {}
    for event in grave:
        groups.setdefault((event.family, event.code, event.pci), []).append(event)
    for (family, code, pci), found in groups.items():
        last = found[-1]
        when = f", last at {last.when.value}" if isinstance(last.when, Known) else ""
        times = f"{len(found)} times{when}" if len(found) > 1 else f"once{when.replace('last ', '')}"
        yield Seen(
            f"{family} {code} at {pci}, {times}: {last.text or 'no text'} ({_seen_in(facts.health.xids)})",
            do=(
                "what the numbers mean: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
                f"with every program off the GPU: {on_the_host(facts, _reset(facts, last))}",
                "if work on that GPU crashes or hangs, stop it there and run dcgmi diag -r 3, or give the machine back",
            ),
        )


def _reset(facts: Facts, event: XidEvent) -> str:
    """The reset of the GPU that an event names, by number where NVML has it; of all where it names an NVSwitch."""
    if event.family == "SXid":
        return "nvidia-smi --gpu-reset"
    at = (gpu.id for gpu in facts.gpus.devices if value_or(gpu.pci_address, "").startswith(event.pci))
    return f"nvidia-smi --gpu-reset -i {next(at, f'{event.pci}.0').removeprefix('gpu-')}"


def _seen_in(fact: Fact[tuple[XidEvent, ...]]) -> str:
    return fact.seen_in if isinstance(fact, Known) else "the kernel log"


def gpu_throttled(question: Question) -> Iterator[Seen]:
    """The hardware slows the GPU down: too hot, or too little power."""
    facts = question.facts
    gpus = {gpu.id: gpu for gpu in facts.gpus.devices}
    for health in facts.health.gpus:
        reasons = [reason for reason in value_or(health.throttle, ()) if reason in _HELD_BACK]
        if not reasons:
            continue
        heat = f" at {health.temperature_c.value} C" if isinstance(health.temperature_c, Known) else ""
        clocks = _clocks(gpus[health.id]) if health.id in gpus else ""
        power = any("power" in reason for reason in reasons)
        yield Seen(
            f"{health.id} is held back by {listed(reasons)}{heat}{clocks} (NVML)",
            do=(
                "look at the power supply and its cables"
                if power
                else "look at fans, air flow and what else is hot there",
                "do not benchmark until `nvidia-smi -q -d PERFORMANCE` shows these reasons as not active",
            ),
        )


def _clocks(gpu: Gpu) -> str:
    now, most = gpu.clock_sm_mhz, gpu.clock_sm_max_mhz
    return f", {now.value} of {most.value} MHz" if isinstance(now, Known) and isinstance(most, Known) else ""


def disk_nearly_full(question: Question) -> Iterator[Seen]:
    """Too little room for a torch install, a build or a model."""
    seen: set[str] = set()
    for disk in question.facts.resources.disks:
        mount = disk.mount
        kind = mount.value.kind if isinstance(mount, Known) else ""
        if kind in _NOT_A_STORE or disk.path == "/dev/shm" or (isinstance(mount, Known) and mount.value.read_only):  # noqa: S108
            continue
        point = mount.value.point if isinstance(mount, Known) else disk.path
        if disk.free_bytes >= _LITTLE_DISK or point in seen:
            continue
        seen.add(point)
        volume = question.facts.resources.persistent_volume
        move = (f"keep caches elsewhere: export HF_HOME={_under(volume.value, 'huggingface')} "
                f"PIP_CACHE_DIR={_under(volume.value, 'pip')}",
                ) if isinstance(volume, Known) and volume.value != point else ()  # fmt: skip
        yield Seen(
            f"{disk.free_bytes / _GIB:.1f} GiB of {disk.total_bytes / _GIB:.0f} GiB are free at {disk.path}",
            do=(
                "pip cache purge",
                *move,
                f"see what takes the room: du -xh --max-depth=2 {shlex.quote(disk.path)} | sort -h | tail",
            ),
        )


def _under(folder: str, name: str) -> str:
    return shlex.quote(f"{folder}/{name}")


def shm_too_small(question: Question) -> Iterator[Seen]:
    """Data loaders and NCCL pass tensors through /dev/shm; Docker gives it 64 MiB."""
    facts, kind = question.facts, container(question.facts)
    size = facts.resources.shm_bytes
    if not isinstance(size, Known) or size.value >= _LITTLE_SHM:
        return
    if kind is None:
        step = as_root(facts, "mount -o remount,size=8G /dev/shm")
    elif kind.value is ContainerKind.KUBERNETES:
        step = "mount an emptyDir with medium: Memory at /dev/shm in the pod"
    elif kind.value is ContainerKind.DOCKER:
        step = "start the container again with --shm-size=8g (or --ipc=host)"
    else:
        step = start_with_gpus(facts) + ", and with a /dev/shm of some GiB"
    yield Seen(
        f"{size.value / (1 << 20):.0f} MiB of shared memory at {size.seen_in}",
        do=(step, "until then: DataLoader(num_workers=0)"),
    )


HEALTH_RULES: tuple[Rule, ...] = (
    Rule(
        code="gpu-lost",
        check=gpu_lost,
        severity=Severity.BLOCKS,
        depth=10,
        title="A GPU has dropped off the bus or hangs.",
        fires_when="NVML returns 15 (GPU is lost) or 16 (reset required) for a GPU.",
        looks_at=("gpus.devices", "health.xids"),
        means="Programs on it die; often no new CUDA program starts at all, on the other GPUs neither.",
        error="Unable to determine the device handle for GPU ...: GPU is lost.  Reboot the system to recover this GPU",
        source="akash-network/support#209, leptonai/gpud#604; docs.nvidia.com/deploy/xid-errors",
        remedies=("power-cycle", "other-machine"),
        explains=("xid-seen", "cuinit-fails", "cuinit-hangs", "gpu-memory-faulty"),
    ),
    Rule(
        code="gpu-memory-faulty",
        check=gpu_memory_faulty,
        severity=Severity.DEGRADES,
        depth=70,
        title="The memory of a GPU has faults.",
        fires_when="NVML reports a failed or pending row remapping, a pending page retirement, or uncorrectable ECC "
        "errors since the driver was loaded.",
        looks_at=("health.gpus",),
        means="Work on it may crash at any time, and hang the other GPUs of the same job.",
        error="CUDA error: uncorrectable ECC error encountered",
        source="docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt; wtdcode/vllm-backport#62",
        remedies=("reset-gpu", "other-machine"),
        explains=("xid-seen",),
    ),
    Rule(
        code="xid-seen",
        check=xid_seen,
        severity=Severity.DEGRADES,
        depth=70,
        title="The driver has logged faults of a GPU.",
        fires_when="The kernel log has an Xid that NVIDIA lays at the GPU's or the driver's door, or an SXid.",
        looks_at=("health.xids",),
        means="The GPU answers now; it failed before and may again.",
        error="NVRM: Xid (PCI:0000:01:00): 119, Timeout after 45s of waiting for RPC response from GPU0 GSP!",
        source="docs.nvidia.com/deploy/xid-errors",
        remedies=("reset-gpu", "other-machine"),
    ),
    Rule(
        code="gpu-throttled",
        check=gpu_throttled,
        severity=Severity.DEGRADES,
        depth=70,
        title="The GPU runs slower than it could.",
        fires_when="NVML names a thermal or hardware slowdown; a power cap and idle clocks are ordinary.",
        looks_at=("health.gpus", "gpus.devices"),
        means="Everything works, at a fraction of the speed, and no measurement is worth anything.",
        error="",
        source="leptonai/gpud#330; NVML, clocks event reasons",
        remedies=("cool-or-power",),
    ),
    Rule(
        code="disk-nearly-full",
        check=disk_nearly_full,
        severity=Severity.DEGRADES,
        depth=70,
        title="A disk is nearly full.",
        fires_when="Less than 5 GiB are free where packages, caches or work would be written.",
        looks_at=("resources.disks", "resources.persistent_volume"),
        means="Installing torch, building an extension or fetching a model fails half-way.",
        error="ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        source="artokun/comfyui-mcp#2016",
        remedies=("free-disk",),
    ),
    Rule(
        code="shm-too-small",
        check=shm_too_small,
        severity=Severity.DEGRADES,
        depth=70,
        title="The shared memory of this container is too small for data loaders and NCCL.",
        fires_when="Less than 1 GiB is mounted at /dev/shm.",
        looks_at=("resources.shm_bytes", "container.kind"),
        means="Training with worker processes, and several GPUs by NCCL, die with a bus error.",
        error="RuntimeError: DataLoader worker (pid 572) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        source="pytorch/pytorch#5040, bytedance/Protenix#2",
        remedies=("raise-shm",),
        for_goals=((Goal.INFER, Severity.NOTE), (Goal.BUILD_EXTENSIONS, Severity.NOTE), (Goal.KERNELS, Severity.NOTE)),
    ),
)
