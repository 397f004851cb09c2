"""Fleets looked at on a tree of files with small programs: licences, fabrics, MPS, GSP, early images, neighbours."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from firstlight.facts.driver import probe_driver
from firstlight.facts.fleet import FleetFacts, probe_fleet
from firstlight.facts.gpus import probe_gpus
from firstlight.facts.health import probe_health
from firstlight.facts.known import Known, Unknown
from firstlight.facts.mig import Named, mask_entries
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.facts.services import ServiceState
from firstlight.facts.vgpu import LicenceState
from firstlight.machine import Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

VGPU = {"name": "NVIDIA L4-12Q", "virtualization": 2, "pci_address": "00000000:18:00.0"}
RUNS = "ActiveState=active\nSubState=running\nResult=success\nExecMainStatus=0"


def _put(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def _program(root: Path, name: str, script: str) -> None:
    _put(root, f"/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)


def _says(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def _machine(root: Path, **environ: str) -> LiveMachine:
    _put(root, "/sys/module/nvidia/version", "580.95.05\n")
    return LiveMachine(root=str(root), environ={"PATH": f"{root}/bin:/usr/bin:/bin", **environ})


def _said(*devices: dict[str, object], **system: object) -> NvmlAnswer:
    return NvmlAnswer(
        library=Unknown("not asked"),
        init_code=Known(0, "nvmlInit"),
        init_message=Unknown("NVML started"),
        count=Known(len(devices), "NVML"),
        system=Readings(system, "NVML", absent="not asked"),
        devices=tuple(Readings({"index": i, **each}, "NVML", absent="NVML: no") for i, each in enumerate(devices)),
    )


def _look(machine: Machine, nvml: NvmlAnswer) -> FleetFacts:
    gpus, driver = probe_gpus(machine, nvml), probe_driver(machine, nvml)
    health = probe_health(machine, nvml, gpus=gpus, driver=driver)
    return probe_fleet(machine, nvml, gpus=gpus, driver=driver, health=health)


def _no_call_may_be_made(root: Path, *names: str) -> None:
    for name in names:
        _program(root, name, f"touch {root}/{name}-was-run")


def test_a_machine_with_nothing_of_a_fleet_starts_no_program(tmp_path: Path) -> None:
    names = ("systemctl", "journalctl", "modinfo", "mokutil", "lsinitramfs", "nvidia-imex", "nvidia-smi")
    _no_call_may_be_made(tmp_path, *names)
    facts = _look(_machine(tmp_path), _said({"name": "NVIDIA H200", "virtualization": 0, "fabric_state": 3}))
    assert not [name for name in names if (tmp_path / f"{name}-was-run").exists()]
    assert decode(FleetFacts, encode(facts), "facts") == facts


def test_a_licence_is_read_from_nvml(tmp_path: Path) -> None:
    licence = {"product": "NVIDIA Virtual Compute Server", "state": 3, "enabled": 0, "expires": ""}
    _program(tmp_path, "systemctl", _says(RUNS))
    _program(tmp_path, "journalctl", _says("Acquiring license\nFailed to acquire license\nFailed to acquire license"))
    vgpu = _look(_machine(tmp_path), _said({**VGPU, "licences": [licence]})).vgpu
    [found] = vgpu.licences
    assert found.state == Known(LicenceState.RESTRICTED, "NVML")
    assert vgpu.service == Known(ServiceState("active", "running", "success", 0), "systemctl show nvidia-gridd")
    assert vgpu.log == Known(("Acquiring license", "Failed to acquire license"), "journalctl --unit=nvidia-gridd")
    assert vgpu.daemon == Known(value=False, seen_in="/usr/bin/nvidia-gridd")
    assert vgpu.token == Known(value=False, seen_in="/etc/nvidia/ClientConfigToken")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("Unlicensed (Unrestricted)", LicenceState.UNRESTRICTED),
        ("Unlicensed (Restricted)", LicenceState.RESTRICTED),
        ("Licensed (Expiry: 2026-11-17 0:0:0 GMT)", LicenceState.LICENSED),
    ],
)
def test_a_licence_is_read_from_nvidia_smi_where_nvml_has_none(tmp_path: Path, said: str, state: LicenceState) -> None:
    _program(tmp_path, "nvidia-smi", _says(f"    vGPU Software Licensed Product\n        License Status : {said}"))
    [licence] = _look(_machine(tmp_path), _said(VGPU)).vgpu.licences
    assert licence.state == Known(state, "nvidia-smi -q")


def test_a_slice_is_known_by_its_name_where_nvml_does_not_say(tmp_path: Path) -> None:
    vgpu = _look(_machine(tmp_path), _said({"name": "GRID P40-24Q"})).vgpu
    assert vgpu.guest == Known(value=True, seen_in="the name of gpu-0")
    whole = _look(_machine(tmp_path), _said({"name": "NVIDIA H100 80GB HBM3"})).vgpu
    assert isinstance(whole.guest, Unknown)


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("0", Named.NUMBER),
        ("MIG-0a", Named.SLICE),
        ("mig-0a11", Named.SLICE),
        ("MIG-0b", Named.OTHER_SLICE),
        ("GPU-1", Named.GPU),
        ("GPU-9", Named.OTHER_GPU),
        ("mig-other", Named.OTHER_SLICE),
        ("MIG-GPU-1f/1/0", Named.OLD_SLICE),
        ("0:1", Named.NOTHING),
        ("1g.5gb", Named.NOTHING),
    ],
)
def test_an_entry_of_the_mask_is_told_by_what_it_names(tmp_path: Path, entry: str, names: Named) -> None:
    machine = _machine(tmp_path, CUDA_VISIBLE_DEVICES=f"{entry},7")
    device = {"uuid": "GPU-1234", "mig_mode": 1, "mig_devices": [{"name": "A100 MIG 1g.5gb", "uuid": "MIG-0a11"}]}
    first, _ = mask_entries(probe_gpus(machine, _said(device)))
    assert first.names is names


def _fabric(state: int, capability: int = 10) -> NvmlAnswer:
    device: dict[str, object] = {"capability_major": capability, "capability_minor": 0, "fabric_state": state}
    device["fabric_health"] = 0x41A
    return _said(device)


def test_the_fabric_of_blackwell_asks_for_the_subnet_manager(tmp_path: Path) -> None:
    _program(tmp_path, "systemctl", _says("ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=1"))
    _program(tmp_path, "journalctl", _says("starting\nFailed to start NVLSM"))
    _put(tmp_path, "/sys/module/ib_umad/refcnt", "0")
    fabric = _look(_machine(tmp_path), _fabric(1)).fabric
    assert fabric.generation_five == Known(value=True, seen_in="NVML")
    assert fabric.subnet_manager == Known(value=False, seen_in="/opt/nvidia/nvlsm/sbin/nvlsm")
    assert fabric.umad_loaded == Known(value=True, seen_in="/sys/module/ib_umad")
    assert fabric.manager == Known(
        ServiceState("failed", "failed", "exit-code", 1), "systemctl show nvidia-fabricmanager"
    )
    assert fabric.manager_log == Known(("Failed to start NVLSM",), "journalctl --unit=nvidia-fabricmanager")
    [link] = fabric.links
    assert link.complaints == Known(("unhealthy routes", "no partition"), "NVML")


def test_the_fabric_of_hopper_needs_no_subnet_manager(tmp_path: Path) -> None:
    fabric = _look(_machine(tmp_path), _fabric(1, capability=9)).fabric
    assert isinstance(fabric.subnet_manager, Unknown)
    assert fabric.generation_five == Known(value=False, seen_in="NVML")


def test_the_pipes_of_a_dead_mps_daemon_are_told_from_those_of_a_living_one(tmp_path: Path) -> None:
    machine = _machine(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/mps")
    _put(tmp_path, "/mps/control")
    _put(tmp_path, "/mps/nvidia-cuda-mps-control.pid", "77\n")
    dead = _look(machine, _said({"name": "NVIDIA H200"})).mps
    assert dead.running == Known(value=False, seen_in="/mps/nvidia-cuda-mps-control.pid")
    _put(tmp_path, "/proc/77/comm", "nvidia-cuda-mps\n")
    assert _look(machine, _said({"name": "NVIDIA H200"})).mps.running == Known(
        value=True, seen_in="/mps/nvidia-cuda-mps-control.pid"
    )


def test_firmware_counts_only_of_the_loaded_version(tmp_path: Path) -> None:
    _put(tmp_path, "/lib/firmware/nvidia/570.1/gsp_ga10x.bin")
    assert _look(_machine(tmp_path), _said()).gsp.firmware == Known((), "/lib/firmware/nvidia/580.95.05")
    _put(tmp_path, "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")
    _put(tmp_path, "/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nEnableGpuFirmware: 18\n")
    gsp = _look(_machine(tmp_path), _said()).gsp
    assert gsp.firmware == Known(("gsp_ga10x.bin",), "/lib/firmware/nvidia/580.95.05")
    assert gsp.setting == Known(18, "/proc/driver/nvidia/params")


def test_the_early_image_is_listed_only_where_nouveau_came_in_spite_of_a_ban(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    kernel = machine.host.kernel_release
    _program(tmp_path, "lsinitramfs", f'[ "$1" = /boot/initrd.img-{kernel} ] && echo usr/lib/modules/x/nouveau.ko.zst')
    _put(tmp_path, "/etc/modprobe.d/keep-out.conf", "# blacklist nouveau\n")
    assert isinstance(_look(machine, _said()).early_image.forbidden_in, Unknown)
    _put(tmp_path, "/sys/module/nouveau/version", "1\n")
    commented = _look(machine, _said()).early_image
    assert commented.forbidden_in == Known((), "/etc/modprobe.d")
    assert isinstance(commented.holds_nouveau, Unknown)
    _put(tmp_path, "/etc/modprobe.d/keep-out.conf", "blacklist nouveau\n")
    image = _look(machine, _said()).early_image
    where = f"lsinitramfs /boot/initrd.img-{kernel}"
    assert image.holds_nouveau == Known(value=True, seen_in=where)
    assert image.holds_the_ban == Known(value=False, seen_in=where)
    _program(tmp_path, "lsinitramfs", "echo x/nouveau.ko; echo etc/modprobe.d/keep-out.conf")
    assert _look(machine, _said()).early_image.holds_the_ban == Known(value=True, seen_in=where)


def _with_acs(control: int) -> bytes:
    """The space of a bridge: an AER capability first, then ACS."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x7F, control)
    return bytes(config)


@pytest.mark.parametrize(("control", "found"), [(0x1D, ("0000:15:01.0",)), (0x11, ()), (0, ())])
def test_a_bridge_that_redirects_is_found_by_its_control_word(
    tmp_path: Path, control: int, found: tuple[str, ...]
) -> None:
    machine = _machine(tmp_path)
    gpu = tmp_path / "sys/devices/pci0000:14/0000:15:01.0/0000:18:00.0"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text("1\n")
    bus = tmp_path / "sys/bus/pci/devices"
    (bus / "0000:15:01.0").mkdir(parents=True)
    (bus / "0000:18:00.0").symlink_to(gpu)
    (bus / "0000:15:01.0/config").write_bytes(_with_acs(control))
    place, _ = _look(machine, _said(VGPU, {"name": "B"})).peers.places
    assert place.redirecting == Known(found, "/sys/bus/pci/devices/*/config")
    assert isinstance(place.numa_node, Known)
    (bus / "0000:15:01.0/config").write_bytes(_with_acs(control)[:64])  # what a plain user may read
    assert isinstance(_look(machine, _said(VGPU, {"name": "B"})).peers.places[0].redirecting, Unknown)


def test_limits_and_numa_nodes_are_of_this_process(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/self/limits", "Max locked memory         65536                65536                bytes\n")
    _put(tmp_path, "/proc/self/status", "Cpus_allowed_list:\t4-5\n")
    _put(tmp_path, "/sys/devices/system/node/node0/cpulist", "0-3\n")
    _put(tmp_path, "/sys/devices/system/node/node1/cpulist", "4-7\n")
    peers = _look(_machine(tmp_path), _said({"name": "A"}, {"name": "B"})).peers
    assert peers.locked_memory_bytes == Known(65536, "/proc/self/limits")
    assert peers.processor_nodes == Known((1,), "/proc/self/status")
    assert isinstance(_look(_machine(tmp_path), _said({"name": "A"})).peers.locked_memory_bytes, Unknown)


def test_a_recording_says_the_same_and_an_old_one_says_nothing_of_absence(tmp_path: Path) -> None:
    _program(tmp_path, "systemctl", _says(RUNS))
    recording = RecordingMachine(_machine(tmp_path))
    live = _look(recording, _fabric(2))
    assert _look(RecordedMachine(recording.evidence), _fabric(2)) == live
    old = RecordingMachine(LiveMachine(root=str(tmp_path / "nothing")))
    fabric = _look(RecordedMachine(old.evidence), _fabric(2)).fabric
    assert isinstance(fabric.subnet_manager, Unknown)
    assert isinstance(fabric.imex, Unknown)
    assert isinstance(fabric.manager, Unknown)
