"""Rules about which GPUs CUDA sees: masks, MIG slices, compute modes, fewer than NVML counts, of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import restart_with_gpus, started
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import (
    at,
    container,
    counted_gpus,
    cuda_starts,
    cuda_works,
    gpu_label,
    init_code,
    init_error,
    kernel_log,
    listed,
    pci_gpus,
    typed,
)
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.gpus import ComputeMode, Gpu, MigDevice
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, Proof, chain

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_GIB = 1 << 30
_MASK = "CUDA_VISIBLE_DEVICES"
_GUIDE = "docs.nvidia.com/cuda/cuda-programming-guide, environment variables"
_ONE_UNUSED = (
    "A GPU in MIG mode is used only through its slices: without one no program runs on it. The mode stays over a "
    "restart, the slices do not."
)
_BY_BUS = kinds.Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def devices_masked(question: Question) -> Iterator[Seen]:
    """CUDA_VISIBLE_DEVICES hides every GPU."""
    facts = question.facts
    mask = facts.gpus.cuda_visible_devices
    if isinstance(mask, Unknown) or not facts.gpus.devices or cuda_works(facts):
        return
    if not _hides_all(mask.value, len(facts.gpus.devices), error=init_code(facts)):
        return
    count = len(facts.gpus.devices)
    error = f", and cuInit gives {init_error(question)}" if init_error(question) else ""
    every = ",".join(str(number) for number in range(count))
    by_slurm = AskPerson("ask-slurm", Why.PROGRAM, (("srun", "--gres=gpu:1", "COMMAND"),))
    yield Seen(
        f"CUDA_VISIBLE_DEVICES is {mask.value[:40]!r}; NVML sees {counted_gpus(count)}, numbered from 0{error}",
        answers=(
            *((chain(by_slurm),) if at(facts, Provider.SLURM) else ()),
            *_unmasked(facts),
            chain(kinds.SetVariables((kinds.Variable(_MASK, every),)), proof=Proof.DOCUMENTED, by=_GUIDE),
        ),
    )


def _hides_all(mask: str, count: int, *, error: int) -> bool:
    """Whether a mask leaves no GPU: CUDA stops at the first entry that names none, so the first one decides.

    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    first = mask.partition(",")[0].strip()
    if first.lower().startswith(("gpu-", "mig-")):
        return error == _NO_DEVICE  # by name; whether that name is here is what cuInit says
    return not (first.isascii() and first.isdecimal() and int(first) < count)


def mig_without_slices(question: Question) -> Iterator[Seen]:
    """MIG is on and the GPU has no slice: CUDA has nothing to run on, or not this one of several."""
    facts = question.facts
    if cuda_works(facts) and not _misses_unmasked(facts):
        return
    for gpu in facts.gpus.devices:
        if not value_or(gpu.mig_mode, default=False) or gpu.mig_devices:
            continue
        yield Seen(
            f"{gpu_label(gpu)}: MIG is on, and no slice was seen (NVML){_of_several(facts)}",
            answers=_to_slices(question, gpu.id.removeprefix("gpu-")),
            means=_ONE_UNUSED if cuda_works(facts) else "",
            error="CUDA error: invalid device ordinal" if cuda_works(facts) else "",
            severity=Severity.DEGRADES if cuda_works(facts) else None,
        )


def _misses_unmasked(facts: Facts) -> bool:
    """Whether CUDA counts fewer GPUs than NVML, and no mask is there to explain it."""
    count = facts.libcuda.device_count
    fewer = isinstance(count, Known) and count.value < len(facts.gpus.devices)
    return fewer and isinstance(facts.gpus.cuda_visible_devices, Unknown)


def _of_several(facts: Facts) -> str:
    count = facts.libcuda.device_count
    if not cuda_works(facts) or not isinstance(count, Known):
        return ""
    return f"; CUDA counts {count.value} ({count.seen_in}), NVML {counted_gpus(len(facts.gpus.devices))}"


def _to_slices(question: Question, number: str) -> tuple[Chain, ...]:
    around = container(question.facts)
    mig = typed(question.facts, "nvidia-smi", "mig", "-i", number)
    cut = AskPerson(
        "cut-gpu",
        Why.HOST if around else Why.DECISION,
        ((*mig, "-lgip"), (*mig, "-cgi", "PROFILE", "-C")),
        as_root=True,
        of=(number, str(" on the host" if around else "")),
    )
    if around and around.value is ContainerKind.KUBERNETES:  # the GPU is its other pods' too: its slices are asked for
        whole = AskPerson("ask-for-whole-gpu", Why.HOST)
        return (chain(_one_slice(around.value, number)), chain(whole))
    if around:
        slice_of_it = _one_slice(around.value, number)
        return (chain(cut, slice_of_it), chain(kinds.TurnOffMig(number), started(around.value)))
    return (chain(kinds.TurnOffMig(number)), chain(cut))


def _one_slice(kind: ContainerKind, number: str) -> kinds.StartContainer:
    """The first slice of a GPU, as the engine around us is asked for it."""
    words = {
        ContainerKind.DOCKER: ("--gpus", f'"device={number}:0"'),
        ContainerKind.PODMAN: ("--device", f"nvidia.com/gpu={number}:0"),
        ContainerKind.ENROOT: ("--env", f"NVIDIA_VISIBLE_DEVICES={number}:0"),
        ContainerKind.KUBERNETES: ('resources: {limits: {"nvidia.com/mig-PROFILE": 1}}',),
    }.get(kind)
    return started(kind) if words is None else kinds.StartContainer(words, gives_gpus=True)


def mig_slice(question: Question) -> Iterator[Seen]:
    """A slice of a GPU: its memory and its share of the processors, one slice a process."""
    for gpu in question.facts.gpus.devices:
        if value_or(gpu.mig_mode, default=False) and gpu.mig_devices:
            yield Seen(f"{gpu_label(gpu)} is cut into {listed(_slices(gpu))} (NVML)")


def _slices(gpu: Gpu) -> Iterator[str]:
    """'1g.5gb with 4.8 GiB', and '7 x 1g.5gb with 4.8 GiB each' where slices are alike."""
    kinds = Counter(map(_slice, gpu.mig_devices))
    yield from (f"{count} x {kind} each" if count > 1 else kind for kind, count in kinds.items())


def _slice(each: MigDevice) -> str:
    size = f" with {each.memory_bytes.value / _GIB:.1f} GiB" if isinstance(each.memory_bytes, Known) else ""
    return f"{value_or(each.profile, 'a slice')}{size}"


def gpu_prohibited(question: Question) -> Iterator[Seen]:
    """Compute mode 'prohibited' lets cuInit pass and refuses every context."""
    for gpu in question.facts.gpus.devices:
        if isinstance(gpu.compute_mode, Known) and gpu.compute_mode.value is ComputeMode.PROHIBITED:
            yield Seen(
                f"{gpu_label(gpu)}: compute mode is prohibited ({gpu.compute_mode.seen_in})",
                answers=(chain(kinds.SetComputeMode(gpu.id.removeprefix("gpu-"))),),
            )


def mixed_gpus(question: Question) -> Iterator[Seen]:
    """GPUs of different kinds in one host: CUDA counts them otherwise than nvidia-smi."""
    facts = question.facts
    models = {(value_or(gpu.name, ""), str(value_or(gpu.capability, ""))): None for gpu in facts.gpus.devices
             if isinstance(gpu.name, Known)}  # fmt: skip
    if len(models) < 2:
        return
    found = [gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)]
    targets = ";".join(str(each) for each in sorted(set(found)))
    order = () if isinstance(facts.gpus.cuda_device_order, Known) else (kinds.SetVariables((_BY_BUS,)),)
    names = (
        f"{gpu_label(gpu)} ({gpu.capability.value})" if isinstance(gpu.capability, Known) else gpu_label(gpu)
        for gpu in facts.gpus.devices
    )
    for_all = kinds.SetVariables((kinds.Variable("TORCH_CUDA_ARCH_LIST", targets),), kinds.Scope.BUILD)
    ways = (*order, *((for_all,) if ";" in targets else ()))
    yield Seen(f"{listed(names)} (NVML)", answers=(chain(*ways),) if ways else ())


def cuda_sees_no_device(question: Question) -> Iterator[Seen]:
    """cuInit returns 0 and counts no device, although GPUs are here and no mask or missing slice explains it."""
    facts = question.facts
    count = facts.libcuda.device_count
    here = _gpus_here(facts)
    if not cuda_starts(facts) or not isinstance(count, Known) or count.value > 0 or not here:
        return
    if any(devices_masked(question)) or any(mig_without_slices(question)):
        return
    loaded = facts.libcuda.loaded_path
    library = f" of {loaded.value}" if isinstance(loaded, Known) else ""
    yield Seen(
        f"cuInit{library} gives 0 and counts no device ({count.seen_in}), while {here}{_mask_words(facts)}",
        answers=(*_unmasked(facts), *restart_with_gpus(question), _look_at_nodes(facts)),
    )


def _unmasked(facts: Facts) -> tuple[Chain, ...]:
    masked = isinstance(facts.gpus.cuda_visible_devices, Known)
    return (chain(kinds.UnsetVariables((_MASK,)), proof=Proof.DOCUMENTED, by=_GUIDE),) if masked else ()


def _look_at_nodes(facts: Facts) -> Chain:
    nodes = tuple(node.path for node in facts.driver.nodes if node.kind == "device") or ("/dev",)
    commands = (("ls", "-l", *nodes), kernel_log(facts))
    return chain(AskPerson("look-at-every-node", Why.DECISION, commands, cures=False, as_root=True))


def cuda_sees_fewer_devices(question: Question) -> Iterator[Seen]:
    """CUDA counts some of the GPUs that NVML counts; mostly a mask that is meant."""
    facts = question.facts
    count, there = facts.libcuda.device_count, len(facts.gpus.devices)
    if not cuda_works(facts) or not isinstance(count, Known) or count.value >= there:
        return
    if any(value_or(gpu.mig_mode, default=False) for gpu in facts.gpus.devices):
        return  # a process sees one slice: mig-slice says so
    yield Seen(
        f"CUDA counts {count.value} ({count.seen_in}), NVML {counted_gpus(there)}{_mask_words(facts)}",
        answers=_unmasked(facts) or (_look_at_nodes(facts),),
    )


def _gpus_here(facts: Facts) -> str:
    """'NVML sees 2 GPUs', else what is on the PCI bus of a plain machine; '' for none."""
    if facts.gpus.devices:
        return f"NVML sees {counted_gpus(len(facts.gpus.devices))}"
    on_bus = () if container(facts) else pci_gpus(facts)
    return f"{counted_gpus(len(on_bus))} on the PCI bus (/sys/bus/pci/devices)" if on_bus else ""


def _mask_words(facts: Facts) -> str:
    """What limits the GPUs that a program sees, e.g. '; CUDA_VISIBLE_DEVICES is 1'."""
    masks = (facts.gpus.cuda_visible_devices, facts.container.visible_devices)
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    found = [f"{name} is {mask.value[:40]!r}" for name, mask in zip(names, masks, strict=True)
             if isinstance(mask, Known) and mask.value != "all"]  # fmt: skip
    return f"; {listed(found)}" if found else "; no mask is set"


VISIBLE_GPU_RULES: tuple[Rule, ...] = (
    Rule(
        check=devices_masked,
        severity=Severity.BLOCKS,
        depth=10,
        title="CUDA_VISIBLE_DEVICES hides every GPU.",
        fires_when="CUDA_VISIBLE_DEVICES is set, its first entry names no GPU that is here, and CUDA lists no device.",
        looks_at=("gpus.cuda_visible_devices", "gpus.devices", "libcuda.init_code", "libcuda.device_count"),
        means="CUDA programs see no GPU; nvidia-smi, which does not look at the variable, shows them.",
        error="RuntimeError: No CUDA GPUs are available",
        source="pytorch/pytorch#1040; docs.nvidia.com/cuda/cuda-programming-guide, environment variables",
        ways=(kinds.UnsetVariables, kinds.SetVariables, AskPerson),
        explains=("cuinit-fails",),
    ),
    Rule(
        check=mig_without_slices,
        severity=Severity.BLOCKS,
        depth=10,
        title="MIG is on, and there is no slice to run on.",
        fires_when="A GPU is in MIG mode, no MIG device of it can be seen, and CUDA lists no device, or without a mask "
        "fewer than NVML (then it degrades).",
        looks_at=("gpus.devices", "gpus.cuda_visible_devices", "libcuda.device_count", "libcuda.init_code"),
        means="A GPU in MIG mode is used only through its slices; without one CUDA finds no device.",
        error="RuntimeError: No CUDA GPUs are available",
        source="wilicc/gpu-burn#36, owl-project/owl#94",
        ways=(kinds.TurnOffMig, kinds.StartContainer, AskPerson),
        explains=("cuinit-fails",),
    ),
    Rule(
        check=mig_slice,
        severity=Severity.NOTE,
        depth=10,
        title="The GPU is a MIG slice.",
        fires_when="A GPU is in MIG mode and has MIG devices.",
        looks_at=("gpus.devices",),
        means="A process sees one slice, torch.cuda.device_count() is 1 however many there are, and slices of one "
        "GPU cannot train together by NCCL. Memory and speed are the slice's.",
        source="pytorch/pytorch#102715, pytorch/pytorch#130181",
        ways=(),
    ),
    Rule(
        check=gpu_prohibited,
        severity=Severity.BLOCKS,
        depth=10,
        title="The GPU is set to refuse every program.",
        fires_when="NVML says that the compute mode of a GPU is prohibited.",
        looks_at=("gpus.devices",),
        means="The first tensor on the GPU fails, although torch.cuda.is_available() is True.",
        error="CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        source="tensorflow/tensorflow#526; CUDA programming guide, compute modes",
        ways=(kinds.SetComputeMode,),
    ),
    Rule(
        check=mixed_gpus,
        severity=Severity.NOTE,
        depth=10,
        title="The GPUs of this host are of different kinds.",
        fires_when="NVML names GPUs with different names or compute capabilities.",
        looks_at=("gpus.devices", "gpus.cuda_device_order"),
        means="CUDA counts the fastest GPU as 0, nvidia-smi counts along the PCI bus: the same number may mean two "
        "GPUs. A wheel or an extension must have code for each of them.",
        error="Detected different devices in the system",
        source="vllm-project/vllm#19741",
        ways=(kinds.SetVariables,),
    ),
    Rule(
        check=cuda_sees_no_device,
        severity=Severity.BLOCKS,
        depth=30,
        title="CUDA starts and sees no GPU, although there is one.",
        fires_when="cuInit returns 0, cuDeviceGetCount returns 0, NVML or the PCI bus shows a GPU, and neither "
        "CUDA_VISIBLE_DEVICES nor MIG without slices explains it.",
        looks_at=(
            "libcuda.init_code",
            "libcuda.device_count",
            "gpus.devices",
            "gpus.pci",
            "gpus.cuda_visible_devices",
            "container.visible_devices",
        ),
        means="In torch, torch.cuda.is_available() is False and torch.cuda.device_count() is 0.",
        error="RuntimeError: No CUDA GPUs are available",
        source="CUDA Driver API, cuDeviceGetCount: 0 where there is no device of compute capability 2.0 or more",
        ways=(kinds.UnsetVariables, kinds.StartContainer, AskPerson),
    ),
    Rule(
        check=cuda_sees_fewer_devices,
        severity=Severity.NOTE,
        depth=30,
        title="CUDA sees fewer GPUs than there are.",
        fires_when="CUDA counts at least 1 GPU and fewer than the GPUs that NVML counts; not with MIG.",
        looks_at=("libcuda.device_count", "gpus.devices", "gpus.cuda_visible_devices", "container.visible_devices"),
        means="Programs use those alone, numbered from 0; that is what a mask is for.",
        source=_GUIDE,
        ways=(kinds.UnsetVariables, AskPerson),
    ),
)
