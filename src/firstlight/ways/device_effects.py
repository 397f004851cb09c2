"""What ways of GPUs, services and container engines do to the facts: resets, modes, daemons."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.fleet import FleetFacts
from firstlight.facts.gpus import ComputeMode, Gpu, PciKind
from firstlight.facts.health import WAITING, GpuHealth
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.tables import Tables
from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.arguments import CDI_FILE
from firstlight.ways.libcuda_on_paper import asked_again, counted_anew
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, becomes, opened
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import roles_of
from firstlight.ways.way import Way

NO_LIMIT = 4611686018427387904  # what the probe gives for memory that may be locked without limit


def after_devices(way: Way, facts: Facts, tables: Tables) -> Facts | None:
    """The facts after a way of GPUs, services and container engines; None for any other way."""
    match way:
        case kinds.ResetGpu():
            return _reset(facts, _named(facts, way.gpu), way)
        case kinds.SetComputeMode():
            return _of_gpus(facts, _named(facts, way.gpu), way)
        case kinds.TurnOffMig():
            whole = _of_gpus(facts, _named(facts, way.gpu), way)
            return facts if whole == facts else counted_anew(whole)  # CUDA listed one slice in the place of all GPUs
        case kinds.SetPowerLimit():
            return _of_gpus(facts, _named(facts, way.gpu), way)
        case kinds.MakeImexChannel():
            fabric = facts.fleet.fabric
            fabric = replace(fabric, imex_channels=becomes(fabric.imex_channels, 1, way))
            return replace(facts, fleet=replace(facts.fleet, fabric=fabric))
        case kinds.AllowLockedMemory():
            peers = facts.fleet.peers
            peers = replace(peers, locked_memory_bytes=becomes(peers.locked_memory_bytes, NO_LIMIT, way))
            return replace(facts, fleet=replace(facts.fleet, peers=peers))
        case kinds.StartService():
            return _service(way, facts, tables)
        case kinds.ConfigureContainers():
            runtime = facts.container.runtime
            if way.file:
                written = facts.driver.kernel_version
                named = becomes(runtime.cdi_driver, str(written.value), way) if isinstance(written, Known) else NOT_READ
                runtime = replace(runtime, cdi_driver=named)
                return replace(facts, container=replace(facts.container, runtime=runtime))
            if way.engine == "podman":
                specs = tuple(sorted({*runtime.cdi_specs, CDI_FILE}))
                return replace(facts, container=replace(facts.container, runtime=replace(runtime, cdi_specs=specs)))
            runtime = replace(runtime, nvidia_runtime=becomes(runtime.nvidia_runtime, value=True, way=way))
            return replace(facts, container=replace(facts.container, runtime=runtime))
    return None


def after_start_of_gpus(facts: Facts, way: Way) -> Facts:
    """The facts once every GPU is started anew, by a restart or with its modules: what was pending is done."""
    facts = _reset(facts, _named(facts, ""), way)
    on_bus = sum(each.kind is PciKind.GPU for each in facts.gpus.pci)
    count = (
        ONLY_RUNNING if on_bus > len(facts.gpus.devices) and isinstance(facts.gpus.count, Known) else facts.gpus.count
    )
    return replace(facts, gpus=replace(facts.gpus, count=count))


def _settled(gpu: Gpu) -> Gpu:
    """A GPU whose pending modes are in force."""
    mig = gpu.mig_pending if isinstance(gpu.mig_pending, Known) and isinstance(gpu.mig_mode, Known) else gpu.mig_mode
    ecc = gpu.ecc_pending if isinstance(gpu.ecc_pending, Known) and isinstance(gpu.ecc_mode, Known) else gpu.ecc_mode
    return replace(gpu, mig_mode=mig, ecc_mode=ecc)


def _named(facts: Facts, gpu: str) -> set[str]:
    """The GPUs that a way means: gpu-0 for 0 or gpu-0; all for ""."""
    every = {each.id for each in facts.gpus.devices} | {each.id for each in facts.health.gpus}
    return every if not gpu else every & {gpu, f"gpu-{gpu}"}


def _reset(facts: Facts, names: set[str], way: Way) -> Facts:
    """Counters since the last start are 0, and whether a fault comes back only running can tell."""
    health = tuple(_healed(each, way) if each.id in names else each for each in facts.health.gpus)
    devices = tuple(
        replace(each, nvml_code=opened(each.nvml_code, unless=0))
        if each.id in names and value_or(each.nvml_code, 0) != 0
        else each
        for each in facts.gpus.devices
    )
    devices = tuple(_settled(each) if each.id in names else each for each in devices)
    logged = isinstance(facts.health.xids, Known) and facts.health.xids.value != ()
    xids = ONLY_RUNNING if logged else facts.health.xids
    facts = replace(
        facts, health=replace(facts.health, gpus=health, xids=xids), gpus=replace(facts.gpus, devices=devices)
    )
    return asked_again(facts)


def _healed(gpu: GpuHealth, way: Way) -> GpuHealth:
    return replace(
        gpu,
        ecc_uncorrected_volatile=_zero(gpu.ecc_uncorrected_volatile, way),
        row_remap_pending=_off(gpu.row_remap_pending, way),
        retired_pages_pending=_off(gpu.retired_pages_pending, way),
    )


def _off(fact: Fact[bool], way: Way) -> Fact[bool]:
    return becomes(fact, value=False, way=way) if isinstance(fact, Known) else fact


def _zero(fact: Fact[int], way: Way) -> Fact[int]:
    return becomes(fact, 0, way) if isinstance(fact, Known) else fact


def _of_gpus(facts: Facts, names: set[str], way: Way) -> Facts:
    devices = tuple(_with_mode(each, way) if each.id in names else each for each in facts.gpus.devices)
    if devices == facts.gpus.devices:
        return facts
    facts = replace(facts, gpus=replace(facts.gpus, devices=devices))
    return facts if isinstance(way, kinds.SetPowerLimit) else asked_again(facts)


def _with_mode(gpu: Gpu, way: Way) -> Gpu:
    if isinstance(way, kinds.SetComputeMode):
        return replace(gpu, compute_mode=becomes(gpu.compute_mode, ComputeMode.DEFAULT, way))
    if isinstance(way, kinds.SetPowerLimit):
        return replace(gpu, power_limit_w=becomes(gpu.power_limit_w, float(way.watts), way))
    off = becomes(gpu.mig_mode, value=False, way=way)
    return replace(gpu, mig_mode=off, mig_pending=becomes(gpu.mig_pending, value=False, way=way), mig_devices=())


def _service(way: kinds.StartService, facts: Facts, tables: Tables) -> Facts:
    rows = roles_of(way.unit.removesuffix(".service"), platform_of(facts), tables)
    served = {row.of for row in rows if row.role is Role.SERVICE}
    health = facts.health
    if "persistence" in served:
        daemon = becomes(health.persistence_daemon, value=True, way=way)
        return replace(facts, health=replace(health, persistence_daemon=daemon))
    if "imex" in served:
        return replace(facts, fleet=_with_imex(facts.fleet))
    if "licence" in served:
        return asked_again(replace(facts, fleet=_asking_for_licence(facts.fleet)))
    if "fabric-manager" not in served:
        return facts
    if _is_of_another_driver(facts):
        return facts  # it refuses to run
    running = becomes(health.fabric_manager_running, value=True, way=way)
    gpus = tuple(
        replace(each, fabric_state=ONLY_RUNNING) if value_or(each.fabric_state, None) in WAITING else each
        for each in health.gpus
    )
    return asked_again(replace(facts, health=replace(health, fabric_manager_running=running, gpus=gpus)))


def _with_imex(fleet: FleetFacts) -> FleetFacts:
    """Whether the other nodes are there only running can tell."""
    fabric = fleet.fabric
    version = fabric.imex_version if isinstance(fabric.imex_version, Unknown) else ONLY_RUNNING
    nodes = fabric.imex_nodes if isinstance(fabric.imex_nodes, Unknown) else ONLY_RUNNING
    return replace(fleet, fabric=replace(fabric, imex_service=ONLY_RUNNING, imex_version=version, imex_nodes=nodes))


def _asking_for_licence(fleet: FleetFacts) -> FleetFacts:
    """Whether a licence is given only running can tell."""
    licences = tuple(replace(each, state=ONLY_RUNNING) for each in fleet.vgpu.licences)
    return replace(fleet, vgpu=replace(fleet.vgpu, licences=licences, service=ONLY_RUNNING))


def _is_of_another_driver(facts: Facts) -> bool:
    manager, driver = facts.health.fabric_manager_version, facts.driver.kernel_version
    return isinstance(manager, Known) and isinstance(driver, Known) and manager.value != driver.value
