"""The live machine: everything it is asked ends, whatever the machine does."""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from pathlib import Path

import pytest

from firstlight.machine import ChildScript, Outcome, which
from firstlight.machine.interface import matching
from firstlight.machine.live import LiveMachine


def _script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _machine(tmp_path: Path) -> LiveMachine:
    return LiveMachine(root=str(tmp_path), environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "nvidia-smi", "#!/bin/sh\nsleep 60 &\nsleep 60\n")
    start = time.monotonic()
    done = _machine(tmp_path).run(("nvidia-smi",), timeout_s=0.3)
    assert done.outcome is Outcome.TIMED_OUT
    assert not done.ok
    assert done.complaint == "nvidia-smi: timed out"
    assert time.monotonic() - start < 5


def test_a_grandchild_that_keeps_the_pipe_open_does_not_outlast_the_limit(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "tool", "#!/bin/sh\nsleep 60 &\nexit 0\n")
    done = _machine(tmp_path).run(("tool",), timeout_s=0.3)
    assert done.outcome is Outcome.TIMED_OUT


def test_a_hundred_megabytes_of_output_are_cut_and_the_command_is_killed(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "loud", "#!/bin/sh\nexec head -c 100000000 /dev/zero\n")
    done = _machine(tmp_path).run(("loud",), timeout_s=20)
    assert done.outcome is Outcome.TOO_MUCH_OUTPUT
    assert len(done.stdout) <= 1 << 20
    assert not done.ok


def test_keep_drops_the_lines_that_are_not_asked_for(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "dmesg", "#!/bin/sh\necho 'eth0 10.0.0.1 up'\necho 'NVRM: Xid 79'\n")
    assert _machine(tmp_path).run(("dmesg",), keep="NVRM").stdout == "NVRM: Xid 79\n"


def test_commands_that_are_absent_or_not_executable_are_told_apart(tmp_path: Path, bin_folder: Path) -> None:
    (bin_folder / "plain").write_text("not a program")
    (bin_folder / "plain").chmod(0o755)
    machine = _machine(tmp_path)
    assert machine.run(("no-such-tool",)).outcome is Outcome.NOT_FOUND
    assert machine.run((f"{bin_folder}/plain",)).outcome is Outcome.NOT_ALLOWED


def test_a_command_ended_by_a_signal_says_so(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "dies", "#!/bin/sh\nkill -SEGV $$\n")
    assert _machine(tmp_path).run(("dies",)).outcome is Outcome.KILLED


def test_commands_run_in_the_c_locale_without_a_terminal_to_read_from(tmp_path: Path, bin_folder: Path) -> None:
    _script(bin_folder, "asks", "#!/bin/sh\nread answer && echo got\necho $LC_ALL\n")
    assert _machine(tmp_path).run(("asks",)).stdout == "C\n"


def test_a_fifo_and_a_device_are_never_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    machine = LiveMachine(root=str(tmp_path))
    assert machine.read("/pipe") is None
    assert machine.why_not("/pipe") == "not a regular file"
    assert LiveMachine().read("/dev/zero") is None


def test_reading_says_why_it_could_not(tmp_path: Path) -> None:
    machine = LiveMachine(root=str(tmp_path))
    (tmp_path / "folder").mkdir()
    assert machine.read("/absent") is None
    assert machine.why_not("/absent") == "no such file"
    assert machine.read("/folder") is None
    assert machine.why_not("/folder") == "is a folder"


def test_an_endless_file_is_read_up_to_the_limit_only(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (3 << 20))
    text = LiveMachine(root=str(tmp_path)).read("/big")
    assert text is not None
    assert len(text) == 1 << 20


def test_until_cuts_the_text_and_bytes_come_by_range(tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text("Name: torch\nVersion: 2.9.0\n\nA long description")
    machine = LiveMachine(root=str(tmp_path))
    assert machine.read("/METADATA", until="\n\n") == "Name: torch\nVersion: 2.9.0"
    assert machine.read_bytes("/METADATA", offset=6, size=5) == b"torch"
    assert machine.read_bytes("/METADATA", offset=10_000, size=5) == b""


def test_search_finds_a_pattern_in_a_large_file_and_bears_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\0" * 5_000_000 + b"sm_75 sm_90\0" + b"\0" * 100)
    (tmp_path / "empty").write_bytes(b"")
    machine = LiveMachine(root=str(tmp_path))
    assert machine.search("/lib.so", rb"sm_\d+(?: sm_\d+)*") == (b"sm_75 sm_90",)
    assert machine.search("/empty", rb"sm_") is None
    assert machine.search("/absent", rb"sm_") is None


def test_a_root_maps_paths_and_links_inside_it(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    (tmp_path / "usr" / "libcuda.so.580.95.05").write_bytes(b"")
    machine = LiveMachine(root=str(tmp_path))
    assert machine.real_path("/usr/libcuda.so.1") == "/usr/libcuda.so.580.95.05"
    assert machine.list("/usr", "libcuda.so.*.*") == ("libcuda.so.580.95.05",)
    assert machine.list("/nowhere") == ()


def test_which_finds_only_what_can_be_executed(tmp_path: Path, bin_folder: Path) -> None:
    (bin_folder / "nvcc").write_text("")
    machine = LiveMachine(root=str(tmp_path), environ={"PATH": "/bin:relative::/other"})
    assert which(machine, "nvcc") is None
    (bin_folder / "nvcc").chmod(0o755)
    assert which(machine, "nvcc") == "/bin/nvcc"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import time; time.sleep(60)", "gave no answer within 0.5 s"),
        ("print('not json')", "not JSON"),
        ("print('[1]')", "not an object"),
        ("print('[' * 100000)", "not JSON"),
        ("raise SystemExit('no such library')", "no such library"),
        ("import os; os.abort()", "killed by a signal"),
    ],
)
def test_a_child_that_goes_wrong_is_a_complaint_not_an_exception(source: str, complaint: str) -> None:
    said = LiveMachine().child(ChildScript("probe", source), timeout_s=0.5 if "sleep" in source else 10)
    assert not said.ok
    assert complaint in said.complaint


def test_a_child_answers_with_one_json_object() -> None:
    script = ChildScript("probe", "import sys, json; print(json.dumps({'given': sys.argv[1]}))")
    assert LiveMachine().child(script, "here").answer == {"given": "here"}


def test_what_a_library_prints_is_no_part_of_the_answer_of_a_child() -> None:
    source = "import os, json; os.write(1, b'{noise'); print(json.dumps({'answer': 7})); os.write(1, b'more')"
    assert LiveMachine().child(ChildScript("probe", source)).answer == {"answer": 7}


@pytest.mark.parametrize("pattern", ["*", "*.conf", "libcuda.so.*", "a*b", "[0-9]*", "x?", "lib*so*", "plain", "a*a"])
def test_a_pattern_stands_for_what_a_shell_takes_it_for(pattern: str) -> None:
    names = [
        "",
        "a",
        "ab",
        "aXb",
        "a.conf",
        ".conf",
        "libcuda.so.1",
        "7z",
        "xy",
        "plain",
        "Plain",
        "a*b",
        "lib.so",
        "aa",
    ]
    assert matching(names, pattern) == fnmatch.filter(names, pattern)
