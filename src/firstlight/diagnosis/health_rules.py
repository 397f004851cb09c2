"""Rules about the hardware's health and the room there is: lost or faulty GPUs, throttling, disk, shared memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.finding import Goal, LogLine, Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_about, message_lines
from firstlight.diagnosis.observed import container, listed, typed
from firstlight.diagnosis.xid_answers import XID_WAYS, gpu_at, is_of_the_gpu, xid_answers
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.gpus import Gpu
from firstlight.facts.health import GpuHealth
from firstlight.facts.kernel_log import XidEvent, address_in
from firstlight.facts.known import Fact, Known, value_or
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, Way, chain

_LOST, _RESET_REQUIRED = 15, 16  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
_FELL_OFF = 79
_HELD_BACK = ("hardware-slowdown", "hardware-thermal", "hardware-power-brake", "software-thermal")
_GIB = 1 << 30
_LITTLE_DISK = 5 * _GIB  # torch 2.15 with its NVIDIA wheels unpacks to more than 4 GB
_LITTLE_SHM = 1 * _GIB  # Docker gives 64 MiB unless told otherwise
_STATE = (("nvidia-smi", "-q", "-d", "PERFORMANCE"),)  # no measurement counts until it names no such reason
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
        yield Seen(
            f"{gpu.id}: NVML says {code}, the GPU is {word}{logged}",
            answers=_ways_for_lost(question),
            lines=_lines_of_lost(facts, address or ("" if event is None else event.pci)),
        )


def _lines_of_lost(facts: Facts, place: str) -> tuple[LogLine, ...]:
    """What names the GPU, and what follows from it: where it is the only one, every line that names none."""
    alone = len(facts.gpus.devices) == 1
    after = tuple(line for line in message_lines(facts) if not line.pci) if alone and place else ()
    return (*lines_about(facts, place), *after)


def _ways_for_lost(question: Question) -> tuple[Chain, ...]:
    """A restart alone may not bring it back; what the driver knows is lost with the power."""
    report = (typed(question.facts, "nvidia-bug-report.sh"),)
    return (
        chain(AskPerson("power-cycle-after-report", Why.HARDWARE, report, as_root=True)),
        *machine_answers(question, None),
    )


def gpu_memory_faulty(question: Question) -> Iterator[Seen]:
    """Memory rows that failed: repaired at the next reset, or past repair."""
    facts = question.facts
    for gpu in facts.health.gpus:
        signs = [sign for sign in _memory_signs(gpu) if sign]
        if not signs:
            continue
        number = gpu.id.removeprefix("gpu-")
        failed = value_or(gpu.row_remap_failure, default=False)
        replaced = chain(AskPerson("have-gpu-replaced", Why.HARDWARE, of=(number,)))
        first = replaced if failed else chain(kinds.ResetGpu(number))
        yield Seen(f"{gpu.id}: {', '.join(signs)} (NVML)", answers=(first, *machine_answers(question, None)))


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
    known = {event.code: question.tables.xid(event.code) for event in events}
    grave = [event for event in events if event.family == "SXid" or is_of_the_gpu(known[event.code])]
    groups: dict[tuple[str, int, str], list[XidEvent]] = {}
    for event in grave:
        groups.setdefault((event.family, event.code, event.pci), []).append(event)
    for (family, code, pci), found in groups.items():
        last = found[-1]
        when = f", last at {last.when.value}" if isinstance(last.when, Known) else ""
        times = f"{len(found)} times{when}" if len(found) > 1 else f"once{when.replace('last ', '')}"
        row = known.get(code) if family == "Xid" else None
        meaning = f". {row.meaning}" if row is not None else ""
        yield Seen(
            f"{family} {code} at {pci}, {times}: {(last.text or 'no text').rstrip('.')} "
            f"({_seen_in(facts.health.xids)}){meaning}",
            answers=xid_answers(question, last, gpu_at(facts, last)),
            means=_now(facts, grave),
            error=f"NVRM: {family} (PCI:{pci}): {code}" + (f", {last.text}" if last.text else ""),
            lines=lines_about(facts, pci),  # the programs that died with it are logged beside it
        )


def _now(facts: Facts, events: list[XidEvent]) -> str:
    """Whether the GPUs that failed answer now: said of those alone that NVML lists without an error."""
    failed = {address_in(event.pci) for event in events if event.family == "Xid"}
    answering = {
        address_in(gpu.pci_address.value)
        for gpu in facts.gpus.devices
        if isinstance(gpu.pci_address, Known) and value_or(gpu.nvml_code, -1) == 0
    }
    silent = sorted(failed - answering)
    if failed and not silent:
        return "The GPU answers NVML now; it failed before and may again."
    whose = f"NVML does not show that {listed(silent)} answers now" if silent else "It failed before and may again"
    return f"{whose}; look at it before work is put on it." if silent else f"{whose}."


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
        look = AskPerson("look-at-power" if power else "look-at-cooling", Why.COOLING, _STATE)
        yield Seen(f"{health.id} is held back by {listed(reasons)}{heat}{clocks} (NVML)", answers=(chain(look),))


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
        yield Seen(
            f"{_size(disk.free_bytes)} of {disk.total_bytes / _GIB:.0f} GiB are free at {disk.path}",
            answers=(_more_room(question.facts, disk.path, point),),
        )


def _size(count: int) -> str:
    """4.2 GiB, and 20 MiB where less than a tenth of one is left."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB / 10 else f"{count >> 20} MiB"


def _more_room(facts: Facts, path: str, point: str) -> Chain:
    """The cache emptied, later ones elsewhere, and what only its owner knows: what that frees is not known before."""
    elsewhere = value_or(facts.resources.persistent_volume, point)
    homes = (("HF_HOME", "huggingface"), ("PIP_CACHE_DIR", "pip"))
    caches = kinds.SetVariables(tuple(kinds.Variable(name, f"{elsewhere}/{folder}") for name, folder in homes))
    largest = ("sh", "-c", f"du -xh --max-depth=2 {shlex.quote(path)} | sort -h | tail")
    rest = AskPerson("remove-what-takes-room", Why.DECISION, (largest,))
    return chain(kinds.ClearCache("pip"), *((caches,) if elsewhere != point else ()), rest)


def shm_too_small(question: Question) -> Iterator[Seen]:
    """Data loaders and NCCL pass tensors through /dev/shm; Docker gives it 64 MiB."""
    facts = question.facts
    size = facts.resources.shm_bytes
    if not isinstance(size, Known) or size.value >= _LITTLE_SHM:
        return
    until_then = AskPerson("load-without-workers", Why.PROGRAM, cures=False)
    yield Seen(
        f"{size.value / (1 << 20):.0f} MiB of shared memory at {size.seen_in}",
        answers=(chain(_more_shared_memory(facts)), chain(until_then)),
        severity=Severity.DEGRADES if len(facts.gpus.devices) > 1 else None,  # NCCL between them goes through it
    )


def _more_shared_memory(facts: Facts) -> Way:
    kind = container(facts)
    if kind is None:
        remount = (typed(facts, "mount", "-o", "remount,size=8G", "/dev/shm"),)  # noqa: S108 a mount point
        return AskPerson("enlarge-shm", Why.DECISION, remount, as_root=True)
    if kind.value is ContainerKind.KUBERNETES:
        return AskPerson("mount-shm", Why.HOST)
    if kind.value in (ContainerKind.DOCKER, ContainerKind.PODMAN):
        return kinds.StartContainer(("--shm-size=8g",))
    return AskPerson("start-with-shm", Why.HOST)


HEALTH_RULES: tuple[Rule, ...] = (
    Rule(
        check=gpu_lost,
        severity=Severity.BLOCKS,
        depth=10,
        title="A GPU has dropped off the bus or hangs.",
        fires_when="NVML returns 15 (GPU is lost) or 16 (reset required) for a GPU.",
        looks_at=("gpus.devices", "health.xids"),
        means="Programs on it die; often no new CUDA program starts at all, not even on the other GPUs.",
        error="Unable to determine the device handle for GPU ...: GPU is lost.  Reboot the system to recover this GPU",
        source="akash-network/support#209, leptonai/gpud#604; docs.nvidia.com/deploy/xid-errors",
        ways=(AskPerson, kinds.OtherMachine),
        explains=("xid-seen", "cuinit-fails", "cuinit-hangs", "gpu-memory-faulty"),
    ),
    Rule(
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
        ways=(kinds.ResetGpu, kinds.OtherMachine, AskPerson),
        explains=("xid-seen",),
    ),
    Rule(
        check=xid_seen,
        severity=Severity.DEGRADES,
        depth=70,
        title="The driver has logged faults of a GPU.",
        fires_when="The kernel log has an Xid that NVIDIA lays at the GPU's or the driver's door, or an SXid.",
        looks_at=("health.xids",),
        needs=("health.xids",),
        means="It failed before and may again.",
        error="NVRM: Xid (PCI:0000:01:00): 119, Timeout after 45s of waiting for RPC response from GPU0 GSP!",
        source="docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        ways=XID_WAYS,
    ),
    Rule(
        check=gpu_throttled,
        severity=Severity.DEGRADES,
        depth=70,
        title="The GPU runs slower than it could.",
        fires_when="NVML names a thermal or hardware slowdown; a power cap and idle clocks are ordinary.",
        looks_at=("health.gpus", "gpus.devices"),
        means="Everything works, but at a fraction of the speed, and no measurement can be trusted.",
        source="leptonai/gpud#330; NVML, clocks event reasons",
        ways=(AskPerson,),
    ),
    Rule(
        check=disk_nearly_full,
        severity=Severity.DEGRADES,
        depth=70,
        title="A disk is nearly full.",
        fires_when="Less than 5 GiB are free where packages, caches or work would be written.",
        looks_at=("resources.disks", "resources.persistent_volume"),
        means="Installing torch, building an extension or fetching a model fails half-way.",
        error="ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        source="artokun/comfyui-mcp#2016",
        ways=(kinds.ClearCache, kinds.SetVariables, AskPerson),
    ),
    Rule(
        check=shm_too_small,
        severity=Severity.DEGRADES,
        depth=70,
        title="The shared memory of this container is too small for data loaders and NCCL.",
        fires_when="Less than 1 GiB is mounted at /dev/shm; it degrades whatever the goal where there are two GPUs or "
        "more.",
        looks_at=("resources.shm_bytes", "container.kind", "gpus.devices"),
        needs=("resources.shm_bytes",),
        means="Training with worker processes, and several GPUs by NCCL, die with a bus error.",
        error="RuntimeError: DataLoader worker (pid 572) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        source="pytorch/pytorch#5040, bytedance/Protenix#2, NVIDIA/nccl#525",
        ways=(kinds.StartContainer, AskPerson),
        for_goals=((Goal.INFER, Severity.NOTE), (Goal.BUILD_EXTENSIONS, Severity.NOTE), (Goal.KERNELS, Severity.NOTE)),
    ),
)
