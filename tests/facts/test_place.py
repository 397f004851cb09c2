"""The place: Jetson, GB10, WSL2 and servers are told apart by what each really has, and nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.ability import probe_ability
from firstlight.facts.compilers import probe_compilers
from firstlight.facts.containers import probe_containers
from firstlight.facts.cuda_libraries import probe_cuda_libraries
from firstlight.facts.cutlass import probe_cutlass
from firstlight.facts.known import Known, Unknown
from firstlight.facts.network import probe_network
from firstlight.facts.place import PlaceFacts, Platform, probe_place
from firstlight.facts.resources import probe_resources
from firstlight.facts.toolkits import probe_toolkits
from firstlight.machine import Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

# Every probe that looks at files of the system; none may raise for what it finds there.
PROBES = (
    probe_ability,
    probe_compilers,
    probe_containers,
    probe_cuda_libraries,
    probe_cutlass,
    probe_network,
    probe_place,
    probe_resources,
    probe_toolkits,
)
THOR_RELEASE = (
    "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64, DATE: Fri Aug 22 00:55:42 2025\n"
    "# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n"
)
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def machine_of(root: Path, *, arch: str = "x86_64", kernel: str = "6.8.0-45-generic", **environ: str) -> LiveMachine:
    host = replace(LiveMachine().host, arch=arch, kernel_release=kernel)
    return LiveMachine(root=str(root), environ=environ, host=host)


def thor(root: Path) -> LiveMachine:
    put(root, "/etc/nv_tegra_release", THOR_RELEASE)
    put(root, "/etc/os-release", UBUNTU)
    put(root, "/proc/device-tree/model", "NVIDIA Jetson AGX Thor Developer Kit\0")
    put(root, "/proc/device-tree/compatible", "nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0")
    (root / "usr/lib/aarch64-linux-gnu/nvidia").mkdir(parents=True)
    return machine_of(root, arch="aarch64", kernel="6.8.12-tegra")


def test_a_jetson_thor_is_known_by_kernel_board_and_release(tmp_path: Path) -> None:
    place = probe_place(thor(tmp_path))
    assert place.platform == Known(Platform.JETSON, seen_in="kernel 6.8.12-tegra")
    assert place.l4t == Known("38.2.0", seen_in="/etc/nv_tegra_release")
    assert place.soc == Known("tegra264", seen_in="/proc/device-tree/compatible")
    assert place.board_model == Known("NVIDIA Jetson AGX Thor Developer Kit", seen_in="/proc/device-tree/model")
    assert isinstance(place.tegra_libraries, Known)
    assert place.os_version == Known("24.04", seen_in="/etc/os-release")


def test_a_jetson_orin_with_a_kernel_of_its_own_is_known_by_its_board(tmp_path: Path) -> None:
    put(tmp_path, "/proc/device-tree/compatible", "nvidia,p3701-0000\0nvidia,tegra234\0")
    place = probe_place(machine_of(tmp_path, arch="aarch64", kernel="6.6.10-custom"))
    assert place.platform == Known(Platform.JETSON, seen_in="/proc/device-tree/compatible")
    assert place.soc == Known("tegra234", seen_in="/proc/device-tree/compatible")
    assert place.l4t == Unknown("/etc/nv_tegra_release: no such file")


def test_a_container_on_a_jetson_sees_only_the_kernel_and_the_release_stays_unknown(tmp_path: Path) -> None:
    place = probe_place(machine_of(tmp_path, arch="aarch64", kernel="5.15.148-tegra"))
    assert isinstance(place.platform, Known)
    assert place.platform.value is Platform.JETSON
    assert isinstance(place.l4t, Unknown)
    assert isinstance(place.soc, Unknown)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("# R36 (release), REVISION: 4.3, GCID: 1\n", "36.4.3"),
        ("# R35 (release), REVISION: 6.1.1, GCID: 1\n", "35.6.1.1"),
        ("# R39 (release), REVISION: 2, GCID: 1\n", "39.2.0"),
    ],
)
def test_the_release_is_read_as_it_stands(tmp_path: Path, text: str, release: str) -> None:
    put(tmp_path, "/etc/nv_tegra_release", text)
    assert probe_place(machine_of(tmp_path, arch="aarch64")).l4t == Known(release, seen_in="/etc/nv_tegra_release")


@pytest.mark.parametrize("text", ["", "R38", "# R99999 (release), REVISION: 1.0\n", "\0" * 4096, "# Rx (release)\n"])
def test_a_release_that_cannot_be_read_is_unknown_and_not_the_newest(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/etc/nv_tegra_release", text)
    assert isinstance(probe_place(machine_of(tmp_path, arch="aarch64")).l4t, Unknown)


def test_a_dgx_spark_is_known_by_its_release_file_without_reading_its_serial_number(tmp_path: Path) -> None:
    put(tmp_path, "/etc/dgx-release", 'DGX_NAME="DGX Spark"\nDGX_SERIAL_NUMBER="1234567890123"\n')
    recording = RecordingMachine(machine_of(tmp_path, arch="aarch64", kernel="6.11.0-1016-nvidia"))
    assert probe_place(recording).platform == Known(Platform.GB10, seen_in="/etc/dgx-release")
    assert "1234567890123" not in repr(recording.evidence)


@pytest.mark.parametrize(("device", "platform"), [("0x2e12", Platform.GB10), ("0x2342", Platform.SBSA)])
def test_another_makers_gb10_is_known_by_the_gpu_on_the_bus(tmp_path: Path, device: str, platform: Platform) -> None:
    put(tmp_path, "/sys/class/dmi/id/sys_vendor", "ASUSTeK COMPUTER INC.\n")
    put(tmp_path, "/sys/class/dmi/id/product_name", "GX10\n")
    for address, vendor, name in (("0007:01:00.0", "0x10ec", "0x2e12"), ("000f:01:00.0", "0x10de", device)):
        put(tmp_path, f"/sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
        put(tmp_path, f"/sys/bus/pci/devices/{address}/device", f"{name}\n")
    place = probe_place(machine_of(tmp_path, arch="aarch64", kernel="6.14.0-1015-nvidia"))
    assert isinstance(place.platform, Known)
    assert place.platform.value is platform
    assert place.system_product == Known("GX10", seen_in="/sys/class/dmi/id/product_name")


def test_a_grace_server_with_another_dgx_release_is_sbsa(tmp_path: Path) -> None:
    put(tmp_path, "/etc/dgx-release", 'DGX_NAME="DGX Server"\n')
    place = probe_place(machine_of(tmp_path, arch="aarch64", kernel="6.8.0-1021-nvidia-64k"))
    assert isinstance(place.platform, Known)
    assert place.platform.value is Platform.SBSA


@pytest.mark.parametrize(
    ("kernel", "platform"),
    [
        ("5.15.153.1-microsoft-standard-WSL2", Platform.WSL2),
        ("4.4.0-19041-Microsoft", Platform.WSL1),
        ("6.8.0-45-generic", Platform.X86_64),
    ],
)
def test_wsl_is_known_by_its_kernel(tmp_path: Path, kernel: str, platform: Platform) -> None:
    place = probe_place(machine_of(tmp_path, kernel=kernel))
    assert isinstance(place.platform, Known)
    assert place.platform.value is platform


def test_wsl2_with_a_kernel_built_by_the_user_is_known_by_its_device(tmp_path: Path) -> None:
    put(tmp_path, "/dev/dxg")
    (tmp_path / "usr/lib/wsl/lib").mkdir(parents=True)
    place = probe_place(machine_of(tmp_path, kernel="6.6.87-custom"))
    assert place.platform == Known(Platform.WSL2, seen_in="/dev/dxg and /usr/lib/wsl/lib")
    assert place.wsl_libraries == Known("/usr/lib/wsl/lib", seen_in="/usr/lib/wsl/lib")


def test_windows_libraries_alone_do_not_make_it_wsl2(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/wsl/lib").mkdir(parents=True)
    place = probe_place(machine_of(tmp_path))
    assert isinstance(place.platform, Known)
    assert place.platform.value is Platform.X86_64


@pytest.mark.parametrize("text", ["", "\n", "\0", "\x1b[2J\n"])
def test_a_maker_that_is_no_line_of_text_is_unknown(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/sys/class/dmi/id/sys_vendor", text)
    assert probe_place(machine_of(tmp_path)).system_vendor == Unknown(
        "/sys/class/dmi/id/sys_vendor holds no line of text"
    )


def test_another_processor_is_unknown(tmp_path: Path) -> None:
    assert isinstance(probe_place(machine_of(tmp_path, arch="riscv64")).platform, Unknown)


@pytest.mark.parametrize(
    ("cpuinfo", "hypervisor"),
    [
        ("processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n", Known("present", seen_in="/proc/cpuinfo")),
        ("processor\t: 0\nflags\t\t: fpu vme lahf_lm\n", Known("none", seen_in="/proc/cpuinfo")),
    ],
)
def test_a_virtual_machine_is_known_by_the_processor_flag(tmp_path: Path, cpuinfo: str, hypervisor: Known[str]) -> None:
    put(tmp_path, "/proc/cpuinfo", cpuinfo)
    assert probe_place(machine_of(tmp_path)).hypervisor == hypervisor


def test_xen_names_itself(tmp_path: Path) -> None:
    put(tmp_path, "/sys/hypervisor/type", "xen\n")
    assert probe_place(machine_of(tmp_path)).hypervisor == Known("xen", seen_in="/sys/hypervisor/type")


@pytest.mark.parametrize("text", ["", "ID=\n", "\0\0\0", "no equals sign", "ID=" + "x" * 500 + "\n"])
def test_an_absurd_os_release_gives_unknowns(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/etc/os-release", text)
    place = probe_place(machine_of(tmp_path))
    assert isinstance(place.os_id, Unknown)
    assert isinstance(place.os_name, Unknown)


def test_a_bare_tree_gives_unknowns_and_no_exception(tmp_path: Path) -> None:
    place = probe_place(machine_of(tmp_path))
    assert place.os_id == Unknown("/etc/os-release: no such file")
    assert place.system_vendor == Unknown("/sys/class/dmi/id/sys_vendor: no such file")
    assert isinstance(place.hypervisor, Unknown)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: str(probe.__name__))
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00\n" * 2000, b"9" * 5000, b": / = [] {}\n" * 500, b"#!\n"])
def test_no_probe_minds_what_stands_in_the_place_of_the_files_it_asks_for(
    tmp_path: Path, probe: Callable[[Machine], object], content: bytes | None
) -> None:
    names = ("CUDA_HOME", "CONDA_PREFIX", "CUTLASS_HOME", "LD_LIBRARY_PATH", "PIP_CONFIG_FILE", "CC")
    environ = {name: f"/opt/{name.lower()}" for name in names}
    machine = machine_of(tmp_path, arch="aarch64", PATH="/usr/bin", **environ)
    for _ in range(3):  # what is found leads to further questions
        recording = RecordingMachine(machine)
        probe(recording)
        for path in recording.evidence.paths:
            file = tmp_path / path.lstrip("/")
            if not file.exists() and all(parent.is_dir() for parent in file.parents if parent.exists()):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.mkdir() if content is None else file.write_bytes(content)
    probe(machine)


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    recording = RecordingMachine(thor(tmp_path))
    place = probe_place(recording)
    assert probe_place(RecordedMachine(recording.evidence)) == place
    assert decode(PlaceFacts, json.loads(json.dumps(encode(place))), "place") == place
