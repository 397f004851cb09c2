"""Rules about virtual GPUs: their licence, and guests whose driver does not go with the host's vGPU manager."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_with, summing_up
from firstlight.diagnosis.observed import container, cuda_starts, gpu_label, init_code, listed, pci_gpus, shown, typed
from firstlight.diagnosis.services import LICENCE, start
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.vgpu import Licence, LicenceState, VgpuFacts
from firstlight.ways.guests import is_set_up_for_shares, refused_shares, said_of_shares
from firstlight.ways.kinds import AskPerson, RemovePackages, Service, StartService, Why
from firstlight.ways.way import Chain, chain

_REFUSED = "Programs are refused the GPU until it has a licence: CUDA does not start."
_HAS_NONE = (LicenceState.UNRESTRICTED, LicenceState.RESTRICTED, LicenceState.UNLICENSED, LicenceState.UNINITIALIZED)
_HELD_BACK = (LicenceState.RESTRICTED, LicenceState.UNLICENSED)
_UNAVAILABLE = 46  # of cuInit
_TOKENS = "/etc/nvidia/ClientConfigToken"
_NO_START = "RmInitAdapter failed"


def vgpu_unlicensed(question: Question) -> Iterator[Seen]:
    """A virtual GPU without a licence works at first, and is slowed down and refused after a while."""
    facts = question.facts
    labels = {gpu.id: gpu_label(gpu) for gpu in facts.gpus.devices}
    by_gpu: dict[str, list[Licence]] = {}
    for licence in facts.fleet.vgpu.licences:
        by_gpu.setdefault(licence.gpu, []).append(licence)
    for gpu, licences in by_gpu.items():
        states = [each.state for each in licences if isinstance(each.state, Known)]
        if not states or any(each.value not in _HAS_NONE for each in states):
            continue
        products = listed(each.product.value for each in licences if isinstance(each.product, Known))
        of = f" of {products}" if products else ""
        yield Seen(
            f"{labels.get(gpu, gpu)}: licence{of}: {states[0].value.value} ({states[0].seen_in})"
            f"{_why(facts.fleet.vgpu)}",
            answers=_licensed(question),
            severity=Severity.BLOCKS if refused_without_licence(facts) else None,
            means=_REFUSED if refused_without_licence(facts) else "",
        )


def _why(vgpu: VgpuFacts) -> str:
    """What keeps the licence away, as far as it is known."""
    parts = []
    if _has_no_daemon(vgpu) and isinstance(vgpu.daemon, Known):
        parts.append(f"{vgpu.daemon.seen_in}, which fetches it, is not installed")
    elif isinstance(vgpu.service, Known) and not vgpu.service.value.runs:
        parts.append(f"nvidia-gridd, which fetches it, is {vgpu.service.value.active}")
    if isinstance(vgpu.token, Known) and not vgpu.token.value and not value_or(vgpu.server_named, default=False):
        parts.append(f"no token in {_TOKENS} and no licence server in gridd.conf")
    if isinstance(vgpu.log, Known) and vgpu.log.value:
        parts.append(f"its log ends with: {'; '.join(vgpu.log.value[-2:])}")
    return "".join(f"; {part}" for part in parts)


def refused_without_licence(facts: Facts) -> bool:
    """Whether CUDA finds the GPU busy or unavailable (46) while no virtual GPU here has a licence any more."""
    states = [value_or(each.state, LicenceState.UNKNOWN) for each in facts.fleet.vgpu.licences]
    return init_code(facts) == _UNAVAILABLE and bool(states) and all(each in _HELD_BACK for each in states)


def _has_no_daemon(vgpu: VgpuFacts) -> bool:
    """Whether nvidia-gridd is not installed: what systemd says to run is there, wherever its program lies."""
    runs = isinstance(vgpu.service, Known) and vgpu.service.value.runs
    return isinstance(vgpu.daemon, Known) and not vgpu.daemon.value and not runs


def _licensed(question: Question) -> tuple[Chain, ...]:
    facts, vgpu = question.facts, question.facts.fleet.vgpu
    if container(facts):
        return (chain(AskPerson("have-vm-licensed", Why.HYPERVISOR)),)
    if _has_no_daemon(vgpu):
        return (chain(AskPerson("install-vgpu-driver", Why.PROVIDER)),)
    told = value_or(vgpu.token, default=True) or value_or(vgpu.server_named, default=False)
    look = (("nvidia-smi", "-q"), ("journalctl", "--unit=nvidia-gridd", "--lines=40", "--no-pager"))
    if not told:
        place = (typed(facts, "cp", "TOKEN.tok", f"{_TOKENS}/"), typed(facts, "chmod", "744", f"{_TOKENS}/TOKEN.tok"))
        token = AskPerson("put-licence-token", Why.PROVIDER, place, as_root=True)
        return (chain(token, start(question, LICENCE, Service.RESTART)),)
    runs = isinstance(vgpu.service, Known) and vgpu.service.value.runs
    ask = AskPerson("see-why-no-licence", Why.PROVIDER, look)
    again = start(question, LICENCE, Service.RESTART if runs else Service.START)
    return (chain(ask, again),) if runs else (chain(again), chain(ask))


def vgpu_releases_differ(question: Question) -> Iterator[Seen]:
    """A guest driver of a release that the host's vGPU manager does not serve: the virtual GPU does not start."""
    facts = question.facts
    driver = facts.driver.kernel_version
    if cuda_starts(facts) or not pci_gpus(facts):
        return
    refused = () if container(facts) else refused_shares(facts)
    if refused:
        lines = (*lines_with(facts, *refused), *summing_up(facts))
        yield Seen(
            f"this is a virtual machine, and the driver does not take its GPU: {refused[0].rstrip('.')}; it drives "
            f"whole GPUs of that number{_from_packages(facts)}",
            answers=_of_the_hosts(facts),
            means="It is a share of a GPU, which only NVIDIA's guest driver can drive.",
            lines=lines,
        )
        return
    said, failed = said_of_shares(facts), lines_with(facts, _NO_START)
    if isinstance(driver, Unknown) or (
        not said and not (failed and is_set_up_for_shares(facts) and not facts.gpus.devices)
    ):
        return
    why = f"it said: {said[0]}" if said else f"{failed[0].text}; {_settings(facts)}"
    yield Seen(
        f"driver {shown(driver)} did not start the virtual GPU; {why}{_from_packages(facts)}",
        answers=_of_the_hosts(facts),
        lines=(*(lines_with(facts, *said) if said else ()), *failed, *summing_up(facts)),
    )


def _settings(facts: Facts) -> str:
    found = facts.fleet.vgpu.software
    return f"this is a guest set up for virtual GPUs ({found.seen_in})" if isinstance(found, Known) else "by its log"


def _public_packages(facts: Facts) -> tuple[str, ...]:
    """Packages of the public driver, which drives no virtual GPU: the one for guests has grid or vgpu in its name."""
    names = value_or(facts.driver.packages, ())
    return () if any("grid" in name or "vgpu" in name for name in names) else names


def _from_packages(facts: Facts) -> str:
    names = _public_packages(facts)
    return f"; it is from the public packages {listed(names[:2])}" if names else ""


def _of_the_hosts(facts: Facts) -> tuple[Chain, ...]:
    """The release is the host's, so whoever knows it is asked first; public packages go before its driver comes."""
    ask = AskPerson("ask-vgpu-release", Why.HYPERVISOR, cures=False)
    first = next((name for name in _public_packages(facts) if "driver" in name), "")
    gone = (RemovePackages((first,), purge=True),) if first else ()
    newer = AskPerson("have-manager-updated", Why.HYPERVISOR)
    return (
        chain(ask, *gone, AskPerson("install-portal-guest-driver", Why.HYPERVISOR)),
        *(() if gone else (chain(newer),)),
    )


VGPU_RULES: tuple[Rule, ...] = (
    Rule(
        check=vgpu_releases_differ,
        severity=Severity.BLOCKS,
        depth=20,
        title="The virtual GPU does not start: the driver is not the guest driver of the host's vGPU release.",
        fires_when="The driver logged that the host has another vGPU release; or a virtual machine is set up for "
        "virtual GPUs (gridd.conf), RmInitAdapter failed, and NVML lists no GPU; or in a virtual machine the driver "
        "refuses a PCI id of which it drives whole GPUs.",
        looks_at=("driver.kernel_version", "health.driver_messages", "fleet.vgpu.software", "place.hypervisor"),
        means="The host's vGPU manager has turned the virtual GPU off; of this guest only the driver can change that.",
        source="mbilker/vgpu_unlock-rs#10; docs.nvidia.com/vgpu, release notes; NVIDIA/open-gpu-kernel-modules, rpc.c",
        ways=(AskPerson, RemovePackages),
        explains=(
            "cuinit-fails",
            "cuda-sees-no-device",
            "device-nodes-missing",
            "driver-not-loaded",
            "gpu-does-not-start",
            "blackwell-needs-open-module",
        ),
    ),
    Rule(
        check=vgpu_unlicensed,
        severity=Severity.DEGRADES,
        depth=20,
        title="The virtual GPU has no licence.",
        fires_when="NVML or nvidia-smi -q says of a virtual GPU that no product of it is licensed. It blocks where "
        "cuInit gives 46 and the GPU is held back for it.",
        looks_at=(
            "fleet.vgpu.licences",
            "fleet.vgpu.daemon",
            "fleet.vgpu.service",
            "fleet.vgpu.token",
            "libcuda.init_code",
        ),
        means="It runs at full speed at first; then it is slowed down, and programs fail to get GPU memory.",
        source="Azure/AKS#4870, NVIDIA/gpu-operator#628, DDMAL/Rodan#1332; docs.nvidia.com/vgpu, client licensing",
        ways=(StartService, AskPerson),
    ),
)
