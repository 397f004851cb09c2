"""Rules about MIG: masks that name slices that are not here, modes that wait, GPUs that slices hide, small slices."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, counted_gpus, cuda_works, gpu_label, init_error, listed
from firstlight.facts.collect import Facts
from firstlight.facts.gpus import Gpu, MigDevice
from firstlight.facts.known import Known, value_or
from firstlight.facts.mig import Named, mask_entries
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, Proof, chain

_MASK = "CUDA_VISIBLE_DEVICES"
_GUIDE = "docs.nvidia.com/datacenter/tesla/mig-user-guide"
_GIB = 1 << 30
_LITTLE = 10 * _GIB  # weights, gradients and Adam's state of half a billion parameters take about 8 GiB
_SINCE_IDS = 470  # the branch in which slices got ids of their own


def mig_device_unknown(question: Question) -> Iterator[Seen]:
    """CUDA stops at the first name that it does not know: slices that were cut anew have new ids."""
    facts = question.facts
    first = mask_entries(facts.gpus)[:1]
    if not first or first[0].names is not Named.OTHER_SLICE or cuda_works(facts) or not _ids_known(facts):
        return
    here = _slices(facts)
    found = f"{len(here)} slices are here ({_profiles(here)})" if here else "no slice is here"
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    yield Seen(f"{_MASK} names {first[0].text}, which no slice here is called; {found}{error}", answers=_named(facts))


def _ids_known(facts: Facts) -> bool:
    """Whether NVML told every slice's id, so that a name can be said to be none of them."""
    told = [each for gpu in facts.gpus.devices for each in gpu.mig_devices]
    modes = [gpu.mig_mode for gpu in facts.gpus.devices]
    return bool(modes) and all(isinstance(mode, Known) for mode in modes) and all(
        isinstance(each.uuid, Known) for each in told
    )  # fmt: skip


def _slices(facts: Facts) -> list[MigDevice]:
    return [each for gpu in facts.gpus.devices for each in gpu.mig_devices]


def _profiles(parts: list[MigDevice]) -> str:
    return listed(dict.fromkeys(value_or(each.profile, "of no known profile") for each in parts))


def _named(facts: Facts) -> tuple[Chain, ...]:
    """One of the slices that are here, or no mask at all."""
    ids = [each.uuid.value for each in _slices(facts) if isinstance(each.uuid, Known)]
    unset = chain(kinds.UnsetVariables((_MASK,)), proof=Proof.DOCUMENTED, by=_GUIDE)
    if not ids:
        return (unset,)
    return (chain(kinds.SetVariables((kinds.Variable(_MASK, ids[0]),)), proof=Proof.DOCUMENTED, by=_GUIDE), unset)


def mig_mask_form(question: Question) -> Iterator[Seen]:
    """Forms that nvidia-smi or the container toolkit print, and CUDA does not read."""
    facts = question.facts
    first = mask_entries(facts.gpus)[:1]
    sliced = any(value_or(gpu.mig_mode, default=False) for gpu in facts.gpus.devices)
    if not first or not sliced or cuda_works(facts):
        return
    driver = facts.driver.kernel_version
    old = first[0].names is Named.OLD_SLICE and isinstance(driver, Known) and driver.value.branch >= _SINCE_IDS
    if first[0].names is Named.NOTHING or old:
        yield Seen(f"{_MASK} is {first[0].text}: {first[0].names.value}", answers=_named(facts))


def mig_hides_gpus(question: Question) -> Iterator[Seen]:
    """Where GPUs are cut into slices, CUDA shows one slice, and neither the others nor the whole GPUs beside it."""
    facts = question.facts
    cut = [gpu for gpu in facts.gpus.devices if value_or(gpu.mig_mode, default=False) and gpu.mig_devices]
    whole = [gpu for gpu in facts.gpus.devices if isinstance(gpu.mig_mode, Known) and not gpu.mig_mode.value]
    count = facts.libcuda.device_count
    if not cut or mask_entries(facts.gpus) or not isinstance(count, Known) or count.value > len(cut):
        return
    words = f"CUDA counts {count.value} ({count.seen_in}), and {_MASK} is not set"
    if whole:
        numbers = ",".join(gpu.id.removeprefix("gpu-") for gpu in whole)
        yield Seen(
            f"{listed(map(gpu_label, cut))} cut into slices, {counted_gpus(len(whole))} whole; {words}",
            answers=(
                chain(kinds.SetVariables((kinds.Variable(_MASK, numbers),)), proof=Proof.DOCUMENTED, by=_GUIDE),
                *(chain(kinds.TurnOffMig(gpu.id.removeprefix("gpu-"))) for gpu in cut[:1]),
            ),
        )
    elif 0 < count.value < len(cut):
        yield Seen(
            f"{listed(map(gpu_label, cut))} are cut into slices; {words}",
            answers=_named(facts)[:1],
            means=f"A process uses one slice. A torch that counts by NVML takes {len(cut)} for the number of its "
            "devices and fails at the second; each process names the slice that it uses.",
            error="RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        )


def mig_change_pending(question: Question) -> Iterator[Seen]:
    """A switch of MIG that waits for a reset: what is shown is not what will be."""
    facts = question.facts
    for gpu in facts.gpus.devices:
        now, later = gpu.mig_mode, gpu.mig_pending
        if not isinstance(now, Known) or not isinstance(later, Known) or now.value == later.value:
            continue
        word = "on" if later.value else "off"
        number = gpu.id.removeprefix("gpu-")
        host = AskPerson("have-gpu-reset", Why.HOST, of=(number,))
        yield Seen(
            f"{gpu_label(gpu)}: MIG is {'on' if now.value else 'off'} and will be {word} after a reset (NVML)",
            answers=(chain(host),) if container(facts) else (chain(kinds.ResetGpu(number)), chain(kinds.Restart())),
        )


def mig_slice_small(question: Question) -> Iterator[Seen]:
    """A slice with little memory, where something is to be trained or a model served."""
    if question.goal is not Goal.TRAIN and not any(
        want.strip().startswith(("vllm", "sglang")) for want in question.wants
    ):
        return
    for gpu in question.facts.gpus.devices:
        small = [each for each in gpu.mig_devices if value_or(each.memory_bytes, _LITTLE) < _LITTLE]
        if small and len(small) == len(gpu.mig_devices):
            yield Seen(f"{_sizes(gpu, small)} (NVML)", answers=_larger(question, gpu))


def _sizes(gpu: Gpu, small: list[MigDevice]) -> str:
    sizes = {f"{each.memory_bytes.value / _GIB:.1f} GiB" for each in small if isinstance(each.memory_bytes, Known)}
    return f"{gpu_label(gpu)}: no slice has more than {max(sizes)} ({_profiles(small)})"


def _larger(question: Question, gpu: Gpu) -> tuple[Chain, ...]:
    number = gpu.id.removeprefix("gpu-")
    around = container(question.facts)
    profiles = (("nvidia-smi", "mig", "-i", number, "-lgip"),)
    larger = AskPerson("have-gpu-cut", Why.HOST if around else Why.DECISION, profiles, of=(number,))
    return (chain(larger),)


MIG_RULES: tuple[Rule, ...] = (
    Rule(
        check=mig_device_unknown,
        severity=Severity.BLOCKS,
        depth=10,
        title="CUDA_VISIBLE_DEVICES names a MIG slice that does not exist here.",
        fires_when="The first entry of CUDA_VISIBLE_DEVICES is the id of a MIG slice that NVML does not list, and CUDA "
        "sees no device.",
        looks_at=("gpus.cuda_visible_devices", "gpus.devices", "libcuda.device_count"),
        means=(
            "CUDA stops at the first name that it does not know and sees no GPU; slices that are created again, by "
            "hand or after a restart, have new ids."
        ),
        error="RuntimeError: No CUDA GPUs are available",
        source="NVIDIA/k8s-device-plugin#225; docs.nvidia.com/datacenter/tesla/mig-user-guide",
        ways=(kinds.SetVariables, kinds.UnsetVariables),
        explains=("devices-masked", "mig-without-slices", "cuda-sees-no-device", "cuinit-fails"),
    ),
    Rule(
        check=mig_mask_form,
        severity=Severity.BLOCKS,
        depth=10,
        title="CUDA_VISIBLE_DEVICES names a MIG slice in a form that CUDA does not read.",
        fires_when="MIG is on, CUDA sees no device, and the first entry is neither a number nor an id (0:1, 1g.5gb), "
        "or of the form MIG-GPU-<id>/<instance>/<part> with driver 470 or newer.",
        looks_at=("gpus.cuda_visible_devices", "gpus.devices", "driver.kernel_version"),
        means="CUDA takes numbers and the ids that `nvidia-smi -L` prints; 0:1 is what the container toolkit takes.",
        error="RuntimeError: No CUDA GPUs are available",
        source="docs.nvidia.com/datacenter/tesla/mig-user-guide, CUDA_VISIBLE_DEVICES",
        ways=(kinds.SetVariables, kinds.UnsetVariables),
        explains=("devices-masked", "cuda-sees-no-device", "cuinit-fails"),
    ),
    Rule(
        check=mig_hides_gpus,
        severity=Severity.DEGRADES,
        depth=30,
        title="A MIG slice hides the GPUs beside it from CUDA.",
        fires_when="One GPU is cut into slices, another is whole or cut too, CUDA_VISIBLE_DEVICES is not set, and CUDA "
        "counts no more devices than there are cut GPUs; fewer, where all are cut.",
        looks_at=("gpus.devices", "gpus.cuda_visible_devices", "libcuda.device_count"),
        means="A process sees one slice, and no whole GPU as long as it sees a slice.",
        source="docs.nvidia.com/datacenter/tesla/mig-user-guide, device enumeration; pytorch/pytorch#130181",
        ways=(kinds.SetVariables, kinds.UnsetVariables, kinds.TurnOffMig),
    ),
    Rule(
        check=mig_change_pending,
        severity=Severity.DEGRADES,
        depth=70,
        title="A change of the MIG mode waits for a reset of the GPU.",
        fires_when="NVML's current and pending MIG modes of a GPU differ.",
        looks_at=("gpus.devices",),
        means="Until then the GPU is as it was; afterwards programs on it meet slices, or none.",
        source="docs.nvidia.com/datacenter/tesla/mig-user-guide, enable MIG mode",
        ways=(kinds.ResetGpu, kinds.Restart, AskPerson),
    ),
    Rule(
        check=mig_slice_small,
        severity=Severity.NOTE,
        depth=70,
        title="The MIG slices may be too small for what is wanted.",
        fires_when="Every slice of a GPU has less than 10 GiB, and the goal is to train, or vllm or sglang is wanted.",
        looks_at=("gpus.devices",),
        means="Weights alone take two bytes a parameter in 16 bits; what does not fit runs out of memory.",
        source="NVIDIA-AI-Blueprints/rag#51",
        ways=(AskPerson,),
    ),
)
