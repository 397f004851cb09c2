"""What was seen of the NVLink fabric: who waits for it, who manages it, and what it is still without."""

from __future__ import annotations

from firstlight.diagnosis.observed import counted_gpus, cuda_starts, init_code, listed
from firstlight.facts.collect import Facts
from firstlight.facts.gpus import PciKind
from firstlight.facts.health import WAITING, FabricState
from firstlight.facts.known import Known, value_or

SYSTEM_NOT_READY = 802  # of cuInit


def waiting(facts: Facts) -> dict[str, FabricState]:
    """The GPUs that have not joined, with how far they are."""
    states = {gpu.id: gpu.fabric_state.value for gpu in facts.health.gpus if isinstance(gpu.fabric_state, Known)}
    return {name: state for name, state in states.items() if state in WAITING}


def waiting_words(facts: Facts) -> str:
    """'gpu-0 and gpu-1: not started' for GPUs that have not joined the NVLink fabric; '' when all have."""
    found = waiting(facts)
    if not found:
        return ""
    names = listed(found) if len(found) < 4 else counted_gpus(len(found))
    return f"{names}: {listed(dict.fromkeys(state.value for state in found.values()))}"


def does_not_start(facts: Facts) -> bool:
    """Whether CUDA does not start and the fabric is why: cuInit gives 802, or GPUs wait."""
    return not cuda_starts(facts) and (init_code(facts) == SYSTEM_NOT_READY or bool(waiting(facts)))


def has_switches(facts: Facts) -> bool:
    return any(device.kind is PciKind.NVSWITCH for device in facts.gpus.pci)


def manager_runs(facts: Facts) -> bool:
    """Whether Fabric Manager was seen to run, by its unit or by its process."""
    unit = facts.fleet.fabric.manager
    if isinstance(unit, Known):
        return unit.value.runs
    return value_or(facts.health.fabric_manager_running, default=False)


def gave_up(facts: Facts) -> bool:
    """Whether Fabric Manager was started and ended with an error: too early after the start, or for good."""
    unit = facts.fleet.fabric.manager
    return isinstance(unit, Known) and unit.value.active == "failed"


def is_rack(facts: Facts) -> bool:
    """Whether the switches are in trays of their own, which are managed there and not from this node."""
    return value_or(facts.fleet.fabric.across_nodes, default=False)


def lacks_subnet_manager(facts: Facts) -> bool:
    """Whether NVLSM, without which Fabric Manager of NVLink 5 does nothing, is absent or cannot reach the switches."""
    fabric = facts.fleet.fabric
    if is_rack(facts) or not value_or(fabric.generation_five, default=False):
        return False
    return not value_or(fabric.subnet_manager, default=True) or not value_or(fabric.umad_loaded, default=True)


def joins(facts: Facts) -> bool:
    """Whether every GPU that waits is on its way, under a manager that runs."""
    found = waiting(facts)
    return bool(found) and manager_runs(facts) and all(each is FabricState.IN_PROGRESS for each in found.values())


def not_set_ready(facts: Facts) -> bool:
    """Whether confidential computing is on and the GPUs were not set ready, which gives 802 as well."""
    said = facts.fleet.confidential
    return value_or(said.enabled, default=False) and not value_or(said.ready, default=True)


def spoken_for(facts: Facts) -> bool:
    """Whether a rule that knows more says why CUDA gives 802: then it is not Fabric Manager's absence."""
    known = is_rack(facts) or lacks_subnet_manager(facts) or joins(facts) or not_set_ready(facts)
    return does_not_start(facts) and known
