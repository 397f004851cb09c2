"""The rules about fleets: a machine where each fires, and the one fact whose change silences it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal
from firstlight.facts.boot_trust import Standing
from firstlight.facts.collect import Facts
from firstlight.facts.gsp import GspFacts
from firstlight.facts.known import Known
from firstlight.facts.vgpu import LicenceState
from tests.diagnosis.rule_case import RuleCase


def _licensed(facts: Facts) -> Facts:
    [licence] = facts.fleet.vgpu.licences
    vgpu = replace(facts.fleet.vgpu, licences=(replace(licence, state=Known(LicenceState.LICENSED, "NVML")),))
    return replace(facts, fleet=replace(facts.fleet, vgpu=vgpu))


def _nothing_said(facts: Facts) -> Facts:
    return replace(facts, health=replace(facts.health, driver_messages=Known((), "dmesg")))


def _names_a_slice(facts: Facts) -> Facts:
    """The mask is the id of a slice that is here."""
    first = facts.gpus.devices[0].mig_devices[0].uuid
    assert isinstance(first, Known)
    return replace(facts, gpus=replace(facts.gpus, cuda_visible_devices=Known(first.value, "CUDA_VISIBLE_DEVICES")))


def _in_mok(facts: Facts) -> Facts:
    boot = replace(facts.fleet.boot, standing=Known(Standing.IN_MOK, "MokListRT"))
    return replace(facts, fleet=replace(facts.fleet, boot=boot))


def _not_enforced(facts: Facts) -> Facts:
    boot = replace(facts.fleet.boot, enforced=Known(value=False, seen_in="/sys/kernel/security/lockdown"))
    return replace(facts, fleet=replace(facts.fleet, boot=boot))


def _with_firmware(facts: Facts) -> Facts:
    gsp = GspFacts(facts.fleet.gsp.setting, Known(("gsp_ga10x.bin",), "/lib/firmware/nvidia/550.144.03"))
    return replace(facts, fleet=replace(facts.fleet, gsp=gsp))


def _links_well(facts: Facts) -> Facts:
    links = tuple(replace(each, complaints=Known((), "NVML")) for each in facts.fleet.fabric.links)
    return replace(facts, fleet=replace(facts.fleet, fabric=replace(facts.fleet.fabric, links=links)))


def _imex_well(facts: Facts) -> Facts:
    fabric = facts.fleet.fabric
    assert isinstance(fabric.imex_service, Known)
    runs = Known(replace(fabric.imex_service.value, active="active"), "systemctl show nvidia-imex")
    well = replace(fabric, imex_service=runs, imex_nodes=Known(18, "nodes"), imex_channels=Known(1, "/dev"))
    return replace(facts, fleet=replace(facts.fleet, fabric=well))


def _no_pages(facts: Facts) -> Facts:
    return replace(facts, fleet=replace(facts.fleet, retired_pages=()))


def _no_redirection(facts: Facts) -> Facts:
    peers = facts.fleet.peers
    places = tuple(replace(each, redirecting=Known((), "config")) for each in peers.places)
    return replace(facts, fleet=replace(facts.fleet, peers=replace(peers, places=places)))


CASES: tuple[RuleCase, ...] = (
    RuleCase("vgpu-unlicensed", "vgpu-unlicensed", _licensed),
    RuleCase("vgpu-releases-differ", "vgpu-old-host", _nothing_said),
    RuleCase("mig-device-unknown", "a100-mig-other-id", _names_a_slice),
    RuleCase("mig-mask-form", "a100-mig-by-number", ("gpus.cuda_visible_devices=0",)),
    RuleCase("mig-hides-gpus", "mig-beside-whole", ("gpus.cuda_visible_devices=1,2",)),
    RuleCase("mig-change-pending", "mig-beside-whole", ("gpus.devices.2.mig_pending=false",)),
    RuleCase(
        "mig-slice-small", "a100-mig-other-id", ("gpus.devices.0.mig_devices.0.memory_bytes=42949672960",), Goal.TRAIN
    ),
    RuleCase("module-key-not-enrolled", "secure-boot-other-key", _in_mok),
    RuleCase("module-key-not-enrolled", "secure-boot-other-key", _not_enforced),
    RuleCase("nouveau-in-early-image", "nouveau-in-early-image", ("fleet.early_image.holds_the_ban=true",)),
    RuleCase("subnet-manager-missing", "b200-no-subnet-manager", ("fleet.fabric.subnet_manager=true",)),
    RuleCase("fabric-joining", "b200-joining", ("health.gpus.3.fabric_state=not started",)),
    RuleCase("rack-fabric-waits", "gb200-waits", ("fleet.fabric.across_nodes=false",)),
    RuleCase("imex-differs", "gb200-no-imex", ("fleet.fabric.imex_version=580.95.05",)),
    RuleCase("imex-missing", "gb200-no-imex", _imex_well),
    RuleCase("fabric-degraded", "b200-slow-links", _links_well),
    RuleCase("gpus-not-ready", "h100-confidential", ("fleet.confidential.ready=true",)),
    RuleCase("mps-left-behind", "mps-dead", ("fleet.mps.running=true",)),
    RuleCase("gsp-firmware-missing", "gsp-no-firmware", _with_firmware),
    RuleCase("gsp-fails", "gsp-stuck", _nothing_said),
    RuleCase("pages-retired", "v100-worn", _no_pages),
    RuleCase("ecc-change-pending", "v100-worn", ("gpus.devices.0.ecc_pending=true",)),
    RuleCase("gdrcopy-not-loaded", "two-gpus-on-a-network", ("fleet.peers.gdrcopy_loaded=true",)),
    RuleCase("power-limit-low", "v100-worn", ("gpus.devices.0.power_limit_w=250",)),
    RuleCase("pcie-link-narrow", "v100-worn", ("gpus.devices.0.pcie_width=16",)),
    RuleCase(
        "locked-memory-small", "two-gpus-on-a-network", ("fleet.peers.locked_memory_bytes=68719476736",), Goal.TRAIN
    ),
    RuleCase("gpus-behind-acs", "two-gpus-on-a-network", _no_redirection, Goal.TRAIN),
    RuleCase("peermem-not-loaded", "two-gpus-on-a-network", ("fleet.peers.peermem_loaded=true",)),
    RuleCase("far-from-gpus", "two-gpus-on-a-network", ("fleet.peers.processor_nodes=0,1",)),
)
