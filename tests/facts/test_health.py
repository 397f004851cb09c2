"""Signs of trouble: Xid lines, counters, throttling, the fabric, Secure Boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.facts.driver import probe_driver
from firstlight.facts.gpus import probe_gpus
from firstlight.facts.health import FabricState, HealthFacts, probe_health
from firstlight.facts.kernel_log import XidEvent
from firstlight.facts.known import Known, Unknown
from firstlight.facts.nvml import NvmlAnswer, Readings, ask_nvml
from firstlight.machine import Machine
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode
from firstlight.versions import DriverVersion

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
FELL_OFF = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REFUSED = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"


def _put(root: Path, path: str, text: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def _program(root: Path, name: str, script: str) -> None:
    _put(root, f"/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)


def _dmesg_says(root: Path, *lines: str) -> None:
    text = "\n".join(lines)
    _program(root, "dmesg", f"cat <<'END'\n{text}\nEND")


def _machine(root: Path) -> LiveMachine:
    """A machine with a driver, so that the kernel log is looked at."""
    _put(root, "/sys/module/nvidia/version", "580.159.04\n")
    return LiveMachine(root=str(root), environ={"PATH": f"{root}/bin:/usr/bin:/bin"})


def _said(*devices: dict[str, object]) -> NvmlAnswer:
    return NvmlAnswer(
        library=Unknown("not asked"),
        init_code=Known(0, "nvmlInit"),
        init_message=Unknown("NVML started"),
        count=Known(len(devices), "NVML"),
        system=Readings({}, "NVML", absent="not asked"),
        devices=tuple(Readings(each, "NVML", absent="NVML: not asked") for each in devices),
    )


def _probe(machine: Machine, nvml: NvmlAnswer | None = None) -> HealthFacts:
    nvml = nvml or _said()
    gpus, driver = probe_gpus(machine, nvml), probe_driver(machine, nvml)
    return probe_health(machine, nvml, gpus=gpus, driver=driver)


def _xids(facts: HealthFacts) -> tuple[XidEvent, ...]:
    assert isinstance(facts.xids, Known), facts.xids
    return facts.xids.value


def test_xid_lines_are_parsed_with_time_place_and_text(tmp_path: Path) -> None:
    _dmesg_says(
        tmp_path,
        "2026-11-15T02:38:25,123456+00:00 usb 1-1: new device",
        f"2026-11-15T02:38:26,123456+00:00 {FELL_OFF}",
        "2026-11-15T02:38:27,1+00:00 NVRM: Xid (PCI:0000:2A:00 GPU-I:05): 31, pid=1, name=py, Ch 00000008, MMU Fault",
    )
    facts = _probe(_machine(tmp_path))
    assert _xids(facts) == (
        XidEvent("Xid", 79, "0000:18:00", "GPU has fallen off the bus.", Known("2026-11-15T02:38:26", "dmesg")),
        XidEvent("Xid", 31, "0000:2a:00", "Ch 00000008, MMU Fault", Known("2026-11-15T02:38:27", "dmesg")),
    )


@pytest.mark.parametrize(
    ("line", "family", "code", "pci"),
    [
        ("[ 12.3] NVRM: Xid (0000:03:00): 31, Ch 00000008, engmask 00000101", "Xid", 31, "0000:03:00"),
        ("NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed", "Xid", 154, "0000:18:00"),
        ("NVRM: Xid (PCI:0000:18:00): 48", "Xid", 48, "0000:18:00"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", "SXid", 20034, "0000:c1:00.0"),
    ],
)
def test_every_form_of_an_xid_line_is_known(tmp_path: Path, line: str, family: str, code: int, pci: str) -> None:
    _dmesg_says(tmp_path, line)
    [event] = _xids(_probe(_machine(tmp_path)))
    assert (event.family, event.code, event.pci) == (family, code, pci)
    assert event.when == Unknown("the line carries no date")


def test_the_process_that_met_the_fault_is_not_named(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "NVRM: Xid (PCI:0000:18:00): 43, pid=77, name=secret-project, Ch 00000010")
    [event] = _xids(_probe(_machine(tmp_path)))
    assert event.text == "Ch 00000010"


def test_the_newest_fifty_are_kept(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, *(f"NVRM: Xid (PCI:0000:18:00): {code}, x" for code in range(1, 81)))
    events = _xids(_probe(_machine(tmp_path)))
    assert [events[0].code, events[-1].code, len(events)] == [31, 80, 50]


def test_a_quiet_log_is_known_to_be_quiet(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "usb 1-1: new device", "Xid without any sense", "NVRM: Xid (PCI:zz): nonsense")
    facts = _probe(_machine(tmp_path))
    assert facts.xids == Known((), "dmesg")
    assert facts.driver_messages == Known((), "dmesg")


def test_other_complaints_of_the_driver_are_kept_once(tmp_path: Path) -> None:
    _dmesg_says(
        tmp_path,
        "[ 1.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (me@my-host)",
        "[ 2.0] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x26:0x56:1482)",
        "[ 3.0] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x26:0x56:1482)",
        f"[ 4.0] {FELL_OFF}",
        "[ 5.0] NVRM: API mismatch: the client has the version 580.95.05, but",
    )
    recording = RecordingMachine(_machine(tmp_path))
    facts = _probe(recording)
    assert facts.driver_messages == Known(
        (
            "GPU 0000:18:00.0: RmInitAdapter failed! (0x26:0x56:1482)",
            "API mismatch: the client has the version 580.95.05, but",
        ),
        "dmesg",
    )
    assert not [done for done in recording.evidence.commands.values() if "my-host" in done.stdout]


def test_a_dmesg_without_options_is_asked_plainly(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", f"[ $# = 0 ] || {{ echo 'unrecognized option' >&2; exit 1; }}\necho \"{FELL_OFF}\"")
    [event] = _xids(_probe(_machine(tmp_path)))
    assert event.code == 79


def test_a_log_that_is_not_for_everybody_is_unknown_and_asked_once(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", f"echo asked >> {tmp_path}/asked\n{REFUSED}")
    facts = _probe(_machine(tmp_path))
    assert facts.xids == Unknown("dmesg: exit status 1, dmesg: read kernel buffer failed: Operation not permitted")
    assert facts.driver_messages == facts.xids
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_log_file_stands_in_for_dmesg_without_its_host_names(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", REFUSED)
    _put(
        tmp_path,
        "/var/log/kern.log",
        f"Nov 15 02:38:25 my-host kernel: [1.0] {FELL_OFF}\nNov 15 02:38:26 my-host kernel: usb 1-1\n"
        "Nov 15 02:38:27 my-host kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal\n",
    )
    recording = RecordingMachine(_machine(tmp_path))
    facts = _probe(recording)
    assert isinstance(facts.xids, Known)
    assert facts.xids.seen_in == "/var/log/kern.log"
    assert [event.code for event in facts.xids.value] == [79, 20034]
    seen = recording.evidence.paths["/var/log/kern.log"]
    assert seen.text is None
    assert "my-host" not in str(seen.matches)
    assert _probe(RecordedMachine(recording.evidence)) == facts


def test_a_huge_log_file_is_not_searched(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", REFUSED)
    with open(_put(tmp_path, "/var/log/kern.log"), "wb") as log:
        log.truncate(1 << 30)
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.xids, Unknown)
    assert facts.xids.reason.endswith("; /var/log/kern.log: too large to search")


def test_an_endless_dmesg_ends_and_what_came_first_is_used(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", f'echo "{FELL_OFF}"; yes "a line that is not ours"')
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.xids, Known)
    assert facts.xids.seen_in == "dmesg (its first part)"
    assert [event.code for event in facts.xids.value] == [79]


def test_a_gpu_known_from_the_driver_alone_has_unknown_counters(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "nothing")
    _put(tmp_path, "/proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: NVIDIA H200\n")
    machine = _machine(tmp_path)
    [gpu] = _probe(machine, ask_nvml(machine)).gpus
    assert gpu.id == "gpu-0"
    assert isinstance(gpu.ecc_uncorrected_volatile, Unknown)
    assert gpu.ecc_uncorrected_volatile.reason.startswith("no libnvidia-ml.so.1")


def test_without_an_nvidia_device_the_log_is_not_asked(tmp_path: Path) -> None:
    _program(tmp_path, "dmesg", f"echo asked > {tmp_path}/asked")
    machine = LiveMachine(root=str(tmp_path), environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    facts = _probe(machine, ask_nvml(machine))
    assert facts.xids == Unknown("no NVIDIA device")
    assert not (tmp_path / "asked").exists()
    assert facts.gpus == ()
    assert facts.secure_boot == Unknown("no EFI variables")


def test_counters_are_read_for_each_gpu(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "nothing")
    good: dict[str, object] = {
        "index": 0,
        "temperature_c": 31,
        "throttle_bits": 0x1 | 0x40,
        "ecc_uncorrected_volatile": 2,
        "ecc_uncorrected_aggregate": 7,
        "rows_correctable": 1,
        "rows_uncorrectable": 3,
        "rows_pending": 1,
        "rows_failure": 0,
        "retired_pages_pending": {"error": "Not Supported", "code": 3},
        "fabric_state": 2,
        "fabric_status": 0,
    }
    first, second = _probe(_machine(tmp_path), _said(good, {"index": 1, "fabric_state": 9, "throttle_bits": 0})).gpus
    assert first.id == "gpu-0"
    assert first.temperature_c == Known(31, "NVML")
    assert first.throttle == Known(("idle", "hardware-thermal"), "NVML")
    assert first.ecc_uncorrected_volatile == Known(2, "NVML")
    assert first.rows_remapped_uncorrectable == Known(3, "NVML")
    assert first.row_remap_pending == Known(value=True, seen_in="NVML")
    assert first.row_remap_failure == Known(value=False, seen_in="NVML")
    assert first.retired_pages_pending == Unknown("NVML: Not Supported")
    assert first.fabric_state == Known(FabricState.IN_PROGRESS, "NVML")
    assert second.throttle == Known((), "NVML")
    assert second.fabric_state == Unknown("NVML: fabric_state 9 is not known to this firstlight")
    assert second.temperature_c == Unknown("NVML: not asked")


@pytest.mark.parametrize(("value", "expected"), [(1, True), (0, False)])
def test_secure_boot_is_the_last_byte_of_its_variable(tmp_path: Path, value: int, *, expected: bool) -> None:
    _put(tmp_path, SECURE_BOOT).write_bytes(bytes([6, 0, 0, 0, value]))
    _dmesg_says(tmp_path, "nothing")
    assert _probe(_machine(tmp_path)).secure_boot == Known(expected, SECURE_BOOT)


@pytest.mark.parametrize("content", [b"", b"\x06\x00\x00\x00", b"\x06\x00\x00\x00\x09", b"x" * 5000])
def test_a_secure_boot_variable_that_makes_no_sense_is_unknown(tmp_path: Path, content: bytes) -> None:
    _put(tmp_path, SECURE_BOOT).write_bytes(content)
    _dmesg_says(tmp_path, "nothing")
    assert isinstance(_probe(_machine(tmp_path)).secure_boot, Unknown)


def test_a_running_fabric_manager_is_seen_with_its_version(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "nothing")
    _put(tmp_path, "/usr/bin/nv-fabricmanager")
    _put(tmp_path, "/run/nvidia-fabricmanager/nv-fabricmanager.pid", "4711\n")
    _put(tmp_path, "/proc/4711/comm", "nv-fabricmanage\n")
    recording = RecordingMachine(_machine(tmp_path))
    facts = _probe(recording)
    assert facts.fabric_manager == Known("/usr/bin/nv-fabricmanager", "/usr/bin/nv-fabricmanager")
    assert facts.fabric_manager_running == Known(value=True, seen_in="/run/nvidia-fabricmanager/nv-fabricmanager.pid")
    key = "/usr/bin/nv-fabricmanager --version"
    done = recording.evidence.commands[key]
    recording.evidence.commands[key] = type(done)(
        done.argv, type(done.outcome).EXITED, 0, "Fabric Manager version is : 580.159.04\n", ""
    )
    replayed = _probe(RecordedMachine(recording.evidence))
    assert replayed.fabric_manager_version == Known(DriverVersion.parse("580.159.04"), key)


def test_a_fabric_manager_that_died_left_its_pid_file(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "nothing")
    _put(tmp_path, "/run/nvidia-fabricmanager/nv-fabricmanager.pid", "4711\n")
    _put(tmp_path, "/proc/4711/comm", "bash\n")
    facts = _probe(_machine(tmp_path))
    assert facts.fabric_manager_running == Known(value=False, seen_in="/run/nvidia-fabricmanager/nv-fabricmanager.pid")
    assert facts.fabric_manager == Unknown("no /usr/bin/nv-fabricmanager")


@pytest.mark.parametrize("pid", ["", "nonsense", "../../etc/passwd", "٤٢"])
def test_a_pid_file_that_makes_no_sense_is_unknown(tmp_path: Path, pid: str) -> None:
    _dmesg_says(tmp_path, "nothing")
    _put(tmp_path, "/run/nvidia-fabricmanager/nv-fabricmanager.pid", pid)
    assert isinstance(_probe(_machine(tmp_path)).fabric_manager_running, Unknown)


def test_without_a_pid_file_nothing_is_claimed(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, "nothing")
    facts = _probe(_machine(tmp_path))
    assert isinstance(facts.fabric_manager_running, Unknown)
    assert facts.persistence_daemon == Known(value=False, seen_in="/run/nvidia-persistenced/socket")
    _put(tmp_path, "/run/nvidia-persistenced/socket")
    assert _probe(_machine(tmp_path)).persistence_daemon == Known(value=True, seen_in="/run/nvidia-persistenced/socket")


def test_the_facts_survive_the_document(tmp_path: Path) -> None:
    _dmesg_says(tmp_path, f"2026-11-15T02:38:26,123456+00:00 {FELL_OFF}", "NVRM: RmInitAdapter failed")
    facts = _probe(_machine(tmp_path), _said({"index": 0, "throttle_bits": 5, "fabric_state": 3}))
    assert decode(HealthFacts, encode(facts), "health") == facts
