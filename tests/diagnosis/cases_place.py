"""The rules about place and health: a machine where each fires, and the one fact whose change silences it."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.override import override
from tests.diagnosis.rule_case import RuleCase


def _only_the_programs_own_xid(facts: Facts) -> Facts:
    """The log with Xid 45 alone: a program that was killed."""
    assert isinstance(facts.health.xids, Known)
    kept = tuple(event for event in facts.health.xids.value if event.code == 45)
    return replace(facts, health=replace(facts.health, xids=Known(kept, facts.health.xids.seen_in)))


def _three_of_a_kind(facts: Facts) -> Facts:
    first, *rest = facts.gpus.devices
    same = (first, *(replace(first, id=gpu.id) for gpu in rest))
    return replace(facts, gpus=replace(facts.gpus, devices=same))


def _as_debian(facts: Facts) -> Facts:
    return override(facts, ("runtime.libc=glibc", "place.os_id=debian"))


def _as_device(facts: Facts) -> Facts:
    nodes = tuple(replace(node, kind="device") if node.kind == "file" else node for node in facts.driver.nodes)
    return replace(facts, driver=replace(facts.driver, nodes=nodes))


def _described(facts: Facts) -> Facts:
    runtime = replace(facts.container.runtime, cdi_specs=("/etc/cdi/nvidia.yaml",))
    return replace(facts, container=replace(facts.container, runtime=runtime))


CASES: tuple[RuleCase, ...] = (
    RuleCase("no-gpu-in-container", "docker-no-gpus", ("container.kind=none",)),
    RuleCase("no-gpu-in-container", "lxc-no-nodes", ("container.kind=none",)),
    RuleCase("musl-has-no-cuda", "alpine-with-torch", _as_debian),
    RuleCase("system-comes-as-image", "silverblue-works", ("place.image_based=none",)),
    RuleCase("label-refuses-gpu", "podman-label", ("container.label_enforced=false",)),
    RuleCase("label-refuses-gpu", "podman-label", ("container.label=spc_t",)),
    RuleCase("groups-left-outside", "podman-groups", ("container.rootless=false",)),
    RuleCase("node-is-no-device", "proxmox-uvm-file", _as_device),
    RuleCase("no-gpu-in-container", "jetson-container-no-runtime", ("container.kind=none",)),
    RuleCase("uvm-not-allowed", "lxc-uvm-refused", ("container.kind=docker",)),
    RuleCase("description-of-other-driver", "cdi-of-older-driver", ("container.runtime.cdi_driver=570.133.20",)),
    RuleCase("toolkit-writes-no-rules", "docker-host-without-rules", ("container.runtime.no_cgroups=false",)),
    RuleCase("podman-knows-no-gpus", "podman-host-no-cdi", _described),
    RuleCase("container-gate-differs", "runpod-gate-12-8", ("container.cuda_requirement.cuda_floor=13.0",)),
    RuleCase("container-runtime-missing", "docker-host-no-toolkit", ("container.runtime.container_toolkit=1.17.8",)),
    RuleCase("shell-lacks-container-env", "runpod-ssh", ("container.only_in_pid_1=NVIDIA_VISIBLE_DEVICES",)),
    RuleCase("devices-masked", "devices-masked", ("gpus.cuda_visible_devices=1",)),
    RuleCase("cuda-sees-no-device", "cuda-sees-none", ("libcuda.device_count=1",)),
    RuleCase("cuda-sees-no-device", "cuda-sees-none", ("gpus.cuda_visible_devices=7",)),
    RuleCase("cuda-sees-fewer-devices", "one-of-two-masked", ("libcuda.device_count=2",)),
    RuleCase("mig-without-slices", "a100-mig-empty", ("gpus.devices.0.mig_mode=false",)),
    RuleCase("mig-slice", "h100-mig-slice", ("gpus.devices.0.mig_mode=false",)),
    RuleCase("gpu-prohibited", "gpu-prohibited", ("gpus.devices.0.compute_mode=exclusive-process",)),
    RuleCase("mixed-gpus", "mixed-gpus", _three_of_a_kind),
    RuleCase("wsl-libcuda-shadowed", "wsl2-linux-libcuda", ("libcuda.would_load.path=/usr/lib/wsl/lib/libcuda.so.1",)),
    RuleCase("gpu-lost", "gpu-fell-off", ("gpus.devices.2.nvml_code=0",)),
    RuleCase("gpu-memory-faulty", "a100-faulty-memory", ("health.gpus.2.row_remap_pending=false",)),
    RuleCase("xid-seen", "rtx5080-xids", _only_the_programs_own_xid),
    RuleCase("setting-slows", "launches-wait", ("build_variables.0.value=0",)),
    RuleCase("gpu-throttled", "h100-overheated", ("health.gpus.0.throttle=software-power-cap",)),
    RuleCase("disk-nearly-full", "small-pod", ("resources.disks.0.free_bytes=21474836480",)),
    RuleCase("shm-too-small", "small-pod", ("resources.shm_bytes=8589934592",), Goal.TRAIN),
)
