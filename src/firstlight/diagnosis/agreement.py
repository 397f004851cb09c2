"""Why a machine with nothing wrong is not called healthy: what was not seen to work, what is not explained."""

from __future__ import annotations

from firstlight.diagnosis.finding import Diagnosis
from firstlight.diagnosis.log_lines import not_explained
from firstlight.diagnosis.observed import cuda_starts, init_code, is_wanted, pci_gpus
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason, in words, e.g. 'the log has 2 lines that nothing found here explains'."""

    text: str


_FOR_GUESTS = "vfio-pci"


def set_aside(facts: Facts) -> str:
    """GPUs that are not for this system, e.g. 'left to virtual machines (vfio-pci): 0000:b3:00.0'; "" for none."""
    places = [each.address for each in pci_gpus(facts) if value_or(each.driver, "") == _FOR_GUESTS]
    return f"left to virtual machines ({_FOR_GUESTS}): {', '.join(places)}" if places else ""


def doubts(facts: Facts, diagnosis: Diagnosis) -> tuple[Doubt, ...]:
    """What speaks against the word healthy; () where all that was seen agrees."""
    found = []
    code, count = facts.libcuda.init_code, facts.libcuda.device_count
    if isinstance(code, Unknown):
        found.append(f"cuInit was not seen to work ({code.reason})")
    elif not cuda_starts(facts):
        found.append(f"cuInit gives {init_code(facts)}")
    elif isinstance(count, Unknown):
        found.append(f"CUDA's devices were not counted ({count.reason})")
    elif count.value == 0:
        found.append("CUDA counts no device")
    if isinstance(facts.torch, Unknown) and not is_wanted(facts):
        found.append(f"no torch was judged ({facts.torch.reason})")
    lost = [gpu.id for gpu in facts.gpus.devices if isinstance(gpu.nvml_code, Known) and gpu.nvml_code.value != 0]
    if lost:
        found.append(f"NVML does not reach {', '.join(lost)}")
    if lines := not_explained(facts, diagnosis):
        many = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        found.append(f"the log has {many} that nothing found here explains")
    return tuple(Doubt(each) for each in found)
