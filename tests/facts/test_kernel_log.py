"""What the driver says in the kernel log, in the forms that threads quote."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.facts.kernel_log import address_in, messages_in, probe_kernel_log, xids_in
from firstlight.facts.known import Known
from firstlight.machine.live import LiveMachine

FELL_OFF = (
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
    "[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).",
)
LEGACY = (
    "NVRM: The NVIDIA Quadro K620 GPU installed in this system is",
    "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please",
    "NVRM:  visit http://www.nvidia.com/object/unix.html for more",
    "NVRM:  information.  The 515.65.01 NVIDIA driver will ignore",
    "NVRM:  this GPU.  Continuing probe...",
)
MISMATCH = (
    "NVRM: API mismatch: the client has the version 550.107.02, but",
    "NVRM: this kernel module has the version 550.90.07.  Please",
    "NVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: components have the same version.",
)


def _messages(*lines: str) -> tuple[str, ...]:
    found = messages_in(Known(lines, "dmesg"))
    assert isinstance(found, Known)
    return found.value


def test_a_message_of_several_lines_is_one_and_names_its_gpu() -> None:
    first, second = _messages(*FELL_OFF)
    assert first == (
        "The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is not "
        "responding to commands."
    )
    assert address_in(first) == "0000:b3:00"
    assert second == "The NVIDIA probe routine failed for 1 device(s)."


@pytest.mark.parametrize(("lines", "end"), [(LEGACY, "Continuing probe..."), (MISMATCH, "have the same version.")])
def test_other_messages_of_several_lines_are_one_too(lines: tuple[str, ...], end: str) -> None:
    [message] = _messages(*lines)
    assert message.endswith(end)


def test_lines_that_follow_a_whole_message_are_their_own() -> None:
    lines = _messages(*FELL_OFF[:3], "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x22:0x56:894)")
    assert [address_in(line) for line in lines] == ["0000:b3:00", "0000:18:00"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("nvidia 0000:09:00.0: probe with driver nvidia failed with error -1", True),
        ("nvidia: probe of 0000:01:00.0 failed with error -1", True),
        ("nvidia 0000:02:00.0: [drm] Cannot find any crtc or sizes", False),
        ("nvidia: module verification failed: signature and/or required key missing - tainting kernel", False),
        ("NVRM nvAssertFailedNoLog: Assertion failed: status == NV_OK @ kernel_gsp_ga102.c:235", True),
        ("NVRM: GPU at PCI:0000:01:00: GPU-456ad6c8-6097-2bca-fa9d-6b8f7faff040", False),
    ],
)
def test_what_the_module_itself_says_of_a_gpu_is_kept(line: str, *, kept: bool) -> None:
    assert bool(_messages(line)) is kept


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("GPU 0000:18:00.0: RmInitAdapter failed!", "0000:18:00"),
        ("GPU at PCI:0000:AF:00 is gone", "0000:af:00"),
        ("GPU 00000000:B3:00.0", "0000:b3:00"),
        ("the probe routine failed", ""),
    ],
)
def test_the_gpu_that_a_line_names(text: str, address: str) -> None:
    assert address_in(text) == address


def test_a_log_file_is_read_for_more_than_xids(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "dmesg"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1\n")
    program.chmod(0o755)
    log = tmp_path / "var" / "log" / "kern.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "Dec  2 11:49:53 worker4 kernel: [  885.2] NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)\n"
        "Dec  2 11:49:54 worker4 kernel: [  886.1] NVRM: Xid (PCI:0000:0a:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    machine = LiveMachine(root=str(tmp_path), environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    found = probe_kernel_log(machine)
    assert messages_in(found) == Known(
        ("GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)",), "/var/log/kern.log"
    )
    xids = xids_in(found)
    assert isinstance(xids, Known)
    assert [event.code for event in xids.value] == [79]
