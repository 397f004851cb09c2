"""Rules about several GPUs in one machine, and about what holds one back: power, PCIe, peers, memory limits, NUMA."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.fabric_seen import is_rack
from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, gpu_label, listed
from firstlight.facts.collect import Facts
from firstlight.facts.driver import ModuleKind
from firstlight.facts.gpus import Virtualization
from firstlight.facts.known import Known, value_or
from firstlight.ways import kinds
from firstlight.ways.guests import is_virtual
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import chain

_FEW_BYTES = 1 << 30
_TO_SWITCHES = 4  # of an HGX B200: siderolabs/extensions#895 lists mlx5_0 to mlx5_3 as those of the NVSwitches
_LOW = 0.75  # of the default: below that it was set on purpose, and shows in every measurement
_BY_DMA_BUF = (
    "The open module hands GPU memory to adapters as dma-buf, which NCCL takes where kernel and adapters have it; "
    "where they do not, it copies through host memory between nodes."
)
_ONLY_FOR_TRAINING = (
    (Goal.INFER, Severity.NOTE),
    (Goal.BUILD_EXTENSIONS, Severity.NOTE),
    (Goal.KERNELS, Severity.NOTE),
)


def power_limit_low(question: Question) -> Iterator[Seen]:
    """A GPU whose power limit somebody lowered."""
    facts = question.facts
    for gpu in facts.gpus.devices:
        limit, usual = gpu.power_limit_w, gpu.power_default_w
        if not isinstance(limit, Known) or not isinstance(usual, Known) or limit.value >= usual.value * _LOW:
            continue
        number = gpu.id.removeprefix("gpu-")
        yield Seen(
            f"{gpu_label(gpu)}: {limit.value:.0f} of {usual.value:.0f} W by default ({limit.seen_in})",
            answers=(chain(kinds.SetPowerLimit(number, round(usual.value))),),
        )


def pcie_link_narrow(question: Question) -> Iterator[Seen]:
    """Fewer PCIe lanes than the GPU has; the generation alone falls when it is idle, the width does not."""
    facts = question.facts
    if is_virtual(facts):
        return  # what a guest is shown is not the slot
    for gpu in facts.gpus.devices:
        now, most = gpu.pcie_width, gpu.pcie_width_max
        if isinstance(now, Known) and isinstance(most, Known) and 0 < now.value < most.value:
            yield Seen(
                f"{gpu_label(gpu)}: {now.value} of {most.value} PCIe lanes ({now.seen_in})",
                answers=(chain(AskPerson("look-at-slot", Why.HARDWARE, of=(gpu.id[4:],))),),
            )


def peermem_not_loaded(question: Question) -> Iterator[Seen]:
    """Network adapters reach GPU memory through nvidia_peermem; with the open module also by dma-buf."""
    facts, peers = question.facts, question.facts.fleet.peers
    kind = facts.driver.module_kind
    if not _adapters(facts) or not isinstance(peers.peermem_loaded, Known) or peers.peermem_loaded.value:
        return
    if not isinstance(kind, Known):
        return
    by_itself = kind.value is not ModuleKind.PROPRIETARY
    host = AskPerson("have-peermem-loaded", Why.HOST, (("sudo", "modprobe", "nvidia_peermem"),))
    yield Seen(
        f"{_adapters(facts)}, the {kind.value.value} module, and no {peers.peermem_loaded.seen_in}",
        answers=(chain(host if container(facts) else kinds.LoadModules(("nvidia_peermem",))),),
        means=_BY_DMA_BUF if by_itself else "",
    )


def gdrcopy_not_loaded(question: Question) -> Iterator[Seen]:
    """The GDRCopy library is installed, and the module that it goes through is not loaded."""
    facts, peers = question.facts, question.facts.fleet.peers
    library, loaded = peers.gdrcopy_library, peers.gdrcopy_loaded
    if not isinstance(library, Known) or not library.value or not isinstance(loaded, Known) or loaded.value:
        return
    host = AskPerson("have-gdrdrv-loaded", Why.HOST)
    yield Seen(
        f"{library.seen_in} is there, and no {loaded.seen_in}",
        answers=(chain(host if container(facts) else kinds.LoadModules(("gdrdrv",))),),
    )


def _adapters(facts: Facts) -> str:
    """'8 RDMA adapters', without those that lead to the NVLink 5 switches of the server itself; '' for none."""
    own = value_or(facts.fleet.fabric.generation_five, default=False) and not is_rack(facts)
    count = value_or(facts.fleet.peers.rdma_devices, 0) - (_TO_SWITCHES if own else 0)
    return f"{count} RDMA adapter{'' if count == 1 else 's'}" if count > 0 else ""


def locked_memory_small(question: Question) -> Iterator[Seen]:
    """RDMA locks the memory that it reads and writes; a small limit ends jobs over several nodes."""
    facts, peers = question.facts, question.facts.fleet.peers
    limit = peers.locked_memory_bytes
    if not _adapters(facts) or not isinstance(limit, Known) or limit.value >= _FEW_BYTES:
        return
    around = container(facts)
    way = kinds.StartContainer(("--ulimit", "memlock=-1")) if around is not None else kinds.AllowLockedMemory()
    yield Seen(
        f"a process may lock {limit.value >> 10} KiB ({limit.seen_in}); {_adapters(facts)}", answers=(chain(way),)
    )


def gpus_behind_acs(question: Question) -> Iterator[Seen]:
    """Access control on the bridges sends what one GPU writes to another over the processor."""
    facts = question.facts
    bridges = {
        bridge: None for place in facts.fleet.peers.places for bridge in value_or(place.redirecting, ()) if bridge
    }
    guests = any(
        value_or(gpu.virtualization, Virtualization.NONE) is not Virtualization.NONE for gpu in facts.gpus.devices
    )
    if not bridges or guests or container(facts):
        return
    shown = listed(list(bridges)[:3]) + (f" and {len(bridges) - 3} more" if len(bridges) > 3 else "")
    off = AskPerson("turn-acs-off", Why.FIRMWARE)
    yield Seen(f"ACS redirects what passes {shown} (/sys/bus/pci/devices/*/config)", answers=(chain(off),))


def far_from_gpus(question: Question) -> Iterator[Seen]:
    """A process bound to processors of one NUMA node while GPUs hang on another."""
    peers = question.facts.fleet.peers
    nodes = peers.processor_nodes
    if not isinstance(nodes, Known):
        return
    far = {place.gpu: place.numa_node.value for place in peers.places
           if isinstance(place.numa_node, Known) and place.numa_node.value not in nodes.value}  # fmt: skip
    if not far:
        return
    names = listed(f"{gpu} (node {node})" for gpu, node in far.items())
    here = listed(str(node) for node in nodes.value)
    look = (("nvidia-smi", "topo", "-m"),)
    yield Seen(
        f"this process may run on NUMA node {here} alone ({nodes.seen_in}); {names} is on another",
        answers=(chain(AskPerson("run-beside-gpus", Why.PROGRAM, look)),),
    )


PEER_RULES: tuple[Rule, ...] = (
    Rule(
        check=power_limit_low,
        severity=Severity.DEGRADES,
        depth=70,
        title="The power limit of a GPU is set far below its default.",
        fires_when="NVML's enforced power limit is less than three quarters of the default.",
        looks_at=("gpus.devices",),
        means="Everything works, but slower than the GPU could; do not compare its measurements with other cards.",
        source="NVML, nvmlDeviceGetEnforcedPowerLimit and nvmlDeviceGetPowerManagementDefaultLimit",
        ways=(kinds.SetPowerLimit,),
    ),
    Rule(
        check=pcie_link_narrow,
        severity=Severity.NOTE,
        depth=70,
        title="A GPU has fewer PCIe lanes than it could use.",
        fires_when="NVML's current PCIe width is below the widest; not in a virtual machine.",
        looks_at=("gpus.devices", "place.hypervisor"),
        means="Copies between host and GPU take longer; work that stays on the GPU does not.",
        source="NVML, nvmlDeviceGetCurrPcieLinkWidth",
        ways=(AskPerson,),
    ),
    Rule(
        check=locked_memory_small,
        severity=Severity.DEGRADES,
        depth=70,
        title="Too little memory may be locked for RDMA.",
        fires_when="Two GPUs or more, an InfiniBand or RoCE adapter, and a limit on locked memory below 1 GiB.",
        looks_at=("fleet.peers.locked_memory_bytes", "fleet.peers.rdma_devices"),
        means="NCCL over the network fails to register its buffers; work inside this machine is not affected.",
        source="docs.nvidia.com/deeplearning/nccl, troubleshooting",
        ways=(kinds.StartContainer, kinds.AllowLockedMemory),
        for_goals=_ONLY_FOR_TRAINING,
    ),
    Rule(
        check=gpus_behind_acs,
        severity=Severity.DEGRADES,
        depth=70,
        title="PCIe traffic between GPUs takes a detour through the processor (ACS).",
        fires_when="Two GPUs or more on a plain machine, and a bridge above one redirects (ACS), which root can see.",
        looks_at=("fleet.peers.places", "gpus.devices"),
        of_host=True,
        means="Peer copies over PCIe are slow, and on some boards hang; NVLink is not affected.",
        source="docs.nvidia.com/deeplearning/nccl, troubleshooting, PCI access control services",
        ways=(AskPerson,),
        for_goals=_ONLY_FOR_TRAINING,
    ),
    Rule(
        check=peermem_not_loaded,
        severity=Severity.NOTE,
        depth=70,
        title="Network adapters may not reach the GPUs' memory.",
        fires_when="Two GPUs or more, an RDMA adapter, and nvidia_peermem is not loaded.",
        looks_at=("fleet.peers.peermem_loaded", "fleet.peers.rdma_devices", "driver.module_kind"),
        means="NCCL copies through host memory between nodes; inside this machine nothing changes.",
        source="docs.nvidia.com/cuda/gpudirect-rdma; docs.nvidia.com/deeplearning/nccl, troubleshooting",
        ways=(kinds.LoadModules, AskPerson),
    ),
    Rule(
        check=gdrcopy_not_loaded,
        severity=Severity.NOTE,
        depth=70,
        title="GDRCopy is installed and its kernel module is not loaded.",
        fires_when="Two GPUs or more, libgdrapi.so.2 is there, and /dev/gdrdrv is not.",
        looks_at=("fleet.peers.gdrcopy_library", "fleet.peers.gdrcopy_loaded"),
        means="Small messages of UCX and NVSHMEM take the slower way; nothing fails because of it.",
        source="NVIDIA/gdrcopy, README (gdrdrv)",
        ways=(kinds.LoadModules, AskPerson),
    ),
    Rule(
        check=far_from_gpus,
        severity=Severity.NOTE,
        depth=70,
        title="This process runs on processors far from some of the GPUs.",
        fires_when="Two GPUs or more, and this process may use no processor on the NUMA node of one of them.",
        looks_at=("fleet.peers.processor_nodes", "fleet.peers.places"),
        means="Copies to those GPUs cross from one processor to the other, which costs bandwidth.",
        source="docs.nvidia.com/deeplearning/nccl, environment variables, NCCL_IGNORE_CPU_AFFINITY",
        ways=(AskPerson,),
    ),
)
