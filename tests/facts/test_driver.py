"""The kernel driver, from file trees as good, broken and absent drivers leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.facts.driver import DeviceNode, DriverFacts, ModuleKind, probe_driver
from firstlight.facts.known import Known, Unknown
from firstlight.facts.nvml import ask_nvml
from firstlight.machine import ChildAnswer, Host, Stat
from firstlight.machine.evidence import Evidence, PathEvidence
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import CudaVersion, DriverVersion

HOST = Host(
    hostname="pod",
    user="root",
    home="/root",
    cwd="/",
    uid=0,
    kernel_release="6.8.0-60-generic",
    arch="x86_64",
    python_version="3.12.3",
    python_executable="/usr/bin/python3",
    python_prefix="/usr",
    python_base_prefix="/usr",
    now="2026-11-15T02:38:25Z",
)
OPEN_X86 = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@somewhere)  "
    "Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 13.3.0\n"
)
CLOSED_X86 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 13:54:04 UTC 2025\nGCC version:\n"
OPEN_TEGRA = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (buildbrain@mobile)  "
    "Tue Jan  7 17:38:35 PST 2025\n"
)
CLOSED_ARM = "NVRM version: NVIDIA UNIX aarch64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\n"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def _put(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def _machine(root: Path) -> LiveMachine:
    return LiveMachine(root=str(root), environ={"PATH": "/there/are/no/programs/here"}, host=HOST)


def _probe(root: Path) -> DriverFacts:
    machine = _machine(root)
    return probe_driver(machine, ask_nvml(machine))


def _recorded(answer: dict[str, object]) -> RecordedMachine:
    """A machine with a libnvidia-ml whose child said this."""
    evidence = Evidence(HOST, children={"nvml": ChildAnswer(answer, "")})
    evidence.paths[LIBRARY] = PathEvidence(
        stat=Stat("file", 1, 0o644, 0, 0, 1, writable=False), real=LIBRARY.replace("so.1", "so.580.159.04")
    )
    return RecordedMachine(evidence)


def _version(text: str) -> DriverVersion:
    return DriverVersion.parse(text)


def test_the_loaded_module_says_its_version_itself(tmp_path: Path) -> None:
    _put(tmp_path, "/sys/module/nvidia/version", "580.159.04\n")
    _put(tmp_path, "/proc/driver/nvidia/version", CLOSED_X86)
    assert _probe(tmp_path).kernel_version == Known(_version("580.159.04"), "/sys/module/nvidia/version")


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [
        (OPEN_X86, "580.159.04", ModuleKind.OPEN),
        (CLOSED_X86, "570.133.20", ModuleKind.PROPRIETARY),
        (OPEN_TEGRA, "540.4.0", ModuleKind.OPEN),
        (CLOSED_ARM, "535.183.06", ModuleKind.PROPRIETARY),
    ],
)
def test_the_version_file_is_read_in_all_its_forms(tmp_path: Path, text: str, version: str, kind: ModuleKind) -> None:
    _put(tmp_path, "/proc/driver/nvidia/version", text)
    driver = _probe(tmp_path)
    assert driver.kernel_version == Known(_version(version), "/proc/driver/nvidia/version")
    assert driver.module_kind == Known(kind, "/proc/driver/nvidia/version")


def test_who_built_the_module_is_not_in_the_recording(tmp_path: Path) -> None:
    _put(tmp_path, "/proc/driver/nvidia/version", OPEN_X86)
    recording = RecordingMachine(_machine(tmp_path))
    live = probe_driver(recording, ask_nvml(recording))
    assert "builder@somewhere" not in (recording.evidence.paths["/proc/driver/nvidia/version"].text or "")
    replayed = RecordedMachine(recording.evidence)
    assert probe_driver(replayed, ask_nvml(replayed)) == live


def test_a_version_that_is_no_version_gives_way_to_the_next_source(tmp_path: Path) -> None:
    _put(tmp_path, "/sys/module/nvidia/version", "\x00\x01garbage")
    _put(tmp_path, "/proc/driver/nvidia/version", OPEN_X86)
    assert _probe(tmp_path).kernel_version == Known(_version("580.159.04"), "/proc/driver/nvidia/version")


def test_nvml_speaks_where_the_kernel_shows_no_module_as_in_wsl() -> None:
    machine = _recorded({"init": {"code": 0}, "driver_version": "581.29", "driver_cuda": 13000, "count": 1})
    driver = probe_driver(machine, ask_nvml(machine))
    assert driver.kernel_version == Known(_version("581.29"), "NVML")
    assert driver.nvml_cuda == Known(CudaVersion(13, 0), "NVML")
    assert isinstance(driver.module_kind, Unknown)


def test_a_machine_without_a_driver_says_what_was_looked_at(tmp_path: Path) -> None:
    driver = _probe(tmp_path)
    assert isinstance(driver.kernel_version, Unknown)
    for part in ("/sys/module/nvidia/version: no such file", "no libnvidia-ml.so.1", "nvidia-smi: not found"):
        assert part in driver.kernel_version.reason
    assert isinstance(driver.nvml_code, Unknown)
    assert isinstance(driver.packages, Unknown)
    assert driver.nouveau_loaded == Unknown("no /sys/module")
    assert all(node.kind == "absent" and not node.openable for node in driver.nodes)


def test_a_mismatch_shows_both_versions() -> None:
    machine = _recorded(
        {
            "init": {"code": 18, "error": "Driver/library version mismatch"},
            "library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
        }
    )
    machine._evidence.paths["/sys/module/nvidia/version"] = PathEvidence(text="570.133.20\n")
    driver = probe_driver(machine, ask_nvml(machine))
    assert driver.nvml_code == Known(18, "nvmlInit")
    assert driver.nvml_message == Known("Driver/library version mismatch", "nvmlInit")
    assert isinstance(driver.kernel_version, Known)
    assert isinstance(driver.nvml_library_version, Known)
    assert driver.kernel_version.value < driver.nvml_library_version.value


def test_a_library_without_a_version_in_its_name_is_unknown() -> None:
    machine = _recorded({"init": {"code": 0}, "library": "/usr/lib/wsl/lib/libnvidia-ml.so.1", "driver_cuda": 7})
    driver = probe_driver(machine, ask_nvml(machine))
    assert driver.nvml_library == Known("/usr/lib/wsl/lib/libnvidia-ml.so.1", "/proc/self/maps of the nvml child")
    assert isinstance(driver.nvml_library_version, Unknown)
    assert isinstance(driver.nvml_cuda, Unknown)


def test_modules_are_seen_loaded_or_not(tmp_path: Path) -> None:
    _put(tmp_path, "/sys/module/nouveau/refcnt", "1")
    driver = _probe(tmp_path)
    assert driver.nouveau_loaded == Known(value=True, seen_in="/sys/module/nouveau")
    assert driver.uvm_loaded == Known(value=False, seen_in="/sys/module")


@pytest.mark.parametrize(("text", "expected"), [("Y\n", True), ("N\n", False), ("1\n", True), ("0", False)])
def test_the_hmm_switch_of_uvm_is_read(tmp_path: Path, text: str, *, expected: bool) -> None:
    path = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
    _put(tmp_path, path, text)
    assert _probe(tmp_path).uvm_disable_hmm == Known(expected, path)


def test_an_hmm_switch_with_absurd_content_is_unknown(tmp_path: Path) -> None:
    path = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
    _put(tmp_path, path, "perhaps" * 1000)
    assert isinstance(_probe(tmp_path).uvm_disable_hmm, Unknown)


def test_device_nodes_are_listed_there_or_not(tmp_path: Path) -> None:
    for path in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1", "nvhost-ctrl-gpu"):
        _put(tmp_path, f"/dev/{path}")
    nodes = {node.path: node.kind for node in _probe(tmp_path).nodes}
    assert nodes == {
        "/dev/nvidiactl": "file",
        "/dev/nvidia-uvm": "absent",
        "/dev/nvidia-modeset": "absent",
        "/dev/nvmap": "absent",
        "/dev/dxg": "absent",
        "/dev/nvidia-uvm-tools": "file",
        "/dev/nvidia0": "file",
        "/dev/nvidia1": "file",
        "/dev/nvidia-caps/nvidia-cap1": "file",
        "/dev/nvhost-ctrl-gpu": "file",
    }


def test_a_node_that_its_mode_keeps_closed_is_not_openable() -> None:
    evidence = Evidence(HOST)
    evidence.paths["/dev/nvidiactl"] = PathEvidence(stat=Stat("device", 0, 0o600, 0, 0, 9, writable=False))
    machine = RecordedMachine(evidence)
    nodes = probe_driver(machine, ask_nvml(machine)).nodes
    assert nodes[0] == DeviceNode("/dev/nvidiactl", "device", openable=False)


def test_driver_packages_are_named_and_others_are_not(tmp_path: Path) -> None:
    for name in (
        "libnvidia-compute-580:amd64.list",
        "nvidia-driver-580-server-open.list",
        "nvidia-kernel-common-580.list",
        "nvidia-container-toolkit.list",
        "nvidia-driver-580-server-open.md5sums",
        "bash.list",
    ):
        _put(tmp_path, f"/var/lib/dpkg/info/{name}")
    assert _probe(tmp_path).packages == Unknown("not looked for, since no file of a driver was found")
    _put(tmp_path, "/usr/bin/nvidia-smi")
    assert _probe(tmp_path).packages == Known(
        ("libnvidia-compute-580", "nvidia-driver-580-server-open", "nvidia-kernel-common-580"), "/var/lib/dpkg/info"
    )


@pytest.mark.parametrize(
    "place", ["updates/dkms/nvidia.ko.zst", "kernel/nvidia-580-server-open/nvidia.ko", "extra/nvidia.ko.xz"]
)
def test_a_module_built_for_the_running_kernel_is_found(tmp_path: Path, place: str) -> None:
    _put(tmp_path, f"/lib/modules/6.8.0-60-generic/{place}")
    assert _probe(tmp_path).module_file == Known(
        f"/lib/modules/6.8.0-60-generic/{place}", "/lib/modules/6.8.0-60-generic"
    )


def test_a_module_built_for_another_kernel_is_not_taken(tmp_path: Path) -> None:
    _put(tmp_path, "/lib/modules/6.8.0-59-generic/updates/dkms/nvidia.ko.zst")
    _put(tmp_path, "/lib/modules/6.8.0-60-generic/modules.dep")
    assert _probe(tmp_path).module_file == Unknown("no nvidia.ko in the usual folders of /lib/modules/6.8.0-60-generic")


def test_a_folder_in_the_place_of_a_file_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia/version").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").mkdir(parents=True)
    driver = _probe(tmp_path)
    assert isinstance(driver.kernel_version, Unknown)
    assert "/sys/module/nvidia/version: is a folder" in driver.kernel_version.reason


def test_the_facts_survive_the_document(tmp_path: Path) -> None:
    _put(tmp_path, "/sys/module/nvidia/version", "580.159.04\n")
    _put(tmp_path, "/proc/driver/nvidia/version", OPEN_X86)
    _put(tmp_path, "/dev/nvidiactl")
    driver = _probe(tmp_path)
    assert decode(DriverFacts, encode(driver), "driver") == driver
