"""Rules about the NVLink fabric beyond Fabric Manager: joining takes time, NVLink 5 needs NVLSM, racks need IMEX."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.fabric_seen import does_not_start, is_rack, joins, lacks_subnet_manager, waiting_words
from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, init_error, shown
from firstlight.diagnosis.services import FABRIC_MANAGER, IMEX, comes_as_image, packages, start
from firstlight.facts.known import Known, value_or
from firstlight.numerals import counted
from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Service, Why
from firstlight.ways.managers import of_driver
from firstlight.ways.way import Chain, Way, chain

_NVIDIA_OPTIONS = "/etc/modprobe.d/nvidia-channels.conf"
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_LOOK = (("nvidia-smi", "-q"),)
_GUIDE = "docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide"
_IMEX_GUIDE = "docs.nvidia.com/multi-node-nvlink-systems/imex-guide"


def _state(question: Question) -> str:
    seen = [f"cuInit gives {init_error(question)}"] if init_error(question) else []
    waits = waiting_words(question.facts)
    return "; ".join([*seen, *([f"fabric state of {waits} (NVML)"] if waits else [])])


def fabric_joining(question: Question) -> Iterator[Seen]:
    """The manager runs and the GPUs are joining: nothing is to be installed, it takes some minutes."""
    facts = question.facts
    if not does_not_start(facts) or not joins(facts) or lacks_subnet_manager(facts) or is_rack(facts):
        return
    log = facts.fleet.fabric.manager_log
    lines = value_or(log, ())
    said = f"; its log ends with: {lines[-1]}" if lines else ""
    wait = AskPerson("give-fabric-time", Why.DECISION, _LOOK)
    # Started anew it begins from the start: only where it complained.
    again = (chain(start(question, FABRIC_MANAGER, Service.RESTART)),) if lines and not container(facts) else ()
    yield Seen(f"{_state(question)}; Fabric Manager runs{said}", answers=(chain(wait), *again))


def subnet_manager_missing(question: Question) -> Iterator[Seen]:
    """On NVLink 5 the switches are set up by NVLSM, which Fabric Manager's unit starts and which is a package apart."""
    facts = question.facts
    if not does_not_start(facts) or not lacks_subnet_manager(facts):
        return
    fabric = facts.fleet.fabric
    absent = isinstance(fabric.subnet_manager, Known) and not fabric.subnet_manager.value
    silent = isinstance(fabric.umad_loaded, Known) and not fabric.umad_loaded.value
    seen = [f"no {fabric.subnet_manager.seen_in}"] if absent and isinstance(fabric.subnet_manager, Known) else []
    seen += ["the module ib_umad, through which it speaks to the switches, is not loaded"] if silent else []
    yield Seen(f"{_state(question)}; {'; '.join(seen)}", answers=_subnet_manager(question, absent, silent))


def _subnet_manager(question: Question, absent: object, silent: object) -> tuple[Chain, ...]:
    if container(question.facts):
        return (chain(AskPerson("report-missing-manager", Why.HOST)), *machine_answers(question, None))
    program = packages(question, Role.FABRIC_SUBNET_MANAGER) if absent else ()
    if comes_as_image(question) and program:
        return (chain(*program),)
    module = (kinds.LoadModules(("ib_umad",)),) if silent else ()
    return (chain(*program, *module, start(question, FABRIC_MANAGER, Service.RESTART)),)


def rack_fabric_waits(question: Question) -> Iterator[Seen]:
    """In a rack of NVLink 5 the switches are in trays of their own; no manager on this node would help."""
    facts = question.facts
    if not does_not_start(facts) or not is_rack(facts):
        return
    yield Seen(
        f"{_state(question)}; these GPUs are of a rack ({facts.place.arch}), whose switches are managed in their trays",
        answers=(chain(AskPerson("have-managers-looked-at", Why.HARDWARE, _LOOK)), *machine_answers(question, None)),
    )


def imex_missing(question: Question) -> Iterator[Seen]:
    """Nodes of a rack share GPU memory through IMEX: its daemon on every node, and a channel node in /dev."""
    facts = question.facts
    fabric = facts.fleet.fabric
    if not is_rack(facts) or does_not_start(facts):
        return
    seen: list[str] = []
    if isinstance(fabric.imex_channels, Known) and not fabric.imex_channels.value:
        seen.append(f"no channel in {fabric.imex_channels.seen_in}")
    if isinstance(fabric.imex_service, Known) and not fabric.imex_service.value.runs:
        absent = isinstance(fabric.imex, Known) and not fabric.imex.value
        seen.append("IMEX is not installed" if absent else f"the IMEX service is {fabric.imex_service.value.active}")
    if isinstance(fabric.imex_nodes, Known) and fabric.imex_nodes.value < 2:
        seen.append(f"{fabric.imex_nodes.seen_in} names {counted(fabric.imex_nodes.value, 'node')}")
    if not seen:
        return
    runs = isinstance(fabric.imex_service, Known) and fabric.imex_service.value.runs
    # Somebody who runs the daemon means to share memory between nodes, and a job that does so fails.
    yield Seen("; ".join(seen), answers=_with_imex(question), severity=Severity.DEGRADES if runs else None)


def _with_imex(question: Question) -> tuple[Chain, ...]:
    """What is not there yet: the program, a channel for now and for later starts, the other nodes, the daemon."""
    facts, fabric, driver = question.facts, question.facts.fleet.fabric, question.facts.driver.kernel_version
    if container(facts):
        return (chain(AskPerson("have-imex-channel", Why.HOST)),)
    absent = isinstance(fabric.imex, Known) and not fabric.imex.value
    branch = str(driver.value.branch) if isinstance(driver, Known) else ""
    program = packages(question, Role.IMEX, branch=branch) if absent and branch else ()
    nodes = (AskPerson("write-imex-nodes", Why.DECISION),)
    channel = _channel(question) if isinstance(fabric.imex_channels, Known) and not fabric.imex_channels.value else ()
    runs = isinstance(fabric.imex_service, Known) and fabric.imex_service.value.runs
    named = isinstance(fabric.imex_nodes, Known) and fabric.imex_nodes.value > 1
    begun = (start(question, IMEX),) if not runs else () if named else (start(question, IMEX, Service.RESTART),)
    return (chain(*program, *channel, *(() if named else nodes), *begun),)


def _channel(question: Question) -> tuple[Way, ...]:
    """A node with the number that the driver was given, and the option that makes it at every later start."""
    return (kinds.MakeImexChannel(), kinds.SetModuleOption("nvidia", "NVreg_CreateImexChannel0=1", _NVIDIA_OPTIONS))


def imex_differs(question: Question) -> Iterator[Seen]:
    """IMEX must be of the driver's version, on every node."""
    facts = question.facts
    version, driver = facts.fleet.fabric.imex_version, facts.driver.kernel_version
    if not isinstance(version, Known) or not isinstance(driver, Known) or version.value == driver.value:
        return
    same = packages(question, Role.IMEX, version=of_driver(driver.value), branch=str(driver.value.branch))
    yield Seen(
        f"IMEX {shown(version)}; driver {shown(driver)}",
        answers=(chain(*same, start(question, IMEX, Service.RESTART)),),
    )


def fabric_degraded(question: Question) -> Iterator[Seen]:
    """GPUs that joined and complain of their links."""
    for link in question.facts.fleet.fabric.links:
        words = value_or(link.complaints, ())
        if words:
            number = link.gpu.removeprefix("gpu-")
            look = (("nvidia-smi", "nvlink", "--status", "-i", number), ("nvidia-smi", "nvlink", "-e", "-i", number))
            yield Seen(
                f"{link.gpu}: {', '.join(words)} (NVML, fabric health)",
                answers=(chain(AskPerson("look-at-nvlinks", Why.HARDWARE, look, of=(number,))),),
            )


def _facts_of(*names: str) -> tuple[str, ...]:
    return tuple(f"fleet.fabric.{name}" for name in names)


FABRIC_RULES: tuple[Rule, ...] = (
    Rule(
        check=subnet_manager_missing,
        severity=Severity.BLOCKS,
        depth=20,
        title="The NVLink 5 switches have no subnet manager (NVLSM).",
        fires_when="Blackwell GPUs of one server wait for the fabric; NVLSM is not installed, or ib_umad not loaded.",
        looks_at=(*_facts_of("generation_five", "subnet_manager", "umad_loaded"), "health.gpus", "libcuda.init_code"),
        means="Fabric Manager alone cannot set up NVLink 5 switches, so cuInit gives 802 on every GPU.",
        error="Error 802: system not yet initialized",
        source=f"{_GUIDE}, NVLink Subnet Manager",
        ways=(
            kinds.SetUpRepository,
            kinds.InstallPackages,
            kinds.LoadModules,
            kinds.StartService,
            AskPerson,
            kinds.OtherMachine,
        ),
        explains=("fabric-manager-missing", "fabric-manager-differs", "cuinit-fails"),
    ),
    Rule(
        check=rack_fabric_waits,
        severity=Severity.BLOCKS,
        depth=20,
        title="The NVLink fabric of the rack has not let these GPUs in.",
        fires_when="GPUs of an Arm node with NVLink 5 (GB200, GB300) wait for the fabric, and CUDA does not start.",
        looks_at=(*_facts_of("across_nodes"), "health.gpus", "libcuda.init_code"),
        means="Fabric Manager and NVLSM of such a rack run in its switch trays; until they let the GPUs in, cuInit "
        "gives 802. Nothing is installed on this node for it.",
        error="Error 802: system not yet initialized",
        source="docs.nvidia.com/multi-node-nvlink-systems",
        ways=(AskPerson, kinds.OtherMachine),
        explains=("fabric-manager-missing", "cuinit-fails"),
    ),
    Rule(
        check=fabric_joining,
        severity=Severity.BLOCKS,
        depth=20,
        title="The GPUs are still joining the NVLink fabric.",
        fires_when="Fabric Manager runs, NVML says of every GPU that waits that joining is in progress, and CUDA does "
        "not start.",
        looks_at=(*_facts_of("manager", "manager_log"), "health.gpus", "libcuda.init_code"),
        means="cuInit gives 802 until the GPUs have joined, some minutes after a start at most; one that never joins "
        "has a link that does not come up.",
        error="Error 802: system not yet initialized",
        source=f"{_GUIDE}; NVIDIA/NVSentinel#883",
        ways=(AskPerson, kinds.StartService),
        explains=("fabric-manager-missing", "cuinit-fails"),
    ),
    Rule(
        check=imex_differs,
        severity=Severity.DEGRADES,
        depth=20,
        title="IMEX and the driver have different versions.",
        fires_when="On a node of a rack IMEX and the kernel driver have different versions.",
        looks_at=(*_facts_of("imex_version"), "driver.kernel_version"),
        means="Nodes of different versions do not share GPU memory: jobs over several nodes fail at their start.",
        source=_IMEX_GUIDE,
        ways=(kinds.SetUpRepository, kinds.InstallPackages, kinds.StartService, AskPerson),
    ),
    Rule(
        check=imex_missing,
        severity=Severity.DEGRADES,
        depth=20,
        title="IMEX is not set up: the GPUs of the rack's other nodes cannot be reached.",
        fires_when="On a node of a rack there is no IMEX channel, IMEX does not run, or it knows no other node.",
        looks_at=_facts_of("across_nodes", "imex", "imex_service", "imex_nodes", "imex_channels"),
        means="Programs on this node alone work; NCCL over NVLink to other nodes does not.",
        error="NCCL WARN Cuda failure 800 'operation not permitted'",
        source=_IMEX_GUIDE,
        ways=(
            kinds.MakeImexChannel,
            kinds.SetUpRepository,
            kinds.InstallPackages,
            kinds.SetModuleOption,
            kinds.StartService,
            AskPerson,
        ),
        for_goals=((Goal.INFER, Severity.NOTE), (Goal.BUILD_EXTENSIONS, Severity.NOTE), (Goal.KERNELS, Severity.NOTE)),
    ),
    Rule(
        check=fabric_degraded,
        severity=Severity.DEGRADES,
        depth=70,
        title="A GPU has trouble with its NVLinks.",
        fires_when="NVML's fabric health of a GPU names degraded bandwidth, routes, timeouts or a wrong configuration.",
        looks_at=_facts_of("links"),
        means="Work on several GPUs is slow or fails; work on one GPU is not affected.",
        source="NVML, nvmlGpuFabricInfo_v2, health mask (nvidia-ml-py 13.615.71)",
        ways=(AskPerson,),
    ),
)
