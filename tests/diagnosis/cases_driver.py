"""The driver's rules: a machine where each fires, and the one fact whose change silences it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal
from firstlight.facts.collect import Facts
from firstlight.facts.driver import DeviceNode
from firstlight.facts.known import Known
from tests.diagnosis.rule_case import RuleCase


def _with_a_newer_second_gpu(facts: Facts) -> Facts:
    """An RTX 2080 Ti in the place of the GTX 1070 Ti: the open module drives both."""
    pci = tuple(
        replace(each, device_id=Known("0x1e04", "t")) if "c1" in each.address else each for each in facts.gpus.pci
    )
    return replace(facts, gpus=replace(facts.gpus, pci=pci))


def _with_its_nodes(facts: Facts) -> Facts:
    """The machine after nvidia-modprobe made the nodes."""
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    nodes = tuple(DeviceNode(path, "device", openable=True) for path in paths)
    return replace(facts, driver=replace(facts.driver, nodes=nodes))


CASES: tuple[RuleCase, ...] = (
    RuleCase("no-nvidia-device", "gpu-less", ("driver=580.95.05",)),
    RuleCase("driver-not-loaded", "a100-no-driver", ("driver=535.161.07",)),
    RuleCase("nouveau-loaded", "nouveau-holds-gpu", ("gpus.pci.0.driver=nvidia",)),
    RuleCase("secure-boot-blocks-module", "secure-boot", ("health.secure_boot=false",)),
    RuleCase("driver-library-mismatch", "ubuntu-half-upgraded", ("driver.nvml_code=0",)),
    RuleCase("driver-too-old-for-wheel", "h100-driver-570", ("driver=580.65.06",)),
    RuleCase("driver-too-old-for-wheel", "h100-driver-550-cu130", ("driver_cuda=13.0",)),
    RuleCase("driver-too-old-for-toolkit", "h100-driver-550-cu128", ("driver_cuda=13.0",), Goal.KERNELS),
    RuleCase("minor-version-limits", "h100-driver-550-cu128", ("driver_cuda=12.8",)),
    RuleCase("blackwell-needs-open-module", "blackwell-proprietary", ("driver.module_kind=open",)),
    RuleCase("gpus-need-different-modules", "blackwell-and-pascal", _with_a_newer_second_gpu),
    RuleCase("device-nodes-missing", "nodes-missing", _with_its_nodes),
    RuleCase("device-access-lost", "docker-lost-gpus", ("driver.nvml_code=0",)),
    RuleCase("uvm-not-loaded", "uvm-missing", ("driver.uvm_loaded=true",)),
    RuleCase("fabric-manager-missing", "h100-no-fabric-manager", ("cuinit=0",)),
    RuleCase("fabric-manager-differs", "h200-other-fabric-manager", ("health.fabric_manager_version=580.126.09",)),
    RuleCase("hmm-breaks-cuinit", "l20-hmm", ("driver.uvm_disable_hmm=true",)),
    RuleCase("driver-branch-ended", "b200-driver-610", ("driver=595.58.03",)),
    RuleCase("version-spoofed", "h100-spoofed-version", ("driver_cuda=12.8",)),
    RuleCase("cuinit-hangs", "h100-cuinit-hangs", ("cuinit=0",)),
    RuleCase("cuinit-fails", "after-suspend", ("cuinit=0",)),
)
