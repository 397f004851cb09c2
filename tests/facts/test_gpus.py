"""The GPUs, from what NVML said, from the driver's own files and from the PCI bus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.gpus import ComputeMode, GpuFacts, PciKind, Virtualization, probe_gpus
from firstlight.facts.known import Known, Unknown
from firstlight.facts.nvml import NvmlAnswer, Readings, ask_nvml
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import ComputeCapability

H200: dict[str, object] = {
    "index": 0,
    "code": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "brand": 14,
    "architecture": 9,
    "capability_major": 9,
    "capability_minor": 0,
    "memory_bytes": 150754820096,
    "pci_address": "00000000:18:00.0",
    "pci_device_id": 0x233510DE,
    "mig_mode": 0,
    "mig_pending": 0,
    "ecc_mode": 1,
    "ecc_pending": 1,
    "power_limit_mw": 650500,
    "power_default_mw": 700000,
    "power_max_mw": 700000,
    "clock_sm_mhz": 345,
    "clock_sm_max_mhz": 1980,
    "clock_memory_mhz": 3201,
    "clock_memory_max_mhz": 3201,
    "persistence_mode": 1,
    "compute_mode": 2,
    "virtualization": 1,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
}
INFORMATION = (
    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 321\nGPU UUID: \t GPU-0a\nVideo BIOS: \t 96.00.cf.00.02\nBus Type: \t PCIe\n"
    "DMA Size: \t 52 bits\nBus Location: \t 0000:18:00.0\nDevice Minor: \t 0\nGPU Excluded:\t No\n"
)


def _put(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def _machine(root: Path, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ={"PATH": "/there/are/no/programs/here", **environ})


def _said(*devices: dict[str, object]) -> NvmlAnswer:
    system = Readings({}, "NVML", absent="not asked")
    return NvmlAnswer(
        library=Unknown("not asked"),
        init_code=Known(0, "nvmlInit"),
        init_message=Unknown("NVML started"),
        count=Known(len(devices), "NVML"),
        system=system,
        devices=tuple(Readings(each, "NVML", absent="NVML: not asked") for each in devices),
    )


def _probe(root: Path, **environ: str) -> GpuFacts:
    machine = _machine(root, **environ)
    return probe_gpus(machine, ask_nvml(machine))


def _pci(root: Path, address: str, *, vendor: str, device: str, kind: str, driver: str = "") -> None:
    """A device as sysfs shows it: the entry on the bus is a link into /sys/devices, and so is its driver."""
    real = root / "sys/devices/pci0000:00" / address
    real.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
        (real / name).write_text(f"{value}\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (real / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")


def test_an_h200_is_known_in_every_field(tmp_path: Path) -> None:
    facts = probe_gpus(_machine(tmp_path), _said(H200))
    [gpu] = facts.devices
    assert facts.count == Known(1, "NVML")
    assert gpu.id == "gpu-0"
    assert gpu.capability == Known(ComputeCapability(9, 0), "NVML")
    assert gpu.architecture == Known("hopper", "NVML")
    assert gpu.brand == Known(14, "NVML")
    assert gpu.pci_address == Known("0000:18:00.0", "NVML")
    assert gpu.pci_device_id == Known("0x2335", "NVML")
    assert gpu.power_limit_w == Known(650.5, "NVML")
    assert gpu.compute_mode == Known(ComputeMode.PROHIBITED, "NVML")
    assert gpu.virtualization == Known(Virtualization.PASSTHROUGH, "NVML")
    assert gpu.mig_mode == Known(value=False, seen_in="NVML")
    assert gpu.mig_devices == ()
    fields = [getattr(gpu, name) for name in type(gpu).__slots__]
    assert not [field for field in fields if isinstance(field, Unknown)]


def test_mig_devices_carry_their_profile(tmp_path: Path) -> None:
    slices = [
        {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-0a", "memory_bytes": 17179869184},
        {"name": "NVIDIA H200", "uuid": {"error": "Not Supported", "code": 3}},
    ]
    [gpu] = probe_gpus(_machine(tmp_path), _said({**H200, "mig_mode": 1, "mig_devices": slices})).devices
    named, nameless = gpu.mig_devices
    assert named.profile == Known("1g.18gb", "NVML")
    assert named.memory_bytes == Known(17179869184, "NVML")
    assert nameless.profile == Unknown("NVML: the name holds no profile")
    assert nameless.uuid == Unknown("NVML: Not Supported")


def test_the_pseudonym_follows_the_index_nvml_gave(tmp_path: Path) -> None:
    facts = probe_gpus(_machine(tmp_path), _said({**H200, "index": 3}))
    assert facts.devices[0].id == "gpu-3"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("00000000:2A:00.0", "0000:2a:00.0"),
        ("0001:01:00.0", "0001:01:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
    ],
)
def test_pci_addresses_are_written_as_sysfs_does(tmp_path: Path, given: str, expected: str) -> None:
    [gpu] = probe_gpus(_machine(tmp_path), _said({**H200, "pci_address": given})).devices
    assert gpu.pci_address == Known(expected, "NVML")


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("compute_mode", 9, "compute_mode"),
        ("virtualization", 77, "virtualization"),
        ("pci_address", "somewhere", "pci_address"),
        ("capability_major", 0, "capability"),
        ("memory_bytes", 0xFFFFFFFFFFFFFFFF, "memory_bytes"),
        ("power_limit_mw", "much", "power_limit_w"),
        ("ecc_mode", True, "ecc_mode"),
        ("name", "\x00\x07", "name"),
        ("uuid", "GPU-????????-????-????-????-????????????", "uuid"),
    ],
)
def test_a_value_that_makes_no_sense_is_unknown(tmp_path: Path, field: str, value: object, fact: str) -> None:
    [gpu] = probe_gpus(_machine(tmp_path), _said({**H200, field: value})).devices
    assert isinstance(getattr(gpu, fact), Unknown)


def test_a_lost_gpu_is_listed_with_nvmls_code(tmp_path: Path) -> None:
    nvml = _said(H200)
    lost = Readings({"index": 1, "code": 15, "error": "GPU is lost"}, "NVML", absent="NVML: GPU is lost")
    facts = probe_gpus(_machine(tmp_path), replace(nvml, devices=(*nvml.devices, lost)))
    assert facts.devices[0].nvml_code == Known(0, "NVML")
    assert facts.devices[1].nvml_code == Known(15, "NVML")
    assert facts.devices[1].name == Unknown("NVML: GPU is lost")


def test_the_drivers_own_list_speaks_where_nvml_is_silent(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/driver/nvidia/gpus/0000:18:00.0/information", INFORMATION)
    _put(
        tmp_path,
        "/proc/driver/nvidia/gpus/0000:2a:00.0/information",
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:2a:00.0\n",
    )
    facts = _probe(tmp_path)
    where = "/proc/driver/nvidia/gpus/0000:18:00.0/information"
    assert facts.count == Known(2, "/proc/driver/nvidia/gpus")
    first, second = facts.devices
    assert (first.id, second.id) == ("gpu-0", "gpu-1")
    assert first.name == Known("NVIDIA H200", where)
    assert first.uuid == Known("GPU-0a", where)
    assert first.pci_address == Known("0000:18:00.0", where)
    assert isinstance(first.memory_bytes, Unknown)
    assert isinstance(second.name, Unknown)
    assert isinstance(second.uuid, Unknown)


def test_a_list_of_the_driver_that_is_cut_short_still_gives_the_address(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/driver/nvidia/gpus/0000:18:00.0/information", "Model")
    [gpu] = _probe(tmp_path).devices
    assert gpu.pci_address == Known("0000:18:00.0", "/proc/driver/nvidia/gpus/0000:18:00.0/information")
    assert isinstance(gpu.name, Unknown)


def test_nvidia_devices_are_seen_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    _pci(tmp_path, "0000:18:00.0", vendor="0x10de", device="0x2335", kind="0x030200")
    _pci(tmp_path, "0000:07:00.0", vendor="0x10de", device="0x22a3", kind="0x068000", driver="nvidia-nvswitch")
    _pci(tmp_path, "0000:41:00.1", vendor="0x10de", device="0x22ba", kind="0x040300", driver="snd_hda_intel")
    _pci(tmp_path, "0000:00:1f.0", vendor="0x8086", device="0x1234", kind="0x060100", driver="lpc_ich")
    facts = _probe(tmp_path)
    assert [(device.address, device.kind) for device in facts.pci] == [
        ("0000:07:00.0", PciKind.NVSWITCH),
        ("0000:18:00.0", PciKind.GPU),
        ("0000:41:00.1", PciKind.OTHER),
    ]
    switch, gpu, _ = facts.pci
    assert gpu.driver == Unknown("no driver is bound to it")
    assert gpu.device_id == Known("0x2335", "/sys/bus/pci/devices/0000:18:00.0/device")
    assert switch.driver == Known("nvidia-nvswitch", "/sys/bus/pci/devices/0000:07:00.0/driver")
    assert facts.devices == ()
    assert isinstance(facts.count, Unknown)


def test_the_kernels_pci_table_spares_the_devices_of_others(tmp_path: Path) -> None:
    _pci(tmp_path, "0000:18:00.0", vendor="0x10de", device="0x2335", kind="0x030200", driver="vfio-pci")
    _pci(tmp_path, "0000:00:1f.3", vendor="0x8086", device="0x1234", kind="0x060100")
    _put(tmp_path, "/proc/bus/pci/devices", "00fb\t80861234\t0\t0\n1800\t10de2335\t10\t0\tnvidia\nnonsense\n")
    recording = RecordingMachine(_machine(tmp_path))
    facts = probe_gpus(recording, ask_nvml(recording))
    assert [device.address for device in facts.pci] == ["0000:18:00.0"]
    assert facts.pci[0].driver == Known("vfio-pci", "/sys/bus/pci/devices/0000:18:00.0/driver")
    assert "/sys/bus/pci/devices/0000:00:1f.3/vendor" not in recording.evidence.paths
    replayed = RecordedMachine(recording.evidence)
    assert probe_gpus(replayed, ask_nvml(replayed)) == facts


def test_a_jetson_without_nvml_has_one_gpu_of_which_nothing_is_known(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0")
    facts = _probe(tmp_path)
    [gpu] = facts.devices
    assert facts.tegra_chip == Known("tegra234", "/proc/device-tree/compatible")
    assert facts.count == Known(1, "/proc/device-tree/compatible")
    assert isinstance(gpu.name, Unknown)
    assert gpu.name.reason.startswith("tegra234 has a GPU, but no libnvidia-ml.so.1")


def test_another_arm_board_is_no_tegra(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")
    facts = _probe(tmp_path)
    assert facts.tegra_chip == Unknown("not a Tegra chip")
    assert facts.devices == ()


def test_nothing_at_all_is_nothing_and_no_failure(tmp_path: Path) -> None:
    facts = _probe(tmp_path)
    assert facts.devices == ()
    assert facts.pci == ()
    assert isinstance(facts.count, Unknown)
    assert facts.count.reason.endswith("; no GPU in /proc/driver/nvidia/gpus")


def test_what_hides_gpus_is_seen(tmp_path: Path) -> None:
    facts = _probe(tmp_path, CUDA_VISIBLE_DEVICES="", NVIDIA_VISIBLE_DEVICES="void", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert facts.cuda_visible_devices == Known("", "CUDA_VISIBLE_DEVICES")
    assert facts.nvidia_visible_devices == Known("void", "NVIDIA_VISIBLE_DEVICES")
    assert facts.cuda_device_order == Known("PCI_BUS_ID", "CUDA_DEVICE_ORDER")
    assert _probe(tmp_path).cuda_visible_devices == Unknown("CUDA_VISIBLE_DEVICES is not set")


def test_a_running_mps_daemon_is_seen_where_it_was_told_to_be(tmp_path: Path) -> None:
    assert _probe(tmp_path).mps_control == Unknown("no /tmp/nvidia-mps/control")
    _put(tmp_path, "/tmp/nvidia-mps/control")
    assert _probe(tmp_path).mps_control == Known("/tmp/nvidia-mps/control", "/tmp/nvidia-mps/control")
    moved = _probe(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/run/mps")
    assert moved.mps_pipe_directory == Known("/run/mps", "CUDA_MPS_PIPE_DIRECTORY")
    assert moved.mps_control == Unknown("no /run/mps/control")
    assert isinstance(_probe(tmp_path, CUDA_MPS_PIPE_DIRECTORY="mps").mps_control, Unknown)


def test_the_facts_survive_the_document(tmp_path: Path) -> None:
    _pci(tmp_path, "0000:18:00.0", vendor="0x10de", device="0x2335", kind="0x030200", driver="nvidia")
    mig: dict[str, object] = {**H200, "mig_mode": 1, "mig_devices": [{"name": "NVIDIA H200 MIG 1g.18gb"}]}
    facts = probe_gpus(_machine(tmp_path), _said(mig, {"index": 1}))
    assert decode(GpuFacts, encode(facts), "gpus") == facts
